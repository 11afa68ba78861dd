"""Where is my message? One search over a cluster: where it is stored, which replicas hold it, where each group stands."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

from controlplane.accounts.actors import Actor
from controlplane.clusters import replica_remoting
from controlplane.clusters.models import Cluster, ClusterState, Replica
from controlplane.clusters.remoting import cluster_admin
from controlplane.common.errors import InvalidInput
from controlplane.common.logging import get_logger
from controlplane.common.sentences import from_sdk, say, say_count
from controlplane.failover.models import ReplicaSample
from controlplane.insight.live import group_is_system
from controlplane.tenants.rules import actor_require
from controlplane.topics.gateway import BrowsedMessage, browsed_message, calendar_moment, is_findable, masks_of
from controlplane.topics.looks import look_require
from controlplane.topics.masking import Sight
from controlplane.topics.masking_rules import sight_of
from controlplane.topics.models import Topic
from controlplane.topics.names import topic_name_is_system
from controlplane.topics.search import Sought
from controlplane.topics.selectors import topic_list
from highwater import Admin, HighwaterError, ReceivedMessage
from highwater.message_trace import MessageTrace, home_topic, trace_message
from highwater.trace_story import TraceStory
from highwater.whereabouts import Cause, GroupStanding, IdReading, Reason, read_id
from mqwire.bodies import ReplicaStatus
from mqwire.names import PROPERTY_KEYS, PROPERTY_TAGS, RMQ_SYS_TRACE_TOPIC

_LOOK_THERE = say("Look for it there, and check which cluster's address the program is given.")

_log = get_logger("controlplane.whereabouts")


class Holding(StrEnum):
    """Whether a replica holds a message."""

    HOLDS = "holds"
    LACKS = "lacks"
    DELETED = "deleted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ReplicaHolding:
    """One replica's word, as of `as_of`. `role` is empty when it is not known."""

    replica_id: int
    role: str
    holding: Holding
    sentence: str
    as_of: datetime | None


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """What is known of a message, or the reasons why nothing is.

    `is_confirmed` says that it is below the group's high watermark: a failover that loses nothing keeps it; None when unknown.
    `traces` is what clients with tracing on recorded of it; None: not known, as no broker answered for the trace topic.
    """

    text: str
    reading: IdReading
    matches: list[BrowsedMessage]
    message: BrowsedMessage | None
    topic: str
    original_is_gone: bool
    delayed_until: datetime | None
    is_half: bool
    is_confirmed: bool | None
    replicas: list[ReplicaHolding]
    groups: list[GroupStanding]
    groups_left_out: int
    reasons: list[Reason]
    traces: TraceStory | None = None


def message_whereabouts(
    *,
    actor: Actor,
    cluster: Cluster,
    text: str,
    topic: str = "",
    trace_topic: str = "",
    body_limit_bytes: int = 4096,
) -> Whereabouts:
    """Look for a key, a client's id (UNIQ_KEY) or a broker's id (offsetMsgId), in one topic or in all of the cluster's.

    `trace_topic` is where clients write their trace records, RMQ_SYS_TRACE_TOPIC when it is empty.

    Reading moves no consumer's offset; takes some seconds at most. Raises NotAllowed, InvalidInput for a text that no message can
    have, Conflict when the cluster isn't running, BrokerUnreachable when no name server answers.
    """
    actor_require(actor, "message.browse", cluster.tenant)
    text = text.strip()
    try:
        Sought(text).check()
    except InvalidInput as error:
        raise InvalidInput.for_field("q", error.errors[0].message, error.errors[0].code) from None
    look_require(actor, cluster.tenant)
    sight = sight_of(actor, cluster)
    replicas = list(
        Replica.objects.filter(group__cluster=cluster, port__isnull=False).select_related("group", "sample")
    )
    with cluster_admin(cluster) as admin:
        topics = list(topic_list(cluster).values_list("name", flat=True))
        if trace_topic and trace_topic != RMQ_SYS_TRACE_TOPIC and trace_topic not in topics:
            raise InvalidInput.for_field(
                "trace_topic", say("The cluster has no topic %(topic)s.", topic=trace_topic), "not_found"
            )
        statuses = _statuses(cluster, replicas)
        searched = _searched(sight, text, topics)
        trace = trace_message(
            admin,
            text,
            topic=topic or None,
            topics=searched,
            addresses={replica.address: replica.group.name for replica in replicas},
            log_span=_log_spans(replicas, statuses),
            may_match=lambda message: is_findable(message, text, sight),
            hides_tag=lambda message: masks_of(message, sight).hides_property(PROPERTY_TAGS),
        )
        traces = None if trace.message is None else _traces(admin, trace.message, trace_topic or RMQ_SYS_TRACE_TOPIC)
    holdings, is_confirmed = _held(trace, replicas, statuses)
    message = trace.message
    return Whereabouts(
        text=text,
        reading=trace.reading,
        matches=[browsed_message(one, sight, body_limit_bytes) for one in trace.matches],
        message=None if message is None else browsed_message(message, sight, body_limit_bytes),
        topic="" if message is None else home_topic(message),
        original_is_gone=trace.original_is_gone,
        delayed_until=_moment(trace.delayed_until_ms),
        is_half=trace.is_half,
        is_confirmed=is_confirmed,
        replicas=holdings,
        groups=[
            replace(one, sentence=from_sdk(one.sentence)) for one in trace.groups if not group_is_system(one.group)
        ],
        groups_left_out=trace.groups_left_out,
        reasons=_elsewhere(cluster, trace, topic, topics) + _reasons(trace, hidden=len(topics) - len(searched)),
        traces=traces,
    )


