"""Writes: topics. They are quick (a name-server look-up and one request to each master), so they run while the
caller waits.

The row comes first. When a broker refuses or does not answer, the row stays as `failed` with the cause: creating
and deleting are harmless when repeated, so the user asks again.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from controlplane.accounts.actors import Actor
from controlplane.clusters import replica_remoting
from controlplane.clusters.configuration import retention_hours
from controlplane.clusters.limits import over_limit
from controlplane.clusters.models import Cluster, OperationStep, OperationType, StepState
from controlplane.clusters.remoting import cluster_admin, require_running
from controlplane.common.audit import audit_event_record, changes_between
from controlplane.common.errors import ApplicationError, BrokerUnreachable, Conflict, InvalidInput
from controlplane.common.sentences import say
from controlplane.common.words import name_check
from controlplane.tenants.limits import tenant_limit
from controlplane.tenants.rules import actor_require
from controlplane.tenants.sensitive import factor_require
from controlplane.topics.models import MessageType, Topic, TopicState
from controlplane.topics.names import topic_name_check
from highwater import Admin, TopicConfig
from highwater.errors import BrokerError, RequestTimeoutError, TopicNotFoundError
from mqwire import bodies
from mqwire.codes import ResponseCode

QUEUES_MAX = 128
_PERMS = (2, 4, 6)
_OPTIONS = (
    "read_queue_nums",
    "write_queue_nums",
    "perm",
    "message_type",
    "description",
    "retention_hours",
    "retention_bytes",
    "quota_messages_per_second",
    "quota_bytes_per_second",
    "quota_stored_bytes",
    "quota_held_pulls",
)
# What of these the brokers keep.
_TOLD = tuple(name for name in _OPTIONS if name != "description")
# Those of new topics.
MESSAGE_TYPES = [value for value in MessageType.values if value != MessageType.TRANSACTION]
NO_TRANSACTIONS = say(
    "Transactions are not supported yet: the brokers refuse transactional messages. Send an ordinary one once your own transaction"
    " has committed."
)
LIMIT_MAX = 2**50
# What is the whole topic's, and of which each broker group has its share: the attribute's name.
_SHARED_LIMITS = {
    "retention_bytes": "reserve.bytes",
    "quota_messages_per_second": "quota.messages.per.second",
    "quota_bytes_per_second": "quota.bytes.per.second",
    "quota_stored_bytes": "quota.stored.bytes",
    "quota_held_pulls": "quota.held.pulls",
}
TOPIC_LIMITS = ("retention_hours", *_SHARED_LIMITS)
_READ = 4
_CHANGES_MAX = 10


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """What can be chosen for a topic. `perm`: 4 read, 2 write, 6 both. Limits are the whole topic's; None: it has none."""

    read_queue_nums: int = 8
    write_queue_nums: int = 8
    perm: int = 6
    message_type: str = MessageType.NORMAL
    description: str = ""
    retention_hours: int | None = None
    retention_bytes: int | None = None
    quota_messages_per_second: int | None = None
    quota_bytes_per_second: int | None = None
    quota_stored_bytes: int | None = None
    quota_held_pulls: int | None = None

    @classmethod
    def of(cls, topic: Topic) -> "TopicOptions":
        """Return what was chosen for a topic."""
        return cls(**{name: getattr(topic, name) for name in _OPTIONS})

    def check(self, cluster: Cluster, *, before: Topic | None = None) -> None:
        """Raise InvalidInput for a value that is out of range in this cluster. Hours that the topic had `before` may stay."""
        most = retention_hours(cluster)
        is_kept = before is not None and self.retention_hours == before.retention_hours
        if self.retention_hours is not None and not is_kept and not 1 <= self.retention_hours <= most:
            raise InvalidInput.for_field(
                "retention_hours",
                say("Use 1 to %(most)s hours: the brokers delete their files then.", most=most),
                "out_of_range",
            )
        for name in _SHARED_LIMITS:
            value = getattr(self, name)
            if value is not None and not 1 <= value <= LIMIT_MAX:
                raise InvalidInput.for_field(name, say("Use 1 to %(most)s.", most=LIMIT_MAX), "out_of_range")
        for name, value in (("read_queue_nums", self.read_queue_nums), ("write_queue_nums", self.write_queue_nums)):
            if not 1 <= value <= QUEUES_MAX:
                raise InvalidInput.for_field(name, say("Use 1 to %(most)s queues.", most=QUEUES_MAX), "out_of_range")
        if self.perm not in _PERMS:
            raise InvalidInput.for_field("perm", say("Use 2 (write), 4 (read) or 6 (both)."), "invalid_choice")
        if self.message_type not in MessageType.values:
            raise InvalidInput.for_field(
                "message_type", say("Use one of %(names)s.", names=", ".join(MESSAGE_TYPES)), "invalid_choice"
            )
        if len(self.description) > 500:
            raise InvalidInput.for_field("description", say("At most 500 characters."), "too_long")
        if before is None or self.description != before.description:
            name_check("description", self.description)


