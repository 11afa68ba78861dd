"""Real daemons under kills, pauses, cut links and full disks, a minute in each mode; campaigns by `./dev nemesis`."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from tests.nemesis.run import MODES, run

_SECONDS = 60.0
_SEND_PAUSE_S = 0.02  # the weather is to last, not the load: other tests share the processors


@pytest.mark.timeout(400)
@pytest.mark.parametrize("mode", MODES)
def test_what_was_answered_holds_under_a_minute_of_weather(mode: str, tmp_path: Path) -> None:
    outcome = run(mode, 1, _SECONDS, tmp_path, send_pause_s=_SEND_PAUSE_S)
    for reason in outcome.left_out:
        warnings.warn(f"left out here: {reason}", stacklevel=1)
    assert outcome.violations == [], f"./dev nemesis {mode} --seed 1 --seconds {_SECONDS:g}"
    assert outcome.acknowledged > 250
    assert outcome.committed > 50
    assert outcome.answered > 50
    assert sum(outcome.changes.values()) > 5
    assert outcome.consumers > 2