def _searched(sight: Sight, text: str, topics: Sequence[str]) -> list[str]:
    """The topics where this text may be looked for: as a key, not where keys are hidden. An answer would tell who has it."""
    reading = read_id(text, int(time.time() * 1000))
    if reading.broker is not None or reading.client is not None:
        return list(topics)
    return [one for one in topics if not sight.masks_for([one]).hides_property(PROPERTY_KEYS)]


def _reasons(trace: MessageTrace, hidden: int) -> list[Reason]:
    reasons = [replace(one, sentence=from_sdk(one.sentence), attempt=from_sdk(one.attempt)) for one in trace.reasons]
    if reasons and hidden:
        sentence = say_count(
            "Keys are masked for you in %(count)s topic, which was not looked at.",
            "Keys are masked for you in %(count)s topics, which were not looked at.",
            hidden,
        )
        reasons.insert(0, Reason(Cause.KEYS_MASKED, sentence, say("Look for the message id.")))
    return reasons


def _elsewhere(cluster: Cluster, trace: MessageTrace, topic: str, topics: Sequence[str]) -> list[Reason]:
    """Where nothing was found: the tenant's other clusters that have the topic, or the broker that the id names."""
    if trace.message is not None:
        return []
    others = Cluster.objects.filter(tenant=cluster.tenant_id).exclude(pk=cluster.pk).exclude(state=ClusterState.DELETED)
    found = []
    if topic and topic not in topics and not topic_name_is_system(topic):
        has_topic = Topic.objects.filter(cluster__in=others, name=topic)
        names = sorted(has_topic.values_list("cluster__slug", flat=True))
        if names:
            sentence = say(
                "The topic %(topic)s is in another cluster of yours: %(clusters)s.",
                topic=topic,
                clusters=", ".join(names[:5]),
            )
            found.append(Reason(Cause.OTHER_CLUSTER, sentence, _LOOK_THERE))
    host, _, port = (trace.reading.broker or "").rpartition(":")
    if host:
        at_broker = Replica.objects.filter(group__cluster__in=others, host=host.strip("[]"), port=int(port))
        for slug, group in sorted(at_broker.values_list("group__cluster__slug", "group__name"))[:1]:
            sentence = say(
                "As a broker's id (offsetMsgId) it names a broker of your cluster %(cluster)s, %(broker)s.",
                cluster=slug,
                broker=group,
            )
            found.append(Reason(Cause.OTHER_CLUSTER, sentence, _LOOK_THERE))
    return found


def _traces(admin: Admin, message: ReceivedMessage, trace_topic: str) -> TraceStory | None:
    if not message.message_id:
        return TraceStory()
    try:
        return admin.message_traces(message.message_id, trace_topic=trace_topic, sender=message.born_host[0])
    except HighwaterError as error:  # the rest of the answer stands without it
        _log.info("trace records not read", trace_topic=trace_topic, error=str(error))
        return None


