"""A few power cuts of replicas; `./dev powercut` makes fifty."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.replication.powercut import campaign, why_not


@pytest.mark.timeout(180)
def test_no_acknowledged_message_is_lost_by_power_cuts(tmp_path: Path) -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    acknowledged, lost, twice = campaign(tmp_path, cuts=2, seed=4)
    assert acknowledged > 100
    assert (lost, twice) == (0, 0)
