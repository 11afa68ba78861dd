"""What a replica reports of itself and of its followers. All offsets are of the CommitLog, in bytes."""

from __future__ import annotations

from mqwire.bodies.base import Body


class FollowerStatus(Body, frozen=True, kw_only=True):
    """A follower as its leader sees it. Unknown is None, never 0."""

    replica_id: int
    address: str
    end_offset: int
    durable_offset: int
    gap_bytes: int
    gap_messages: int | None = None
    in_sync: bool
    last_pull_ms_ago: int
    incarnation: str = ""  # of the disk that pulled


class QuorumStatus(Body, frozen=True, kw_only=True):
    """What a replica of a quorum-led group (mode dledger) says of elections. Its term is ReplicaStatus.epoch."""

    state: str  # unattached, follower, pre-candidate, candidate or leader
    voted_for: int | None = None  # in this epoch
    leader_id: int | None = None  # None: not known here
    voters: list[int]
    observers: list[int] = []  # as far as known
    preferred_leader: int | None = None
    change_pending: bool = False  # of who counts, not confirmed yet; reported by the leader
    transferring_to: int | None = None
    not_electable_because: str | None = None
    has_caught_up: bool = True  # see ReplicaStatus; until then it votes for no one whose log has an epoch


class ReplicaStatus(Body, frozen=True, kw_only=True):
    """REPLICA_STATUS (20002): one replica's role, epoch and log."""

    cluster: str
    group: str
    replica_id: int
    advertised_broker_id: int
    address: str
    role: str  # master or slave
    mode: str  # single, async, sync or dledger
    epoch: int  # the highest that it has seen
    log_epoch: int  # of its last record
    epoch_map: list[tuple[int, int]]
    min_offset: int
    end_offset: int
    durable_offset: int
    held_offset: int
    confirm_offset: int
    flush_disk_type: str
    in_sync_replicas: int  # so many hold for certain what was answered with SEND_OK
    min_in_sync_replicas: int
    in_sync: list[int]  # replica ids, the leader's own included; empty on a slave
    leader_address: str | None = None
    accepts_sends: bool
    refusal: str | None = None  # why it does not
    claims: bool = False  # it led when it stopped, and waits for every other replica's agreement to lead again
    promotable: bool
    not_promotable_because: str | None = None
    # Its log may lack records at its end that counted: until it has caught up it proves nothing about a promotion.
    log_may_be_incomplete: bool = False
    followers: list[FollowerStatus] = []
    diverged_files: int = 0
    store_timestamp_ms: int | None = None  # of the last record
    quorum: QuorumStatus | None = None  # of a quorum-led group only
    pending_mode: str | None = None  # written to the log, and not in force yet
    # Of mode sync: a leader shows readers what fewer than in_sync_replicas hold, while too few are in sync (minInSyncReplicas).
    shows_below: bool = False
    # It led in its log's last epoch, and its log was not truncated since: it holds all that it has shown in that epoch.
    led_last_epoch: bool = False
    # Until then (below 0: so long ago) the leader of that epoch has shown no one anything that this slave does not hold.
    in_sync_epoch: int | None = None
    in_sync_for_ms: int | None = None
    incarnation: str = ""  # of its disk, drawn at its first start
    has_caught_up: bool = True  # it has held all that was confirmed, since its disk is the one that it is
    total_replicas: int = 1  # of the group, as configured or as far as it has heard of others
    voters: list[int] = []  # who counted the last time the group elected its leader, by the log; empty: it never did


class DivergedFile(Body, frozen=True, kw_only=True):
    """Records that were cut from a replica's log, and are kept aside.

    `reason`: diverged (the group's leader never had them) or power_cut (recovery could not tell whether they were whole). Of
    the second kind epoch and time are not known. What it holds is known of the first `counted_bytes`: all when that is its
    size. `topics` are the hundred with most messages; times are in milliseconds since 1970. `left_out_bytes` at the end of a
    very long cut were not kept.
    """

    name: str
    reason: str = "diverged"
    epoch: int | None
    begin_offset: int
    end_offset: int
    size_bytes: int
    left_out_bytes: int = 0
    messages: int
    cut_at_ms: int | None
    topics: dict[str, int] = {}
    not_consumable: int = 0  # parts of transactions that were never committed
    first_store_ms: int | None = None
    last_store_ms: int | None = None
    counted_bytes: int


class DivergedFileList(Body, frozen=True, kw_only=True):
    """DIVERGED_LIST (20005)."""

    files: list[DivergedFile] = []
