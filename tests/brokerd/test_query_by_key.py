"""QUERY_MESSAGE: by key, by unique id, within a time, within limits; and what is said when nothing is found."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from brokerd.store import message_query
from mqwire.acl import SessionCredentials
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_pull import QueryMessageRequestHeader, QueryMessageResponseHeader
from mqwire.message import decode_records
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker

FOREVER = 2**63 - 1
UNIQUE = {"_UNIQUE_KEY_QUERY": "true"}
# Files of 2 kB instead of 420 MB, of which a test may fill several.
SMALL = {"maxHashSlotNum": "16", "maxIndexNum": "100"}


@pytest.fixture
def filled(make_broker: MakeBroker) -> BrokerUnderTest:
    """Ten messages of key k, each second one, and with an id of its own."""
    broker = make_broker(**SMALL)
    broker.create_topic("orders", queues=1)
    for number in range(10):
        broker.store_message("orders", b"%d" % number, properties={"KEYS": f"k k{number}", "UNIQ_KEY": f"ID{number}"})
        broker.clock.advance(1)
    index_all(broker)
    return broker


def index_all(broker: BrokerUnderTest) -> None:
    assert broker.store is not None
    while broker.store.index.build(broker.store.confirm_offset, 100):
        pass


def query(
    broker: BrokerUnderTest,
    key: str,
    *,
    topic: str = "orders",
    max_num: int = 32,
    begin_ms: int = 0,
    end_ms: int = FOREVER,
    ext_fields: dict[str, str] | None = None,
    index_type: str | None = None,
    signed_as: SessionCredentials | None = None,
) -> RemotingCommand:
    header = QueryMessageRequestHeader(
        topic=topic,
        key=key,
        max_num=max_num,
        begin_timestamp=begin_ms,
        end_timestamp=end_ms,
        index_type=index_type,
    )
    return broker.ask(RequestCode.QUERY_MESSAGE, header, ext_fields=ext_fields, signed_as=signed_as)


def bodies(reply: RemotingCommand) -> list[bytes]:
    assert reply.code == ResponseCode.SUCCESS, reply.remark
    return [record.body for record in decode_records(bytes(reply.body))]


def test_messages_are_found_by_key_in_the_logs_order(filled: BrokerUnderTest) -> None:
    assert bodies(query(filled, "k")) == [b"%d" % number for number in range(10)]
    assert bodies(query(filled, "k3")) == [b"3"]


def test_a_message_is_found_by_its_unique_id(filled: BrokerUnderTest) -> None:
    assert bodies(query(filled, "ID7", ext_fields=UNIQUE)) == [b"7"]
    assert query(filled, "k7", ext_fields=UNIQUE).code == ResponseCode.QUERY_NOT_FOUND


def test_the_answer_says_how_far_the_index_goes(filled: BrokerUnderTest) -> None:
    last = filled.messages("orders")[-1]
    header = query(filled, "k1").header(QueryMessageResponseHeader)
    assert header.index_last_update_timestamp == last.store_timestamp_ms
    assert header.index_last_update_phyoffset == last.physical_offset


def test_the_newest_are_answered_when_there_are_more(filled: BrokerUnderTest) -> None:
    assert bodies(query(filled, "k", max_num=3)) == [b"7", b"8", b"9"]


def test_the_brokers_limits_hold_whatever_is_asked_for(make_broker: MakeBroker) -> None:
    broker = make_broker(**SMALL, maxMsgsNumBatch="2", defaultQueryMaxNum="1")
    broker.create_topic("orders", queues=1)
    for number in range(4):
        broker.store_message("orders", b"%d" % number, properties={"KEYS": "k", "UNIQ_KEY": "ID"})
    index_all(broker)
    assert bodies(query(broker, "k", max_num=1000)) == [b"2", b"3"]
    assert bodies(query(broker, "ID", max_num=1000, ext_fields=UNIQUE)) == [b"3"]


def test_only_messages_of_the_asked_time_are_found(filled: BrokerUnderTest) -> None:
    times = [message.store_timestamp_ms for message in filled.messages("orders")]
    assert bodies(query(filled, "k", begin_ms=times[2], end_ms=times[4])) == [b"2", b"3", b"4"]
    assert query(filled, "k", end_ms=times[0] - 1).code == ResponseCode.QUERY_NOT_FOUND


def test_what_is_not_found_is_reported_with_what_may_be_the_reason(filled: BrokerUnderTest) -> None:
    reply = query(filled, "none")
    assert reply.code == ResponseCode.QUERY_NOT_FOUND
    assert reply.remark == (
        "can not find message, maybe time range not correct; "
        "messages stored before 2023-11-14T22:13:20+00:00 have been deleted, if there were any"
    )
    filled.store_message("orders", b"new", properties={"KEYS": "new"})
    reply = query(filled, "new")
    assert "the index has yet to read the last" in (reply.remark or "")
    assert (reply.header(QueryMessageResponseHeader).index_lag_bytes or 0) > 0
    index_all(filled)
    assert bodies(query(filled, "new")) == [b"new"]


def test_a_query_reads_a_bounded_number_of_bytes(filled: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(query(filled, "k3").body)
    monkeypatch.setattr(message_query, "QUERY_READ_MAX_BYTES", 3 * size)
    log = filled.store._reader._log
    read = Mock(side_effect=log.read)
    monkeypatch.setattr(log, "read", read)
    reply = query(filled, "k", ext_fields=UNIQUE)  # ten messages have it among their keys, and none as its id
    assert reply.code == ResponseCode.QUERY_NOT_FOUND
    assert sum(call.args[1] == size for call in read.call_args_list) == 3
    assert "give an earlier end of the time range" in (reply.remark or "")


def test_where_no_record_begins_no_more_is_read_than_a_record_may_have(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make_broker(mappedFileSizeCommitLog=str(64 * 1024 * 1024))
    broker.create_topic("orders", queues=1)
    stored = broker.store_message("orders", (48 * 1024 * 1024).to_bytes(4, "big"))
    log = broker.store._reader._log
    at = stored.physical_offset + log.read(stored.physical_offset, stored.size_bytes).index(b"\x03\x00\x00\x00")
    read = Mock(side_effect=log.read)
    monkeypatch.setattr(log, "read", read)
    assert broker.store.message_at(at) is None
    assert max(call.args[1] for call in read.call_args_list) <= 64 * 1024  # of a topic's name, as two bytes say


def test_a_broker_without_an_index_says_so(make_broker: MakeBroker) -> None:
    broker = make_broker(messageIndexEnable="false")
    broker.create_topic("orders", queues=1)
    broker.store_message("orders", b"x", properties={"KEYS": "k"})
    assert "messageIndexEnable=false" in (query(broker, "k").remark or "")


@pytest.mark.parametrize(
    ("key", "index_type", "text"), [("", None, "the key is empty"), ("t", "T", "tags are not indexed")]
)
def test_what_cannot_be_looked_for_is_refused(
    filled: BrokerUnderTest, key: str, index_type: str | None, text: str
) -> None:
    reply = query(filled, key, index_type=index_type)
    assert reply.code == ResponseCode.INVALID_PARAMETER
    assert text in (reply.remark or "")


def test_the_index_goes_on_after_a_restart_and_after_a_crash(filled: BrokerUnderTest) -> None:
    for again in (filled.restart, filled.crash):
        again()
        index_all(filled)
        assert bodies(query(filled, "k")) == [b"%d" % number for number in range(10)]


ACCOUNTS = """
accounts:
  - {accessKey: reader-key, secretKey: reader-secret, topicPerms: [orders=SUB]}
  - {accessKey: sender-key, secretKey: sender-secret, topicPerms: [orders=PUB]}
  - {accessKey: other-key, secretKey: other-secret, topicPerms: [bills=SUB]}
"""


def test_only_who_may_consume_the_topic_may_search_it(make_broker: MakeBroker, tmp_path: Path) -> None:
    (tmp_path / "acl.yml").write_text(ACCOUNTS)
    broker = make_broker(**SMALL, aclEnable="true", aclConfigFile=str(tmp_path / "acl.yml"))
    broker.create_topic("orders", queues=1)
    broker.store_message("orders", b"secret", properties={"KEYS": "k"})
    index_all(broker)
    answers = {
        name: query(broker, "k", signed_as=SessionCredentials(f"{name}-key", f"{name}-secret"))
        for name in ("reader", "sender", "other")
    }
    assert bodies(answers["reader"]) == [b"secret"]
    assert {answers[name].code for name in ("sender", "other")} == {ResponseCode.NO_PERMISSION}
    assert query(broker, "k").code == ResponseCode.NO_PERMISSION
