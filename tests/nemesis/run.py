"""One run: a real group in a mode, its clients, its weather by seed, and the judge's verdict in the end."""

from __future__ import annotations

import contextlib
import hashlib
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from highwater import ReplicaStatus
from mqwire.bodies import (
    ConsumerOffsetSerializeWrapper,
    SubscriptionGroupWrapper,
    TopicConfigAndMappingSerializeWrapper,
)
from mqwire.codes import RequestCode
from mqwire.command import RemotingCommand
from tests.daemons import BrokerDaemon, NameServerDaemon, ReplicaGroup
from tests.dledger.groups import leader_among, quorum_group, status, wait_leader
from tests.dledger.history import read_queue
from tests.nemesis.clients import PULL_GROUP, PUSH_GROUP, QUEUES, TOPIC, Clients
from tests.nemesis.judge import Committed, End, History, Table, violations
from tests.nemesis.weather import (
    LINKS,
    MAY_COST_A_LOG_ITS_END,
    OPERATIONS,
    PROCESSES,
    Event,
    Kind,
    Sky,
    forecast,
    mount,
    unmount,
)
from tests.processes import wait_until
from tests.remoting import Refused, call, create_topic
from tests.replication.network import Network, network, why_not

MODES: Final = {"single": 1, "async": 2, "sync": 3, "dledger": 3, "changing": 3}  # and how many replicas
_CONF: Final = {
    "haSendHeartbeatInterval": "500",
    "mappedFileSizeCommitLog": str(16 * 1024 * 1024),
    "haMaxTimeSlaveNotCatchup": "2000",
}
_WAIT_S: Final = 90.0


@dataclass
class Outcome:
    """What one run found."""

    mode: str
    seed: int
    events: list[str] = field(default_factory=list)
    acknowledged: int = 0
    committed: int = 0
    answered: int = 0  # offsets of groups, by a leader that held them
    changes: Mapping[str, int] = field(default_factory=dict)  # of tables: those that were answered last
    consumers: int = 0  # push consumers, one after the other
    seen: Mapping[str, int] = field(default_factory=dict)
    operations: Mapping[tuple[str, str], int] = field(default_factory=dict)
    sent_back: int = 0  # consumers, where a leader said that messages may be lost
    left_out: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)


def run(
    mode: str,
    seed: int,
    seconds: float,
    folder: Path,
    say: Callable[[str], object] = print,
    *,
    send_pause_s: float = 0.0,
) -> Outcome:
    """Disturb a group for so long, then judge. What this machine does not allow is left out, and said so.

    `send_pause_s` is how long a sender rests after each message; without it clients take all of a processor that they get.
    """
    outcome = Outcome(mode, seed)
    replicas = MODES[mode]
    kinds: list[Kind] = list(PROCESSES)
    with contextlib.ExitStack() as stack:
        reason = why_not()
        places = None
        if reason is None:
            places = stack.enter_context(network(replicas + 1))  # the last one is the name server's
            kinds += LINKS
        else:
            outcome.left_out.append(f"cut links: {reason}")
        disks = [folder / f"disk-{number}" for number in range(replicas)]
        for disk in disks:
            if not mount(disk):
                outcome.left_out.append("full disks: mounting a file system needs root")
                disks = []
                break
            stack.callback(unmount, disk)
        if disks:
            kinds.append(Kind.FULL_DISK)
        kinds += OPERATIONS.get(mode, ())
        group = stack.enter_context(_group(mode, folder, places, disks))
        leader = wait_leader(group)
        create_topic(group[leader].address, TOPIC, queues=QUEUES, namesrv=group.namesrv)
        clients = Clients(group, seed, send_pause_s)
        sky = Sky(group, places, disks)
        whole = False
        with noting(outcome.violations, "a client failed"), clients.running():
            with noting(outcome.violations, "the weather ended early"):
                _disturb(sky, forecast(seed, replicas, kinds), seconds, outcome, clients.history, say)
            whole = becomes_whole(group, outcome.violations)
        outcome.operations = sky.operations
        judge(group, clients, outcome, whole=whole)
    return outcome


