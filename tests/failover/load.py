"""Load on a live group: what was acknowledged, and what is stored."""

from __future__ import annotations

import threading
from itertools import count

from highwater import Admin, HighwaterError, Message, Producer, SendStatus
from tests.failover.live_group import LiveGroup

_PAUSE_S = 0.02  # as the stock clients' load; faster, the load alone keeps a processor busy


class Sender:
    """Sends numbers until stopped, and remembers which were acknowledged."""

    def __init__(self, live: LiveGroup, topic: str) -> None:
        self.acknowledged: list[str] = []
        self._topic = topic
        self._stop = threading.Event()
        self._producer = Producer(namesrv=live.get()["namesrv_addr"], group="load", credentials=live.credentials)
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Sender:
        self._producer.start()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.stop()

    def _run(self) -> None:
        for number in count():
            if self._stop.wait(_PAUSE_S):
                return
            body = f"{id(self)}-{number}"
            try:
                result = self._producer.send(Message(self._topic, body.encode()))
            except HighwaterError:
                continue
            if result.status is SendStatus.SEND_OK:
                self.acknowledged.append(body)


def stored(live: LiveGroup, topic: str) -> list[str]:
    """The bodies of all messages in the topic."""
    bodies: list[str] = []
    with Admin(live.get()["namesrv_addr"], credentials=live.credentials) as admin:
        for queue in admin.topic_stats(topic).queues:
            offset = queue.min_offset
            while found := admin.pull(queue.queue, offset, 32):
                bodies += [message.body.decode() for message in found if message.queue_offset >= offset]
                offset = found[-1].queue_offset + 1
                if offset >= queue.max_offset:
                    break
    return bodies


def send_ok(live: LiveGroup, topic: str) -> str:
    """The answer to one message."""
    with Producer(namesrv=live.get()["namesrv_addr"], group="one", credentials=live.credentials) as producer:
        return producer.send(Message(topic, b"one")).status.value
