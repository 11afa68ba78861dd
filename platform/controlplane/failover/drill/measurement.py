"""What the probes of a drill show: how long no write was accepted, and what is missing. Pure.

A probe that was answered SLAVE_NOT_AVAILABLE was accepted, too: sends go on, with fewer copies than promised. But it was not
acknowledged, so that it counts for the outage and not for the losses.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

from controlplane.common.sentences import say, say_all
from controlplane.failover.models import DrillVerdict

# Four probes in a row.
_PAUSE_MS = 200


class ProbeResult(IntEnum):
    """How a probe ended; NO_ANSWER is of one that was refused, or not answered in time."""

    NO_ANSWER = 0
    STORED = 1
    ACKNOWLEDGED = 2


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe. Times in milliseconds since the first; `answered_ms` also where the answer was none."""

    sent_ms: int
    answered_ms: int
    result: ProbeResult

    @property
    def accepted(self) -> bool:
        return self.result is not ProbeResult.NO_ANSWER


@dataclass(frozen=True, slots=True)
class Outage:
    """The longest time between two accepted writes of which the second came after the fault."""

    from_ms: int
    to_ms: int

    @property
    def lasted_ms(self) -> int:
        return self.to_ms - self.from_ms


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was measured. `missing` and `outage` are None where no one can say."""

    sent: int
    acknowledged: int
    missing: int | None
    outage: Outage | None
    verdict: DrillVerdict
    because: str


def probes_of(rows: Sequence[Sequence[int]]) -> list[Probe]:
    """Return the probes as the prober wrote them down."""
    return [Probe(sent, answered, ProbeResult(result)) for sent, answered, result in rows]


def pauses_of(probes: Sequence[Probe]) -> list[Outage]:
    """Return each time without an accepted write that is longer than a few probes, in order; the ends count, too."""
    if not probes:
        return []
    accepted = sorted(probe.answered_ms for probe in probes if probe.accepted)
    moments = [probes[0].sent_ms, *accepted, max(probe.answered_ms for probe in probes)]
    pauses = [Outage(before, after) for before, after in pairwise(moments)]
    return [pause for pause in pauses if pause.lasted_ms > _PAUSE_MS]


def outage_of(probes: Sequence[Probe], fault_ms: int) -> Outage | None:
    """Return the outage; None unless writes were accepted before the fault and after it."""
    accepted = sorted(probe.answered_ms for probe in probes if probe.accepted)
    if not accepted or accepted[0] > fault_ms:
        return None
    gaps = [Outage(before, after) for before, after in pairwise(accepted) if after > fault_ms]
    return max(gaps, key=lambda gap: gap.lasted_ms, default=None)


def measure(
    probes: Sequence[Probe], fault_ms: int | None, found: Collection[int] | None, *, ended_early: bool = False
) -> Measurement:
    """Return the report's figures. `found` are the numbers of the probes that are in the log now, None if that could not be
    read; `ended_early` says that probing stopped before it was asked to.
    """
    acknowledged = [number for number, probe in enumerate(probes) if probe.result is ProbeResult.ACKNOWLEDGED]
    missing = None if found is None else len(set(acknowledged).difference(found))
    outage = None if fault_ms is None or ended_early else outage_of(probes, fault_ms)
    verdict, because = _verdict(len(acknowledged), missing, outage, ended_early=ended_early)
    if verdict is DrillVerdict.PASSED and outage is not None:
        because = say_all(because, _too_few_copies(probes, outage.to_ms))
    return Measurement(len(probes), len(acknowledged), missing, outage, verdict, because)


def _too_few_copies(probes: Sequence[Probe], back_ms: int) -> str:
    """Return for how long writes were accepted again and not acknowledged yet; nothing if all of them were."""
    since = sorted(
        (probe.answered_ms, probe.result) for probe in probes if probe.accepted and probe.answered_ms >= back_ms
    )
    if all(result is ProbeResult.ACKNOWLEDGED for _, result in since):
        return ""
    whole_ms = next((at_ms for at_ms, result in since if result is ProbeResult.ACKNOWLEDGED), None)
    if since[0][1] is ProbeResult.ACKNOWLEDGED or whole_ms is None:
        return say("Some were answered SLAVE_NOT_AVAILABLE since: stored, with fewer copies than the cluster promises.")
    return say(
        "For the first %(seconds)s s they were answered SLAVE_NOT_AVAILABLE: stored, with fewer copies than the cluster promises,"
        " until another replica was in sync.",
        seconds=f"{(whole_ms - back_ms) / 1000:.2f}",
    )


def _verdict(
    acknowledged: int, missing: int | None, outage: Outage | None, *, ended_early: bool
) -> tuple[DrillVerdict, str]:
    if missing:
        return DrillVerdict.LOST, say(
            "%(missing)s of %(acknowledged)s acknowledged probe messages are not in the log.",
            missing=missing,
            acknowledged=acknowledged,
        )
    if ended_early:
        return DrillVerdict.NOT_MEASURED, say("The worker that sent the probes ended before the drill was over.")
    if missing is None:
        return DrillVerdict.NOT_MEASURED, say("The probe messages could not be read back.")
    if outage is None:
        return DrillVerdict.NOT_MEASURED, say("No probe was accepted before the fault, or none after it.")
    back = say("Writes were accepted again after %(lasted_ms)s s", lasted_ms=f"{outage.lasted_ms / 1000:.2f}")
    return DrillVerdict.PASSED, say(
        "%(back)s, and all %(acknowledged)s acknowledged probe messages are in the log.",
        back=back,
        acknowledged=acknowledged,
    )
