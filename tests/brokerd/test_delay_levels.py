"""brokerd/delay_levels.py: messageDelayLevel as a table."""

from __future__ import annotations

import pytest

from brokerd.delay_levels import DEFAULT_DELAY_LEVELS, level_of_queue_id, parse_delay_levels, queue_id_of_level


def test_rocketmqs_default_has_18_levels_from_1_s_to_2_h() -> None:
    levels = parse_delay_levels(DEFAULT_DELAY_LEVELS)
    assert (levels.maximum, levels.delay_ms(1), levels.delay_ms(18)) == (18, 1_000, 7_200_000)


def test_all_four_units_are_read() -> None:
    assert parse_delay_levels("2s 3m 4h 5d").delays_ms == (2_000, 180_000, 14_400_000, 432_000_000)


def test_a_level_above_the_highest_is_clamped() -> None:
    assert parse_delay_levels("1s 5s").clamp(99) == 2


def test_a_level_that_no_longer_exists_waits_a_second() -> None:
    assert parse_delay_levels("5s").delay_ms(7) == 1_000


def test_level_n_waits_in_queue_n_minus_1() -> None:
    assert (queue_id_of_level(3), level_of_queue_id(2)) == (2, 3)


@pytest.mark.parametrize("text", ["", "   ", "1", "s", "1s 5", "-1s", "1.5s", "1w", "1s,5s", "9999999999999s", "1S"])
def test_what_cannot_be_read_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="1s 5s 10s"):
        parse_delay_levels(text)
