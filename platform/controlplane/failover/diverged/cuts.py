"""Saved cuts of a cluster's replicas: which there are, what is in one, and what the group has of it now.

Looking changes nothing, on no disk and at no consumer.
"""

import re
import time
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote

from controlplane.accounts.actors import Actor
from controlplane.clusters.models import Cluster, Replica
from controlplane.clusters.remarks import error_words
from controlplane.clusters.remoting import cluster_admin
from controlplane.common.errors import NotFound
from controlplane.common.sentences import bounded, from_sdk, say
from controlplane.failover.models import DivergedDone
from controlplane.tenants.rules import actor_require
from controlplane.topics.bodies import BodyForm
from controlplane.topics.gateway import BrowsedMessage, browsed_where_it_fits
from controlplane.topics.masking import Sight
from controlplane.topics.masking_rules import sight_of
from controlplane.topics.selectors import topic_list
from highwater import Admin, HighwaterError, NotFoundError, ReceivedMessage
from highwater.diverged import Comparison, Fate, compare, is_internal, message_again, topic_of
from mqwire import names
from mqwire.bodies import DivergedFile

PAGE_MAX = 50
# Records that are the broker's own are passed over; so many are read for a page at most.
_READ_MAX = 512
_READ_AT_ONCE = 32
_COMPARE_SECONDS_MAX = 5.0
_NAME = re.compile(r"[0-9]+-[0-9]{20}-[0-9]{20}-[0-9]+\.log|cut-[0-9]{20}(\.[0-9]+)?")
_OWN_TOPICS = frozenset(
    {
        names.RMQ_SYS_EPOCH,
        names.RMQ_SYS_METERING,
        names.RMQ_SYS_METADATA,
        names.RMQ_SYS_PROBE,
        names.RMQ_SYS_TRANS_HALF_TOPIC,
        names.RMQ_SYS_TRANS_OP_HALF_TOPIC,
    }
)


class TopicCount(NamedTuple):
    """How many messages of a topic a cut holds."""

    topic: str
    messages: int


@dataclass(frozen=True, slots=True)
class SavedCut:
    """A file that a replica keeps of what was cut from its log.

    `is_counted` says whether the whole file was looked through: numbers are those of its beginning otherwise. `messages` are
    those of consumers' topics, `own_records` the broker's. `epoch` and `cut_at` are None where the file does not tell. The last
    `left_out_bytes` of a very long cut were not kept.
    """

    cluster: Cluster
    group_name: str
    replica_id: int
    address: str
    name: str
    reason: str
    epoch: int | None
    cut_at: datetime | None
    begin_offset: int
    size_bytes: int
    left_out_bytes: int
    is_counted: bool
    messages: int
    own_records: int
    topics: list[TopicCount]
    first_stored_at: datetime | None
    last_stored_at: datetime | None
    done: DivergedDone | None

    @property
    def path(self) -> str:
        """The cut's API path."""
        return f"{self.cluster.path}diverged/{self.group_name}/{self.replica_id}/{quote(self.name)}/"

    @property
    def why(self) -> str:
        """Why the records were cut, in a sentence."""
        if self.reason == "power_cut":
            return say("After a power cut the end of the log had holes: what followed could not be trusted.")
        return say("The group's leader never had these records: this replica led before, and another one was promoted.")

    @property
    def other_topics(self) -> int:
        """Topics beyond those that are named."""
        return max(0, len(self.topics) - 5)


@dataclass(frozen=True, slots=True)
class SilentReplica:
    """A replica that did not say which cuts it keeps."""

    group_name: str
    replica_id: int
    error: str


@dataclass(frozen=True, slots=True)
class SavedCuts:
    """Newest first. What `silent` replicas keep is not known."""

    cuts: list[SavedCut]
    silent: list[SilentReplica]