def topic_create(*, actor: Actor, cluster: Cluster, name: str, options: TopicOptions | None = None) -> Topic:
    """Create the topic on every master.

    Raises InvalidInput, Conflict when it exists or the cluster isn't running, BrokerRefused or BrokerUnreachable
    when the brokers didn't take it: the row is then `failed`, and creating it again is how to retry.
    """
    actor_require(actor, "topic.create", cluster.tenant)
    options = options or TopicOptions()
    topic_name_check(name)
    if name == cluster.slug or cluster.broker_groups.filter(name=name).exists():
        # RocketMQ's brokers keep a topic under their cluster's and their own name.
        raise InvalidInput.for_field(
            "name", say("`%(name)s` is the name of this cluster or of one of its broker groups.", name=name), "reserved"
        )
    options.check(cluster)
    if options.message_type not in MESSAGE_TYPES:
        raise InvalidInput.for_field("message_type", NO_TRANSACTIONS, "unsupported")
    require_running(cluster)
    at_most = tenant_limit(cluster.tenant, "topics_per_cluster")
    with transaction.atomic():
        Cluster.objects.select_for_update().get(pk=cluster.pk)  # of two requests, one is the last that fits
        if cluster.topics.count() >= at_most:
            raise over_limit("topics_per_cluster", at_most)
        topic = _row_for_creation(cluster, name, options)
        _record(actor, "topic.create", topic)
    with _failure_kept(topic):
        topic_apply(topic)
    return _settle(topic, TopicState.ACTIVE)


def topic_update(*, actor: Actor, topic: Topic, options: TopicOptions) -> Topic:
    """Change queues, permission, retention, quotas or description. Raises as `topic_create`.

    `message_type` can't be changed: messages of the former kind would be in the queues. What another request has changed since
    `topic` was read stays, where `options` have it as it was read.
    """
    actor_require(actor, "topic.update", topic.cluster.tenant)
    options.check(topic.cluster, before=topic)
    if options.message_type != topic.message_type:
        raise InvalidInput.for_field("message_type", say("A topic's message type can't be changed."), "immutable")
    require_running(topic.cluster)
    # After a cluster has grown, its first groups keep more read queues than their share, until someone changes that.
    keep_read_queues = topic.read_queue_nums == options.read_queue_nums
    as_read = TopicOptions.of(topic)
    chosen = {name: new for name in _OPTIONS if (new := getattr(options, name)) != getattr(as_read, name)}
    with transaction.atomic():
        before = _still_there(topic).select_for_update().values(*_OPTIONS).first()
        if before is None:
            raise _being_deleted()
        _assign(topic, TopicOptions(**{**before, **chosen}))
        values = {name: getattr(topic, name) for name in _OPTIONS}
        _still_there(topic).update(**values, updated_at=timezone.now())
        _record(actor, "topic.update", topic, changes_between(before, values))
    with _failure_kept(topic):
        topic_apply(topic, keep_read_queues=keep_read_queues)
    return _settle(topic, TopicState.ACTIVE)


