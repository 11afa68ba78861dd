"""What strangers and holders of weak keys did to brokers: memory, descriptors and turns that are no longer theirs."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from brokerd import consumer_manager, producer_manager, stats, subscription_group
from brokerd.long_polling import MAX_HELD_BYTES, HeldPull, PullRequestHoldService
from brokerd.metadata_record import MetadataRecord
from brokerd.store import StoreError
from mqwire.acl import sign_request
from mqwire.bodies import (
    ConsumerData,
    HeartbeatData,
    LockBatchRequestBody,
    MessageQueue,
    ProducerData,
    SubscriptionData,
    SubscriptionGroupConfig,
)
from mqwire.bodies.base import CLIENT_BYTES_MAX, CLIENT_PARTS_MAX
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import MAX_EXT_FIELDS, RemotingCommand
from mqwire.escaped_logs import escaped
from mqwire.headers_pull import PullMessageRequestHeader, ViewMessageRequestHeader
from mqwire.message import BatchItem, encode_batch_body
from tests.brokerd.acl_accounts import SEND_FIELDS
from tests.brokerd.broker_under_test import BrokerUnderTest, RecordingPeer
from tests.remoting import connect, exchange
from tests.security.accounts import OTHER_PROGRAM, PROGRAM, ask, signed
from tests.security.attacks import ATTACKS, under
from tests.security.live_broker import MEBIBYTE, RESIDENT_MAX_BYTES, LiveBroker, answers, send_request

MakeLiveBroker = Callable[..., LiveBroker]


@pytest.fixture
def make_live_broker(tmp_path: Path) -> Iterator[MakeLiveBroker]:
    made: list[LiveBroker] = []

    def make(*prefix: str, **conf: str) -> LiveBroker:
        made.append(LiveBroker(tmp_path / f"live{len(made)}", prefix, **conf))
        return made[-1]

    yield make
    for broker in made:
        broker.daemon.kill()


@pytest.fixture
def live(make_live_broker: MakeLiveBroker) -> LiveBroker:
    return make_live_broker()


@contextlib.contextmanager
def idle_connections(address: str, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(connect(address)) for _ in range(count)]


# --- descriptors and connections ---


def test_idle_connections_beyond_the_soft_limit_of_files_stop_no_producer(make_live_broker: MakeLiveBroker) -> None:
    broker = make_live_broker("prlimit", "--nofile=256:1500", "--")
    with idle_connections(broker.address, 1_100), broker.connection() as good:
        assert broker.send(good).code == ResponseCode.SUCCESS
    assert "Too many open files" not in broker.log


def test_a_client_with_a_key_gets_a_place_when_strangers_have_taken_all(make_live_broker: MakeLiveBroker) -> None:
    broker = make_live_broker("prlimit", "--nofile=400:400", "--")
    with broker.connection() as earlier:
        assert broker.send(earlier).code == ResponseCode.SUCCESS
        with idle_connections(broker.address, 600), broker.connection() as later:
            assert broker.send(later).code == ResponseCode.SUCCESS
            assert broker.send(earlier).code == ResponseCode.SUCCESS


# --- memory ---


def test_header_fields_are_counted(live: LiveBroker) -> None:
    fields = {f"f{number}": "x" for number in range(MAX_EXT_FIELDS + 1)}
    for serialize_type in (0, 1):
        request = RemotingCommand.request(RequestCode.HEART_BEAT, ext_fields=fields, serialize_type=serialize_type)
        with live.connection() as stream:
            stream.sendall(request.encode())
            replies = answers(stream, 1)
        assert not replies or "extension fields" in (replies[0].remark or "")


def test_what_strangers_call_their_fields_is_not_remembered(live: LiveBroker) -> None:
    before = live.resident_bytes
    with live.connection() as stream:
        for round_number in range(40):
            frames = []
            for number in range(50):
                # Each set has 100 names of 100 bytes that no other set has.
                fields = {f"{round_number}-{number}-{at}-".ljust(100, "x"): "" for at in range(100)}
                fields |= {"AccessKey": "unknown-key", "Signature": "x"}
                frames.append(RemotingCommand.request(RequestCode.HEART_BEAT, ext_fields=fields).encode())
            stream.sendall(b"".join(frames))
            assert {reply.code for reply in answers(stream, 50)} == {ResponseCode.NO_PERMISSION}
    assert live.resident_bytes - before < 16 * MEBIBYTE


def test_unfinished_frames_of_strangers_share_one_allowance(live: LiveBroker) -> None:
    header = b'{"code":310,"extFields":{}}'
    unfinished = struct.pack(">II", 4 * MEBIBYTE, len(header)) + header + bytes(3 * MEBIBYTE)
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stream = stack.enter_context(live.connection())
            with contextlib.suppress(OSError):  # it may be closed while it writes
                stream.sendall(unfinished)
        assert live.resident_bytes < RESIDENT_MAX_BYTES
        with live.connection() as good:
            assert live.send(good, bytes(64 * 1024)).code == ResponseCode.SUCCESS


def test_pipelined_views_of_a_large_message_are_answered_as_they_are_read(live: LiveBroker) -> None:
    with live.connection() as stream, live.connection() as good:
        large = live.send(stream, bytes(4 * MEBIBYTE - 1024))
        assert large.code == ResponseCode.SUCCESS
        offset = int(large.ext_fields["msgId"][-16:], 16)
        view = RemotingCommand.request(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=offset))
        sign_request(view, PROGRAM)
        stream.sendall(view.encode() * 400)
        assert live.send(good).code == ResponseCode.SUCCESS
        assert live.resident_bytes < RESIDENT_MAX_BYTES
        assert [reply.code for reply in answers(stream, 20)][:20] == [ResponseCode.SUCCESS] * 20


def test_a_silent_connection_holds_nothing_of_its_last_request(live: LiveBroker) -> None:
    before = live.resident_bytes
    heartbeat = RemotingCommand.request(RequestCode.HEART_BEAT, body=HeartbeatData(client_id="x" * MEBIBYTE).to_json())
    sign_request(heartbeat, PROGRAM)
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            stream = stack.enter_context(live.connection())
            stream.sendall(heartbeat.encode())
            answers(stream, 1)
        assert live.resident_bytes - before < 64 * MEBIBYTE


def test_memory_stays_within_its_bound_under_each_attack_in_turn(live: LiveBroker) -> None:
    for attack in ATTACKS:
        with under(attack, live.address), live.connection() as good:
            until_s = time.monotonic() + 0.5
            while time.monotonic() < until_s:
                assert live.send(good).code == ResponseCode.SUCCESS, attack
                assert live.resident_bytes < RESIDENT_MAX_BYTES, attack


# --- turns ---


def heartbeat(groups: int, prefix: str = "g") -> bytes:
    consumers = [
        ConsumerData(
            group_name=f"{prefix}{number}", subscription_data_set=[SubscriptionData(topic="orders", sub_string="*")]
        )
        for number in range(groups)
    ]
    return HeartbeatData(client_id="c", consumer_data_set=consumers).to_json()


def test_the_groups_of_a_heartbeat_are_one_record_and_write_no_file_while_others_wait(
    platform_broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    records: list[MetadataRecord] = []
    write = platform_broker.broker.metadata_log.write

    def noting(record: MetadataRecord) -> None:
        records.append(record)
        write(record)

    for table in (platform_broker.broker.subscription_groups, platform_broker.broker.topic_configs):
        monkeypatch.setattr(table, "_write", noting)
        monkeypatch.setattr(table._file, "store", Mock(side_effect=AssertionError("written on the event loop")))
    assert ask(platform_broker, RequestCode.HEART_BEAT, PROGRAM, body=heartbeat(300)).code == ResponseCode.SUCCESS
    assert [(len(record.groups), len(record.topics)) for record in records] == [(300, 0), (0, 300)]
    assert platform_broker.topic_config("%RETRY%g299").read_queue_nums == 1
    monkeypatch.undo()


def test_a_key_makes_a_bounded_number_of_groups_by_heartbeats(platform_broker: BrokerUnderTest) -> None:
    for number in range(10):
        body = heartbeat(100, f"{number}-")
        assert ask(platform_broker, RequestCode.HEART_BEAT, PROGRAM, body=body).code == ResponseCode.SUCCESS
    reply = ask(platform_broker, RequestCode.HEART_BEAT, PROGRAM, body=heartbeat(1, "more-"))
    assert reply.code == ResponseCode.SYSTEM_BUSY
    assert "at most 1000" in (reply.remark or "")


def test_pulls_make_no_more_groups_than_heartbeats(
    platform_broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_group, "AUTO_CREATED_GROUPS_OF_KEY_MAX", 1)
    platform_broker.create_topic("orders", queues=1)
    pull = {
        "topic": "orders",
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "1",
        "sysFlag": "4",
        "commitOffset": "0",
    }
    pull |= {"suspendTimeoutMillis": "0", "subVersion": "0"}
    codes = [
        ask(platform_broker, RequestCode.PULL_MESSAGE, PROGRAM, fields={**pull, "consumerGroup": group}).code
        for group in ("first", "second", "first")
    ]
    assert codes[1] == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST not in (codes[0], codes[2])


def test_giving_back_what_is_no_message_makes_no_group(platform_broker: BrokerUnderTest) -> None:
    fields = {"offset": "999999999", "group": "of-nothing", "delayLevel": "0", "unitMode": "false"}
    assert ask(platform_broker, RequestCode.CONSUMER_SEND_MSG_BACK, PROGRAM, fields=fields).code != ResponseCode.SUCCESS
    assert platform_broker.broker.subscription_groups.select("of-nothing") is None


def test_groups_made_by_what_is_given_back_count_for_its_access_key(
    platform_broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_group, "AUTO_CREATED_GROUPS_OF_KEY_MAX", 1)
    platform_broker.create_topic("orders")
    fields = {"offset": str(platform_broker.store_message("orders").physical_offset), "delayLevel": "0"}
    codes = [
        ask(platform_broker, RequestCode.CONSUMER_SEND_MSG_BACK, credentials, fields={**fields, "group": group}).code
        for credentials, group in ((PROGRAM, "first"), (PROGRAM, "second"), (OTHER_PROGRAM, "third"))
    ]
    assert codes == [ResponseCode.SUCCESS, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.SUCCESS]


def test_groups_made_by_retries_that_a_client_sends_count_for_its_access_key(
    platform_broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_group, "AUTO_CREATED_GROUPS_OF_KEY_MAX", 1)
    codes = []
    for credentials, group in ((PROGRAM, "first"), (PROGRAM, "second"), (OTHER_PROGRAM, "third")):
        platform_broker.create_topic(f"%RETRY%{group}")
        fields = {**SEND_FIELDS, "b": f"%RETRY%{group}", "i": "RETRY_TOPIC\x01orders\x02"}
        codes.append(ask(platform_broker, RequestCode.SEND_MESSAGE_V2, credentials, fields=fields).code)
    assert codes == [ResponseCode.SUCCESS, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.SUCCESS]


def test_a_slave_takes_a_bounded_number_of_names_for_groups_that_its_master_would_make(
    platform_broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_group, "AUTO_CREATED_GROUPS_OF_KEY_MAX", 2)
    groups = platform_broker.broker.subscription_groups
    monkeypatch.setattr(groups, "_write", Mock(side_effect=StoreError("this replica is a slave")))
    assert [groups.find_or_create(group, "app") is None for group in ("a", "b", "c", "a")] == [
        *(False, False, True, False)
    ]
    assert groups.find_or_create("c", "other-app") is not None
    groups._table = {**groups._table, "b": SubscriptionGroupConfig(group_name="b")}  # by the master's log
    assert groups.find_or_create("c", "app") is not None


def test_what_is_counted_by_topic_and_group_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "PAIRS_MAX", 2)
    counts = stats.BrokerStats(0)
    for group in ("a", "b", "c", "a"):
        counts.got("orders", group, 1, 10)
    counts.sample(0)
    assert counts.messages_got == 4
    assert [counts.history.view("GROUP_GET_NUMS", f"orders@{group}") is None for group in "abc"] == [False, False, True]


def heartbeat_answer(broker: BrokerUnderTest, data: HeartbeatData) -> tuple[int, str]:
    reply = ask(broker, RequestCode.HEART_BEAT, PROGRAM, body=data.to_json())
    return reply.code, reply.remark or ""


LOOSE = (
    b'{"clientID":"c","consumerDataSet":[],"producerDataSet":[],x:[%b]}'  # the name without quotes is not standard JSON
)


@pytest.mark.parametrize(
    ("code", "body", "remark"),
    [
        pytest.param(RequestCode.HEART_BEAT, LOOSE % (b"1," * CLIENT_PARTS_MAX), "too many values", id="values"),
        pytest.param(RequestCode.HEART_BEAT, LOOSE % b"1,".ljust(CLIENT_BYTES_MAX), "are read", id="bytes"),
        pytest.param(
            RequestCode.HEART_BEAT,
            HeartbeatData(
                client_id="c",
                consumer_data_set=[
                    ConsumerData(
                        group_name=f"g{number}",
                        consume_type="CONSUME_PASSIVELY",
                        subscription_data_set=[SubscriptionData(topic="orders", sub_string="*")] * 2048,
                    )
                    for number in range(3)
                ],
            ).to_json(),
            "6144 subscriptions",
            id="subscriptions",
        ),
        *(
            pytest.param(
                code,
                LockBatchRequestBody(
                    consumer_group="g",
                    client_id="c",
                    mq_set=[
                        MessageQueue(topic="orders", broker_name="broker-a", queue_id=number) for number in range(8193)
                    ],
                ).to_json(),
                "8193 queues",
                id=code.name,
            )
            for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)
        ),
    ],
)
def test_a_body_that_would_hold_up_everyone_is_refused(
    platform_broker: BrokerUnderTest, code: int, body: bytes, remark: str
) -> None:
    answer = ask(platform_broker, code, PROGRAM, body=body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert remark in str(answer.remark)


@pytest.mark.parametrize(("topics", "code"), [(["orders"] * 10_000, 0), ([f"t{number}" for number in range(5000)], 1)])
def test_lags_are_looked_at_in_so_many_topics_at_once(
    platform_broker: BrokerUnderTest, topics: list[str], code: int
) -> None:
    fields = {"consumerGroup": "g", "topicList": ";".join(topics)}
    assert ask(platform_broker, RequestCode.GET_CONSUME_STATS, PROGRAM, fields=fields).code == code


def test_a_batch_of_so_many_messages_that_everyone_would_wait_is_refused(platform_broker: BrokerUnderTest) -> None:
    platform_broker.create_topic("orders", queues=1)
    fields = {**SEND_FIELDS, "b": "orders", "e": "0", "m": "true"}
    for bodies, code in (
        ([b"", b"x"] * 8192, ResponseCode.SUCCESS),
        ([b"", b"x"] * 8193, ResponseCode.MESSAGE_ILLEGAL),
    ):
        batch = encode_batch_body(BatchItem(0, body, b"") for body in bodies)
        assert ask(platform_broker, RequestCode.SEND_BATCH_MESSAGE, PROGRAM, fields=fields, body=batch).code == code


def test_names_that_no_client_gives_are_refused(platform_broker: BrokerUnderTest) -> None:
    long = "x" * 10_000
    for data in (
        HeartbeatData(client_id=long),
        HeartbeatData(client_id="c", producer_data_set=[ProducerData(group_name=long)]),
    ):
        code, remark = heartbeat_answer(platform_broker, data)
        assert (code, "at most" in remark) == (ResponseCode.INVALID_PARAMETER, True)


def test_what_consumers_subscribe_to_has_a_bound_for_all_of_them(
    platform_broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_manager, "SUBSCRIPTIONS_BYTES_MAX", 10_000)

    def subscribe(group: str, sub_string: str) -> int:
        subscription = SubscriptionData(topic="orders", sub_string=sub_string, sub_version=1)
        consumer = ConsumerData(group_name=group, subscription_data_set=[subscription])
        return heartbeat_answer(platform_broker, HeartbeatData(client_id="c", consumer_data_set=[consumer]))[0]

    assert [subscribe("g", "x" * 6_000), subscribe("h", "x" * 6_000)] == [0, ResponseCode.SYSTEM_BUSY]
    assert [subscribe("g", "x" * 6_000), subscribe("h", "*")] == [0, 0]


@pytest.mark.parametrize("word", ["consume_type", "message_model", "consume_from_where"])
def test_a_long_word_about_a_group_counts_as_what_consumers_subscribe_to(
    platform_broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setattr(consumer_manager, "SUBSCRIPTIONS_BYTES_MAX", 10_000)
    members: dict[str, Any] = {word: "x" * 10_001}
    consumer = ConsumerData(group_name="g", **members)
    code, _ = heartbeat_answer(platform_broker, HeartbeatData(client_id="c", consumer_data_set=[consumer]))
    assert (code, platform_broker.broker.consumers.find("g")) == (ResponseCode.SYSTEM_BUSY, None)


@pytest.mark.parametrize(
    "members", [{"expression_type": "x" * 10_000}, {"sub_string": "\N{GRINNING FACE}" + "x" * 4_000}]
)
def test_a_subscription_counts_with_its_kind_and_the_width_of_its_characters(
    platform_broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch, members: dict[str, Any]
) -> None:
    monkeypatch.setattr(consumer_manager, "SUBSCRIPTIONS_BYTES_MAX", 10_000)
    subscription = SubscriptionData(topic="orders", **{"sub_string": "*", **members})
    consumer = ConsumerData(group_name="g", subscription_data_set=[subscription])
    code, _ = heartbeat_answer(platform_broker, HeartbeatData(client_id="c", consumer_data_set=[consumer]))
    assert code == ResponseCode.SYSTEM_BUSY


def test_a_subscription_that_stays_in_place_of_an_older_one_counts(
    platform_broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_manager, "SUBSCRIPTIONS_BYTES_MAX", 10_000)

    def subscribe(**sub_strings: str) -> int:
        subscriptions = [
            SubscriptionData(topic=topic, sub_string=text, sub_version=len(text)) for topic, text in sub_strings.items()
        ]
        consumer = ConsumerData(group_name="g", subscription_data_set=subscriptions)
        return heartbeat_answer(platform_broker, HeartbeatData(client_id="c", consumer_data_set=[consumer]))[0]

    assert [subscribe(a="x" * 6_000), subscribe(a="*", b="x" * 6_000)] == [0, ResponseCode.SYSTEM_BUSY]


def test_who_sends_to_a_name_that_no_topic_may_have_is_not_remembered(platform_broker: BrokerUnderTest) -> None:
    ask(platform_broker, RequestCode.SEND_MESSAGE_V2, PROGRAM, fields={**SEND_FIELDS, "b": "x" * 10_000}, body=b"x")
    acl = platform_broker.broker.acl
    assert acl is not None
    assert acl._senders == set()


def produce(broker: BrokerUnderTest, client_id: str, *groups: str) -> int:
    data = HeartbeatData(client_id=client_id, producer_data_set=[ProducerData(group_name=group) for group in groups])
    return heartbeat_answer(broker, data)[0]


def consume(broker: BrokerUnderTest, client_id: str, peer: RecordingPeer) -> int:
    consumer = ConsumerData(group_name="g", consume_type="CONSUME_PASSIVELY")
    body = HeartbeatData(client_id=client_id, consumer_data_set=[consumer]).to_json()
    request = signed(RequestCode.HEART_BEAT, PROGRAM, body=body)
    broker.dispatch(peer, [request])
    (answer,) = peer.take_answers(request.opaque)
    return answer.code


def test_memberships_of_producers_have_a_bound(
    platform_broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert produce(platform_broker, "c", "a", "b") == 0
    monkeypatch.setattr(producer_manager, "PRODUCERS_BYTES_MAX", platform_broker.broker.producers._kept_bytes)
    assert produce(platform_broker, "c", "c") == ResponseCode.SYSTEM_BUSY


def test_memberships_of_producers_take_as_much_memory_as_their_clients_ids(
    platform_broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_manager, "PRODUCERS_BYTES_MAX", 3_000)
    wide = "\U0001f600" * 500
    assert [produce(platform_broker, "c", "a"), produce(platform_broker, wide, "b")] == [0, ResponseCode.SYSTEM_BUSY]


def test_members_of_consumer_groups_have_a_bound_and_stay(
    platform_broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = RecordingPeer()
    assert consume(platform_broker, "c", member) == 0
    consumers = platform_broker.broker.consumers
    monkeypatch.setattr(consumer_manager, "MEMBERS_BYTES_MAX", consumers._members_bytes + 10)
    assert consume(platform_broker, "another", RecordingPeer()) == ResponseCode.SYSTEM_BUSY
    assert consume(platform_broker, "c" * 20, member) == ResponseCode.SYSTEM_BUSY
    assert consume(platform_broker, "c", member) == 0


def test_members_that_leave_take_nothing_with_them(platform_broker: BrokerUnderTest) -> None:
    peer = RecordingPeer()
    consumers, producers = platform_broker.broker.consumers, platform_broker.broker.producers
    for client_id in ("c", "another", "c"):
        consume(platform_broker, client_id, peer)
    produce(platform_broker, "c", "a", "b")
    platform_broker.clock.advance(1_000)
    consumers.scan()
    producers.scan()
    assert (consumers._members_bytes, producers._kept_bytes) == (0, 0)


def test_held_pulls_keep_a_bounded_number_of_bytes() -> None:
    held = PullRequestHoldService()
    header = PullMessageRequestHeader(
        consumer_group="g", topic="t", queue_id=0, queue_offset=0, max_msg_nums=1, sys_flag=2, commit_offset=0,
        suspend_timeout_millis=0, sub_version=0,
    )  # fmt: skip
    peer: Any = RecordingPeer()
    for _ in range(2):
        assert not held.full
        held.hold(HeldPull(peer, RemotingCommand.request(11), header, None, 0, 0.0, size_bytes=MAX_HELD_BYTES // 2))
    assert held.full
    held.take([("t", 0)])
    assert not held.full


def subscribed(*tags: str, codes: list[int] | None = None) -> HeartbeatData:
    subscription = SubscriptionData(
        topic="orders", sub_string=" || ".join(tags), tags_set=list(tags), code_set=codes or [], sub_version=1
    )
    return HeartbeatData(
        client_id="c",
        consumer_data_set=[
            ConsumerData(group_name="g", consume_type="CONSUME_PASSIVELY", subscription_data_set=[subscription])
        ],
    )


HELD_PULL = {
    "consumerGroup": "g",
    "topic": "orders",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "1",
    "subVersion": "1",
    "commitOffset": "0",
    "suspendTimeoutMillis": "60000",
}


@pytest.mark.parametrize("by_heartbeat", [True, False])
def test_the_tags_of_a_held_pull_count_as_what_held_pulls_keep(
    platform_broker: BrokerUnderTest, by_heartbeat: bool
) -> None:
    platform_broker.create_topic("orders", queues=1)
    tags = [f"tag{number}" for number in range(4096)]
    ask(platform_broker, RequestCode.HEART_BEAT, PROGRAM, body=subscribed("a", codes=list(range(4096))).to_json())
    fields = HELD_PULL | ({"sysFlag": "2"} if by_heartbeat else {"sysFlag": "6", "subscription": "||".join(tags)})
    held = platform_broker.broker.held_pulls
    peer = RecordingPeer()
    while not held.full:
        assert len(held) <= MAX_HELD_BYTES // (4096 * 100)
        platform_broker.dispatch(peer, [signed(RequestCode.PULL_MESSAGE, PROGRAM, fields)])


def test_more_tags_than_anyone_has_are_refused(platform_broker: BrokerUnderTest) -> None:
    platform_broker.create_topic("orders", queues=1)
    tags = [f"tag{number}" for number in range(4097)]
    for data in (subscribed(*tags), subscribed("a", codes=list(range(4097)))):
        code, remark = heartbeat_answer(platform_broker, data)
        assert (code, "4097 tags" in remark) == (ResponseCode.SYSTEM_ERROR, True)
    fields = HELD_PULL | {"sysFlag": "6", "subscription": "||".join(tags)}
    ask(platform_broker, RequestCode.HEART_BEAT, PROGRAM, body=subscribed("a").to_json())
    answer = ask(platform_broker, RequestCode.PULL_MESSAGE, PROGRAM, fields=fields)
    assert "4097 tags" in str(answer.remark)


def test_one_turn_serves_a_bounded_number_of_requests(platform_broker: BrokerUnderTest) -> None:
    request = RemotingCommand.request(RequestCode.GET_MAX_OFFSET, ext_fields={"topic": "orders", "queueId": "0"})
    sign_request(request, PROGRAM)
    served = platform_broker.broker.dispatcher.dispatch(RecordingPeer(), [request] * 1000)
    assert served == 128


# --- logs ---


def test_a_clients_name_forges_no_line_of_the_log(live: LiveBroker) -> None:
    forged = "2026-01-01 00:00:00,000 INFO forged"
    body = HeartbeatData(
        client_id=f"c\n{forged}\x1b[2J",
        consumer_data_set=[
            ConsumerData(group_name="g", subscription_data_set=[SubscriptionData(topic="orders", sub_string="*")])
        ],
    ).to_json()
    request = RemotingCommand.request(RequestCode.HEART_BEAT, body=body)
    sign_request(request, PROGRAM)
    with live.connection() as stream:
        assert exchange(stream, request).code == ResponseCode.SUCCESS
    lines = live.log.splitlines()
    assert any("joins group g" in line for line in lines)
    assert not any(line.startswith(forged) for line in lines)
    assert "\x1b" not in live.log


def test_control_characters_are_escaped_and_all_others_stay() -> None:
    assert escaped("a\nb\r\x00\u2028\u202e标签 ü\t.") == "a\\nb\\r\\x00\\u2028\\u202e标签 ü\t."


def test_one_turn_serves_a_bounded_number_of_sends(platform_broker: BrokerUnderTest) -> None:
    platform_broker.create_topic("orders", queues=1)
    peer = RecordingPeer()
    served = platform_broker.broker.dispatcher.dispatch(peer, [send_request(b"x")] * 500)
    assert served == len(peer.take()) == 128
