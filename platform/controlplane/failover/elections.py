"""Elections that no one ordered: a sample notices a new epoch and writes it down; then it is measured how long no send was
taken.

Nothing is decided here. The group has its leader already; this is its history.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from controlplane.clusters import replica_remoting
from controlplane.clusters.models import BrokerGroup, Cluster, Operation, OperationState, OperationType, Replica
from controlplane.common.logging import get_logger
from controlplane.common.sentences import Sentence, bounded, say, say_all
from controlplane.failover.models import Failover, FailoverKind, GroupLeadership
from controlplane.failover.timeline import timeline_add
from controlplane.provisioning.drivers.base import Driver
from controlplane.provisioning.errors import DriverError
from controlplane.provisioning.processes import cluster_replicas, replica_process_name
from controlplane.provisioning.rendering import Plan
from mqwire.bodies import ReplicaStatus
from mqwire.message import StoredMessage
from mqwire.names import RMQ_SYS_EPOCH, RMQ_SYS_METADATA, RMQ_SYS_METERING

_log = get_logger("controlplane.failover")

# Records that a broker writes by itself are no proof that sends are taken.
_OWN_TOPICS = (RMQ_SYS_EPOCH, RMQ_SYS_METADATA, RMQ_SYS_METERING)
_RECORDS_LOOKED_AT = 20
# How long after an election clients may find the leader and send first, before a message of ours does.
_CLIENTS_FIRST = timedelta(seconds=3)
# Supervisors report ends in whole seconds, rounded down.
_ROUNDED = timedelta(seconds=1)


def election_note(
    group: BrokerGroup, before: GroupLeadership, leader: Replica, known: Mapping[Replica, ReplicaStatus]
) -> None:
    """Write that the group has a new epoch, unless an operation of ours asked for this leader. Called once for each epoch,
    before the samples are written: `before` is who led until now.
    """
    status = known[leader]
    running = Operation.objects.filter(
        cluster=group.cluster_id, state=OperationState.IN_PROGRESS, metadata__group=group.name
    )
    # A drill has a timeline of its own, whomever the group elects.
    if running.filter(Q(metadata__target=leader.broker_id) | Q(type=OperationType.GROUP_DRILL)).exists():
        return
    now = timezone.now()
    old = before.leader
    election = Failover.objects.create(
        cluster=group.cluster,
        group_name=group.name,
        kind=FailoverKind.ELECTION,
        requested_by=say("%(group)s itself", group=group.name),
        candidate_id=leader.broker_id,
        old_master_id=None if old is None else old.broker_id,
        expected_epoch=before.epoch,
        new_epoch=status.epoch,
        lossless=True,
        lossless_because=say("the elected replica holds all that a majority had confirmed."),
        writes_stopped_at=before.led_at,
    )
    timeline_add(
        election,
        "noticed",
        say_all(
            say("A sample found epoch %(epoch)s, after epoch %(before)s.", epoch=status.epoch, before=before.epoch),
            _why(old, known),
        ),
        at=now,
    )
    _log.info("election", group=group.name, leader=leader.broker_id, epoch=status.epoch)


def _why(old: Replica | None, known: Mapping[Replica, ReplicaStatus]) -> str:
    if old is None:
        return ""
    status = known.get(old)
    if status is None:
        return say("Replica %(replica)s, which led before, did not answer.", replica=old.broker_id)
    if status.role == "master":
        return say("Replica %(replica)s led before, and leads again.", replica=old.broker_id)
    quorum = status.quorum
    if quorum is not None and quorum.leader_id is not None and quorum.leader_id == quorum.preferred_leader:
        return say(
            "Replica %(replica)s led before, and answers: the role went to the preferred leader.", replica=old.broker_id
        )
    return say(
        "Replica %(replica)s, which led before, answers: it was restarted, resigned, or was cut off for a while.",
        replica=old.broker_id,
    )


def elections_measure(cluster: Cluster, driver: Driver) -> None:
    """Complete the timelines of elections whose first write is not known yet."""
    waiting = Failover.objects.filter(
        cluster=cluster, kind=FailoverKind.ELECTION, writes_back_at=None, superseded_at=None
    ).order_by("created_at")
    for election in waiting:
        replicas = [replica for replica in cluster_replicas(cluster) if replica.group.name == election.group_name]
        leader = next((replica for replica in replicas if replica.broker_id == election.candidate_id), None)
        if leader is None or leader.port is None:
            _supersede(election, say("The replica that was elected is gone."))
            continue
        status = replica_remoting.replica_statuses(cluster, [leader.address])[leader.address].status
        if status is None:
            continue
        if status.epoch != election.new_epoch or status.role != "master":
            _supersede(election, say("Epoch %(epoch)s began before a write was seen in this one.", epoch=status.epoch))
            continue
        old = next((replica for replica in replicas if replica.broker_id == election.old_master_id), None)
        _measure(cluster, driver, election, leader, status, old)


@dataclass(frozen=True, slots=True)
class _Moment:
    """`is_bound`: sends were taken before it at the latest, or after it at the earliest; not exactly then."""

    at: datetime
    words: str
    is_bound: bool = False


def _measure(
    cluster: Cluster, driver: Driver, election: Failover, leader: Replica, status: ReplicaStatus, old: Replica | None
) -> None:
    record = _epoch_record(cluster, leader.address, status)
    if record is not None:
        at = _time(record.store_timestamp_ms)
        name = say("Replica %(broker_id)s", broker_id=leader.broker_id)
        timeline_add(
            election,
            "elected",
            say("%(name)s wrote the record of epoch %(epoch)s, by its clock.", name=name, epoch=status.epoch),
            at=at,
        )
    back = _first_record(cluster, leader, status, record) if record is not None else None
    if back is None and record is not None and timezone.now() - _time(record.store_timestamp_ms) < _CLIENTS_FIRST:
        return  # a client's message measures the outage better than one of ours: looked at again with the next sample
    if back is None:
        probe = replica_remoting.probe_send(cluster, leader.address)
        if not probe.stored:
            return  # looked at again with the next sample
        words = say(
            "a message of ours, which replica %(broker_id)s answered %(answer)s, as no client had sent any",
            broker_id=leader.broker_id,
            answer=probe.answer,
        )
        back = _Moment(timezone.now(), words, is_bound=True)
    stopped = _stopped(cluster, driver, election, old, back.at)
    now = timezone.now()
    how = ""
    if stopped is not None:
        bound = say("At most this long: measured") if stopped.is_bound or back.is_bound else say("Measured")
        how = say("%(bound)s from %(words)s to %(words_2)s.", bound=bound, words=stopped.words, words_2=back.words)
    with transaction.atomic():  # a reader who sees that writes are back finds the rows that say it
        won = Failover.objects.filter(pk=election.pk, writes_back_at=None).update(
            writes_stopped_at=None if stopped is None else stopped.at,
            writes_back_at=back.at,
            measured_how=bounded(how, 512),
            updated_at=now,
        )
        if won == 1:
            if stopped is not None:
                timeline_add(election, "lost", _whole(stopped.words), at=stopped.at)
            election.refresh_from_db()
            outage = (
                ""
                if election.outage_ms is None
                else say("No send was taken for %(seconds)s s.", seconds=f"{election.outage_ms / 1000:.2f}")
            )
            timeline_add(election, "first_write", say_all(say("It was %(what)s.", what=back.words), outage), at=back.at)


def _stopped(
    cluster: Cluster, driver: Driver, election: Failover, old: Replica | None, before: datetime
) -> _Moment | None:
    """When sends were last taken, as far as is known: the end of the old leader's process, or the last sample of it."""
    led_at = election.writes_stopped_at
    if old is not None:
        ended = _process_end(cluster, driver, old)
        if ended is not None and ended < before and (led_at is None or ended + _ROUNDED > led_at):
            later = ended if led_at is None else max(ended, led_at)
            return _Moment(
                later,
                say(
                    "the end of replica %(broker_id)s's process (its supervisor reports whole seconds)",
                    broker_id=old.broker_id,
                ),
            )
    if led_at is None or led_at > before:
        return None
    who = say("the old leader") if old is None else say("replica %(broker_id)s", broker_id=old.broker_id)
    return _Moment(
        led_at, say("the last sample in which %(who)s led (one is taken each three seconds)", who=who), is_bound=True
    )