def saved_cuts(*, actor: Actor, cluster: Cluster) -> SavedCuts:
    """Ask every replica of the cluster. Raises NotAllowed, Conflict when it isn't running."""
    actor_require(actor, "failover.view", cluster.tenant)
    done = {
        (one.group_name, one.replica_id, one.file_name): one for one in DivergedDone.objects.filter(cluster=cluster)
    }
    found: list[SavedCut] = []
    silent: list[SilentReplica] = []
    with cluster_admin(cluster) as admin:
        for replica in _replicas(cluster):
            group = replica.group.name
            try:
                files = admin.diverged_list(replica.address)
            except HighwaterError as error:
                silent.append(SilentReplica(group, replica.broker_id, bounded(error_words(error), 300)))
                continue
            found += [_saved(cluster, replica, file, done.get((group, replica.broker_id, file.name))) for file in files]
    oldest = datetime.min.replace(tzinfo=UTC)
    found.sort(key=lambda cut: cut.cut_at or cut.last_stored_at or oldest, reverse=True)
    return SavedCuts(found, silent)


def saved_cut(*, actor: Actor, cluster: Cluster, group: str, replica_id: int, name: str) -> SavedCut:
    """Return one cut. Raises NotAllowed, NotFound, Conflict, BrokerRefused, BrokerUnreachable."""
    actor_require(actor, "failover.view", cluster.tenant)
    replica = replica_of(cluster, group, replica_id)
    with cluster_admin(cluster) as admin:
        return cut_of(admin, cluster, replica, name)


def replica_of(cluster: Cluster, group: str, replica_id: int) -> Replica:
    """Return a replica that may be asked; raises NotFound."""
    found = next((one for one in _replicas(cluster) if (one.group.name, one.broker_id) == (group, replica_id)), None)
    if found is None:
        raise NotFound(say("There is no such replica."))
    return found


def cut_of(admin: Admin, cluster: Cluster, replica: Replica, name: str) -> SavedCut:
    """Return one cut of a replica, as it reports it now; raises NotFound."""
    file = next((one for one in admin.diverged_list(replica.address) if one.name == name), None)
    if file is None or not _NAME.fullmatch(name):
        raise NotFound(say("The replica keeps no such file."), hint=say("Someone may have deleted it."))
    done = DivergedDone.objects.filter(
        cluster=cluster, group_name=replica.group.name, replica_id=replica.broker_id, file_name=name
    ).first()
    return _saved(cluster, replica, file, done)


@dataclass(frozen=True, slots=True)
class CutMessage:
    """A message of a cut, with what the group has of it.

    `fate` is None where no one could be asked in time. `place` is where the group has it now. `not_sent_because` says why it can't
    be sent again; empty where it can.
    """

    position: int
    topic: str
    message: BrowsedMessage
    fate: Fate | None
    place: str
    not_sent_because: str

    @property
    def fate_words(self) -> str:
        """What the group has of it, in a sentence."""
        match self.fate:
            case Fate.PRESENT:
                return say("The cluster has it at the same place.")
            case Fate.MOVED:
                return say("The cluster has it at %(place)s.", place=self.place)
            case Fate.REPLACED:
                return say("Another message is at its place. This one is not found by its id.")
            case Fate.MISSING:
                return say("Nothing is at its place, and it is not found by its id.")
            case Fate.TOO_OLD:
                return say("Its place was deleted by retention, and it is not found by its id.")
            case Fate.NO_TOPIC:
                return say("The cluster has no such topic any more.")
            case _:
                return say("Not known.")

    @property
    def is_lost(self) -> bool:
        """Whether the group surely has it not."""
        return self.fate in (Fate.REPLACED, Fate.MISSING, Fate.TOO_OLD, Fate.NO_TOPIC)


@dataclass(frozen=True, slots=True)
class CutPage:
    """Messages in the order of the log. `next_position` is None at the end. `own_records` were passed over: the broker's own."""

    messages: list[CutMessage]
    own_records: int
    next_position: int | None


def cut_messages(
    *,
    actor: Actor,
    cut: SavedCut,
    position: int = 0,
    limit: int = 20,
    body_limit_bytes: int = 200,
    body_as: BodyForm = BodyForm.AUTO,
    limit_max: int = PAGE_MAX,
    compares: bool = True,
    decodes: bool = True,
) -> CutPage:
    """Return a page of a cut's messages. A body that is not of the wanted form is shown as `auto` does.

    Raises NotAllowed, NotFound, Conflict, BrokerRefused, BrokerUnreachable.
    """
    actor_require(actor, "message.browse", cut.cluster.tenant)
    limit = max(1, min(limit, limit_max))
    topics = frozenset(topic_list(cut.cluster).values_list("name", flat=True))
    shown: list[CutMessage] = []
    sight = sight_of(actor, cut.cluster, decodes=decodes)
    own = read = 0
    at: int | None = max(0, position)
    with cluster_admin(cut.cluster) as admin:
        deadline = time.monotonic() + _COMPARE_SECONDS_MAX
        while at is not None and len(shown) < limit and read < max(_READ_MAX, limit):
            found = read_cut(admin, cut.address, cut.name, at, min(_READ_AT_ONCE, limit - len(shown)))
            for begins, message in found.messages:
                if is_internal(message):
                    own += 1
                    continue
                fate = _compared(admin, cut.group_name, message, deadline) if compares else None
                shown.append(_shown(begins, message, sight, fate, topics, body_limit_bytes, body_as))
            read += len(found.messages)
            at = found.next_position
            if not found.messages:
                break
    return CutPage(shown, own, at)


