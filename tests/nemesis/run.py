"""One run: a real group in a mode, its clients, its weather by seed, and the judge's verdict in the end."""

from __future__ import annotations

import contextlib
import hashlib
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mqwire.bodies import SubscriptionGroupWrapper, TopicConfigAndMappingSerializeWrapper
from mqwire.codes import RequestCode
from mqwire.command import RemotingCommand
from tests.daemons import BrokerDaemon, NameServerDaemon, ReplicaGroup
from tests.dledger.groups import quorum_group, status, wait_leader
from tests.dledger.history import read_queue
from tests.nemesis.clients import PULL_GROUP, PUSH_GROUP, QUEUES, TOPIC, Clients
from tests.nemesis.judge import Committed, End, Table, violations
from tests.nemesis.weather import LINKS, OPERATIONS, PROCESSES, Event, Kind, Sky, forecast, mount, unmount
from tests.processes import wait_until
from tests.remoting import call, create_topic
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
    changes: Mapping[str, int] = field(default_factory=dict)  # of tables: those that were answered last
    consumers: int = 0  # push consumers, one after the other
    seen: Mapping[str, int] = field(default_factory=dict)
    operations: Mapping[tuple[str, str], int] = field(default_factory=dict)
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
        with clients.running():
            _disturb(sky, forecast(seed, replicas, kinds), seconds, outcome, say)
            _wait_calm(group)
        _finish(group, clients)
        end = _end(group)
        history = clients.history
        outcome.acknowledged, outcome.committed = len(history.acknowledged), len(history.committed)
        outcome.changes = Counter(
            f"{table} {'made' if is_made else 'deleted'}" for (table, _), is_made in history.made.items()
        )
        outcome.consumers = history.consumers
        outcome.operations = sky.operations
        outcome.seen = {name: len(keys) for name, keys in history.seen.items()}
        outcome.violations = violations(history, end)
    return outcome


def _disturb(sky: Sky, events: Iterator[Event], seconds: float, outcome: Outcome, say: Callable[[str], object]) -> None:
    time.sleep(1.0)  # some traffic first
    until_s = time.monotonic() + seconds
    for event in events:
        if time.monotonic() >= until_s:
            return
        say(f"  {event}")
        outcome.events.append(str(event))
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


def _wait_calm(group: ReplicaGroup) -> None:
    """Returns once one leads, takes sends, and all others follow it closely."""

    def calm() -> bool:
        statuses = [status(replica) for replica in group.replicas]
        leaders = [one for one in statuses if one.role == "master" and one.accepts_sends]
        return len(leaders) == 1 and all(one.epoch == leaders[0].epoch for one in statuses)

    wait_until(calm, timeout_s=_WAIT_S, what="the group is whole again")


def _finish(group: ReplicaGroup, clients: Clients) -> None:
    """The pulling group's last offsets, and the pushed group's, which commits by itself."""
    leader = wait_leader(group)
    for queue_id in range(QUEUES):
        clients.ask_offset(leader, PULL_GROUP, queue_id)
        answer = clients.ask_offset(leader, PUSH_GROUP, queue_id)
        if answer is not None and answer.offset is not None:
            clients.history.committed.append(Committed(PUSH_GROUP, queue_id, answer.offset, time.monotonic()))


def _end(group: ReplicaGroup) -> End:
    """What is there: the leader's content, each replica's topics and groups, and the logs as far as all go."""
    leader = wait_leader(group)
    wanted = status(group[leader]).end_offset
    wait_until(
        lambda: all(status(replica).confirm_offset >= wanted for replica in group.replicas),
        timeout_s=_WAIT_S,
        what="all replicas hold what the leader held",
    )
    content = {
        queue_id: [
            key for _, key in read_queue(group[leader], TOPIC, queue_id, 0, key_of=lambda one: one.body.decode())
        ]
        for queue_id in range(QUEUES)
    }
    return End(
        content,
        [_tables(replica) for replica in group.replicas],
        [_digest(replica, wanted) for replica in group.replicas],
    )


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
