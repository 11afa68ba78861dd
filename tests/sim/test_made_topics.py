"""What must be left of topics that were made, deleted and made again, as the observer judges it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from brokerd.replica.epoch_map import EpochMap
from tests.sim.history import Attempt, Copy, History, MadeTopic, Violation
from tests.sim.made_topics import bytes_to_keep, judge_made_topics
from tests.sim.sim_requests import ChangeTopic

NAME = "topic0"
NOW_S = 100.0
Content = dict[tuple[str, int, int], Any]


def copy_at(begin: int, queue_offset: int = -1) -> Copy:
    return Copy("r0", 1, begin, begin + 10, queue_offset)


@pytest.fixture
def history() -> History:
    """Of a topic that has been made, once."""
    history = History(mode="async", in_sync_replicas=1)
    history.made_topics[NAME] = MadeTopic()
    history.changed(ChangeTopic(NAME, True), copy_at(0))
    return history


def sent(history: History, begin: int, queue_offset: int) -> Attempt:
    """A message that was acknowledged there, in the present life."""
    body = b"body at %d" % begin
    attempt = history.sending(0, body, topic=NAME, life=history.made_topics[NAME].lives)
    copy = copy_at(begin, queue_offset)
    attempt.copies.append(copy)
    attempt.acknowledged.append(copy)
    history.answered(attempt.number, "SEND_OK", queue_offset)
    return attempt


def deleted(history: History, begin: int) -> None:
    history.changed(ChangeTopic(NAME, False), copy_at(begin))


def made_again(history: History, begin: int) -> None:
    history.changed(ChangeTopic(NAME, True), copy_at(begin))


def content(*attempts: Attempt) -> Content:
    return {
        (NAME, 0, one.queue_offset): SimpleNamespace(
            body=one.body, physical_offset=one.promised.physical_offset, size_bytes=10
        )
        for one in attempts
    }


def limited(history: History, kept_bytes: int) -> None:
    history.made_topics[NAME].limits[1] = kept_bytes, None


@pytest.mark.parametrize(("kept_bytes", "may_go"), [(19, True), (20, False)])
def test_a_topic_that_keeps_so_many_bytes_loses_what_it_holds_beyond_them(
    history: History, kept_bytes: int, may_go: bool
) -> None:
    """Each message has ten."""
    limited(history, kept_bytes)
    sent(history, 10, 0)
    last = sent(history, 20, 1)
    if may_go:
        judge_made_topics(history, content(last), NOW_S)
    else:
        with pytest.raises(Violation, match="is lost"):
            judge_made_topics(history, content(last), NOW_S)


def test_a_topic_holds_at_rest_what_it_is_to_keep_at_most(history: History) -> None:
    limited(history, 19)
    messages = sent(history, 10, 0), sent(history, 20, 1)
    with pytest.raises(Violation, match="is to keep 19 bytes"):
        judge_made_topics(history, content(*messages), NOW_S)


def test_a_living_topic_has_what_was_acknowledged(history: History) -> None:
    message = sent(history, 10, 0)
    judge_made_topics(history, content(message), NOW_S)
    with pytest.raises(Violation, match="is lost"):
        judge_made_topics(history, {}, NOW_S)


def test_no_message_of_a_deleted_topic_is_back(history: History) -> None:
    message = sent(history, 10, 0)
    deleted(history, 20)
    judge_made_topics(history, {}, NOW_S)
    made_again(history, 30)
    other = sent(history, 40, 1)
    judge_made_topics(history, content(other), NOW_S)
    with pytest.raises(Violation, match="is back"):
        judge_made_topics(history, content(message, other), NOW_S)


def test_a_topic_that_was_made_again_goes_on_counting(history: History) -> None:
    sent(history, 10, 0)
    deleted(history, 20)
    made_again(history, 30)
    other = sent(history, 40, 0)
    with pytest.raises(Violation, match="both acknowledged"):
        judge_made_topics(history, content(other), NOW_S)


def test_a_deletion_that_may_be_lost_excuses_messages_that_are_back(history: History) -> None:
    message = sent(history, 10, 0)
    deleted(history, 20)
    history.unclean_promotion(2, EpochMap([(1, 0)]), 20)
    judge_made_topics(history, content(message), NOW_S)
    judge_made_topics(history, {}, NOW_S)


@pytest.mark.parametrize(("grew_at_s", "is_judged"), [(NOW_S - 1.0, False), (NOW_S - 2.0, True)])
def test_a_topic_may_hold_too_much_until_its_leader_has_looked(
    history: History, grew_at_s: float, is_judged: bool
) -> None:
    limited(history, 9)
    message = sent(history, 10, 0)
    history.made_topics[NAME].grew_at_s = grew_at_s
    if is_judged:
        with pytest.raises(Violation, match="is to keep 9 bytes"):
            judge_made_topics(history, content(message), NOW_S)
    else:
        judge_made_topics(history, content(message), NOW_S)


def test_a_message_may_expire_by_the_limit_of_an_older_life_that_may_be_back(history: History) -> None:
    limited(history, 9)
    deleted(history, 20)
    made_again(history, 30)
    message = sent(history, 40, 0)
    assert history.made_topics[NAME].limits[2] == (None, None)
    with pytest.raises(Violation, match="is lost"):
        judge_made_topics(history, {}, NOW_S)
    history.unclean_promotion(2, EpochMap([(1, 0)]), 30)
    message.acknowledged[:] = message.copies[:] = [replace(message.promised, epoch=2)]
    judge_made_topics(history, {}, NOW_S)


def test_a_life_that_is_back_keeps_its_limit_when_the_topic_is_made_again(history: History) -> None:
    """Its deletion is lost, so there is nothing to make."""
    limited(history, 9)
    deleted(history, 20)
    history.unclean_promotion(2, EpochMap([(1, 0)]), 20)
    history.changed(ChangeTopic(NAME, True, kept_bytes=600), Copy("r0", 2, 30, 40, -1))
    message = sent(history, 40, 0)
    message.acknowledged[:] = message.copies[:] = [replace(message.promised, epoch=2)]
    judge_made_topics(history, {}, NOW_S)
    assert bytes_to_keep(history, NAME) is None


def test_a_limit_is_not_judged_when_the_making_of_its_topic_may_be_lost(history: History) -> None:
    """An older life may have come back, with a limit of its own."""
    deleted(history, 20)
    made_again(history, 30)
    history.made_topics[NAME].limits[2] = 600, None
    assert bytes_to_keep(history, NAME) == 600
    history.unclean_promotion(2, EpochMap([(1, 0)]), 30)
    assert bytes_to_keep(history, NAME) is None


def test_a_change_without_an_answer_leaves_nothing_to_judge(history: History) -> None:
    message = sent(history, 10, 0)
    history.made_topics[NAME].exists = None
    judge_made_topics(history, {}, NOW_S)
    judge_made_topics(history, content(message), NOW_S)


def test_a_message_is_there_once(history: History) -> None:
    message = sent(history, 10, 0)
    twice = content(message)
    twice[NAME, 0, 1] = twice[NAME, 0, 0]
    with pytest.raises(Violation, match="2 times"):
        judge_made_topics(history, twice, NOW_S)
