"""Who cannot know a queue's end never moves a consumer: followers, and leaders that have not confirmed their epoch yet."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from brokerd.replica.replica import Replica
from brokerd.run import _remember_confirm_offset
from brokerd.store import StoreError
from mqwire.codes import PullSysFlag, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_group import GetConsumeStatsRequestHeader
from mqwire.headers_offset import (
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from mqwire.headers_topic import GetTopicStatsInfoRequestHeader
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker, RecordingPeer
from tests.brokerd.quorum_group import TIMES, QuorumGroup
from tests.brokerd.replicated_broker import in_sync_pair, lead_again, pair, promote, reclaim, replicate, settle

SUSPEND_MS = 15_000


def pull_fields(offset: int, *, hold: bool = False) -> dict[str, str]:
    sys_flag = PullSysFlag.SUBSCRIPTION | (PullSysFlag.SUSPEND if hold else 0)
    return {
        "consumerGroup": "g", "topic": "orders", "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32",
        "sysFlag": str(int(sys_flag)), "commitOffset": "0", "suspendTimeoutMillis": str(SUSPEND_MS),
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip


def pull(broker: BrokerUnderTest, offset: int) -> RemotingCommand:
    return broker.ask(RequestCode.PULL_MESSAGE, ext_fields=pull_fields(offset))


def filled(broker: BrokerUnderTest) -> BrokerUnderTest:
    """Ten messages in queue 0."""
    broker.create_topic("orders")
    broker.create_group("g")
    for number in range(10):
        broker.store_message("orders", b"%d" % number)
    return broker


def make_follower(broker: BrokerUnderTest) -> None:
    replica = broker.broker.replica
    replica.step_down(replica.epoch + 1, "127.0.0.1:20911")
    broker.broker.role_changed()


@pytest.fixture(params=["follower", "unconfirmed leader"])
def unsure(request: pytest.FixtureRequest, make_broker: MakeBroker) -> BrokerUnderTest:
    """A replica that cannot know where queue 0 of `orders` ends."""
    broker = filled(make_broker(flushDiskType="SYNC_FLUSH"))
    broker.store.flush()
    broker.broker.held_changed()
    if request.param == "follower":
        make_follower(broker)
    else:
        broker.crash()  # leads again in an epoch whose first record is not durable yet
        assert broker.broker.replica.leads
    return broker


@pytest.mark.parametrize("offset", [11, 400])
def test_a_pull_after_the_end_keeps_its_offset_and_is_sent_to_the_master(unsure: BrokerUnderTest, offset: int) -> None:
    reply = pull(unsure, offset)
    assert reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert reply.ext_fields["nextBeginOffset"] == str(offset)
    assert reply.ext_fields["suggestWhichBrokerId"] == "0"


def test_a_pull_of_a_queue_without_messages_keeps_its_offset(unsure: BrokerUnderTest) -> None:
    fields = {**pull_fields(7), "queueId": "1"}
    reply = unsure.ask(RequestCode.PULL_MESSAGE, ext_fields=fields)
    assert (reply.code, reply.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "7")


def test_a_leader_that_has_confirmed_its_epoch_corrects_a_pull_after_the_end(broker: BrokerUnderTest) -> None:
    filled(broker)
    reply = pull(broker, 400)
    assert (reply.code, reply.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "10")


def commitment(offset: int) -> UpdateConsumerOffsetRequestHeader:
    return UpdateConsumerOffsetRequestHeader(consumer_group="g", topic="orders", queue_id=0, commit_offset=offset)


def committed(broker: BrokerUnderTest) -> int:
    return broker.broker.consumer_offsets.query("orders", "g", 0)


def test_a_consumer_that_has_read_more_than_the_log_holds_goes_on_where_its_group_has_committed(
    make_broker: MakeBroker,
) -> None:
    """It read on at a leader whose tail was truncated; what took the place of that tail it has not seen."""
    leader, follower = pair(make_broker)
    filled(leader)
    leader.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commitment(10))
    replicate(leader, follower)
    for _ in range(7):
        leader.store_message("orders", b"truncated by the promotion")
    assert pull(leader, 10).ext_fields["nextBeginOffset"] == "17"
    leader.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commitment(17))
    promote(follower, leader)
    for _ in range(3):
        follower.store_message("orders", b"acknowledged by the next leader")
    reply = pull(follower, 17)
    assert (reply.code, reply.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "10")


def test_while_the_tables_cannot_be_read_no_consumer_is_told_where_to_go_on_by_what_they_said(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restarted leader whose log was damaged in the middle of them had empty ones, and sent groups to the beginning."""
    filled(broker).ask(RequestCode.UPDATE_CONSUMER_OFFSET, commitment(4))
    log = broker.broker.metadata_log
    query = QueryConsumerOffsetRequestHeader(consumer_group="g", topic="orders", queue_id=0)
    stats = GetConsumeStatsRequestHeader(consumer_group="g", topic="orders")

    def damaged(*_: object) -> None:
        raise StoreError("the message at offset 3 is damaged")

    with monkeypatch.context() as patched:
        patched.setattr(type(log), "_find_base", damaged)
        lead_again(broker)
        for code, header in ((RequestCode.QUERY_CONSUMER_OFFSET, query), (RequestCode.GET_CONSUME_STATS, stats)):
            refused = broker.ask(code, header)
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE, code
            assert "cannot be read from the log" in (refused.remark or "")
        moved = pull(broker, 400)
        assert (moved.code, moved.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "400")
    log.read_again()
    assert broker.ask(RequestCode.QUERY_CONSUMER_OFFSET, query).ext_fields["offset"] == "4"


