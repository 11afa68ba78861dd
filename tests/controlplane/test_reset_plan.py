"""What an offset reset would do to each queue."""

from __future__ import annotations

from controlplane.consumers.reset_plan import QueueNow, plan_to, shifted
from highwater import MessageQueue

QUEUES = [MessageQueue("payments", "broker-a", number) for number in range(3)]


def now(*offsets: int | None) -> list[QueueNow]:
    """Queues that hold the messages 10 to 99."""
    return [QueueNow(queue, 10, 100, offset) for queue, offset in zip(QUEUES, offsets, strict=False)]


def test_going_back_repeats_messages_and_going_on_skips_them() -> None:
    plan = plan_to(now(50, 50), {QUEUES[0]: 20, QUEUES[1]: 90})
    assert [(one.again, one.skipped) for one in plan.queues] == [(30, 0), (0, 40)]
    assert (plan.again, plan.skipped) == (30, 40)


def test_a_queue_goes_no_further_than_what_it_holds() -> None:
    plan = plan_to(now(50, 50), {QUEUES[0]: 0, QUEUES[1]: 500})
    assert [one.after for one in plan.queues] == [10, 100]


def test_a_queue_that_is_there_already_is_left_out_and_so_is_one_without_a_goal() -> None:
    plan = plan_to(now(50, 50, None), {QUEUES[0]: 50, QUEUES[1]: None, QUEUES[2]: 60})
    assert [queue.queue_id for queue, _ in plan.left_out] == [0, 1]
    assert [(one.before, one.after) for one in plan.queues] == [(None, 60)]


def test_where_a_group_had_no_offset_nothing_is_repeated_or_skipped() -> None:
    (one,) = plan_to(now(None), {QUEUES[0]: 60}).queues
    assert (one.again, one.skipped) == (0, 0)


def test_a_shift_starts_where_the_group_is() -> None:
    assert shifted(now(50, None), -20) == {QUEUES[0]: 30, QUEUES[1]: None}
