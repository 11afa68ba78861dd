"""What is watched in every cluster from its birth on: one table. Pure."""

import math
from dataclasses import dataclass
from enum import StrEnum

from controlplane.common.sentences import say

MEBIBYTE = 1024 * 1024
DURATION_MAX_S = 86_400


class Severity(StrEnum):
    """CRITICAL: messages are refused or may be lost. WARNING: that will happen if no one acts."""

    CRITICAL = "critical"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Kind:
    """A thing that is watched.

    It is wrong from `threshold` on upwards (`is_floor`: downwards), in `unit`; a kind without a unit is wrong or not. It fires when
    that has lasted for `duration_s`. `least` and `most` bound what a tenant may set. `every_subject_is_known`: a subject that is no
    longer reported is gone; otherwise the job that counts it may only be down.
    """

    name: str
    title: str
    meaning: str
    severity: Severity
    unit: str = ""
    threshold: float = 1
    least: float = 1
    most: float = 1
    duration_s: int = 60
    is_floor: bool = False
    every_subject_is_known: bool = True

    @property
    def has_threshold(self) -> bool:
        """Whether a tenant may set one."""
        return bool(self.unit)

    def is_wrong(self, value: float, threshold: float) -> bool:
        """Whether the value is past the threshold."""
        return value <= threshold if self.is_floor else value >= threshold


_ALL = (
    Kind(
        "leader_missing",
        say("No leader"),
        say("A broker group has no leader that answers: what is sent to its queues is refused."),
        Severity.CRITICAL,
        duration_s=15,
    ),
    Kind(
        "daemon_down",
        say("A daemon is down"),
        say("A broker or a name server of the cluster does not run, or is not known to the others."),
        Severity.WARNING,
        duration_s=60,
    ),
    Kind(
        "replica_behind",
        say("A replica is behind"),
        say("A replica lacks that much of its leader’s log: it could not take over without a loss, or only late."),
        Severity.WARNING,
        unit="bytes",
        threshold=64 * MEBIBYTE,
        least=1024,
        most=float(2**50),
        duration_s=120,
    ),
    Kind(
        "disk_used",
        say("The disk is filling up"),
        say("The fullest disk of the leaders is that full. From 90 %% on, brokers refuse sends."),
        Severity.CRITICAL,
        unit="percent",
        threshold=85,
        least=1,
        most=100,
        duration_s=60,
    ),
    Kind(
        "lag_seconds",
        say("A consumer group is behind"),
        say("The oldest message that a consumer group has not consumed in a topic is that old."),
        Severity.WARNING,
        unit="seconds",
        threshold=900,
        least=10,
        most=30 * 86_400,
        duration_s=300,
        every_subject_is_known=False,
    ),
    Kind(
        "group_stuck",
        say("A consumer group is stuck"),
        say(
            "A consumer group has a backlog in a topic and consumes nothing, though it has consumers: they hang, or fail."
        ),
        Severity.WARNING,
        duration_s=300,
        every_subject_is_known=False,
    ),
    Kind(
        "loss_ahead",
        say("Messages will be lost unread"),
        say(
            "The cluster keeps messages for a time. At the present rate a consumer group is that far"
            " from what is removed unread."
        ),
        Severity.CRITICAL,
        unit="hours",
        threshold=24,
        least=1,
        most=720,
        duration_s=900,
        is_floor=True,
        every_subject_is_known=False,
    ),
    Kind(
        "no_consumers",
        say("No consumer is connected"),
        say("A consumer group has a backlog, and none of its consumers is connected."),
        Severity.WARNING,
        duration_s=120,
        every_subject_is_known=False,
    ),
    Kind(
        "dead_letters",
        say("New dead letters"),
        say(
            "That many messages became dead letters within the last hour: no consumer of their group"
            " managed to handle them."
        ),
        Severity.WARNING,
        unit="messages",
        threshold=1,
        least=1,
        most=1e12,
        duration_s=0,
    ),
    Kind(
        "quota_used",
        say("A limit is nearly reached"),
        say(
            "The limit of the cluster’s brokers that is used most, rates left out. What goes past it"
            " is refused; see the page Limits."
        ),
        Severity.WARNING,
        unit="percent",
        threshold=90,
        least=1,
        most=100,
        duration_s=60,
    ),
    Kind(
        "ca_changes",
        say("The CA changes"),
        say(
            "In that many days another CA signs the daemons’ certificates. Programs that have not got the file ca.pem again by"
            " then can’t connect with TLS."
        ),
        Severity.WARNING,
        unit="days",
        threshold=90,
        least=1,
        most=180,
        duration_s=0,
        is_floor=True,
    ),
    Kind(
        "certificate_old",
        say("Certificates are not renewed"),
        say("The daemons’ certificates should have been renewed that long ago; when they end, no client can connect."),
        Severity.CRITICAL,
        unit="days",
        threshold=1,
        least=1,
        most=14,
        duration_s=0,
    ),
)
KINDS = {kind.name: kind for kind in _ALL}
KIND_CHOICES = [(kind.name, kind.title) for kind in _ALL]
SEVERITY_CHOICES = [(severity.value, severity.value.capitalize()) for severity in Severity]

# Of one kind in one cluster; a cluster of thousands of late groups has one trouble, not thousands.
OPEN_MAX = 100


@dataclass(frozen=True, slots=True)
class Rule:
    """What holds for a kind in one cluster."""

    kind: Kind
    is_on: bool
    threshold: float
    duration_s: int
    is_default: bool

    @classmethod
    def default(cls, kind: Kind) -> "Rule":
        """Return the rule that applies while none is set."""
        return cls(kind, is_on=True, threshold=kind.threshold, duration_s=kind.duration_s, is_default=True)


def threshold_problem(kind: Kind, threshold: float) -> str:
    """Return why a threshold can't be set; empty when it can."""
    if not kind.has_threshold:
        return "" if threshold == kind.threshold else say("This kind is wrong or not: it has no threshold.")
    if not math.isfinite(threshold) or not kind.least <= threshold <= kind.most:
        return say(
            "Use a number from %(least)s to %(most)s %(unit)s.",
            least=figure(kind.least),
            most=figure(kind.most),
            unit=kind.unit,
        )
    return ""


def figure(number: float) -> str:
    """Return a threshold as people write it: 2592000, where the plain format says 2.592e+06."""
    return f"{number:.6f}".rstrip("0").rstrip(".")
