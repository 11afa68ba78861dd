"""Headers of replication and role changes: our own requests, HighwaterRequestCode. All offsets are of the CommitLog, in bytes."""

from __future__ import annotations

import msgspec

from mqwire.header import CustomHeader, Int32, Int64


class ReplicaPullRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """REPLICA_PULL (20001): give me records from my end on; and this is what I hold (brokerd/replica/pull_protocol.py)."""

    group: str
    replica_id: Int64
    leader_epoch: Int64
    end_offset: Int64
    last_epoch: Int64
    durable_offset: Int64
    max_bytes: Int32
    max_wait_millis: Int32
    address: str  # where this replica serves, for the leader's role map and read redirection
    joined: bool = True  # False: its disk is new or was damaged, and an electing group does not count it yet
    incarnation: str = ""  # of its disk: an electing group counts the one that it knows
    disk_full: bool = False  # no one should hand it the leadership
    mode: str = ""  # async, sync or dledger: by which it acts
    syncs: bool = (
        False  # its flushDiskType is SYNC_FLUSH: after a power cut it answers for what is durable, and no more
    )


class ReplicaRecordsRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """REPLICA_RECORDS (20018), to any replica: the records from an offset on, and the one after them, to put damage right."""

    group: str
    offset: Int64


class ReplicaPullResponseHeader(CustomHeader, frozen=True, kw_only=True):
    """The answer; with `answer` "bytes" the body holds whole records."""

    answer: str  # bytes, diverged, too_old or fenced
    epoch: Int64
    end_offset: Int64 = 0
    confirm_offset: Int64 = 0
    min_offset: Int64 = 0
    diverged_epoch: Int64 | None = None
    diverged_end_offset: Int64 | None = None
    parts_epoch: Int64 | None = (
        None  # with too_old, where the logs part: nowhere else is what the follower has from there on
    )
    parts_end_offset: Int64 | None = None
    leader_address: str | None = None
    in_sync: bool = False
    in_sync_for_millis: Int64 = (
        0  # so long, from this pull on, readers are shown nothing that the follower does not hold
    )
    # How far each delay level is delivered by the log up to the last of these records: "1=40;3=7". None: that is not remembered.
    delay_offsets: str | None = None
    voters: str = ""  # with too_old, of a quorum-led group: their ids with ; between them
    incarnations: str = ""  # with it, those of their disks: "0=…;1=…"
    mode: str = ""  # with too_old: the mode in force, where retention has deleted the record that says so
    in_sync_replicas: Int64 = 1  # of that mode
    min_in_sync_replicas: Int64 = 1
    replicas: str = ""  # the group as the leader knows it, itself included: "0=10.0.0.1:10911;1=10.0.0.2:10911"
    checked: bool = False  # the leader has looked at each of the records


class ReplicaPromoteRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """REPLICA_PROMOTE (20003): lead `group` in `new_epoch`, if the group is in `expected_epoch` here.

    A replica whose log may lack records at its end takes it only with `with_incomplete_log`: what it had promised to hold may be
    gone by now. `lacks_an_epoch`: someone may have led in an epoch of which its log has nothing, so that consumers may have read
    others in the place of any of its messages. A group that elects its leader takes it only with `lost`, its voters that are gone
    for good, a majority of all.
    """

    group: str
    replica_id: Int64
    expected_epoch: Int64
    new_epoch: Int64
    with_incomplete_log: bool = False
    lacks_an_epoch: bool = False
    in_sync: str = ""  # ids with ; between them of those that promised: readers wait for them as for replicas in sync
    lost: str = ""  # ids with ; between them


class ReplicaDemoteRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """REPLICA_DEMOTE (20004): stop leading, because the group is, or is about to be, in `epoch`.

    With `lost`, of a group that elects: a promise, unless a leader answers there. Its voters that are gone for good, a majority of
    all, are given up, and the replica at `leader_address`, or this one where none is named, is to lead.
    """

    group: str
    epoch: Int64
    leader_address: str | None = None
    lost: str = ""  # ids with ; between them


class ReplicaFreezeSendsRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """REPLICA_FREEZE_SENDS (20007): refuse sends for so long, 0 to take them again; the drain of a planned switchover."""

    group: str
    epoch: Int64
    for_millis: Int32


class NetworkCutRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """NETWORK_CUT (20016): be cut off from everyone for so long, as a failover drill asks."""

    group: str
    replica_id: Int64
    for_millis: Int32


class ReplicaReclaimRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """REPLICA_RECLAIM (20008): a restarted leader asks each of its group's replicas to let it lead in `epoch`."""

    group: str
    replica_id: Int64
    epoch: Int64
    last_epoch: Int64
    end_offset: Int64
    address: str


class ReplicaReclaimResponseHeader(CustomHeader, frozen=True, kw_only=True):
    """Granted, or why not; where the answering replica stands; what its disk, or the one before it, may have held as the leader's
    that the asking one's log lacks: the end of a log, or all of an epoch."""

    granted: bool
    lacks_shown: bool = msgspec.field(default=False, name="inDoubt")
    lacks_an_epoch: bool = False
    reason: str = ""
    epoch: Int64
    last_epoch: Int64
    end_offset: Int64


class DivergedReadRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """DIVERGED_READ (20006): records of one saved cut, from a position in its file."""

    file_name: str = msgspec.field(name="name")
    position: Int64 = 0
    max_messages: Int32 = 32


class DivergedReadResponseHeader(CustomHeader, frozen=True, kw_only=True):
    """Where to read on, equal to the file's size when that was all; and where each record begins, joined by `;`.

    No records and a `next_position` below the size: it was not looked through so far yet, and is to be asked again.
    """

    next_position: Int64
    size: Int64
    positions: str = ""


class DivergedDeleteRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """DIVERGED_DELETE (20017): remove one saved cut for good."""

    file_name: str = msgspec.field(name="name")


class ReplicaVoteRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """REPLICA_VOTE (20009): would you (`pre`), or do you, vote for me in `epoch`? Of a quorum-led group, as the next three."""

    group: str
    candidate: Int64
    epoch: Int64
    last_epoch: Int64
    end_offset: Int64
    pre: bool


class ReplicaVoteResponseHeader(CustomHeader, frozen=True, kw_only=True):
    """Yes, or why not; and the voter's own epoch, and who leads in it as far as known there."""

    voter: Int64
    granted: bool
    epoch: Int64
    reason: str = ""
    incarnation: str = ""  # of the voter's disk
    log_may_be_incomplete: bool = msgspec.field(default=False, name="inDoubt")  # for a power cut or a failed sync
    trusts_own_end: bool = False  # it was in doubt, and waited for no one any more
    joined: bool = True  # false: a disk that has never held all that was committed
    known: str = ""  # the ids of the other replicas that the voter has seen: "1;2"
    leader: Int64 | None = None
    leader_address: str | None = None


class ReplicaBeginEpochRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """REPLICA_BEGIN_EPOCH (20010): `leader` was elected; pull from `address`."""

    group: str
    leader: Int64
    epoch: Int64
    address: str


class ReplicaEndEpochRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """REPLICA_END_EPOCH (20011): the leader resigns; `successors` are replica ids with ; between them, the best first."""

    group: str
    leader: Int64
    epoch: Int64
    successors: str = ""


class ReplicaCampaignRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """REPLICA_CAMPAIGN (20012): the leader hands its role over; campaign now."""

    group: str
    leader: Int64
    epoch: Int64


class ReplicaNotedResponseHeader(CustomHeader, frozen=True, kw_only=True):
    """The answer to the three above: who answers, and in which epoch that one is."""

    replica: Int64
    epoch: Int64


class ReplicaTransferRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """REPLICA_TRANSFER (20013), to the leader of a quorum-led group: hand the leadership to `target` once it has caught up."""

    group: str
    target: Int64


class ReplicaMembersRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """REPLICA_MEMBERS (20014), to the leader of a quorum-led group: change who counts, or who is preferred as leader."""

    group: str
    change: str  # addObserver, addVoter, removeVoter, prefer; or forget, which any replica takes
    replica_id: Int64 | None = None  # None with prefer: no one in particular
    address: str | None = None  # with addObserver: where it serves


class ReplicaModeRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """REPLICA_MODE (20015), to the leader: another mode for the running group, in force once confirmed under the old one."""

    group: str
    mode: str  # async, sync or dledger
    in_sync_replicas: Int32 = 1  # with sync
    min_in_sync_replicas: Int32 = 1
    # As the leader's status said: refused where it has another epoch by now, or has been asked for a mode since.
    epoch: Int64 | None = None
    end_offset: Int64 | None = None  # bytes of the CommitLog
