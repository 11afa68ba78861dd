"""Twenty thousand damaged frames into a live broker with access control and a live name server; more: `./dev fuzz`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.security.fuzz import fuzz


@pytest.mark.timeout(280)
def test_twenty_thousand_damaged_frames_harm_neither_daemon(tmp_path: Path) -> None:
    assert "20000 frames" in fuzz(tmp_path, 20_000, 1113)
