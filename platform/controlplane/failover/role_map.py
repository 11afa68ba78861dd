"""The role map: every group with its replicas, as of the last sample, and the verdict on it."""

from dataclasses import dataclass, replace
from datetime import datetime

from django.utils import timezone

from controlplane.clusters.models import BrokerGroup, Cluster, ClusterMode, Health, Replica
from controlplane.clusters.selectors import HEALTH_STALE_AFTER
from controlplane.common.sentences import say
from controlplane.failover.acknowledgement import acknowledged_copies, acknowledgement_words
from controlplane.failover.membership.verdict import Electorate, electorate_of, verdict_of
from controlplane.failover.models import GroupLeadership, ReplicaSample
from controlplane.failover.promotion.safety import promotion_refusal
from controlplane.failover.promotion.verdict import GroupState, Verdict
from controlplane.failover.selectors import group_view, quorum_reported, samples_of


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """A replica of the role map. `role` is `unknown` while it does not answer; then what it held is of `last_seen_at`."""

    replica_id: int
    address: str
    fenced: bool
    role: str = "unknown"
    epoch: int | None = None
    end_offset: int | None = None
    held_offset: int | None = None
    gap_bytes: int | None = None
    gap_messages: int | None = None
    in_sync: bool | None = None
    accepts_sends: bool | None = None
    claims: bool | None = None
    promotable: bool | None = None
    not_promotable_because: str = ""
    diverged_files: int | None = None
    last_seen_at: datetime | None = None
    unreachable_since: datetime | None = None
    # Of a group that elects its leader; None in any other, and while it is not known.
    election_state: str | None = None
    is_voter: bool | None = None
    voted_for: int | None = None
    confirm_offset: int | None = None
    last_pull_at: datetime | None = None
    not_electable_because: str = ""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A broker group of the role map, with the verdict on it. `electorate` is of a group that elects its leader;
    `acknowledgement` says what SEND_OK means, `copies` how many replicas hold the message then; None while that is not known.
    `change_blocks`: a change of the mode hangs, and no one may be promoted while silent replicas may elect.
    """

    name: str
    epoch: int | None
    master_id: int | None
    verdict: Verdict
    replicas: list[ReplicaRow]
    sampled_at: datetime | None
    electorate: Electorate | None = None
    acknowledgement: str = ""
    copies: int | None = None
    change_blocks: bool = False

    @property
    def state(self) -> str:
        return self.verdict.state

    @property
    def sentences(self) -> list[str]:
        return list(self.verdict.sentences)


def group_rows(cluster: Cluster) -> list[GroupRow]:
    """Return the role map: every group with its replicas, as of the last sample."""
    return [group_row(group) for group in BrokerGroup.objects.filter(cluster=cluster).order_by("name")]


def group_row(group: BrokerGroup) -> GroupRow:
    """Return one group of the role map."""
    view, now = group_view(group), timezone.now()
    leadership = GroupLeadership.objects.filter(group=group).first()
    has_master = view.master is not None
    is_refused = promotion_refusal(view) is not None
    electorate = electorate_of(view) if view.elects and is_refused else None
    rows = [_replica_row(replica, sample, electorate, has_master=has_master) for replica, sample in samples_of(group)]
    verdict = verdict_of(view, now)
    sampled = [replica.sampled_at for replica in view.replicas if replica.sampled_at is not None]
    if not sampled and group.cluster.mode == ClusterMode.SINGLE and len(rows) == 1:
        verdict, rows, sampled = _of_one_broker(group, rows[0], verdict, now)
    epoch = None if leadership is None or leadership.epoch == 0 else leadership.epoch
    words = acknowledgement_words(view, electorate, group.cluster.flush_disk_type)
    return GroupRow(
        name=group.name,
        epoch=epoch,
        master_id=verdict.master_id,
        verdict=verdict,
        replicas=rows,
        sampled_at=min(sampled, default=None),
        electorate=electorate,
        acknowledgement=words,
        copies=acknowledged_copies(view, electorate),
        change_blocks=is_refused and view.elections_in_doubt,
    )


def _of_one_broker(
    group: BrokerGroup, row: ReplicaRow, verdict: Verdict, now: datetime
) -> tuple[Verdict, list[ReplicaRow], list[datetime]]:
    """What there is to say of a broker that no one could follow: no one samples its role, so its health says it."""
    broker = group.replicas.get()
    if broker.sampled_at is None or now - broker.sampled_at > HEALTH_STALE_AFTER:
        return verdict, [row], []
    sampled = [broker.sampled_at]
    if broker.health == Health.HEALTHY:
        leads = replace(row, role="master", last_seen_at=broker.sampled_at)
        words = say("%(group)s: replica %(replica_id)s leads.", group=group.name, replica_id=row.replica_id)
        return Verdict(GroupState.HEALTHY, (words,), master_id=row.replica_id), [leads], sampled
    if broker.health == Health.DOWN:
        since = broker.health_since
        down = Verdict(GroupState.NO_MASTER, (broker.health_message,), master_dead_since=since)
        return down, [replace(row, unreachable_since=since)], sampled
    return verdict, [row], []


def _replica_row(
    replica: Replica, sample: ReplicaSample | None, electorate: Electorate | None, *, has_master: bool
) -> ReplicaRow:
    address = "" if replica.port is None else replica.address
    voters = () if electorate is None else electorate.voters
    is_voter = replica.broker_id in voters if voters else None
    if sample is None:
        return ReplicaRow(replica.broker_id, address, replica.fenced, is_voter=is_voter)
    answers = sample.answers
    quorum = quorum_reported(sample)
    return ReplicaRow(
        replica_id=replica.broker_id,
        address=address,
        role=sample.role if answers else "unknown",
        epoch=sample.epoch,
        end_offset=sample.end_offset,
        held_offset=sample.held_offset,
        gap_bytes=sample.gap_bytes if answers and has_master else None,
        gap_messages=sample.gap_messages if answers and has_master else None,
        in_sync=sample.in_sync,
        accepts_sends=sample.accepts_sends,
        claims=sample.claims,
        promotable=sample.promotable if answers else None,
        not_promotable_because=sample.not_promotable_because if answers else "",
        diverged_files=sample.diverged_files,
        last_seen_at=sample.last_seen_at,
        unreachable_since=sample.unreachable_since,
        fenced=replica.fenced,
        election_state=quorum.state if quorum is not None and answers else None,
        is_voter=is_voter,
        voted_for=quorum.voted_for if quorum is not None and answers else None,
        confirm_offset=sample.confirm_offset,
        last_pull_at=sample.last_pull_at if answers else None,
        not_electable_because=(quorum.not_electable_because or "") if quorum is not None and answers else "",
    )