def topic_delete(*, actor: Actor, topic: Topic) -> None:
    """Delete the topic from every broker and name server, then its row. Raises as `topic_create`, and Conflict while a group
    that may have it has no master: it would bring the topic back, which no one could delete then. Asking again is safe.
    """
    actor_require(actor, "topic.delete", topic.cluster.tenant)
    factor_require(actor, "topic.delete", topic.cluster.tenant)
    require_running(topic.cluster)
    with transaction.atomic():
        _settle(topic, TopicState.DELETING, deleting=True)
        _record(actor, "topic.delete", topic)
    with _failure_kept(topic, deleting=True), cluster_admin(topic.cluster) as admin:
        brokers = admin.cluster_info().broker_addr_table
        without_master = [
            one for one in _groups(topic.cluster) if one not in brokers or 0 not in brokers[one].broker_addrs
        ]
        admin.delete_topic(topic.name, cluster=topic.cluster.slug)
        if without_master:
            raise _without_master(
                without_master,
                say("The other groups have deleted it. Promote a replica, or wait for the master, and ask again."),
            )
    Topic.objects.filter(pk=topic.pk).delete()


def _row_for_creation(cluster: Cluster, name: str, options: TopicOptions) -> Topic:
    """Return a new row, or the row of an attempt that failed."""
    try:
        with transaction.atomic():
            topic = Topic(cluster=cluster, name=name)
            _assign(topic, options)
            topic.save(force_insert=True)
            return topic
    except IntegrityError:
        won = Topic.objects.filter(cluster=cluster, name=name, state=TopicState.FAILED).update(
            state=TopicState.CREATING, error=None, updated_at=timezone.now()
        )
        if won != 1:
            raise Conflict(
                say("This cluster has a topic called `%(name)s` already.", name=name), code="topic_exists"
            ) from None
        topic = Topic.objects.select_related("cluster__tenant").get(cluster=cluster, name=name)
        _assign(topic, options)
        topic.save()
        return topic


def _assign(topic: Topic, options: TopicOptions) -> None:
    for name in _OPTIONS:
        setattr(topic, name, getattr(options, name))
    topic.description = topic.description.strip()  # around a text, name_check does not look


def topic_apply(topic: Topic, *, keep_read_queues: bool = False) -> None:
    """Have every group's master keep its share of the topic's queues: 8 queues on two groups are 4 and 4.

    With `keep_read_queues` no group loses queues that may hold unread messages. Every group is asked, though another has
    no master: then raises Conflict, and doing it again is harmless. Raises BrokerRefused, BrokerUnreachable.

    What another request has made of the row meanwhile counts: the brokers get that, also those of a group that was added, and a
    topic that was deleted is deleted from them again, which raises Conflict.
    """
    for _ in range(_CHANGES_MAX):
        groups = _groups(topic.cluster)
        _send(topic, groups, keep_read_queues=keep_read_queues)
        now = _changed_meanwhile(topic)
        if now is None and _groups(topic.cluster) == groups:
            return
        topic, keep_read_queues = now or topic, True
    raise Conflict(say("The topic is being changed all the time: ask again in a moment."), code="topic_changing")


def _changed_meanwhile(topic: Topic) -> Topic | None:
    """Return the topic's row if that says something else by now than the brokers were told, None if not.

    Raises Conflict for one that was deleted, once it is deleted from the brokers again: no one could delete it there later.
    """
    same_name = Topic.objects.filter(cluster=topic.cluster, name=topic.name).exclude(state=TopicState.DELETING)
    now = same_name.select_related("cluster__tenant").first()
    if now is None:
        with transaction.atomic():
            # No one makes it again meanwhile: topic_create waits for the same row.
            Cluster.objects.select_for_update().get(pk=topic.cluster_id)
            if not same_name.exists():
                with cluster_admin(topic.cluster) as admin:
                    admin.delete_topic(topic.name, cluster=topic.cluster.slug)
        raise _being_deleted()
    told = [getattr(topic, name) for name in _TOLD]
    return None if now.pk == topic.pk and [getattr(now, name) for name in _TOLD] == told else now


def _send(topic: Topic, groups: Sequence[str], *, keep_read_queues: bool) -> None:
    read = queues_spread(topic.read_queue_nums, len(groups))
    write = queues_spread(topic.write_queue_nums, len(groups))
    without_master = []
    with cluster_admin(topic.cluster) as admin:
        brokers = admin.cluster_info().broker_addr_table
        for position, group in enumerate(groups):
            data = brokers.get(group)
            address = None if data is None else data.broker_addrs.get(0)
            if address is None:
                without_master.append(group)
                continue
            is_out = not (read[position] or write[position])
            present = _present(admin, topic.name, address)
            kept = present.read_queue_nums if present is not None and (keep_read_queues or is_out) else 0
            if is_out and not kept:
                continue
            attributes = {} if present is None else present.attributes
            _create_in_group(admin, topic, address, _Share(read[position], write[position], kept, attributes))
    if without_master:
        raise _without_master(
            without_master,
            say("The other groups have the topic. Promote a replica, or wait for the master, and ask again."),
        )


