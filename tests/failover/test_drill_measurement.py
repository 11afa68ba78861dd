"""What a drill's probes show: outage, losses and verdict, by hand-made probes."""

from __future__ import annotations

import pytest

from controlplane.failover.drill.measurement import Outage, Probe, ProbeResult, measure, outage_of
from controlplane.failover.models import DrillVerdict

OK, STORED, NONE = ProbeResult.ACKNOWLEDGED, ProbeResult.STORED, ProbeResult.NO_ANSWER


def probes(*results: ProbeResult, took_ms: int = 5) -> list[Probe]:
    """One each 50 ms."""
    return [Probe(50 * number, 50 * number + took_ms, result) for number, result in enumerate(results)]


def test_the_outage_lasts_from_the_last_accepted_write_to_the_next() -> None:
    assert outage_of(probes(OK, OK, NONE, NONE, NONE, OK, OK), fault_ms=60) == Outage(55, 255)


def test_a_longer_pause_before_the_fault_is_not_the_outage() -> None:
    found = outage_of(probes(OK, NONE, NONE, NONE, NONE, OK, OK, NONE, NONE, OK), fault_ms=310)
    assert found == Outage(305, 455)


def test_of_several_pauses_after_the_fault_the_longest_counts() -> None:
    found = outage_of(probes(OK, OK, NONE, OK, NONE, NONE, OK), fault_ms=60)
    assert found == Outage(155, 305)


def test_a_slow_answer_is_part_of_the_outage() -> None:
    """It was sent before the fault, and answered long after it."""
    found = outage_of([Probe(0, 5, OK), Probe(50, 1200, OK), Probe(100, 1210, OK)], fault_ms=60)
    assert found == Outage(5, 1200)


def test_writes_that_have_too_few_copies_end_the_outage_and_are_no_loss() -> None:
    found = measure(probes(OK, OK, NONE, STORED, STORED), 60, found={0, 1})
    assert (found.outage, found.acknowledged, found.missing) == (Outage(55, 155), 2, 0)
    assert found.verdict == DrillVerdict.PASSED


@pytest.mark.parametrize(
    ("since", "said"),
    [
        ([OK, OK], ""),
        ([STORED, STORED, OK], "For the first 0.10 s they were answered SLAVE_NOT_AVAILABLE"),
        ([STORED, STORED], "Some were answered SLAVE_NOT_AVAILABLE since"),
        ([OK, STORED, OK], "Some were answered SLAVE_NOT_AVAILABLE since"),
    ],
)
def test_a_report_says_for_how_long_writes_had_too_few_copies(since: list[ProbeResult], said: str) -> None:
    because = measure(probes(OK, OK, NONE, *since), 60, found=range(9)).because
    assert said in because
    assert bool(said) is ("SLAVE_NOT_AVAILABLE" in because)


def test_an_acknowledged_probe_that_is_not_in_the_log_is_a_loss() -> None:
    found = measure(probes(OK, OK, NONE, OK), 60, found={0, 3})
    assert (found.verdict, found.missing) == (DrillVerdict.LOST, 1)
    assert found.because == "1 of 3 acknowledged probe messages are not in the log."


def test_a_probe_without_an_answer_may_be_in_the_log_or_not() -> None:
    assert measure(probes(OK, NONE, OK), 20, found={0, 1, 2}).missing == 0


def test_writes_that_never_came_back_are_not_measured() -> None:
    found = measure(probes(OK, OK, NONE, NONE), 60, found={0, 1})
    assert (found.outage, found.verdict) == (None, DrillVerdict.NOT_MEASURED)


def test_what_could_not_be_read_back_is_unknown_and_not_zero() -> None:
    found = measure(probes(OK, OK, NONE, OK), 60, found=None)
    assert (found.missing, found.verdict) == (None, DrillVerdict.NOT_MEASURED)


def test_a_prober_that_ended_early_measures_no_outage_but_still_shows_a_loss() -> None:
    rows = probes(OK, OK, NONE, OK)
    assert measure(rows, 60, found={0, 1, 3}, ended_early=True).verdict == DrillVerdict.NOT_MEASURED
    assert measure(rows, 60, found={0, 1, 3}, ended_early=True).outage is None
    assert measure(rows, 60, found={0, 1}, ended_early=True).verdict == DrillVerdict.LOST
