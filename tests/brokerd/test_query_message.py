"""Offsets by queue and time, single messages, consume statistics."""

from __future__ import annotations

from typing import Any

import pytest

from mqwire.bodies import (
    ConsumerConnection,
    ConsumeStats,
    GroupList,
    MessageQueue,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    TopicList,
)
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_client import GetConsumerConnectionListRequestHeader
from mqwire.headers_group import GetConsumeStatsRequestHeader, QueryTopicsByConsumerRequestHeader
from mqwire.headers_offset import (
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    SearchOffsetRequestHeader,
)
from mqwire.headers_pull import ViewMessageRequestHeader
from mqwire.headers_topic import QueryTopicConsumeByWhoRequestHeader
from mqwire.message import decode_record
from tests.brokerd.broker_under_test import FIRST_MS, BrokerUnderTest, RecordingPeer


@pytest.fixture
def filled_broker(broker: BrokerUnderTest) -> BrokerUnderTest:
    """Topic `orders` of one queue with messages stored at 0, 10, ... 90 s after the clock's start."""
    broker.create_topic("orders", queues=1)
    broker.create_group("g")
    for number in range(10):
        broker.store_message("orders", b"%d" % number)
        broker.clock.advance(10)
    return broker


def search(broker: BrokerUnderTest, seconds: int, boundary: str | None = None) -> RemotingCommand:
    header = SearchOffsetRequestHeader(
        topic="orders", queue_id=0, timestamp=FIRST_MS + seconds * 1000, boundary_type=boundary
    )
    return broker.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)


def test_the_max_offset_counts_every_stored_message(filled_broker: BrokerUnderTest) -> None:
    reply = filled_broker.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic="orders", queue_id=0))
    assert reply.ext_fields["offset"] == "10"


def test_the_min_offset_is_the_first_one_left(filled_broker: BrokerUnderTest) -> None:
    reply = filled_broker.ask(RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic="orders", queue_id=0))
    assert reply.ext_fields["offset"] == "0"


@pytest.mark.parametrize("code", [RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET])
def test_a_missing_queue_answers_0(broker: BrokerUnderTest, code: int) -> None:
    assert broker.ask(code, GetMaxOffsetRequestHeader(topic="none", queue_id=3)).ext_fields["offset"] == "0"


@pytest.mark.parametrize(
    ("seconds", "boundary", "offset"),
    [(0, None, 0), (25, None, 3), (30, "LOWER", 3), (30, "upper", 3), (35, "UPPER", 3), (1000, None, 10)],
)
def test_an_offset_is_found_by_time(
    filled_broker: BrokerUnderTest, seconds: int, boundary: str | None, offset: int
) -> None:
    assert int(search(filled_broker, seconds, boundary).ext_fields["offset"]) == offset


def test_an_unknown_boundary_is_refused(filled_broker: BrokerUnderTest) -> None:
    assert search(filled_broker, 0, "MIDDLE").code == ResponseCode.INVALID_PARAMETER


def test_the_earliest_message_has_its_time(filled_broker: BrokerUnderTest) -> None:
    header = GetEarliestMsgStoretimeRequestHeader(topic="orders", queue_id=0)
    reply = filled_broker.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, header)
    assert int(reply.ext_fields["timestamp"]) == FIRST_MS


def test_an_empty_queue_has_no_earliest_message(broker: BrokerUnderTest) -> None:
    header = GetEarliestMsgStoretimeRequestHeader(topic="orders", queue_id=0)
    assert broker.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, header).ext_fields["timestamp"] == "-1"


def test_a_message_is_viewed_by_its_offset(filled_broker: BrokerUnderTest) -> None:
    offset = filled_broker.messages("orders")[4].physical_offset
    reply = filled_broker.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=offset))
    assert decode_record(reply.body).body == b"4"


@pytest.mark.parametrize("offset", [-1, 1, 10**15])
def test_an_offset_where_no_message_begins_shows_none(filled_broker: BrokerUnderTest, offset: int) -> None:
    reply = filled_broker.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=offset))
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "no message begins there" in (reply.remark or "")


