"""A history of produces and consumes over a group that is being disturbed, and what must be true of it.

Writers send each message at most once, one after the other, and note what they were answered. Readers follow every queue on
every replica and note what they were shown. In the end, when all is quiet:

- what was acknowledged is there once, at the offset that was answered; what was refused before the append is not there;
- each writer's messages stand in its queue in the order of its sends;
- whatever a reader saw, on whichever replica, is there at that offset: nothing was shown before it was committed, and no
  offset was used twice.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from highwater import BrokerError, HighwaterError, Message, MessageQueue, Producer, SendStatus
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.message import StoredMessage, decode_records
from tests.daemons import BrokerDaemon, ReplicaGroup
from tests.interop.clients import Cluster, DriverProcess
from tests.interop.content import Plan, plans
from tests.remoting import connect, exchange

SEND_TIMEOUT_MS = 4000
PAUSE_S = 0.02  # between two tries when no one takes messages
READ_PAUSE_S = 0.03
JAVA_BURST = 60


@dataclass(slots=True)
class Sent:
    """`outcome`: acknowledged, refused (nothing was appended) or unknown. `order` rises with each send of its writer."""

    key: str
    writer: str
    order: int
    outcome: str
    queue_id: int = -1
    offset: int = -1


@dataclass
class History:
    """Written by several threads; judged when they have ended."""

    topic: str
    queues: int
    sends: list[Sent] = field(default_factory=list)
    # (queue, offset) -> key -> the replicas that showed it there
    shown: dict[tuple[int, int], dict[str, set[int]]] = field(default_factory=lambda: defaultdict(dict))
    acknowledged_at_s: list[float] = field(default_factory=list)

    @property
    def acknowledged(self) -> int:
        return len(self.acknowledged_at_s)

    def sent(self, send: Sent) -> None:
        self.sends.append(send)
        if send.outcome == "acknowledged":
            self.acknowledged_at_s.append(time.monotonic())

    def saw(self, replica: int, queue_id: int, offset: int, key: str) -> None:
        self.shown[queue_id, offset].setdefault(key, set()).add(replica)

    def violations(self, final: Mapping[int, Sequence[str]], first_offsets: Mapping[int, int]) -> list[str]:
        """What is wrong, given each queue's keys in the end; empty when all is well."""
        place: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for queue_id, keys in final.items():
            for index, key in enumerate(keys):
                place[key].append((queue_id, first_offsets[queue_id] + index))
        found = [f"{key} is stored {len(places)} times" for key, places in place.items() if len(places) > 1]
        for send in self.sends:
            places = place.get(send.key, [])
            if send.outcome == "acknowledged" and places != [(send.queue_id, send.offset)]:
                found.append(f"{send.key} was acknowledged at {send.queue_id}/{send.offset} and is at {places}")
            if send.outcome == "refused" and places:
                found.append(f"{send.key} was refused and is stored at {places}")
        last: dict[tuple[str, int], tuple[int, int]] = {}
        for send in sorted(self.sends, key=lambda one: (one.writer, one.order)):
            for queue_id, offset in place.get(send.key, []):
                before = last.get((send.writer, queue_id), (-1, -1))
                if offset < before[1]:
                    found.append(f"{send.key} stands before message {before[0]} of the same writer")
                last[send.writer, queue_id] = (send.order, offset)
        for (queue_id, offset), keys_there in self.shown.items():
            index = offset - first_offsets[queue_id]
            in_the_end = final[queue_id][index] if 0 <= index < len(final[queue_id]) else None
            if set(keys_there) != {in_the_end}:
                found.append(f"{queue_id}/{offset} was shown as {keys_there} and is {in_the_end} in the end")
        return found


