"""Clients of what they take for the leader, rightly or not: senders, a consumer, a maker of topics; and readers of any replica."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

from mqwire.names import MASTER_ID
from tests.sim.event_loop import EventLoop
from tests.sim.history import History, MadeGroup, MadeTopic
from tests.sim.made_topics import PREFIX
from tests.sim.network import Network
from tests.sim.sim_requests import (
    ChangeGroup,
    ChangeTopic,
    CommitOffset,
    Members,
    QueryOffset,
    Read,
    ReadAnswer,
    ResetOffset,
    Send,
    SendAnswer,
)
from tests.sim.wire import ALL_QUEUES, QUEUES

TIMEOUT_S = 2.0
HELD_SHARE = 0.3  # of all pulls: they wait so long for a message
HELD_S = 0.5
SIZES = (0, 10, 60, 60, 200, 900)  # of bodies
LONG_SIZES = (*SIZES, *SIZES, 6000)  # one is longer than what followers fetch at a time
LIMITED_SHARE = 0.5  # of all topics that are made: they keep less than the broker does


class _Client:
    def __init__(self, loop: EventLoop, network: Network, name: str) -> None:
        self.loop = loop
        self.network = network
        self.name = name
        self.stopped = False
        network.join(self)


class _LeaderSeeker(_Client, abc.ABC):
    """Asks whom it believes to lead, and the name servers when that one does not do as it is asked."""

    def __init__(
        self,
        loop: EventLoop,
        network: Network,
        history: History,
        name: str,
        *,
        replicas: list[str],
        name_servers: list[str],
        pause_s: float,
    ) -> None:
        super().__init__(loop, network, name)
        self.history = history
        self.replicas = replicas
        self.believed = replicas[0]
        self.members: dict[int, str] = {}  # by brokerId, as a name server last said
        self._name_servers = name_servers
        self._pause_s = pause_s

    def run(self) -> None:
        if not self.stopped:
            self.loop.after(self.loop.random.expovariate(1 / self._pause_s), self.act)

    @abc.abstractmethod
    def act(self) -> None:
        """Do one thing, then `run` or `look_for_the_leader`."""

    def look_for_the_leader(self) -> None:
        def answered(answer: dict[int, str] | None) -> None:
            if answer:
                self.members = answer
                self.believed = answer.get(MASTER_ID, self.believed)
            self.looked()

        server = self.loop.random.choice(self._name_servers)
        self.network.call(self, server, Members(), answered, timeout_s=0.5)

    def looked(self) -> None:
        """The name servers have answered, or not in time."""
        self.run()


class Sender(_LeaderSeeker):
    """Sends one message after the other; asks the name servers for the leader only when it must, as RocketMQ's clients do."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._sent = 0
        self.acknowledged = 0
        self.sizes: tuple[int, ...] = SIZES

    def act(self) -> None:
        random = self.loop.random
        if random.random() < 0.02:  # an old route, or none: it may send to anyone
            self.believed = random.choice(self.replicas)
        queue, kind = random.randrange(ALL_QUEUES), random.random()
        delay_level = 1 if kind > 0.95 else 0
        attempts = [
            self.history.sending(queue, self._body(), delayed=delay_level > 0)
            for _ in range(random.randrange(2, 5) if kind < 0.1 else 1)
        ]
        send = Send(
            tuple(attempt.number for attempt in attempts),
            queue,
            tuple(attempt.body for attempt in attempts),
            delay_level,
        )

        def answered(answer: SendAnswer | None) -> None:
            code, offset = ("timeout", -1) if answer is None else (answer.code, answer.queue_offset)
            for number, attempt in enumerate(attempts):
                self.history.answered(attempt.number, code, offset + number)
            if code == "SEND_OK":
                self.acknowledged += len(attempts)
            if code in ("SEND_OK", "SLAVE_NOT_AVAILABLE", "FLUSH_SLAVE_TIMEOUT", "FLUSH_DISK_TIMEOUT"):
                self.run()
            else:
                self.look_for_the_leader()

        self._call(send, answered)
        if random.random() < self.network.doubling:
            for attempt in attempts:
                attempt.asks += 1
            self.history.counts["sends doubled"] += 1
            self.loop.after(random.random(), lambda: self._call(send, lambda answer: None))

    def _call(self, send: Send, answered: Callable[[SendAnswer | None], None]) -> None:
        self.network.call(self, self.believed, send, answered, timeout_s=TIMEOUT_S, may_double=False)

    def _body(self) -> bytes:
        self._sent += 1
        return f"{self.name}-{self._sent:05d}-".encode() + b"." * self.loop.random.choice(self.sizes)

    def looked(self) -> None:
        self.loop.after(0.1, self.run)