def _process_end(cluster: Cluster, driver: Driver, replica: Replica) -> datetime | None:
    name = replica_process_name(cluster, replica)
    try:
        return driver.process_statuses([name])[name].stopped_at
    except DriverError as error:
        _log.warning("the driver does not answer", error=str(error))
        return None


def epoch_record_time(cluster: Cluster, address: str, status: ReplicaStatus) -> datetime | None:
    """When the leader at this address wrote the record of its epoch, by its clock; None when that can't be read."""
    record = _epoch_record(cluster, address, status)
    return None if record is None else _time(record.store_timestamp_ms)


def _epoch_record(cluster: Cluster, address: str, status: ReplicaStatus) -> StoredMessage | None:
    """The record that begins the epoch: at its start, or, after the BLANK that fills a file up, in the next file."""
    start = next((offset for epoch, offset in status.epoch_map if epoch == status.epoch), None)
    if start is None:
        return None
    file_bytes = Plan().commit_log_file_bytes
    for offset in (start, math.ceil((start + 1) / file_bytes) * file_bytes):
        record = replica_remoting.record_at(cluster, address, offset)
        if record is not None and record.topic == RMQ_SYS_EPOCH:
            return record
    return None


def _first_record(
    cluster: Cluster, leader: Replica, status: ReplicaStatus, epoch_record: StoredMessage
) -> _Moment | None:
    """The first message of a client in the epoch, if there is one among the first few records."""
    offset = epoch_record.physical_offset + epoch_record.size_bytes
    for _ in range(_RECORDS_LOOKED_AT):
        record = (
            None if offset >= status.confirm_offset else replica_remoting.record_at(cluster, leader.address, offset)
        )
        if record is None:
            return None
        if record.topic not in _OWN_TOPICS:
            at = _time(record.store_timestamp_ms)
            return _Moment(
                at,
                say(
                    "the first message that replica %(broker_id)s stored in its epoch, by its clock",
                    broker_id=leader.broker_id,
                ),
            )
        offset += record.size_bytes
    return None


def _whole(words: str) -> str:
    """Return words as a sentence of their own."""
    if not isinstance(words, Sentence):
        return f"{words[:1].upper()}{words[1:]}."
    return Sentence.of(f"{words.message[:1].upper()}{words.message[1:]}.", "", words.values)


def _supersede(election: Failover, words: str) -> None:
    now = timezone.now()
    if Failover.objects.filter(pk=election.pk, superseded_at=None).update(superseded_at=now, updated_at=now) == 1:
        timeline_add(election, "superseded", words, at=now)


def _time(timestamp_ms: int) -> datetime:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC)
