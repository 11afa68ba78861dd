"""Who reads by pulls when all is well gets every message, from the leader and from any other replica, and a new one at once;
and finds by its key what was acknowledged.
"""

from __future__ import annotations

from collections.abc import Sequence

from mqwire.names import PROPERTY_KEYS, PROPERTY_TAGS
from tests.sim.event_loop import EventLoop
from tests.sim.history import Attempt, History, Violation
from tests.sim.machine import Machine
from tests.sim.network import Network
from tests.sim.sim_requests import FindByKey, Read, ReadAnswer
from tests.sim.store_harness import read_queue
from tests.sim.wire import ALL_QUEUES, QUEUES, TAGS, properties_of, topic_of

_READ_S = 10.0
_NEWS_S = 2.0
_HELD_S = 10.0  # longer than that: a pull that is answered when its time is over, and not by a message, is late
_AGAIN_S = 0.05
_TIMEOUT_S = 0.5
_SOUGHT = 10  # at each replica


class _QueueReader:
    """Reads one queue at one replica. `end` is where that ends when it begins."""

    def __init__(self, loop: EventLoop, network: Network, machine: Machine, queue: int, kind: str) -> None:
        assert machine.process is not None, "groups at rest run"
        store, self._place = machine.process.store, (topic_of(queue), queue % QUEUES)
        self.name = f"{kind} of {queue} at {machine.name}"
        self.begin, self.end = store.min_offset(*self._place), store.max_offset(*self._place)
        self.offset = self.begin
        self.messages = 0
        self._loop = loop
        self._network = network
        self._replica = machine.name
        self._queue = queue
        network.join(self)

    waits_s = 0.0
    tag = "*"

    @property
    def is_done(self) -> bool:
        return self.offset >= self.end

    def read(self) -> None:
        read = Read(self._queue, self.offset, waits_s=self.waits_s, tag=self.tag)
        self._network.call(self, self._replica, read, self._answered, timeout_s=self.waits_s + _TIMEOUT_S)

    def _answered(self, answer: ReadAnswer | None) -> None:
        if answer is not None and (answer.messages or answer.moves or answer.next_offset > self.offset):
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
        self.wanted = self.end - self.begin
        if machine.leads:
            self.offset = 0  # it is sent on to what retention has left; another replica sends it to the leader for that


class _TagReader(_LastReader):
    """Of the messages with one tag."""

    def __init__(self, loop: EventLoop, network: Network, machine: Machine, queue: int) -> None:
        super().__init__(loop, network, machine, queue)
        assert machine.process is not None, "groups at rest run"
        self.tag = loop.random.choice(TAGS)
        every = read_queue(machine.process.store, topic_of(queue), queue % QUEUES)
        self.wanted = sum(message.properties.get(PROPERTY_TAGS) == self.tag for message in every)


class _HeldReader(_QueueReader):
    """What comes next."""

    waits_s = _HELD_S

    def has_news(self, machines: Sequence[Machine]) -> bool:
        """Whether any of these has stored something for it."""
        stores = [machine.process.store for machine in machines if machine.process is not None]
        return any(store.max_offset(*self._place) > self.end for store in stores)

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
    # Producers choose their queues by chance: one may have got nothing.
    with_news = [reader for reader in readers if not reader.is_done and reader.has_news(machines)]
    loop.run_until(loop.now_s + _NEWS_S, lambda: all(reader.is_done for reader in with_news))
    for reader in with_news:
        if not reader.is_done:
            raise Violation(f"the {reader.name} from {reader.offset} on is shown nothing, though messages come")


def read_to_the_end(loop: EventLoop, network: Network, machines: Sequence[Machine]) -> None:
    """All queues of the leader, and one of each other replica; raises Violation."""
    readers = []
    for machine in machines:
        for queue in range(ALL_QUEUES) if machine.leads else [loop.random.randrange(ALL_QUEUES)]:
            kind = _LastReader if machine.leads or loop.random.random() < 0.5 else _TagReader
            readers.append(kind(loop, network, machine, queue))
    for reader in readers:
        if not reader.is_done:
            reader.read()
    loop.run_until(loop.now_s + _READ_S, lambda: all(reader.is_done for reader in readers))
    for reader in readers:
        if not reader.is_done:
            raise Violation(f"the {reader.name} gets no further than {reader.offset} of {reader.end}")
        if reader.messages != reader.wanted:
            raise Violation(
                f"the {reader.name} got {reader.messages} of {reader.wanted} messages with tag {reader.tag}"
            )


class _Seeker:
    """Asks one replica for messages by their keys, which its index follows soon."""

    name = "seeker"

    def __init__(self, loop: EventLoop, network: Network) -> None:
        self._loop = loop
        self._network = network
        self.missing: dict[tuple[str, int], Attempt] = {}
        network.join(self)

    def seek(self, machine: Machine, attempt: Attempt) -> None:
        """Until it is found."""
        place = self.name_of(machine, attempt)
        self.missing[place] = attempt

        def answered(bodies: tuple[bytes, ...] | None) -> None:
            if bodies is not None and attempt.body in bodies:
                del self.missing[place]
            else:
                self._loop.after(_AGAIN_S, ask)

        def ask() -> None:
            topic = attempt.topic or topic_of(attempt.queue)
            find = FindByKey(topic, properties_of(attempt.body)[PROPERTY_KEYS])
            self._network.call(self, machine.name, find, answered, timeout_s=_TIMEOUT_S)

        ask()

    @staticmethod
    def name_of(machine: Machine, attempt: Attempt) -> tuple[str, int]:
        return machine.name, attempt.number


def find_by_key(loop: EventLoop, network: Network, machines: Sequence[Machine], history: History) -> None:
    """Some of what was acknowledged and is there for sure, at each replica, and what its disk has spoiled; raises Violation."""
    seeker = _Seeker(loop, network)
    stored = [one for one in history.attempts if one.code == "SEND_OK" and not one.delayed and not one.topic]
    stored = [one for one in stored if not history.may_be_gone(one.promised)]
    for machine in machines:
        sought = loop.random.sample(stored, min(len(stored), _SOUGHT))
        sought += [one for one in stored if one.promised.physical_offset in machine.spoiled and one not in sought]
        for attempt in sought:
            seeker.seek(machine, attempt)
            history.counts["messages sought by their keys"] += 1
    loop.run_until(loop.now_s + _READ_S, lambda: not seeker.missing)
    for (name, number), attempt in seeker.missing.items():
        raise Violation(f"{name} does not find message {number} by its key, acknowledged at {attempt.promised}")