class Reader(_Client):
    """Reads on where it is, each time from another replica."""

    def __init__(self, loop: EventLoop, network: Network, name: str, *, replicas: list[str], pause_s: float) -> None:
        super().__init__(loop, network, name)
        self._replicas = replicas
        self._pause_s = pause_s
        self._offsets = [0] * ALL_QUEUES

    def run(self) -> None:
        if not self.stopped:
            self.loop.after(self.loop.random.expovariate(1 / self._pause_s), self._read)

    def _read(self) -> None:
        random = self.loop.random
        queue = random.randrange(ALL_QUEUES)
        if random.random() < 0.1:
            self._offsets[queue] = max(0, self._offsets[queue] - random.randrange(50))

        def answered(answer: ReadAnswer | None) -> None:
            if answer is not None and answer.messages:
                self._offsets[queue] = answer.next_offset
            self.run()

        read = Read(queue, self._offsets[queue], waits_s=HELD_S if random.random() < HELD_SHARE else 0.0)
        self.network.call(self, random.choice(self._replicas), read, answered, timeout_s=read.waits_s + 0.5)


class Consumer(_LeaderSeeker):
    """Reads from where its group has committed, commits what it has seen, and now and then starts again."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._offsets: dict[int, int] = {}
        self._consumed: dict[int, int] = {}  # all in front of that, since it last resumed
        self._suggested: dict[int, int] = {}  # by the last answer

    def act(self) -> None:
        random = self.loop.random
        queue = random.randrange(ALL_QUEUES)
        if random.random() < 0.05:
            self._offsets.clear()
            self._consumed.clear()
            self.look_for_the_leader()
            return
        if queue in self._offsets:
            self._read(queue, self._source_of(queue))
        else:
            self._resume(queue)

    def _source_of(self, queue: int) -> str:
        """As RocketMQ's clients: whom the last answer has suggested, and where there is no master a slave."""
        if self.members and MASTER_ID not in self.members:
            return self.loop.random.choice(list(self.members.values()))
        return self.members.get(self._suggested.get(queue, MASTER_ID), self.believed)

    def _resume(self, queue: int) -> None:
        def answered(offset: int | None) -> None:
            if offset is None:
                self.look_for_the_leader()
                return
            self._offsets[queue] = max(0, offset)
            self.run()

        query = QueryOffset(queue, self.history.offsets.moment)
        self.network.call(self, self.believed, query, answered, timeout_s=0.5)

    def _read(self, queue: int, target: str) -> None:
        def answered(answer: ReadAnswer | None) -> None:
            if answer is None:
                self.look_for_the_leader()
                return
            self.history.consumed.update(answer.bodies)
            self._suggested[queue] = answer.suggested
            if answer.moves:
                self._consumed.pop(queue, None)
            elif answer.messages:
                self._consumed[queue] = answer.next_offset
                # Its pulls commit it. The network may double them, and none is answered so.
                self.history.offsets.commit_asked(queue, answer.next_offset).doubled = True
            if answer.messages or answer.moves:
                self._offsets[queue] = answer.next_offset
            if answer.messages and self.loop.random.random() < 0.5:
                self._commit(queue, answer.next_offset)
            else:
                self.run()

        waits_s = HELD_S if self.loop.random.random() < HELD_SHARE else 0.0
        read = Read(queue, self._offsets[queue], True, self._consumed.get(queue, 0), waits_s)
        self.network.call(self, target, read, answered, timeout_s=waits_s + 0.5)

    def _commit(self, queue: int, offset: int) -> None:
        offsets = self.history.offsets
        change = offsets.commit_asked(queue, offset)
        commit = CommitOffset(queue, offset, change)

        def answered(is_held: bool | None) -> None:
            if is_held is False:
                offsets.over(change)
            if is_held:
                self.run()
            else:
                self.look_for_the_leader()

        self._call(commit, answered)
        if self.loop.random.random() < self.network.doubling:
            change.doubled = True
            self.loop.after(self.loop.random.random(), lambda: self._call(commit, lambda answer: None))

    def _call(self, commit: CommitOffset, answered: Callable[[bool | None], None]) -> None:
        self.network.call(self, self.believed, commit, answered, timeout_s=TIMEOUT_S, may_double=False)


class OffsetOperator(_LeaderSeeker):
    """Resets the consumer's offsets: mostly back to what has been consumed, or forward to the end."""

    def act(self) -> None:
        history, random = self.history, self.loop.random
        queue = random.randrange(ALL_QUEUES)
        if random.random() < 0.75:
            offset = random.randrange(history.offsets.highest(queue) + 1)
        else:
            offset = history.queue_ends.get(queue, 0)

        def answered(is_done: bool | None) -> None:
            if is_done:
                self.run()
            else:
                self.look_for_the_leader()

        reset = ResetOffset(queue, offset, history.offsets.reset_asked(queue, offset))
        self.network.call(self, self.believed, reset, answered, timeout_s=TIMEOUT_S, may_double=False)