def consume_stats(broker: BrokerUnderTest, **members: Any) -> dict[MessageQueue, OffsetWrapper]:
    reply = broker.ask(RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader(consumer_group="g", **members))
    return ConsumeStats.from_json(reply.body).offset_table


QUEUE = MessageQueue(topic="orders", broker_name="broker-a", queue_id=0)


def test_the_statistics_of_a_group_give_its_lag_and_the_time_of_what_it_consumed_last(
    filled_broker: BrokerUnderTest,
) -> None:
    filled_broker.broker.consumer_offsets.commit("orders", "g", 0, 4)
    offsets = consume_stats(filled_broker)[QUEUE]
    assert (offsets.broker_offset, offsets.consumer_offset) == (10, 4)
    assert offsets.last_timestamp == FIRST_MS + 30_000


def test_a_topic_that_is_named_often_is_looked_at_once(
    filled_broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    query = filled_broker.broker.consumer_offsets.query

    def count(topic: str, group: str, queue_id: int) -> int:
        asked.append(topic)
        return query(topic, group, queue_id)

    monkeypatch.setattr(filled_broker.broker.consumer_offsets, "query", count)
    stats = consume_stats(filled_broker, topic_list="orders;" * 1000)
    assert len(asked) == len(stats)


def test_a_group_that_has_consumed_nothing_is_behind_by_all_of_the_topic_asked_for(
    filled_broker: BrokerUnderTest,
) -> None:
    offsets = consume_stats(filled_broker, topic="orders")[QUEUE]
    assert (offsets.broker_offset, offsets.consumer_offset, offsets.last_timestamp) == (10, 0, 0)


def test_the_statistics_leave_deleted_topics_out(filled_broker: BrokerUnderTest) -> None:
    filled_broker.broker.consumer_offsets.commit("gone", "g", 0, 4)
    assert consume_stats(filled_broker) == {}


def test_the_groups_of_a_topic_are_listed(filled_broker: BrokerUnderTest) -> None:
    filled_broker.broker.consumer_offsets.commit("orders", "g", 0, 4)
    reply = filled_broker.ask(
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, QueryTopicConsumeByWhoRequestHeader(topic="orders")
    )
    assert GroupList.from_json(reply.body).group_list == ["g"]


def test_the_topics_of_a_group_are_listed(filled_broker: BrokerUnderTest) -> None:
    filled_broker.broker.consumer_offsets.commit("orders", "g", 0, 4)
    reply = filled_broker.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, QueryTopicsByConsumerRequestHeader(group="g"))
    assert TopicList.from_json(reply.body).topic_list == ["orders"]


def test_the_time_span_of_a_queue_shows_how_far_behind_the_group_is(filled_broker: BrokerUnderTest) -> None:
    filled_broker.broker.consumer_offsets.commit("orders", "g", 0, 4)
    header = QueryConsumeTimeSpanRequestHeader(topic="orders", group="g")
    (span,) = QueryConsumeTimeSpanBody.from_json(
        filled_broker.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, header).body
    ).consume_time_span_set
    begin_ms = FIRST_MS
    assert (span.min_time_stamp, span.max_time_stamp, span.consume_time_stamp) == (
        begin_ms,
        begin_ms + 90_000,
        begin_ms + 30_000,
    )
    assert span.delay_time == 70_000


def test_ipv6_clients_are_listed_with_brackets(broker: BrokerUnderTest, new_peer: type[RecordingPeer]) -> None:
    body = b'{"clientID":"c1","consumerDataSet":[{"groupName":"g"}],"producerDataSet":[]}'
    broker.ask(RequestCode.HEART_BEAT, body=body, peer=new_peer("::1", 4567))
    header = GetConsumerConnectionListRequestHeader(consumer_group="g")
    reply = broker.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
    assert ConsumerConnection.from_json(reply.body).connection_set[0].client_addr == "[::1]:4567"