def test_a_commit_past_the_end_is_not_taken(broker: BrokerUnderTest) -> None:
    """Nor is the end in its place: the group has not read what is there."""
    filled(broker)
    broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commitment(4))
    reply = broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commitment(11))
    assert "past the end of queue 0 of topic orders, 10" in (reply.remark or "")
    assert committed(broker) == 4
    fields = pull_fields(2)
    fields |= {"sysFlag": str(int(fields["sysFlag"]) | int(PullSysFlag.COMMIT_OFFSET)), "commitOffset": "11"}
    broker.ask(RequestCode.PULL_MESSAGE, ext_fields=fields)
    assert committed(broker) == 4
    broker.ask(RequestCode.PULL_MESSAGE, ext_fields={**fields, "commitOffset": "10"})
    assert committed(broker) == 10


def test_a_pull_that_may_wait_is_held_for_half_a_second_at_most(unsure: BrokerUnderTest) -> None:
    peer = RecordingPeer()
    assert unsure.request(RequestCode.PULL_MESSAGE, ext_fields=pull_fields(400, hold=True), peer=peer) == []
    unsure.broker.dispatcher.pulls.answer_arrivals([("orders", 0)])
    assert peer.take() == [], "an arrival that it did not ask for is no news"
    unsure.clock.advance(0.6)
    unsure.broker.dispatcher.pulls.answer_expired(unsure.clock.monotonic())
    (reply,) = peer.take()
    assert (reply.code, reply.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "400")


def test_a_pull_that_waits_is_answered_when_its_leader_sees_what_came_before_it_led(make_broker: MakeBroker) -> None:
    """It waited out its 15 s, with all that it asked for confirmed."""
    leader, follower = in_sync_pair(make_broker)
    filled(leader)
    settle(leader, follower)
    leader.crash()
    reclaim(leader, follower)
    peer = RecordingPeer()
    assert leader.request(RequestCode.PULL_MESSAGE, ext_fields=pull_fields(0, hold=True), peer=peer) == []
    settle(leader, follower)
    (reply,) = peer.take()
    assert (reply.code, reply.ext_fields["nextBeginOffset"]) == (ResponseCode.SUCCESS, "10")


def test_a_leader_that_was_killed_shows_what_was_confirmed_a_minute_before_while_it_may_not_lead(
    make_broker: MakeBroker,
) -> None:
    """It needs its follower's agreement. Consumers with a backlog read on meanwhile: not only what is older than its epoch."""
    leader, follower = in_sync_pair(make_broker)
    filled(leader)
    settle(leader, follower)

    async def run() -> None:
        with trio.move_on_after(61):
            await _remember_confirm_offset(leader.broker)

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    leader.crash()
    assert leader.broker.replica.must_reclaim
    assert len(leader.messages("orders")) == 10


