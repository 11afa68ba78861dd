"""The judge finds each planted violation, and nothing in a good history."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqwire.codes import ResponseCode
from tests.nemesis.judge import (
    Acknowledged,
    Committed,
    End,
    History,
    OffsetAnswer,
    SentBack,
    Table,
    WentBack,
    violations,
)

THERE = {Table.TOPIC: frozenset({"t"}), Table.GROUP: frozenset({"kept"})}
END = End(
    content={0: ["a", "b", "c"], 1: ["d"]}, tables=dict.fromkeys(range(3), THERE), logs=dict.fromkeys(range(3), "same")
)
LOST = replace(END, losses=[4096])


def good() -> History:
    history = History(
        acknowledged=[Acknowledged("a", 0, 0), Acknowledged("b", 0, 1), Acknowledged("d", 1, 0)],
        committed=[Committed("g", 0, 2, 5.0), Committed("g", 0, 1, 4.0)],
        offset_answers=[
            OffsetAnswer("g", 0, 1, 4.5, 4.6, 1),
            OffsetAnswer("g", 0, 2, 6.0, 6.1, 2),
            OffsetAnswer("g", 1, None, 6.0, 6.1, 2),
        ],
        made={(Table.TOPIC, "t"): True, (Table.TOPIC, "gone"): False, (Table.GROUP, "kept"): True},
    )
    history.seen["g"] = {"a", "b"}
    return history


def test_a_good_history_has_no_violation() -> None:
    assert violations(good(), END) == []


def test_an_acknowledged_message_that_is_gone_is_found() -> None:
    history = good()
    history.acknowledged.append(Acknowledged("lost", 0, 3))
    assert violations(history, END) == ["lost was acknowledged at 0/3 and is at []"]


def test_an_acknowledged_message_at_another_offset_is_found() -> None:
    history = good()
    history.acknowledged[2] = Acknowledged("d", 1, 4)
    assert violations(history, END) == ["d was acknowledged at 1/4 and is at [(1, 0)]"]


def test_a_message_that_is_stored_twice_is_found() -> None:
    end = replace(END, content={0: ["a", "b", "a"], 1: ["d"]})
    assert violations(good(), end) == ["a is stored 2 times: [(0, 0), (0, 2)]"]


def test_a_message_that_a_committing_group_never_saw_is_found() -> None:
    history = good()
    history.seen["g"].remove("a")
    assert violations(history, END) == ["group g committed 2 in queue 0 and never saw 1: ['a']"]


@pytest.mark.parametrize("answered", [None, 1])
def test_a_committed_offset_that_fell_is_found(answered: int | None) -> None:
    history = good()
    history.offset_answers.append(OffsetAnswer("g", 0, answered, 7.0, 7.1, 1))
    assert violations(history, END) == [f"group g had committed 2 in queue 0; replica 1 answered {answered}"]


def test_an_offset_asked_for_before_the_commit_was_answered_may_be_lower() -> None:
    history = good()
    history.offset_answers.append(OffsetAnswer("g", 0, 1, 4.9, 4.95, 1))
    assert violations(history, END) == []


@pytest.mark.parametrize("answered", [None, 7])
def test_an_offset_that_fell_after_a_leader_answered_it_is_found(answered: int | None) -> None:
    history = good()
    history.offset_answers.append(OffsetAnswer("g", 1, 8, 7.0, 7.1, 0, held=True))
    history.offset_answers.append(OffsetAnswer("g", 1, answered, 7.2, 7.3, 2))
    assert violations(history, END) == [f"group g had been answered 8 in queue 1; replica 2 answered {answered}"]


def test_an_answer_of_who_may_be_alone_with_it_is_no_promise() -> None:
    history = good()
    history.offset_answers.append(OffsetAnswer("g", 1, 8, 7.0, 7.1, 0))
    history.offset_answers.append(OffsetAnswer("g", 1, 7, 7.2, 7.3, 2))
    assert violations(history, END) == []


def test_the_beginning_of_a_young_topic_is_no_offset_that_a_group_has() -> None:
    history = good()
    history.offset_answers.append(OffsetAnswer("g", 1, 0, 7.0, 7.1, 0, held=True))
    history.offset_answers.append(OffsetAnswer("g", 1, None, 7.2, 7.3, 0, held=True))
    assert violations(history, END) == []


def test_an_offset_asked_for_before_a_higher_one_was_answered_may_be_lower() -> None:
    history = good()
    history.offset_answers.append(OffsetAnswer("g", 1, 8, 7.0, 7.1, 0, held=True))
    history.offset_answers.append(OffsetAnswer("g", 1, 7, 7.05, 7.3, 2))
    assert violations(history, END) == []


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.PULL_OFFSET_MOVED,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.SUCCESS,
    ],
)
def test_a_consumer_that_was_sent_back_is_found_by_whatever_code(code: ResponseCode) -> None:
    history = good()
    history.sent_back.append(SentBack("g", 0, 867, 426, 6.0, 1, code))
    assert violations(history, END) == [f"replica 1 sent group g back in queue 0: 867 -> 426 by {code.name}"]


def test_a_code_without_a_name_that_sends_a_consumer_back_is_found() -> None:
    history = good()
    history.sent_back.append(SentBack("g", 0, 867, 426, 6.0, 1, 4711))
    assert violations(history, END) == ["replica 1 sent group g back in queue 0: 867 -> 426 by code 4711"]


def test_a_push_consumer_that_went_back_is_found() -> None:
    history = good()
    history.went_back.append(WentBack("g", 0, 9, 5, 6.0))
    assert violations(history, END) == ["a consumer of group g went back in queue 0: 9 -> 5"]


def test_where_messages_may_be_lost_consumers_go_back_to_what_they_have_committed() -> None:
    history = good()
    history.may_have_lost.append("disk full: replica 1")
    history.sent_back.append(SentBack("g", 0, 9, 2, 6.0, 1, ResponseCode.PULL_OFFSET_MOVED))
    history.went_back.append(WentBack("g", 0, 9, 2, 6.1))
    assert violations(history, LOST) == []


def test_where_messages_may_be_lost_a_consumer_that_went_back_too_far_is_found() -> None:
    history = good()
    history.may_have_lost.append("disk full: replica 1")
    history.sent_back.append(SentBack("g", 0, 9, 1, 6.0, 1, ResponseCode.PULL_OFFSET_MOVED))
    history.went_back.append(WentBack("g", 0, 9, 1, 6.1))
    assert violations(history, LOST) == [
        "replica 1 sent group g back in queue 0: 9 -> 1; it had committed 2",
        "a consumer of group g went back in queue 0: 9 -> 1; it had committed 2",
    ]


def test_where_messages_may_be_lost_only_a_moved_offset_sends_consumers_back() -> None:
    history = good()
    history.may_have_lost.append("disk full: replica 1")
    history.sent_back.append(SentBack("g", 0, 9, 2, 6.0, 1, ResponseCode.PULL_NOT_FOUND))
    assert violations(history, LOST) == ["replica 1 sent group g back in queue 0: 9 -> 2 by PULL_NOT_FOUND"]


def test_a_leader_that_says_for_no_reason_that_messages_may_be_lost_is_found() -> None:
    assert violations(good(), LOST) == [
        "a leader says that messages which were shown may be lost, from [4096] on, and nothing can have lost any"
    ]


def test_what_clients_noted_is_judged_though_nothing_could_be_read_in_the_end() -> None:
    history = good()
    history.offset_answers.append(OffsetAnswer("g", 0, 1, 7.0, 7.1, 1))
    assert violations(history, End()) == ["group g had committed 2 in queue 0; replica 1 answered 1"]


def test_a_topic_that_one_replica_lacks_is_found() -> None:
    end = replace(END, tables={**END.tables, 1: THERE | {Table.TOPIC: frozenset()}})
    assert violations(good(), end) == ["topic t was made, and replica 1 does not have it"]


def test_a_deleted_topic_that_one_replica_has_is_found() -> None:
    end = replace(END, tables={**END.tables, 2: THERE | {Table.TOPIC: frozenset({"t", "gone"})}})
    assert violations(good(), end) == ["topic gone was deleted, and replica 2 has it"]


def test_a_consumer_group_that_one_replica_lacks_is_found() -> None:
    end = replace(END, tables={**END.tables, 0: THERE | {Table.GROUP: frozenset()}})
    assert violations(good(), end) == ["group kept was made, and replica 0 does not have it"]


def test_logs_that_differ_are_found() -> None:
    end = replace(END, logs={**END.logs, 1: "other"})
    assert violations(good(), end) == ["the replicas' logs differ: 0 same, 1 other, 2 same"]
