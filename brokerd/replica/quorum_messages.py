"""What replicas of a quorum-led group say to each other about leadership. Records travel by the pull protocol, not by these.

Every request has an answer; a lost one is said again. Sources: the Raft paper, section 5.2; KIP-595 (BeginQuorumEpoch,
EndQuorumEpoch) and KIP-996 (pre-vote).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    """Vote for me in `epoch`. With `pre` the question is only whether you would: nothing is raised or promised."""

    group: str
    candidate: int
    epoch: int
    last_epoch: int  # of the candidate's last record
    end_offset: int  # of the candidate's log
    pre: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteAnswer:
    """`epoch` is the voter's own; the leader of that epoch is named as far as it is known there."""

    voter: int
    asked_epoch: int
    pre: bool
    granted: bool
    epoch: int
    incarnation: str = ""  # which disk answers; "" from a version that does not say
    log_may_be_incomplete: bool = False  # its log may lack what it once held: see Tally.wins
    trusts_own_end: bool = False  # that was so, and no one who could know better was found
    joined: bool = True  # it has held all that was committed once; an empty disk has not, and grants nothing
    known: tuple[int, ...] = ()  # the other replicas that it has ever seen
    leader: int | None = None
    leader_address: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginEpoch:
    """`leader` was elected: follow it. Said again to those that do not pull."""

    group: str
    leader: int
    epoch: int
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndEpoch:
    """The leader resigns. `successors` by how much they hold, the best first: that one may campaign at once."""

    group: str
    leader: int
    epoch: int
    successors: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """The leader hands its role over: campaign now (TimeoutNow of Ongaro's dissertation, section 3.10)."""

    group: str
    leader: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """The answer to BeginEpoch, EndEpoch and Campaign: the replica that heard it, and in which epoch it is now."""

    replica: int
    epoch: int


Request: TypeAlias = VoteRequest | BeginEpoch | EndEpoch | Campaign
Answer: TypeAlias = VoteAnswer | Noted
Message: TypeAlias = Request | Answer
