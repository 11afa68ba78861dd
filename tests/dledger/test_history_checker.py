"""The checker of histories finds what it is for: each kind of violation, made by hand."""

from __future__ import annotations

import pytest

from tests.dledger.history import History, Sent

FINAL = {0: ["w-1", "w-2", "w-3"]}
FIRST = {0: 0}


def good() -> History:
    history = History("topic", 1)
    for number in (1, 2, 3):
        history.sent(Sent(f"w-{number}", "w", number, "acknowledged", 0, number - 1))
        history.saw(0, 0, number - 1, f"w-{number}")
    return history


def test_a_good_history_has_no_violations() -> None:
    assert good().violations(FINAL, FIRST) == []


def test_what_no_one_got_an_answer_for_may_be_there_or_not() -> None:
    history = good()
    history.sent(Sent("w-4", "w", 4, "unknown"))
    assert history.violations(FINAL, FIRST) == []
    assert history.violations({0: [*FINAL[0], "w-4"]}, FIRST) == []


@pytest.mark.parametrize(
    ("final", "said"),
    [
        ({0: ["w-1", "w-2"]}, "w-3 was acknowledged"),
        ({0: ["w-1", "w-3", "w-2"]}, "was acknowledged at"),
        ({0: ["w-1", "w-2", "w-3", "w-3"]}, "stored 2 times"),
        ({0: ["x", "w-2", "w-3"]}, "was shown as"),
    ],
)
def test_what_is_lost_moved_doubled_or_changed_is_found(final: dict[int, list[str]], said: str) -> None:
    assert any(said in violation for violation in good().violations(final, FIRST))


def test_a_refused_message_that_is_stored_is_found() -> None:
    history = good()
    history.sent(Sent("w-4", "w", 4, "refused"))
    assert history.violations({0: [*FINAL[0], "w-4"]}, FIRST) == ["w-4 was refused and is stored at [(0, 3)]"]


def test_a_message_that_stands_in_front_of_an_earlier_one_is_found() -> None:
    history = good()
    history.sent(Sent("w-5", "w", 5, "unknown"))
    history.sent(Sent("w-4", "w", 4, "unknown"))
    assert any("stands before" in one for one in history.violations({0: [*FINAL[0], "w-5", "w-4"]}, FIRST))


def test_an_offset_that_was_shown_with_two_messages_is_found() -> None:
    history = good()
    history.saw(1, 0, 2, "other")
    assert any("was shown as" in one for one in history.violations(FINAL, FIRST))


def test_what_was_shown_past_the_end_is_found() -> None:
    history = good()
    history.saw(2, 0, 3, "w-4")
    assert any("0/3 was shown" in one for one in history.violations(FINAL, FIRST))
