"""What the election core is made of: its states, its times, what it persists and sends, and what it asks of the log."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from brokerd.replica.quorum_messages import Answer, Request
from brokerd.replica.voters import Members

NEVER: Final = float("-inf")


class State(enum.Enum):
    """What a replica is in its epoch. One that is no voter is an observer beside it: it follows, and never campaigns."""

    UNATTACHED = "unattached"  # no leader known
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


@dataclass(frozen=True, slots=True)
class QuorumTimes:
    """All in seconds. Pairs are ranges, drawn from for each wait, so that replicas do not campaign in step."""

    pull_timeout: tuple[float, float] = (1.5, 3.0)  # without a leader's answer
    start: tuple[float, float] = (0.4, 1.2)  # after a start: those that follow a leader say no anyway
    vote_round: tuple[float, float] = (0.3, 0.7)  # for the answers to one round of questions
    leader_lost: tuple[float, float] = (0.02, 0.25)  # after the connection to the leader broke
    announce: float = 0.4  # between two "epoch begun" to a replica that does not pull
    transfer: float = 1.5  # until a transfer that did not happen is given up
    preferred_after: float = 5.0  # how long another one leads before the preferred leader is offered the role
    preferred_again: float = 30.0
    doubt: float = 30.0  # without a leader, until a replica whose log may lack its end takes it for whole
    room_again: float = 5.0  # between two attempts of a leader with a full disk to hand its role over

    @property
    def check_quorum(self) -> float:
        """A leader not pulled by a majority for so long resigns: by then they may have another one."""
        return self.pull_timeout[1]

    @property
    def recent(self) -> float:
        """A leader not pulled by a majority for so long takes no sends: they would only time out."""
        return self.pull_timeout[0]


@dataclass(frozen=True, slots=True)
class Vote:
    """What must be durable before any answer leaves. `leader_address` is not needed for safety, only to begin with."""

    epoch: int
    voted_for: int | None
    leader_address: str | None = None


@dataclass(slots=True)
class Ready:
    """What is to be done, in the order of the fields."""

    stopped: str | None = None  # it led until now: acknowledge nothing more; and why
    trust: bool = False  # take the own log for whole from now on, durably
    vote: Vote | None = None  # fsync it; when that fails, nothing below may happen
    lead: bool = False  # append this epoch's record, and lead
    reply: Answer | None = None
    messages: list[tuple[int, Request]] = field(default_factory=list)


class Log(Protocol):
    """What the core must know of its replica, as it is at that moment."""

    @property
    def last_epoch(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def members(self) -> Members: ...

    @property
    def known(self) -> Iterable[int]:
        """Other replicas that were ever seen, voters or not."""

    @property
    def joined(self) -> bool:
        """Whether it has held all that was committed once: an empty disk in a voter's place has no vote yet."""

    @property
    def may_decide(self) -> bool:
        """Whether this replica is a voter of the set in force, or of one that may come back if that one is truncated."""

    @property
    def unfit(self) -> str | None:
        """Why it must neither vote nor lead (a disk error, a damaged log); None when it may."""

    @property
    def incarnation(self) -> str:
        """Which disk this is."""

    @property
    def disk_is_new(self) -> bool:
        """Whether that took the place of another one, and the group has not adopted it."""

    @property
    def log_may_be_incomplete(self) -> bool:
        """Whether its log may lack records at its end that it had, and that counted (epoch_file.py)."""

    @property
    def trusts_own_end(self) -> bool:
        """Whether that was so, and no one who could know better was found."""

    @property
    def may_lack_durable(self) -> bool:
        """Whether what is missing may have been durable: then no waiting ends in trusting this log."""

    @property
    def full(self) -> bool:
        """Whether its disk is full: it votes, follows as far as it can, and leads only where all are."""