@dataclass(frozen=True, slots=True)
class ReadCut:
    """Messages with their positions, and where to read on: None at the end of the file."""

    messages: list[tuple[int, ReceivedMessage]]
    next_position: int | None


def read_cut(admin: Admin, address: str, name: str, position: int, count: int) -> ReadCut:
    """Read from a replica's file; raises NotFound where it is gone."""
    try:
        found = admin.diverged_read(address, name, position=position, max_messages=count)
    except NotFoundError as error:
        raise NotFound(say("The replica keeps no such file."), hint=say("Someone may have deleted it.")) from error
    return ReadCut(list(zip(found.positions, found.messages, strict=True)), found.next_position)


def origin_of(group: str, replica_id: int, name: str, position: int) -> str:
    """Return what a resent message's property DIVERGED_OF says."""
    return f"{group}/{replica_id}/{name}/{position}"


def place_words(message: ReceivedMessage) -> str:
    """Return where a message is now."""
    queue = message.queue
    return f"{queue.topic} / {queue.broker_name} / {queue.queue_id} / {message.queue_offset}"


def _compared(admin: Admin, group: str, message: ReceivedMessage, deadline: float) -> Comparison | None:
    if time.monotonic() >= deadline:
        return None
    try:
        return compare(admin, group, message)
    except HighwaterError:  # shown as not known: the messages themselves are worth a look while the leader is away
        return None


def _shown(
    position: int,
    message: ReceivedMessage,
    sight: Sight,
    comparison: Comparison | None,
    topics: Collection[str],
    body_limit_bytes: int,
    body_as: BodyForm,
) -> CutMessage:
    browsed = browsed_where_it_fits(message, sight, body_limit_bytes, body_as)
    again = message_again(message, "", topics)
    return CutMessage(
        position=position,
        topic=topic_of(message),
        message=browsed,
        fate=None if comparison is None else comparison.fate,
        place="" if comparison is None or comparison.found is None else place_words(comparison.found),
        not_sent_because=from_sdk(again) if isinstance(again, str) else "",
    )


def _replicas(cluster: Cluster) -> list[Replica]:
    found = Replica.objects.filter(group__cluster=cluster, port__isnull=False).select_related("group__cluster")
    return list(found.order_by("group__name", "broker_id"))


def _saved(cluster: Cluster, replica: Replica, file: DivergedFile, done: DivergedDone | None) -> SavedCut:
    own = {name: count for name, count in file.topics.items() if name in _OWN_TOPICS}
    own_records = sum(own.values()) + file.not_consumable
    topics = [TopicCount(name, count) for name, count in file.topics.items() if name not in _OWN_TOPICS]
    return SavedCut(
        cluster=cluster,
        group_name=replica.group.name,
        replica_id=replica.broker_id,
        address=replica.address,
        name=file.name,
        reason=file.reason,
        epoch=file.epoch,
        cut_at=_moment(file.cut_at_ms),
        begin_offset=file.begin_offset,
        size_bytes=file.size_bytes,
        left_out_bytes=file.left_out_bytes,
        is_counted=file.counted_bytes >= file.size_bytes,
        messages=max(0, file.messages - own_records),
        own_records=own_records,
        topics=sorted(topics, key=lambda one: (-one.messages, one.topic)),
        first_stored_at=_moment(file.first_store_ms),
        last_stored_at=_moment(file.last_store_ms),
        done=done,
    )


def _moment(timestamp_ms: int | None) -> datetime | None:
    return None if timestamp_ms is None else datetime.fromtimestamp(timestamp_ms / 1000, UTC)