@contextlib.contextmanager
def noting(found: list[str], what: str) -> Iterator[None]:
    """What fails in the block is a violation like any other: the rest is judged all the same."""
    try:
        yield
    except Exception as error:
        found.append(f"{what}: {type(error).__name__}: {error}")


def judge(group: ReplicaGroup, clients: Clients, outcome: Outcome, *, whole: bool) -> None:
    """Adds to `outcome` what clients did, and what is wrong, as far as it can be read of a group that is not `whole`."""
    with noting(outcome.violations, "the last offsets were not answered"):
        _ask_last_offsets(group, clients, whole=whole)
    end = _end(group, outcome.violations, whole=whole)
    history = clients.history
    outcome.acknowledged, outcome.committed = len(history.acknowledged), len(history.committed)
    outcome.answered = sum(one.held for one in history.offset_answers)
    outcome.changes = Counter(
        f"{table} {'made' if is_made else 'deleted'}" for (table, _), is_made in history.made.items()
    )
    outcome.consumers = history.consumers
    outcome.seen = {name: len(keys) for name, keys in history.seen.items()}
    outcome.sent_back = len(history.sent_back) if end.losses else 0
    outcome.violations += violations(history, end)


def _disturb(
    sky: Sky,
    events: Iterator[Event],
    seconds: float,
    outcome: Outcome,
    history: History,
    say: Callable[[str], object],
) -> None:
    time.sleep(1.0)  # some traffic first
    until_s = time.monotonic() + seconds
    for event in events:
        if time.monotonic() >= until_s:
            return
        say(f"  {event}")
        outcome.events.append(str(event))
        if event.kind in MAY_COST_A_LOG_ITS_END:
            history.may_have_lost.append(str(event))
        sky.strike(event)
        time.sleep(event.calm_s)


@contextlib.contextmanager
def _group(mode: str, folder: Path, places: Network | None, disks: Sequence[Path]) -> Iterator[ReplicaGroup]:
    def place(replica: BrokerDaemon, number: int) -> None:
        if disks:
            replica.store_dir = disks[number] / "store"

    names = NameServerDaemon(folder / "namesrv")
    if places is not None:
        names.host, names.command_prefix = places.address(MODES[mode]), places.prefix(MODES[mode])
    names.start()
    if mode == "dledger":
        with quorum_group(folder, replicas=MODES[mode], conf=_CONF, places=places, place=place, names=names) as made:
            yield made
        return
    group = ReplicaGroup(names, [])
    try:
        for number in range(MODES[mode]):
            synchronous = mode in ("sync", "changing")
            role = "SLAVE" if number else "SYNC_MASTER" if synchronous else "ASYNC_MASTER"
            conf = {
                "brokerName": group.name,
                "brokerId": str(number),
                "brokerRole": role,
                "totalReplicas": str(MODES[mode]),
                "inSyncReplicas": "2" if synchronous else "1",
                "minInSyncReplicas": "2" if synchronous else "1",
                "slaveReadEnable": "true",
                **_CONF,
            }
            replica = BrokerDaemon(folder / f"replica-{number}", names.address, conf)
            if places is not None:
                replica.host, replica.command_prefix = places.address(number), places.prefix(number)
            place(replica, number)
            group.replicas.append(replica.start())
        yield group
    finally:
        for replica in group.replicas:
            if replica.process is not None and replica.process.running:
                replica.process.popen.send_signal(signal.SIGCONT)
        group.kill()