def _groups(cluster: Cluster) -> list[str]:
    """Return the names of the broker groups that share the topics' queues. One whose growth has not come to spreading them, as it
    waits or has failed, may never have run: it gets its share when that goes on.
    """
    growing = OperationStep.objects.filter(
        operation__cluster=cluster,
        operation__type=OperationType.CLUSTER_GROW,
        name="spread_topics",
        state=StepState.PENDING,
    ).values_list("operation__metadata__group", flat=True)
    placed = cluster.broker_groups.filter(replicas__port__isnull=False).exclude(name__in=list(filter(None, growing)))
    return list(placed.order_by("name").values_list("name", flat=True).distinct())


def _without_master(groups: list[str], hint: str) -> Conflict:
    words = say("The broker group %(names)s has no master at the moment.", names=", ".join(groups))
    return Conflict(words, code="group_without_master", hint=hint)


def topics_assert(cluster: Cluster, group: str, address: str) -> list[str]:
    """Have the group's master at `address` keep every active topic as its row says; return the names that it lacked, or had
    otherwise. For a new master: what was made or changed in the last moment may be nowhere else by now.

    Queues that may hold unread messages stay. Raises BrokerUnreachable, BrokerRefused, the latter when all others are there; doing
    it again is harmless.
    """
    topics = list(Topic.objects.filter(cluster=cluster, state=TopicState.ACTIVE))
    if not topics:
        return []
    table = replica_remoting.topic_table(cluster, address)
    if table is None:
        raise BrokerUnreachable(say("The broker %(address)s does not list its topics.", address=address))
    groups = _groups(cluster)
    if group not in groups:
        return []  # its growth gives it its share
    position = groups.index(group)
    wrong: list[tuple[Topic, _Share]] = []
    for topic in topics:
        present = table.get(topic.name)
        read = queues_spread(topic.read_queue_nums, len(groups))[position]
        write = queues_spread(topic.write_queue_nums, len(groups))[position]
        if _lacks(present, topic, read, write):
            kept = (0, {}) if present is None else (present.read_queue_nums, present.attributes)
            wrong.append((topic, _Share(read, write, *kept)))
    created: list[Topic] = []
    try:
        if wrong:
            with cluster_admin(cluster) as admin:
                _create_all(admin, wrong, address, created)
    finally:  # whatever ended it
        for topic in created:
            with suppress(Conflict):  # it is deleted from the brokers again
                if (now := _changed_meanwhile(topic)) is not None:
                    topic_apply(now, keep_read_queues=True)
    return [topic.name for topic, _ in wrong]


@dataclass(frozen=True, slots=True)
class _Share:
    """A broker group's share of a topic's queues; `kept` are the read queues that it has to keep, `attributes` what it has of the
    topic.
    """

    read: int
    write: int
    kept: int
    attributes: Mapping[str, str]


def _create_all(admin: Admin, wrong: Sequence[tuple[Topic, _Share]], address: str, created: list[Topic]) -> None:
    """Raises the first refusal of the broker's, when all others are there; `created` gets each that was asked for."""
    refused: BrokerError | None = None
    for topic, share in wrong:
        if not _still_there(topic).exists():
            continue
        created.append(topic)
        try:
            _create_in_group(admin, topic, address, share)
        except BrokerError as error:
            refused = refused or error
    if refused is not None:
        raise refused


def _lacks(present: bodies.TopicConfig | None, topic: Topic, read: int, write: int) -> bool:
    """Whether a broker that keeps `present` of a topic lacks some of its share, or has it otherwise."""
    if present is None:
        return bool(read or write)
    perm = topic.perm if write else topic.perm & _READ
    return (
        present.read_queue_nums < read
        or present.write_queue_nums != max(write, 1)
        or present.perm != perm
        or any(present.attributes.get(name) != value for name, value in _limits(topic, write).items())
    )


