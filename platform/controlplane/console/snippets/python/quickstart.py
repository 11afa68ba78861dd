import queue
import uuid

from highwater import (
    ConsumeFrom,
    Credentials,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    trust_ca,  # @TLS@
)

namesrv = "@NAMESRV_ADDR@"
credentials = Credentials("@ACCESS_KEY@", "@SECRET_KEY@")
tls = trust_ca("ca.pem")  # @TLS@
key = str(uuid.uuid4())
received: queue.Queue[ReceivedMessage] = queue.Queue()

consumer = PushConsumer(
    namesrv,
    "quickstart-python",
    credentials=credentials,
    # A new group begins with the oldest message: its first run also prints what the topic holds already.
    consume_from=ConsumeFrom.FIRST_OFFSET,
    use_tls=tls,  # @TLS@
)
producer = Producer(
    namesrv,
    "quickstart-python",
    credentials=credentials,
    use_tls=tls,  # @TLS@
)


@consumer.on("@TOPIC@")
def handle(message: ReceivedMessage) -> None:
    received.put(message)  # handlers run in several threads at once


with consumer, producer:
    result = producer.send(Message("@TOPIC@", b"Hello from Python", tags="greeting", keys=(key,)))
    print("sent", result.status.name, result.message_id)
    complete = False
    while not complete:
        message = received.get(timeout=60)
        print("received", message.body.decode())
        complete = key in message.keys
