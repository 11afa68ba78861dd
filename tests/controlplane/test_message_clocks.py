"""What a message's two times say of its sender's clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.topics.clocks import clock_note
from controlplane.topics.gateway import browsed_message
from controlplane.topics.masking import Sight
from highwater import MessageQueue, ReceivedMessage
from tests.controlplane.secret_twin import MESSAGE

STORED_MS = 1_700_000_000_000
PLAIN = replace(MESSAGE, properties={}, store_timestamp_ms=STORED_MS, born_timestamp_ms=STORED_MS - 5)
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000


def born(later_ms: int, message: ReceivedMessage = PLAIN) -> ReceivedMessage:
    return replace(message, born_timestamp_ms=STORED_MS + later_ms)


@pytest.mark.parametrize("later_ms", [0, -5, 999, -59_999])
def test_clocks_that_agree_are_not_spoken_of(later_ms: int) -> None:
    assert clock_note(born(later_ms)) == ""


@pytest.mark.parametrize(
    ("later_ms", "words"),
    [
        (2 * SECOND, "ahead of the broker's by at least 2 seconds"),
        (5 * MINUTE, "ahead of the broker's by at least 5 minutes"),
        (30 * HOUR, "ahead of the broker's by at least 30 hours"),
        (-MINUTE, "stored 60 seconds after its sender says"),
        (-3 * HOUR, "stored 3 hours after its sender says"),
    ],
)
def test_a_clock_that_is_wrong_is_named_with_the_difference(later_ms: int, words: str) -> None:
    assert words in clock_note(born(later_ms))


@pytest.mark.parametrize(
    "message",
    [
        replace(PLAIN, properties={"DELAY": "9"}),
        replace(PLAIN, reconsume_times=2),
        replace(PLAIN, queue=MessageQueue("%RETRY%billing", "broker-a", 0)),
        replace(PLAIN, queue=MessageQueue("%DLQ%billing", "broker-a", 0)),
    ],
    ids=["delayed", "retried", "in a retry topic", "dead"],
)
def test_a_message_that_was_stored_again_has_waited(message: ReceivedMessage) -> None:
    assert clock_note(born(-HOUR, message)) == ""
    assert "ahead" in clock_note(born(HOUR, message))


def test_the_note_goes_with_the_message() -> None:
    assert "ahead" in browsed_message(born(HOUR), Sight([]), 10).clock_note
