"""What the index will take counts until the index has read it, in a bounded number of parts."""

from brokerd.unindexed_keys import UnindexedKeys

MEBIBYTE = 2**20


def test_what_the_index_has_read_counts_no_more() -> None:
    keys = UnindexedKeys()
    for number in range(10):
        keys.add(number * MEBIBYTE, (number + 1) * MEBIBYTE, 24)
    assert [keys.bytes_after(offset) for offset in (0, MEBIBYTE - 1, MEBIBYTE, 9 * MEBIBYTE)] == [240, 240, 216, 24]
    assert keys.bytes_after(10 * MEBIBYTE) == 0


def test_an_index_that_is_far_behind_costs_no_memory() -> None:
    keys = UnindexedKeys()
    for number in range(100_000):
        keys.add(number * MEBIBYTE, (number + 1) * MEBIBYTE, 24)
    assert len(keys._parts) < 8_000
    assert keys.bytes_after(0) == 2_400_000


def test_a_log_that_was_truncated_leaves_nothing_behind() -> None:
    keys = UnindexedKeys()
    keys.add(MEBIBYTE, 2 * MEBIBYTE, 24)
    keys.add(0, 10, 24)
    assert keys.bytes_after(2 * MEBIBYTE) == 0
