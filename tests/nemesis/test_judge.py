"""The judge finds each planted violation, and nothing in a good history."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.nemesis.judge import Acknowledged, Committed, End, History, OffsetAnswer, SentBack, Table, violations

THERE = {Table.TOPIC: frozenset({"t"}), Table.GROUP: frozenset({"kept"})}
END = End(content={0: ["a", "b", "c"], 1: ["d"]}, tables=[THERE] * 3, logs=["same"] * 3)


def good() -> History:
    history = History(
        acknowledged=[Acknowledged("a", 0, 0), Acknowledged("b", 0, 1), Acknowledged("d", 1, 0)],
        committed=[Committed("g", 0, 2, 5.0), Committed("g", 0, 1, 4.0)],
        offset_answers=[
            OffsetAnswer("g", 0, 1, 4.5, 1),
            OffsetAnswer("g", 0, 2, 6.0, 2),
            OffsetAnswer("g", 1, None, 6.0, 2),
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
    history.offset_answers.append(OffsetAnswer("g", 0, answered, 7.0, 1))
    assert violations(history, END) == [f"group g had committed 2 in queue 0; replica 1 answered {answered}"]


def test_an_offset_asked_for_before_the_commit_was_answered_may_be_lower() -> None:
    history = good()
    history.offset_answers.append(OffsetAnswer("g", 0, 1, 4.9, 1))
    assert violations(history, END) == []


def test_a_consumer_that_was_sent_back_is_found() -> None:
    history = good()
    history.sent_back.append(SentBack("g", 0, 867, 426, 1))
    assert violations(history, END) == ["replica 1 sent group g back in queue 0: 867 -> 426"]


def test_a_topic_that_one_replica_lacks_is_found() -> None:
    end = replace(END, tables=[THERE, THERE | {Table.TOPIC: frozenset()}, THERE])
    assert violations(good(), end) == ["topic t was made, and replica 1 does not have it"]


def test_a_deleted_topic_that_one_replica_has_is_found() -> None:
    end = replace(END, tables=[THERE, THERE, THERE | {Table.TOPIC: frozenset({"t", "gone"})}])
    assert violations(good(), end) == ["topic gone was deleted, and replica 2 has it"]


def test_a_consumer_group_that_one_replica_lacks_is_found() -> None:
    end = replace(END, tables=[THERE | {Table.GROUP: frozenset()}, THERE, THERE])
    assert violations(good(), end) == ["group kept was made, and replica 0 does not have it"]


def test_logs_that_differ_are_found() -> None:
    end = replace(END, logs=["same", "other", "same"])
    assert violations(good(), end) == ["the replicas' logs differ: same, other, same"]
