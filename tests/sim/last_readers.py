"""At rest, who reads a queue from its beginning gets every message of it, from the leader and from any other replica."""

from __future__ import annotations

from collections.abc import Sequence

from tests.sim.event_loop import EventLoop
from tests.sim.history import Violation
from tests.sim.machine import Machine
from tests.sim.network import Network
from tests.sim.sim_requests import Read, ReadAnswer
from tests.sim.wire import ALL_QUEUES, QUEUES, topic_of

_READ_S = 10.0
_AGAIN_S = 0.05
_TIMEOUT_S = 0.5


class _LastReader:
    """Reads one queue at one replica up to where its log ends."""

    def __init__(self, loop: EventLoop, network: Network, machine: Machine, queue: int) -> None:
        assert machine.process is not None, "groups at rest run"
        store, topic, queue_id = machine.process.store, topic_of(queue), queue % QUEUES
        self.name = f"last reader of {queue} at {machine.name}"
        self.begin, self.end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        # A leader moves it to what retention has left; another replica sends it to the leader for that.
        self.offset = 0 if machine.process.replica.leads else self.begin
        self.messages = 0
        self._loop = loop
        self._network = network
        self._replica = machine.name
        self._queue = queue
        network.join(self)

    @property
    def is_done(self) -> bool:
        return self.offset >= self.end

    def read(self) -> None:
        read = Read(self._queue, self.offset)
        self._network.call(self, self._replica, read, self._answered, timeout_s=_TIMEOUT_S)

    def _answered(self, answer: ReadAnswer | None) -> None:
        if answer is not None and (answer.messages or answer.moves):
            self.offset = answer.next_offset
            self.messages += answer.messages
            if not self.is_done:
                self.read()
        else:
            self._loop.after(_AGAIN_S, self.read)


def read_to_the_end(loop: EventLoop, network: Network, machines: Sequence[Machine]) -> None:
    """All queues of the leader, and one of each other replica; raises Violation."""
    readers = []
    for machine in machines:
        leads = machine.process is not None and machine.process.replica.leads
        for queue in range(ALL_QUEUES) if leads else [loop.random.randrange(ALL_QUEUES)]:
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