def replica_holding(begin: int, end: int, status: ReplicaStatus, leader: ReplicaStatus | None) -> tuple[Holding, str]:
    """Decide whether a replica holds the record between two offsets of its group's log, by its own word.

    A log that ends in another epoch than the leader's may have parted from it: past its high watermark, offsets say nothing.
    """
    if end <= status.min_offset:
        return Holding.DELETED, say("Retention has deleted it here.")
    if status.held_offset < end:
        missing = end - status.held_offset
        return Holding.LACKS, say_count(
            "It does not hold it yet: %(count)s byte of the log is missing up to there.",
            "It does not hold it yet: %(count)s bytes of the log are missing up to there.",
            missing,
        )
    if end <= status.confirm_offset:
        return Holding.HOLDS, say("It holds it, below the high watermark.")
    if leader is None or status.log_epoch != leader.log_epoch:
        return Holding.UNKNOWN, say("Its log reaches that far, but may have parted from the leader's.")
    return Holding.HOLDS, say("It holds it; too few replicas do to count it as safe.")


def _held(
    trace: MessageTrace, replicas: Sequence[Replica], statuses: dict[str, ReplicaStatus]
) -> tuple[list[ReplicaHolding], bool | None]:
    message = trace.message
    if message is None:
        return [], None
    begin, end = message.physical_offset, message.physical_offset + message.size_bytes
    members = [replica for replica in replicas if replica.group.name == message.queue.broker_name]
    answered = [statuses[replica.address] for replica in members if replica.address in statuses]
    leader = max((one for one in answered if one.role == "master"), key=lambda one: one.epoch, default=None)
    now = datetime.now(UTC)
    found = []
    for replica in members:
        status = statuses.get(replica.address)
        if status is not None:
            holding, sentence = replica_holding(begin, end, status, leader)
            found.append(ReplicaHolding(replica.broker_id, status.role, holding, sentence, now))
            continue
        sample = ReplicaSample.objects.filter(replica=replica).first()
        if sample is None or sample.confirm_offset is None or sample.last_seen_at is None:
            found.append(ReplicaHolding(replica.broker_id, "", Holding.UNKNOWN, say("It does not answer."), None))
        elif end <= min(sample.confirm_offset, sample.held_offset or 0):
            sentence = say("It does not answer now. It held it when it last did.")
            found.append(ReplicaHolding(replica.broker_id, "", Holding.HOLDS, sentence, sample.last_seen_at))
        else:
            sentence = say("It does not answer now. When it last did it was not known to hold it.")
            found.append(ReplicaHolding(replica.broker_id, "", Holding.UNKNOWN, sentence, sample.last_seen_at))
    return found, None if leader is None else end <= leader.confirm_offset


def _statuses(cluster: Cluster, replicas: Sequence[Replica]) -> dict[str, ReplicaStatus]:
    answers = replica_remoting.replica_statuses(cluster, [replica.address for replica in replicas])
    return {address: answer.status for address, answer in answers.items() if answer.status is not None}


def _log_spans(replicas: Sequence[Replica], statuses: dict[str, ReplicaStatus]) -> dict[str, tuple[int, int]]:
    """Where the log of each group's leader begins and ends."""
    leaders = [
        (replica.group.name, statuses[replica.address])
        for replica in replicas
        if replica.address in statuses and statuses[replica.address].role == "master"
    ]
    return {name: (status.min_offset, status.end_offset) for name, status in leaders}


def _moment(timestamp_ms: int | None) -> datetime | None:
    return None if timestamp_ms is None else datetime.fromtimestamp(timestamp_ms / 1000, UTC)


def traced_at(timestamp_ms: int | None) -> datetime | None:
    """Return the moment that a client reported, which may be any number; None for what no calendar has."""
    return None if timestamp_ms is None else calendar_moment(timestamp_ms)


def standing_next_at(standing: GroupStanding) -> datetime | None:
    """Return when a group gets the message again; None when it doesn't, or no one knows."""
    return _moment(standing.next_ms)
