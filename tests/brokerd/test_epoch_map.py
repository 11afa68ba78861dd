"""Comparing two epoch maps finds where two logs diverge."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerd.replica.epoch_map import Divergence, EpochMap

MAP = EpochMap([(1, 100), (4, 300), (6, 700)])
END = 1000


@pytest.mark.parametrize(("offset", "epoch"), [(0, 0), (99, 0), (100, 1), (299, 1), (300, 4), (700, 6), (999, 6)])
def test_each_byte_belongs_to_the_epoch_that_began_last_before_it(offset: int, epoch: int) -> None:
    assert MAP.epoch_at(offset) == epoch


@pytest.mark.parametrize(
    ("epoch", "end", "divergence"),
    [
        (6, 1000, None),  # level
        (6, 700 + 1, None),  # behind in the same epoch
        (4, 700, None),  # holds all of an earlier epoch
        (0, 0, None),  # empty
        (0, 100, None),
        (4, 701, Divergence(4, 700)),  # wrote more in epoch 4 than the leader kept
        (5, 800, Divergence(4, 700)),  # had an epoch that the leader never saw
        (6, 1001, Divergence(6, 1000)),  # longer in the leader's own epoch
        (0, 101, Divergence(0, 100)),
        (9, 500, Divergence(6, 1000)),
    ],
)
def test_a_leader_names_to_a_follower_where_to_truncate(epoch: int, end: int, divergence: Divergence | None) -> None:
    assert MAP.divergence(epoch, end, END) == divergence


def test_a_follower_cuts_to_its_own_end_of_the_epoch_when_that_is_shorter() -> None:
    follower = EpochMap([(1, 100), (4, 300), (5, 500)])
    assert follower.truncation_offset(Divergence(4, 700), 800) == 500


def test_a_follower_without_the_leaders_epoch_cuts_where_its_own_records_end_and_asks_again() -> None:
    follower = EpochMap([(5, 0), (10, 437)])
    leader = EpochMap([(8, 0), (12, 244)])
    divergence = leader.divergence(10, 34000, 34500)
    assert divergence == Divergence(8, 244)
    assert follower.truncation_offset(divergence, 34000) == 437  # 244 lies within one of its records
    follower.truncate(437)
    divergence = leader.divergence(5, 437, 34500)
    assert divergence is not None
    assert follower.truncation_offset(divergence, 437) == 0


def test_cutting_forgets_the_epochs_after_the_cut() -> None:
    cut = EpochMap(MAP.entries)
    cut.truncate(700)
    assert cut == EpochMap([(1, 100), (4, 300)])


@pytest.mark.parametrize(
    ("min_offset", "kept", "first"),
    [
        (0, 0, 1),
        (100, 0, 1),
        (300, 0, 1),
        (301, 0, 4),
        (350, 0, 4),
        (701, 0, 6),
        (1000, 0, 6),
        (1000, 2, 4),
        (1000, 9, 1),
    ],
)
def test_retention_keeps_the_epoch_in_front_of_the_first_byte_and_the_last_ones(
    min_offset: int, kept: int, first: int
) -> None:
    left = EpochMap(MAP.entries)
    left.drop_before(min_offset, kept=kept)
    assert left == EpochMap([entry for entry in MAP.entries if entry.epoch >= first])
    assert left.epoch_at(min_offset - 1) == MAP.epoch_at(min_offset - 1)


@pytest.mark.parametrize("entry", [(6, 800), (5, 800), (7, 700), (7, 650)])
def test_epochs_and_offsets_only_rise(entry: tuple[int, int]) -> None:
    grown = EpochMap(MAP.entries)
    with pytest.raises(ValueError, match="cannot follow"):
        grown.begin(*entry)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Two logs as lists of (epoch, record), grown from one common past, each epoch written by one of them only."""
    common_epochs = sorted(draw(st.sets(st.integers(1, 5), max_size=3)))
    others = sorted(draw(st.sets(st.integers(6, 14), max_size=5)))
    common = [(epoch, n) for epoch in common_epochs for n in range(draw(st.integers(1, 4)))]
    last = common_epochs[-1] if common_epochs else None
    left, right = list(common), list(common)
    if last is not None:  # the last common leader went on in one of them
        draw(st.sampled_from([left, right])).extend((last, 100 + n) for n in range(draw(st.integers(0, 3))))
    for epoch in others:
        log = draw(st.sampled_from([left, right]))
        log.extend((epoch, n) for n in range(draw(st.integers(1, 4))))
    return left, right


def map_of(log: list[tuple[int, int]]) -> EpochMap:
    starts: dict[int, int] = {}
    for index, (epoch, _record) in enumerate(log):
        starts.setdefault(epoch, index * 10)
    return EpochMap(starts.items())


@given(histories())
def test_repeated_answers_lead_any_follower_to_the_common_prefix(
    logs: tuple[list[tuple[int, int]], list[tuple[int, int]]],
) -> None:
    leader, follower = logs
    leader_map = map_of(leader)
    common = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(leader, follower, strict=False)))
    log = list(follower)
    for _round in range(20):
        follower_map = map_of(log)
        answer = leader_map.divergence(follower_map.last_epoch, len(log) * 10, len(leader) * 10)
        if answer is None:
            break
        cut = follower_map.truncation_offset(answer, len(log) * 10)
        assert cut < len(log) * 10, "every answer that says diverged cuts something"
        assert cut >= common * 10, "nothing that both logs hold is cut"
        log = log[: cut // 10]
    assert log == leader[: len(log)]
    assert len(log) == min(common, len(log))


@given(histories(), st.data())
def test_epochs_that_retention_dropped_mislead_no_follower(
    logs: tuple[list[tuple[int, int]], list[tuple[int, int]]], data: st.DataObject
) -> None:
    """It keeps of its log what is the leader's, or begins again; never less than with all epochs while both have what is common."""
    leader, log = logs
    common = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(leader, log, strict=False))) * 10
    leader_min, own_min = (data.draw(st.integers(0, len(one))) * 10 for one in (leader, log))
    leader_map, own_map = map_of(leader), map_of(log)
    leader_map.drop_before(leader_min)
    own_map.drop_before(own_min)
    end = len(log) * 10
    while end >= leader_min:
        answer = leader_map.divergence(own_map.last_epoch, end, len(leader) * 10)
        if answer is None:
            assert log[: end // 10] == leader[: end // 10]
            return
        to_offset = own_map.truncation_offset(answer, end)
        assert to_offset < end
        if to_offset < own_min:
            break  # Empty
        end = to_offset
        own_map.truncate(end)
    assert common < max(leader_min, own_min)
