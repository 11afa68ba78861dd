"""Held pulls come back when their queue gets a message or their time is over, once."""

import weakref
from collections.abc import Callable

import msgspec
import pytest
import trio

from brokerd.long_polling import ANSWERED_AT_ONCE, HeldPull, PullRequestHoldService
from brokerd.processors.pull_message import PullMessageProcessor
from brokerd.store.results import GetMessageStatus, GetResult
from mqwire.codes import PullSysFlag, RequestCode
from mqwire.command import RemotingCommand
from mqwire.headers_pull import PullMessageRequestHeader
from tests.brokerd.broker_under_test import BrokerUnderTest, RecordingPeer


class SomePeer:
    closed = False


def pull(topic: str, queue_id: int, deadline_s: float, peer: SomePeer | None = None) -> HeldPull:
    header = PullMessageRequestHeader(
        consumer_group="g",
        topic=topic,
        queue_id=queue_id,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=2,
        commit_offset=0,
        suspend_timeout_millis=1000,
        sub_version=0,
    )
    held_by = peer or SomePeer()
    return HeldPull(held_by, RemotingCommand(11), header, None, 0, deadline_s)  # type: ignore[arg-type] # only .closed


def test_a_message_wakes_the_pulls_of_its_queue_only() -> None:
    service = PullRequestHoldService()
    here, elsewhere = pull("t", 1, 10), pull("t", 2, 10)
    service.hold(here)
    service.hold(elsewhere)
    assert service.take([("t", 1)]) == [here]
    assert len(service) == 1


def test_a_woken_pull_does_not_expire_as_well() -> None:
    service = PullRequestHoldService()
    service.hold(pull("t", 1, 10))
    service.take([("t", 1)])
    assert service.expired(100) == []


def test_pulls_expire_in_the_order_of_their_deadlines() -> None:
    service = PullRequestHoldService()
    late, early, later = pull("t", 1, 20), pull("t", 2, 10), pull("t", 1, 30)
    for held in (late, early, later):
        service.hold(held)
    assert service.expired(25) == [early, late]
    assert len(service) == 1


def test_an_expired_pull_is_not_woken_any_more() -> None:
    service = PullRequestHoldService()
    service.hold(pull("t", 1, 10))
    service.expired(10)
    assert service.take([("t", 1)]) == []


def test_the_pulls_of_one_connection_are_taken_once_and_no_others() -> None:
    service = PullRequestHoldService()
    leaving = SomePeer()
    first, other, second = pull("t", 1, 10, leaving), pull("t", 1, 10), pull("t", 2, 20, leaving)
    for held in (first, other, second):
        service.hold(held)
    assert service.of_peers({leaving}) == [first, second]  # type: ignore[arg-type] # a stand-in
    assert service.of_peers({leaving}) == []  # type: ignore[arg-type] # a stand-in
    assert service.expired(100) == [other]
    assert len(service) == 0


def test_pulls_of_closed_connections_are_forgotten() -> None:
    service = PullRequestHoldService()
    peer = SomePeer()
    service.hold(pull("t", 1, 10, peer))
    peer.closed = True
    assert service.take([("t", 1)]) == []
    assert len(service) == 0


def test_a_pull_that_is_held_again_can_be_woken_again() -> None:
    service = PullRequestHoldService()
    held = pull("t", 1, 10)
    service.hold(held)
    service.take([("t", 1)])
    service.hold(held)
    assert service.take([("t", 1)]) == [held]


def test_a_pull_that_is_held_again_expires_once() -> None:
    service = PullRequestHoldService()
    held = pull("t", 1, 10)
    service.hold(held)
    service.take([("t", 1)])
    service.hold(held)
    assert service.expired(10) == [held]
    assert service.expired(11) == []


def test_an_answered_pull_is_let_go_of_while_one_in_an_idle_queue_waits_on() -> None:
    """All that its request carried stayed in memory until the time of the idle one was over."""
    service = PullRequestHoldService()
    service.hold(pull("t", 1, 10))
    peer = SomePeer()
    left = weakref.ref(peer)
    service.hold(pull("t", 2, 11, peer))
    service.take([("t", 2)])
    del peer
    assert left() is None


def test_a_pull_that_each_message_wakes_in_vain_has_few_deadlines() -> None:
    """No message has the tag that it asks for."""
    service = PullRequestHoldService()
    service.hold(pull("t", 1, 10))
    for _ in range(10_000):
        (held,) = service.take([("t", 1)])
        service.hold(held)
    assert len(service._by_deadline) < 200
    assert service.expired(10) == [held]


def test_a_pull_of_a_queue_that_never_held_a_message_waits_for_the_first() -> None:
    """A retry topic is empty as long as nothing fails: consumers that were answered at once kept a fifth of a core busy."""
    nothing = GetResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0, [], 0, 0)
    at_start = pull("%RETRY%g", 0, 10).header
    assert PullMessageProcessor._may_wait(at_start, nothing)
    assert not PullMessageProcessor._may_wait(msgspec.structs.replace(at_start, queue_offset=7), nothing)


