"""Who reads by pulls when all is well gets every message, from the leader and from any other replica, and a new one at once."""

from __future__ import annotations

from collections.abc import Sequence

from tests.sim.event_loop import EventLoop
from tests.sim.history import Violation
from tests.sim.machine import Machine
from tests.sim.network import Network
from tests.sim.sim_requests import Read, ReadAnswer
from tests.sim.wire import ALL_QUEUES, QUEUES, topic_of

_READ_S = 10.0
_NEWS_S = 2.0
_HELD_S = 10.0  # longer than that: a pull that is answered when its time is over, and not by a message, is late
_AGAIN_S = 0.05
_TIMEOUT_S = 0.5


class _QueueReader:
    """Reads one queue at one replica. `end` is where that ends when it begins."""

    def __init__(self, loop: EventLoop, network: Network, machine: Machine, queue: int, kind: str) -> None:
        assert machine.process is not None, "groups at rest run"
        store, topic, queue_id = machine.process.store, topic_of(queue), queue % QUEUES
        self.name = f"{kind} of {queue} at {machine.name}"
        self.begin, self.end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        self.offset = self.begin
        self.messages = 0
        self._loop = loop
        self._network = network
        self._replica = machine.name
        self._queue = queue
        network.join(self)

    waits_s = 0.0

    @property
    def is_done(self) -> bool:
        return self.offset >= self.end

    def read(self) -> None:
        read = Read(self._queue, self.offset, waits_s=self.waits_s)
        self._network.call(self, self._replica, read, self._answered, timeout_s=self.waits_s + _TIMEOUT_S)

    def _answered(self, answer: ReadAnswer | None) -> None:
        if answer is not None and (answer.messages or answer.moves):
            self.offset = answer.next_offset
            self.messages += answer.messages
            if not self.is_done:
                self.read()
        else:
            self._loop.after(_AGAIN_S, self.read)


class _LastReader(_QueueReader):
    """From the beginning to the end, of a group at rest."""

    def __init__(self, loop: EventLoop, network: Network, machine: Machine, queue: int) -> None:
        super().__init__(loop, network, machine, queue, "last reader")
        if machine.leads:
            self.offset = 0  # it is sent on to what retention has left; another replica sends it to the leader for that


class _HeldReader(_QueueReader):
    """What comes next."""

    waits_s = _HELD_S

    def __init__(self, loop: EventLoop, network: Network, machine: Machine, queue: int) -> None:
        super().__init__(loop, network, machine, queue, "held pull")
        self.offset = self.end

    @property
    def is_done(self) -> bool:
        return self.messages > 0


def wait_for_news(loop: EventLoop, network: Network, machines: Sequence[Machine]) -> None:
    """A pull of each queue is held at each replica, and messages come: raises Violation where they are not shown at once."""
    readers = [_HeldReader(loop, network, machine, queue) for machine in machines for queue in range(ALL_QUEUES)]
    for reader in readers:
        reader.read()
    loop.run_until(loop.now_s + _NEWS_S, lambda: all(reader.is_done for reader in readers))
    for reader in readers:
        if not reader.is_done:
            raise Violation(f"the {reader.name} from {reader.offset} on is shown nothing, though messages come")


def read_to_the_end(loop: EventLoop, network: Network, machines: Sequence[Machine]) -> None:
    """All queues of the leader, and one of each other replica; raises Violation."""
    readers = []
    for machine in machines:
        for queue in range(ALL_QUEUES) if machine.leads else [loop.random.randrange(ALL_QUEUES)]:
            readers.append(_LastReader(loop, network, machine, queue))
    for reader in readers:
        if not reader.is_done:
            reader.read()
    loop.run_until(loop.now_s + _READ_S, lambda: all(reader.is_done for reader in readers))
    for reader in readers:
        if not reader.is_done:
            raise Violation(f"the {reader.name} gets no further than {reader.offset} of {reader.end}")
        if reader.messages != reader.end - reader.begin:
            raise Violation(f"the {reader.name} got {reader.messages} of {reader.end - reader.begin} messages")