def test_an_elected_leader_that_no_majority_pulls_from_does_not_know_where_the_group_ends() -> None:
    """Cut off from the others, it still leads until it resigns; they may have elected another one meanwhile."""
    group = QuorumGroup.led()
    leader = group[0]
    assert leader.replica.knows_group_end(leader.now_s)
    group.isolate(0)
    group.wait(TIMES.recent + 0.1)
    assert (leader.replica.leads, leader.replica.has_confirmed_epoch) == (True, True)
    assert not leader.replica.knows_group_end(leader.now_s)


def test_a_leader_that_may_have_been_replaced_answers_no_offset_and_moves_no_consumer(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(broker)
    monkeypatch.setattr(Replica, "knows_group_end", lambda self, now_s: False)
    assert {broker.ask(code, header).code for code, header in QUESTIONS} == {ResponseCode.SERVICE_NOT_AVAILABLE}
    reply = pull(broker, 400)
    assert (reply.code, reply.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "400")


QUESTIONS = [
    (RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic="orders", queue_id=0)),
    (RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic="orders", queue_id=0)),
    (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequestHeader(topic="orders", queue_id=0, timestamp=0)),
    (
        RequestCode.QUERY_CONSUMER_OFFSET,
        QueryConsumerOffsetRequestHeader(consumer_group="g", topic="orders", queue_id=0),
    ),
]


STATISTICS = [
    (RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic="orders")),
    (RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader(consumer_group="g", topic="orders")),
    (RequestCode.QUERY_CONSUME_TIME_SPAN, QueryConsumeTimeSpanRequestHeader(topic="orders", group="g")),
]


@pytest.mark.parametrize(("code", "header"), STATISTICS)
def test_statistics_show_no_queue_that_ends_where_readers_were_when_its_leader_began(
    make_broker: MakeBroker, code: RequestCode, header: GetTopicStatsInfoRequestHeader
) -> None:
    """A lag of nothing, and where a tool would then reset the group to."""
    broker = filled(make_broker(flushDiskType="SYNC_FLUSH"))
    broker.crash()
    reply = broker.ask(code, header)
    assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "its epoch has just begun; ask again" in (reply.remark or "")
    broker.store.flush()
    broker.broker.held_changed()
    assert broker.ask(code, header).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(("code", "header"), STATISTICS)
def test_a_slave_shows_statistics_of_what_it_has(
    broker: BrokerUnderTest, code: RequestCode, header: GetTopicStatsInfoRequestHeader
) -> None:
    make_follower(filled(broker))
    assert broker.ask(code, header).code == ResponseCode.SUCCESS


TO_THE_END = ResetOffsetRequestHeader(topic="orders", group="g", queue_id=-1, offset=-1, timestamp=-1, is_force=True)


def test_a_leader_that_has_not_confirmed_its_epoch_resets_no_one_to_an_end_that_it_does_not_know(
    make_broker: MakeBroker,
) -> None:
    """To the end of what readers see it was until then: to the first message, for one that was killed."""
    leader, follower = in_sync_pair(make_broker)
    filled(leader)
    settle(leader, follower)
    leader.crash()
    reclaim(leader, follower)
    reply = leader.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, TO_THE_END)
    assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "does not know where the queues end" in (reply.remark or "")
    settle(leader, follower)
    peer = RecordingPeer()
    answers = leader.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, TO_THE_END, peer=peer)
    settle(leader, follower)
    (reply,) = answers + peer.take()
    assert reply.code == ResponseCode.SUCCESS
    assert committed(leader) == 10


@pytest.mark.parametrize(("code", "header"), QUESTIONS)
def test_a_follower_that_hears_its_leader_names_it_when_asked_for_offsets(
    broker: BrokerUnderTest, code: RequestCode, header: GetMaxOffsetRequestHeader
) -> None:
    filled(broker)
    broker.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        UpdateConsumerOffsetRequestHeader(consumer_group="g", topic="orders", queue_id=0, commit_offset=4),
    )
    make_follower(broker)
    broker.broker.follower.hears_leader = True
    reply = broker.ask(code, header)
    assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "127.0.0.1:20911" in (reply.remark or "")
    broker.broker.follower.hears_leader = False
    assert broker.ask(code, header).code == ResponseCode.SUCCESS, "without a leader consumers can read on"


def test_a_follower_without_an_offset_does_not_say_that_the_group_has_none(broker: BrokerUnderTest) -> None:
    filled(broker)
    make_follower(broker)
    reply = broker.ask(QUESTIONS[3][0], QUESTIONS[3][1])
    assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