def becomes_whole(group: ReplicaGroup, found: list[str], timeout_s: float = _WAIT_S) -> bool:
    """Whether one leads in the end, takes sends, and all others follow it; else that is a violation."""

    def is_whole() -> bool:
        try:
            statuses = [status(replica) for replica in group.replicas]
        except (OSError, Refused):
            return False
        leaders = [one for one in statuses if one.role == "master" and one.accepts_sends]
        return len(leaders) == 1 and all(one.epoch == leaders[0].epoch for one in statuses)

    try:
        wait_until(is_whole, timeout_s=timeout_s, what="the group is whole again")
    except AssertionError:
        replicas = "; ".join(f"replica {number} {_said(replica)}" for number, replica in enumerate(group.replicas))
        found.append(f"the group is not whole {timeout_s:g} s after the weather: {replicas}")
        return False
    return True


def _said(replica: BrokerDaemon) -> str:
    try:
        one = status(replica)
    except Exception as error:
        return f"does not answer ({type(error).__name__}: {error})"
    return f"is a {one.role} in epoch {one.epoch}, its log goes to {one.end_offset}, {_refusal(one)}"


def _refusal(one: ReplicaStatus) -> str:
    return "takes sends" if one.accepts_sends else f"takes no sends: {one.refusal}"


def _ask_last_offsets(group: ReplicaGroup, clients: Clients, *, whole: bool) -> None:
    """The pulling group's last offsets, and the pushed group's, which commits by itself."""
    leader = wait_leader(group) if whole else leader_among(group)
    if leader is None:
        return
    for queue_id in range(QUEUES):
        clients.ask_offset(leader, PULL_GROUP, queue_id)
        answer = clients.ask_offset(leader, PUSH_GROUP, queue_id)
        if answer is not None and answer.offset is not None:
            clients.history.committed.append(Committed(PUSH_GROUP, queue_id, answer.offset, time.monotonic()))


def _end(group: ReplicaGroup, found: list[str], *, whole: bool) -> End:
    """What is there: the leader's content and losses, each replica's topics and groups, and the logs as far as all go.

    Of a group that is not whole only what its leader has, if it has one: others may not have it yet.
    """
    try:
        leader = wait_leader(group) if whole else leader_among(group)
        if leader is None:
            return End()
        wanted = status(group[leader]).end_offset
        end = End(_content(group[leader]), {leader: _tables(group[leader])}, losses=_losses(group[leader]))
    except Exception as error:
        found.append(f"the leader's content cannot be read: {type(error).__name__}: {error}")
        return End()
    if whole:
        with noting(found, "the replicas cannot be compared"):
            wait_until(
                lambda: all(status(replica).confirm_offset >= wanted for replica in group.replicas),
                timeout_s=_WAIT_S,
                what="all replicas hold what the leader held",
            )
            tables = {number: _tables(replica) for number, replica in enumerate(group.replicas)}
            logs = {number: _digest(replica, wanted) for number, replica in enumerate(group.replicas)}
            return replace(end, tables=tables, logs=logs)
    return end


def _content(leader: BrokerDaemon) -> dict[int, list[str]]:
    return {
        queue_id: [key for _, key in read_queue(leader, TOPIC, queue_id, 0, key_of=lambda one: one.body.decode())]
        for queue_id in range(QUEUES)
    }


def _losses(leader: BrokerDaemon) -> list[int]:
    body = call(leader.address, RemotingCommand.request(RequestCode.GET_ALL_CONSUMER_OFFSET)).body
    return ConsumerOffsetSerializeWrapper.from_json(bytes(body)).losses or []


def _tables(replica: BrokerDaemon) -> dict[Table, frozenset[str]]:
    topics = call(replica.address, RemotingCommand.request(RequestCode.GET_ALL_TOPIC_CONFIG)).body
    groups = call(replica.address, RemotingCommand.request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body
    return {
        Table.TOPIC: frozenset(TopicConfigAndMappingSerializeWrapper.from_json(topics).topic_config_table),
        Table.GROUP: frozenset(SubscriptionGroupWrapper.from_json(groups).subscription_group_table),
    }


def _digest(replica: BrokerDaemon, end_offset: int) -> str:
    folder = (replica.store_dir or replica.folder / "store") / "commitlog"
    data = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
    return hashlib.sha256(data[:end_offset]).hexdigest()[:12]