class TopicAdmin(_LeaderSeeker):
    """Makes topics, sends some messages there, deletes them with these, and makes most of them again."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._sent = 0

    def act(self) -> None:
        topics, random = self.history.made_topics, self.loop.random
        living = [name for name, topic in topics.items() if topic.exists]
        known = [name for name in living if topics[name].queues is not None]
        deleted = [name for name, topic in topics.items() if topic.exists is False]
        if living and random.random() < 0.6:
            self._send(random.choice(living))
        elif known and random.random() < 0.3:
            self._update(random.choice(known))
        elif known and random.random() < 0.6:
            self._change(random.choice(known), exists=False)
        elif deleted and random.random() < 0.8:
            self._change(random.choice(deleted), exists=True)
        else:
            self._change(f"{PREFIX}{len(topics)}", exists=True)

    def _change(self, name: str, *, exists: bool) -> None:
        random = self.loop.random
        self.history.made_topics.setdefault(name, MadeTopic()).exists = None
        change = ChangeTopic(name, exists)
        if exists and random.random() < LIMITED_SHARE:
            kept_bytes = random.choice((200, 600, None))
            change = change._replace(kept_bytes=kept_bytes, kept_hours=1 if kept_bytes is None else None)
        self.network.call(self, self.believed, change, self._done, timeout_s=TIMEOUT_S, may_double=False)

    def _update(self, name: str) -> None:
        """One whose update is not answered is not changed any more: it may be done after the topic was deleted, and make it."""
        self.history.made_topics[name].queues = None
        update = ChangeTopic(name, exists=True, updates=True, queues=self.loop.random.randrange(QUEUES, 6))
        self.network.call(self, self.believed, update, self._done, timeout_s=TIMEOUT_S, may_double=False)

    def _send(self, name: str) -> None:
        history = self.history
        self._sent += 1
        body = f"{self.name}-{self._sent:05d}".encode()
        queue_id, life = self.loop.random.randrange(QUEUES), history.made_topics[name].lives
        attempt = history.sending(queue_id, body, topic=name, life=life)

        def answered(answer: SendAnswer | None) -> None:
            code, offset = ("timeout", -1) if answer is None else (answer.code, answer.queue_offset)
            history.answered(attempt.number, code, offset)
            self._done(code == "SEND_OK")

        send = Send((attempt.number,), queue_id, (body,), topic=name)
        self.network.call(self, self.believed, send, answered, timeout_s=TIMEOUT_S, may_double=False)

    def _done(self, is_done: bool | None) -> None:
        if is_done:
            self.run()
        else:
            self.look_for_the_leader()


_GROUPS_MAX = 5  # all tables go into one record, which a small log file must hold


class GroupAdmin(_LeaderSeeker):
    """Makes consumer groups, gives them other settings, deletes them, and makes them again."""

    def act(self) -> None:
        groups, random = self.history.made_groups, self.loop.random
        known = [name for name, group in groups.items() if group.is_known]
        if len(groups) < _GROUPS_MAX and (not known or random.random() < 0.2):
            known = [f"made-group{len(groups)}"]
        if not known:
            return
        name = random.choice(known)
        group = groups.setdefault(name, MadeGroup())
        deletes = group.retries is not None and random.random() < 0.4
        change = ChangeGroup(name, None if deletes else random.randrange(1, 100))
        # One that is not answered may be done later, at any time: that group is not changed any more.
        group.is_known = False
        self.network.call(self, self.believed, change, self._done, timeout_s=TIMEOUT_S, may_double=False)

    def _done(self, is_done: bool | None) -> None:
        if is_done:
            self.run()
        else:
            self.look_for_the_leader()


def make_clients(
    loop: EventLoop,
    network: Network,
    history: History,
    replicas: list[str],
    name_servers: list[str],
    *,
    pauses_s: tuple[float, ...],
) -> tuple[list[Sender], list[Reader | Consumer | TopicAdmin | GroupAdmin | OffsetOperator]]:
    """Three senders, each with one of these mean pauses; a reader, a consumer, two that make and delete topics and groups,
    and one that resets the consumer's offsets."""
    senders = [
        Sender(
            loop,
            network,
            history,
            f"sender{number}",
            replicas=replicas,
            name_servers=name_servers,
            pause_s=loop.random.choice(pauses_s),
        )
        for number in range(3)
    ]
    everywhere: dict[str, Any] = {"replicas": replicas, "name_servers": name_servers}
    return senders, [
        Reader(loop, network, "reader", replicas=replicas, pause_s=0.1),
        Consumer(loop, network, history, "consumer", **everywhere, pause_s=0.1),
        TopicAdmin(loop, network, history, "admin", **everywhere, pause_s=0.4),
        GroupAdmin(loop, network, history, "groups", **everywhere, pause_s=1.0),
        OffsetOperator(loop, network, history, "offsets", **everywhere, pause_s=3.0),
    ]
