"""Where a topic's queues are, and who reads them: broker groups with their replicas, and each queue's member of one group.

Queues are divided by the members themselves, so that only these can tell: each is asked, within bounds.
"""

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from controlplane.accounts.actors import Actor
from controlplane.clusters.remoting import cluster_admin
from controlplane.common.sentences import say
from controlplane.tenants.rules import actor_require
from controlplane.topics.models import Topic
from controlplane.topics.names import topic_name_is_system
from highwater import Admin, TopicConfig
from highwater.errors import HighwaterError, NoRouteError, TopicNotFoundError
from mqwire.names import MASTER_ID

MEMBERS_ASKED_MAX = 32
_MEMBERS_DEADLINE_S = 6.0
_MEMBER_TIMEOUT_MS = 2_000
_READ, _WRITE = 4, 2


@dataclass(frozen=True, slots=True)
class BrokerReplica:
    """A replica as the name servers know it. The master's `broker_id` is 0."""

    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        """Whether it takes the group's sends."""
        return self.broker_id == MASTER_ID


@dataclass(frozen=True, slots=True)
class BrokerRoute:
    """One broker group's share of the topic, as the broker keeps it; None for what is not known. `problem` says what is amiss."""

    broker_name: str
    replicas: tuple[BrokerReplica, ...]
    perm: int | None
    read_queue_nums: int | None
    write_queue_nums: int | None
    problem: str

    @property
    def has_master(self) -> bool:
        """Whether a replica takes sends."""
        return any(replica.is_master for replica in self.replicas)


@dataclass(frozen=True, slots=True)
class QueueReaders:
    """A queue that can be read, and the members that have it; `problem` says why none has, or that several have."""

    broker_name: str
    queue_id: int
    client_ids: tuple[str, ...]
    problem: str


@dataclass(frozen=True, slots=True)
class RouteMap:
    """`groups` have consumed the topic. `queues` is None where no group was asked for; `silent` members did not answer."""

    as_of: datetime
    brokers: tuple[BrokerRoute, ...]
    groups: tuple[str, ...]
    group: str
    queues: tuple[QueueReaders, ...] | None
    silent: tuple[str, ...]


def topic_route_map(*, actor: Actor, topic: Topic, group: str = "") -> RouteMap:
    """Ask the name servers and brokers, and with `group` its members, 32 at most, for up to 6 s.

    Raises NotAllowed, Conflict, BrokerRefused, BrokerUnreachable.
    """
    actor_require(actor, "topic.view", topic.cluster.tenant)
    if group:
        actor_require(actor, "consumer.inspect", topic.cluster.tenant)
    names = list(topic.cluster.broker_groups.order_by("name").values_list("name", flat=True))
    with cluster_admin(topic.cluster) as admin:
        table = admin.cluster_info().broker_addr_table
        addresses = {name: dict(table[name].broker_addrs) if name in table else {} for name in names}
        brokers = tuple(_broker(admin, topic.name, name, addresses[name]) for name in names)
        try:
            groups = tuple(name for name in admin.topic_groups(topic.name) if not topic_name_is_system(name))
        except NoRouteError:  # no broker has the topic
            groups = ()
        queues, silent = _readers(admin, topic.name, group, brokers) if group else (None, ())
    return RouteMap(datetime.now(UTC), brokers, groups, group, queues, silent)


def _broker(admin: Admin, topic: str, name: str, addresses: Mapping[int, str]) -> BrokerRoute:
    replicas = tuple(BrokerReplica(number, address) for number, address in sorted(addresses.items()))
    config: TopicConfig | None = None
    missing = unknown = False
    if replicas:
        try:
            config = admin.topic_config(topic, replicas[0].address)  # the master's, where there is one
        except TopicNotFoundError:
            missing = True
        except HighwaterError:
            unknown = True
    problem = ""
    if not replicas:
        problem = say("No replica is registered: its queues can’t be reached. Look at the cluster’s page.")
    elif MASTER_ID not in addresses:
        problem = say(
            "It has no master: sends go to other broker groups, reads go on from a replica. Promote one, or wait for the election."
        )
    elif missing:
        problem = say("It does not have the topic. Change the topic once more to create it there.")
    elif unknown:
        problem = say("It does not answer.")
    elif config is not None and config.perm & (_READ | _WRITE) != _READ | _WRITE:
        problem = _closed(config.perm)
    return BrokerRoute(
        broker_name=name,
        replicas=replicas,
        perm=None if config is None else config.perm,
        read_queue_nums=None if config is None else config.read_queue_nums,
        write_queue_nums=None if config is None else config.write_queue_nums,
        problem=problem,
    )


def _closed(perm: int) -> str:
    if perm & _READ:
        return say("Its queues take no messages: they are read until they are empty.")
    if perm & _WRITE:
        return say("Its queues can’t be read: messages wait there.")
    return say("Its queues can be neither read nor written.")


def _readers(
    admin: Admin, topic: str, group: str, brokers: tuple[BrokerRoute, ...]
) -> tuple[tuple[QueueReaders, ...], tuple[str, ...]]:
    connected = admin.consumer_connections(group)
    is_broadcast = connected.message_model == "BROADCASTING"
    members = [one.client_id for one in connected.connections]
    readers: dict[tuple[str, int], list[str]] = {}
    silent: list[str] = []
    deadline = time.monotonic() + _MEMBERS_DEADLINE_S
    for number, client_id in enumerate(members):
        if number >= MEMBERS_ASKED_MAX or time.monotonic() > deadline:
            silent += members[number:]
            break
        try:
            info = admin.consumer_running_info(group, client_id, timeout_ms=_MEMBER_TIMEOUT_MS)
        except HighwaterError:
            silent.append(client_id)
            continue
        for held in info.queues:
            if held.queue.topic == topic and not held.dropped:
                readers.setdefault((held.queue.broker_name, held.queue.queue_id), []).append(client_id)
    unread = _unread(bool(members), topic in connected.subscriptions, silent)
    return tuple(
        QueueReaders(
            broker.broker_name,
            queue_id,
            tuple(sorted(found := readers.get((broker.broker_name, queue_id), []))),
            unread if not found else (_SEVERAL if len(found) > 1 and not is_broadcast else ""),
        )
        for broker in brokers
        for queue_id in _readable(broker)
    ), tuple(silent)


def _readable(broker: BrokerRoute) -> Iterator[int]:
    if broker.perm is not None and broker.perm & _READ:
        yield from range(broker.read_queue_nums or 0)


_SEVERAL = say(
    "Several members have it. While queues are divided again that lasts for seconds; if it stays, look for members with the same"
    " client id or other subscriptions."
)


def _unread(is_online: bool, is_subscribed: bool, silent: Collection[str]) -> str:
    """Why a queue has no reader."""
    if not is_online:
        return say("No member of the group is connected.")
    if not is_subscribed:
        return say("No member subscribes to this topic.")
    if silent:
        return say("None of those that answered. A member that did not answer may have it.")
    return say(
        "No member has taken it. Clients divide the queues every 20 seconds: look again then. If it stays so, members may have the"
        " same client id, or other subscriptions."
    )