def test_pulls_that_a_message_woke_are_taken_some_at_a_time_and_once() -> None:
    service = PullRequestHoldService()
    woken = [pull("t", number % 2, 10) for number in range(10)]
    for held in woken:
        service.hold(held)
    service.wake([("t", 0), ("t", 1), ("t", 2)])
    later = pull("t", 0, 10)
    service.hold(later)
    taken = service.take_woken(3)
    for held in taken:
        service.hold(held)  # nothing for its tags
    taken += service.take_woken(4)
    assert service.has_woken
    taken += service.take_woken(100)
    assert not service.has_woken
    assert sorted(map(id, taken)) == sorted(map(id, woken))
    assert service.take([("t", 0)]) == [later, *taken[:3]]


def test_a_queue_that_is_woken_faster_than_its_pulls_are_answered_holds_up_no_other() -> None:
    """As one that a thousand broadcasting consumers read, with a message each few milliseconds."""
    service = PullRequestHoldService()
    for _ in range(100):
        service.hold(pull("busy", 0, 10))
    waiting = pull("quiet", 0, 10)
    service.hold(waiting)
    service.wake([("busy", 0)])
    service.wake([("quiet", 0)])
    for _ in range(2):
        taken = service.take_woken(10)
        for held in taken:
            if held is not waiting:
                service.hold(held)  # the consumer has read the message, and pulls again
        service.wake([("busy", 0)])
    assert waiting in taken


def test_pulls_that_expired_or_were_taken_before_their_turn_are_not_woken() -> None:
    service = PullRequestHoldService()
    for number in range(4):
        service.hold(pull("t", 0, number))
    service.wake([("t", 0)])
    service.expired(1)
    assert [held.deadline_s for held in service.take_woken(100)] == [2, 3]
    service.hold(pull("t", 0, 9))
    service.wake([("t", 0)])
    service.take([("t", 0)])
    assert service.take_woken(100) == []
    assert not service.has_woken


def test_pulls_expire_some_at_a_time() -> None:
    service = PullRequestHoldService()
    for number in range(5):
        service.hold(pull("t", 0, number))
    assert len(service.expired(10, 3)) == 3
    assert service.is_any_due(10)
    assert len(service.expired(10, 3)) == 2
    assert not service.is_any_due(10)


def hold_many(broker: BrokerUnderTest) -> RecordingPeer:
    broker.create_topic("orders", queues=1)
    broker.create_group("g")
    peer = RecordingPeer()
    for _ in range(3 * ANSWERED_AT_ONCE):
        header = pull("orders", 0, 0).header
        request = RemotingCommand.request(
            RequestCode.PULL_MESSAGE,
            msgspec.structs.replace(header, sys_flag=PullSysFlag.SUBSCRIPTION | PullSysFlag.SUSPEND, subscription="*"),
        )
        broker.dispatch(peer, [request])
    assert len(broker.broker.held_pulls) == 3 * ANSWERED_AT_ONCE
    return peer


def message_arrives(broker: BrokerUnderTest) -> None:
    broker.store_message("orders", b"x")
    broker.broker.held_changed()


def time_is_over(broker: BrokerUnderTest) -> None:
    broker.clock.advance(10)
    broker.broker.answer_expired()


@pytest.mark.trio
@pytest.mark.parametrize("is_answered", [message_arrives, time_is_over])
async def test_many_pulls_are_answered_in_turns_with_all_else(
    broker: BrokerUnderTest, is_answered: Callable[[BrokerUnderTest], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = hold_many(broker)
    is_answered(broker)
    answered = [len(peer.take())]
    answer_held_pulls = broker.broker.answer_held_pulls

    def answer_in_a_turn() -> bool:
        is_any_left = answer_held_pulls()
        answered.append(len(peer.take()))
        return is_any_left

    monkeypatch.setattr(broker.broker, "answer_held_pulls", answer_in_a_turn)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.broker.held_answers.run)
            while len(broker.broker.held_pulls):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    assert max(answered) == ANSWERED_AT_ONCE
    assert sum(answered) == 3 * ANSWERED_AT_ONCE


def test_pulls_that_wait_for_their_turn_are_answered_though_another_groups_offsets_are_reset(
    broker: BrokerUnderTest,
) -> None:
    peer = hold_many(broker)
    message_arrives(broker)
    assert len(peer.take()) == ANSWERED_AT_ONCE
    broker.broker.offsets_reset("orders", "another-group", [0])
    while broker.broker.answer_held_pulls():
        pass
    assert len(broker.broker.held_pulls) == 0
    assert len(peer.take()) == 2 * ANSWERED_AT_ONCE
