"""What simulated machines say to each other. The fields are those of the real headers (mqwire/headers_replica.py)."""

from __future__ import annotations

from typing import Any, NamedTuple

from brokerd.replica.epoch_record import Policy
from mqwire.bodies import ReplicaStatus
from mqwire.names import MASTER_ID
from tests.sim.group_offsets import OffsetChange


class Send(NamedTuple):
    """Several are a batch; with a delay level they are delivered later."""

    attempts: tuple[int, ...]
    queue: int  # its number (wire.py), or its id in `topic`
    bodies: tuple[bytes, ...]
    delay_level: int = 0
    topic: str = ""  # one that is not made by a send


class SendAnswer(NamedTuple):
    code: str
    queue_offset: int = -1  # of the first


class Read(NamedTuple):
    queue: int  # its number (wire.py)
    offset: int
    commits: bool = False  # by the group that commits offsets, whose pulls follow a reset
    commit: int = 0  # with it: what it has consumed, of which no answer speaks
    waits_s: float = 0.0  # for a message, where there is none
    tag: str = "*"


class ReadAnswer(NamedTuple):
    messages: int
    next_offset: int
    bodies: tuple[bytes, ...] = ()
    moves: bool = False  # PULL_OFFSET_MOVED: a consumer goes on there, whatever it has seen
    suggested: int = MASTER_ID  # the brokerId to ask next


class QueryOffset(NamedTuple):
    """Answered by the offset, -1 where the group has none."""

    queue: int  # its number (wire.py)
    asked_at: int  # in the order of all that happened (group_offsets.py)


class CommitOffset(NamedTuple):
    """Answered by whether as many replicas hold it as a message needs."""

    queue: int  # its number (wire.py)
    offset: int
    change: OffsetChange


class ResetOffset(NamedTuple):
    """What an operator asks for; answered as a commit is."""

    queue: int  # its number (wire.py)
    offset: int
    change: OffsetChange


class ChangeTopic(NamedTuple):
    """Make it, or delete it; answered by whether that is done."""

    topic: str
    exists: bool
    updates: bool = False  # one that exists
    queues: int = 2  # that may be read
    kept_bytes: int | None = None  # reserve.bytes, of one that is made
    kept_hours: int | None = None  # reserve.time


class ChangeGroup(NamedTuple):
    """Make or change a consumer group, or delete it (None); answered by whether that is done."""

    group: str
    retries: int | None


class FindByKey(NamedTuple):
    """QUERY_MESSAGE; answered by the bodies of those that are found."""

    topic: str
    key: str


class Status(NamedTuple):
    """Answered by a ReplicaStatus."""


class Promote(NamedTuple):
    expected_epoch: int
    new_epoch: int
    clean: bool  # what the promoter believes, for the checker; it is not on the real wire
    in_sync: tuple[int, ...] = ()
    with_incomplete_log: bool = False
    lacks_an_epoch: bool = False
    fenced: bool = True  # by what the promoter did before, for the checker: no one of an older epoch leads any more


class Demote(NamedTuple):
    epoch: int
    leader_address: str | None = None


class Freeze(NamedTuple):
    epoch: int
    for_s: float


class ChangeMode(NamedTuple):
    """What `changeMode` asks the leader for, which said this of itself."""

    policy: Policy
    leader: ReplicaStatus


class RoleAnswer(NamedTuple):
    """`refusal` None: done; then the status is what it was right after."""

    refusal: str | None
    status: ReplicaStatus | None


class Change(NamedTuple):
    """What an operator asks a quorum-led group's leader for; answered by why not, or None.

    kind: add or remove a voter, prefer a leader, transfer the leadership, resign.
    """

    kind: str
    replica_id: int | None


class ChangeMembers(NamedTuple):
    """What the control plane asks a quorum-led group's leader for, as REPLICA_MEMBERS names it; answered by a RoleAnswer."""

    change: str
    replica_id: int
    address: str | None = None


class TransferTo(NamedTuple):
    """What the control plane asks it for when another is to lead; answered by a RoleAnswer."""

    target: int


class Members(NamedTuple):
    """Asks a name server for the group: brokerId -> address."""


Request = Any