class Disturbance:
    """Writers and readers that run until the block ends."""

    def __init__(self, group: ReplicaGroup, history: History) -> None:
        self.history = history
        self._group = group
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []

    def write(self, name: str, queue_id: int) -> None:
        """A writer of ours, to one queue."""
        self._start(lambda: self._write(name, queue_id))

    def write_with(self, client: DriverProcess, name: str) -> None:
        """A stock client, in bursts over all queues; how long it keeps a dead leader's address is shortened."""
        self._start(lambda: self._write_with(client, name))

    def read_all(self) -> None:
        """A reader for each replica."""
        for number in range(len(self._group.replicas)):
            self._start(partial(self._read, number))

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _start(self, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self._failures.append(error)

        thread = threading.Thread(target=run)
        self._threads.append(thread)
        thread.start()

    def _write(self, name: str, queue_id: int) -> None:
        history = self.history
        queue = MessageQueue(history.topic, self._group.name, queue_id)
        with Producer(self._group.namesrv, name, retry_times_when_send_failed=0) as producer:
            number = 0
            while not self._over.is_set():
                number += 1
                send = Sent(f"{name}-{number}", name, number, "unknown")
                try:
                    result = producer.send(
                        Message(history.topic, send.key.encode(), keys=[send.key]),
                        queue=queue,
                        timeout_ms=SEND_TIMEOUT_MS,
                    )
                    if result.status is SendStatus.SEND_OK:
                        send.outcome, send.queue_id, send.offset = "acknowledged", queue_id, result.queue_offset
                except BrokerError as error:
                    if error.response_code == ResponseCode.SERVICE_NOT_AVAILABLE:
                        send.outcome = "refused"
                except HighwaterError:
                    send.outcome = "unknown"
                history.sent(send)
                if send.outcome != "acknowledged":
                    self._over.wait(PAUSE_S)

    def _write_with(self, client: DriverProcess, name: str) -> None:
        cluster = Cluster(self._group.namesrv)
        sent: list[Plan] = []
        while not self._over.is_set():
            burst = plans(f"{name}-{len(sent)}", JAVA_BURST, sizes=[100, 1024], first_index=len(sent))
            sent += burst
            made = client.produce(
                cluster, self.history.topic, burst, mode="sync", group=name, retries=0, timeout_ms=2000, poll_ms=500
            )
            keys = {plan["seed"]: plan["keys"] for plan in burst}
            for order, outcome in enumerate(made, len(sent)):
                ok = outcome["status"] == "SEND_OK"
                send = Sent(keys[outcome["seed"]], name, order, "acknowledged" if ok else "unknown")
                if ok:
                    send.queue_id, send.offset = outcome["queue_id"], outcome["queue_offset"]
                self.history.sent(send)

    def _read(self, number: int) -> None:
        positions = dict.fromkeys(range(self.history.queues), 0)
        while not self._over.is_set():
            for queue_id in positions:
                try:
                    for offset, key in read_queue(
                        self._group[number], self.history.topic, queue_id, positions[queue_id], timeout_s=1.0
                    ):
                        self.history.saw(number, queue_id, offset, key)
                        positions[queue_id] = offset + 1
                except OSError:
                    break  # it is dead or stands still
            self._over.wait(READ_PAUSE_S)


@contextmanager
def disturbance(group: ReplicaGroup, topic: str, queues: int) -> Iterator[Disturbance]:
    """Whatever was started in the block has ended after it."""
    made = Disturbance(group, History(topic, queues))
    try:
        yield made
    finally:
        made.end()


def read_queue(
    replica: BrokerDaemon,
    topic: str,
    queue_id: int,
    offset: int,
    *,
    timeout_s: float = 15.0,
    key_of: Callable[[StoredMessage], str] = lambda message: message.properties["KEYS"],
) -> Iterator[tuple[int, str]]:
    """(offset, key) of what this very replica shows of a queue from `offset` on; raises OSError."""
    with connect(replica.address) as stream:
        stream.settimeout(timeout_s)
        while True:
            fields = {
                "consumerGroup": "TOOLS_CONSUMER", "topic": topic, "queueId": str(queue_id), "queueOffset": str(offset),
                "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
                "subscription": "*", "subVersion": "0", "expressionType": "TAG",
            }  # fmt: skip
            reply = exchange(stream, RemotingCommand.request(RequestCode.PULL_MESSAGE, ext_fields=fields))
            if reply.code != ResponseCode.SUCCESS:
                return
            for message in decode_records(reply.body):
                yield message.queue_offset, key_of(message)
            offset = int(reply.ext_fields["nextBeginOffset"])


def final_content(replica: BrokerDaemon, topic: str, queues: int) -> dict[int, list[str]]:
    """Each queue's keys in the end; offsets must follow each other."""
    content: dict[int, list[str]] = {}
    for queue_id in range(queues):
        found = list(read_queue(replica, topic, queue_id, 0))
        assert [offset for offset, _ in found] == list(range(len(found)))
        content[queue_id] = [key for _, key in found]
    return content
