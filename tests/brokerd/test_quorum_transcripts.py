"""The stories in testdata/quorum_*.txt happen as they are written. How to write them again: quorum_transcripts.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokerd.quorum_transcripts import replayed, transcripts


@pytest.mark.parametrize("path", transcripts(), ids=lambda path: path.stem)
def test_a_transcript_repeats_itself(path: Path) -> None:
    text = path.read_text("utf-8")
    assert replayed(text) == text


def test_the_stories_are_there() -> None:
    assert {path.stem for path in transcripts()} >= {
        "quorum_campaign",
        "quorum_pre_vote",
        "quorum_divergence",
        "quorum_members",
        "quorum_transfer",
    }