def _create_in_group(admin: Admin, topic: Topic, address: str, share: _Share) -> None:
    # What it has not is not taken away: a broker of an earlier version does not know the word, and would refuse the rest.
    limits = {
        name: value
        for name, value in _limits(topic, share.write).items()
        if value is not None or name in share.attributes
    }
    try:
        admin.create_topic(
            topic.name,
            address=address,
            read_queue_nums=max(share.read, share.kept, 1),
            write_queue_nums=max(share.write, 1),
            # A group that gets no queue any more can still be read empty.
            perm=topic.perm if share.write else topic.perm & _READ,
            order=topic.message_type == MessageType.FIFO,
            attributes={**_type(topic), **limits},
        )
    # A master whose slaves are gone, or hang, has the topic all the same. Should it be lost with that master, `topics_assert` gives
    # it to the next.
    except BrokerError as error:
        if error.response_code not in (ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT):
            raise
    except RequestTimeoutError:
        table = replica_remoting.topic_table(topic.cluster, address)
        if table is None or _lacks(table.get(topic.name), topic, share.read, share.write):
            raise


def _type(topic: Topic) -> dict[str, str]:
    """Return the attribute of the topic's type. Of one that brokers don't serve none is sent."""
    return {"message.type": topic.message_type} if topic.message_type in MESSAGE_TYPES else {}


def _limits(topic: Topic, write: int) -> dict[str, str | None]:
    """Return the attributes of a topic's limits in a group that has `write` of its queues; None: it has no such limit.

    A share is rounded up. A group that is read empty has all: what it still holds must not go for want of queues.
    """
    hours = topic.retention_hours
    limits: dict[str, str | None] = {"reserve.time": None if hours is None else str(hours)}
    for field, attribute in _SHARED_LIMITS.items():
        whole = getattr(topic, field)
        share = whole if whole is None or not write else -(-whole * write // topic.write_queue_nums)
        limits[attribute] = None if share is None else str(share)
    return limits


def queues_spread(queue_nums: int, groups: int) -> list[int]:
    """Return each group's share of a topic's queues; the first ones have one more when it doesn't come out even."""
    share, rest = divmod(queue_nums, groups)
    return [share + (position < rest) for position in range(groups)]


def _present(admin: Admin, topic: str, address: str) -> TopicConfig | None:
    """Return the topic as the broker keeps it, None when it does not."""
    try:
        return admin.topic_config(topic, address)
    except TopicNotFoundError:
        return None


def _settle(topic: Topic, state: TopicState, error: dict[str, str] | None = None, *, deleting: bool = False) -> Topic:
    """Write the state in which an act left the topic. Only its deletion goes on from, or to, one that is being deleted."""
    rows = Topic.objects.filter(pk=topic.pk) if deleting else _still_there(topic)
    if rows.update(state=state, error=error, updated_at=timezone.now()) != 1:
        raise _being_deleted()
    topic.refresh_from_db(fields=["state", "error", "updated_at"])
    return topic


def _still_there(topic: Topic) -> QuerySet[Topic]:
    return Topic.objects.filter(pk=topic.pk).exclude(state=TopicState.DELETING)


def _being_deleted() -> Conflict:
    return Conflict(say("The topic is being deleted, or was deleted a moment ago."), code="topic_deleting")


@contextmanager
def _failure_kept(topic: Topic, *, deleting: bool = False) -> Iterator[None]:
    try:
        yield
    except ApplicationError as error:
        _settle(topic, TopicState.FAILED, {"cause": error.message, "hint": error.hint}, deleting=deleting)
        raise


def _record(actor: Actor, action: str, topic: Topic, changes: Mapping[str, Any] | None = None) -> None:
    audit_event_record(
        actor=actor,
        action=action,
        resource=topic.path,
        tenant_id=topic.cluster.tenant_id,
        details={
            "read_queue_nums": topic.read_queue_nums,
            "write_queue_nums": topic.write_queue_nums,
            "perm": topic.perm,
            **{name: value for name in TOPIC_LIMITS if (value := getattr(topic, name)) is not None},
            **({} if changes is None else {"changes": changes}),
        },
    )
