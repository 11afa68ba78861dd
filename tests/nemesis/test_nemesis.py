"""Real daemons under kills, pauses, cut links and full disks, in each mode; longer by `-m long`, campaigns by `./dev nemesis`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nemesis.run import MODES, run


def judged(mode: str, seed: int, seconds: float, folder: Path) -> None:
    outcome = run(mode, seed, seconds, folder)
    assert outcome.violations == [], f"./dev nemesis {mode} --seed {seed} --seconds {seconds:g}"
    assert outcome.acknowledged > 50
    assert outcome.committed > 10
    assert outcome.topics > 0


@pytest.mark.timeout(240)
@pytest.mark.parametrize("mode", MODES)
def test_what_was_answered_holds_under_a_short_storm(mode: str, tmp_path: Path) -> None:
    judged(mode, 1, 12.0, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("mode", MODES)
def test_what_was_answered_holds_under_a_minute_of_weather(mode: str, tmp_path: Path) -> None:
    judged(mode, 2, 60.0, tmp_path)
