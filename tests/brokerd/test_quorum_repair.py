"""A voter whose log is damaged below confirmOffset: it has no voice until it has fetched what is damaged again."""

from __future__ import annotations

import pytest

from brokerd.replica.in_sync import SendVerdict
from brokerd.replica.quorum_messages import VoteAnswer, VoteRequest
from brokerd.store import StoreReadOnlyError
from tests.brokerd.quorum_group import LONG_S, QuorumGroup
from tests.sim.store_harness import message


@pytest.fixture
def group() -> QuorumGroup:
    """Replica 2 has lost a byte in the middle of what is confirmed, and 0 leads."""
    made = QuorumGroup.led()
    made[0].append(*[b"%03d" % number + b"." * 300 for number in range(30)])
    made.level()
    made[2].restart_with_rot(5000)
    return made


def test_it_neither_votes_nor_campaigns(group: QuorumGroup) -> None:
    group[2].now_s += LONG_S
    assert not group[2].tick().messages
    request = VoteRequest(group="group-a", candidate=1, epoch=9, last_epoch=9, end_offset=1 << 40, pre=False)
    reply = group[2].step(request).reply
    assert isinstance(reply, VoteAnswer)
    assert not reply.granted
    assert "damaged" in reply.reason


def test_what_it_reports_ends_where_the_damage_begins(group: QuorumGroup) -> None:
    pull = group[2].replica.next_pull(max_bytes=1, max_wait_ms=0)
    assert pull.end_offset == group[2].store.damaged_from
    assert pull.durable_offset <= pull.end_offset <= 5000


def test_it_fetches_what_is_damaged_again_and_has_a_voice_then(group: QuorumGroup) -> None:
    group[2].repair()
    assert group[2].store.refusal is None
    assert not group[2].replica.saved.joined
    group[2].replica.saw_epoch(1, "r0")
    group.level()
    end = group[0].store.end_offset
    assert group[2].store.read_raw(0, end) == group[0].store.read_raw(0, end)
    assert group[2].replica.saved.joined
    group[0].up = False
    group.elect(2)


def test_until_it_is_level_it_does_not_help_a_shorter_log_to_win(group: QuorumGroup) -> None:
    end = group[0].append(b"on 0 and 2 only")
    group[2].repair()
    group[2].replica.saw_epoch(1, "r0")
    group[2].restart()
    group[0].up = False
    group.wait(LONG_S)
    for number in (1, 2, 1, 2):
        group[number].time_out()
        group.deliver()
    assert group.leaders == []
    assert group[0].replica.verdict(end) is SendVerdict.WAIT


def test_a_repair_that_is_cut_short_is_done_again(group: QuorumGroup) -> None:
    damaged_from = group[2].store.damaged_from
    assert damaged_from is not None
    with pytest.raises(InterruptedError):
        group[2].replica.truncate(damaged_from, stop, confirmed=True)
    group[2].disk = group[2].disk.after_kill()
    group[2].open(damaged=True)
    assert not group[2].replica.saved.joined
    group[2].repair()
    group[2].replica.saw_epoch(1, "r0")
    group.level()
    assert group[2].log == group[0].log


def stop(offset: int) -> None:
    raise InterruptedError


def test_a_sound_log_is_not_cut(group: QuorumGroup) -> None:
    with pytest.raises(ValueError, match="not damaged"):
        group[1].store.truncate_damaged()


def test_a_damaged_store_takes_nothing_until_then(group: QuorumGroup) -> None:
    with pytest.raises(StoreReadOnlyError):
        group[2].store.append([message(b"no")])
