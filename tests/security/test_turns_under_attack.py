"""Under each attack a good client's next request is served after a bounded number of others' (`python -m tests.security.attacks`
measures the times that follow from that, which depend on the machine).
"""

from __future__ import annotations

import json
import logging
import math
import struct
from collections.abc import Callable
from unittest.mock import Mock

import pytest

from mqwire import trace_records
from mqwire.acl import SessionCredentials
from mqwire.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.compression import CompressionType, compress
from mqwire.headers_pull import PullMessageRequestHeader, ViewMessageRequestHeader
from mqwire.message import BatchItem, encode_batch_body
from mqwire.names import RMQ_SYS_TRACE_TOPIC
from mqwire.turns import SHARE_S
from tests.brokerd.acl_accounts import SEND_FIELDS, MakeAclBroker
from tests.brokerd.broker_under_test import BrokerUnderTest, RecordingPeer
from tests.security.accounts import ACCOUNTS, PROGRAM, signed
from tests.security.live_broker import MEBIBYTE, send_request
from tests.security.virtual_broker import COMMAND_S, Attack, Gap, VirtualBroker

MANY = 60
LOOK_S = 0.01
TINY = struct.pack(">II", 15, 11) + b'{"code":34}'
QUESTION = signed(RequestCode.GET_MAX_OFFSET, PROGRAM, {"topic": "orders", "queueId": "0"}).encode()


def unsigned(code: int, fields: dict[str, str]) -> bytes:
    return RemotingCommand.request(code, ext_fields=fields).encode()


def strangers_fields(broker: BrokerUnderTest) -> Attack:
    def fields(number: int) -> dict[str, str]:
        names = {f"{number}-{at}-".ljust(100, "x"): "" for at in range(100)}
        return names | {"AccessKey": "unknown-key", "Signature": "x"}

    return Attack([unsigned(RequestCode.HEART_BEAT, fields(number)) for number in range(20)], MANY)


def strangers_routes(broker: BrokerUnderTest) -> Attack:
    topics = [f"{number}-".ljust(120, "x") for number in range(100)]
    return Attack([unsigned(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}) for topic in topics], MANY)


def strangers_tiny_frames(broker: BrokerUnderTest) -> Attack:
    return Attack([TINY * 500], MANY)


def large_sends_with_a_wrong_secret(broker: BrokerUnderTest) -> Attack:
    guessed = SessionCredentials(PROGRAM.access_key, "guessed")
    return Attack(
        [send_request(bytes(4 * MEBIBYTE - 1024), guessed).encode()], 10, takes_s={RequestCode.SEND_MESSAGE_V2: 0.005}
    )


def view_of(broker: BrokerUnderTest, size_bytes: int) -> bytes:
    stored = broker.store_message("orders", bytes(size_bytes))
    header = ViewMessageRequestHeader(offset=stored.physical_offset)
    return signed(RequestCode.VIEW_MESSAGE_BY_ID, PROGRAM, header=header).encode()


def pipelined_views_of_a_large_message(broker: BrokerUnderTest) -> Attack:
    view = view_of(broker, 4 * MEBIBYTE - 1024)
    return Attack([view * 400], takes_s={RequestCode.VIEW_MESSAGE_BY_ID: 0.001})


def views_that_no_one_reads(broker: BrokerUnderTest) -> Attack:
    return Attack([view_of(broker, 400 * 1024)], MANY, reads_answers=False)


def heartbeats_with_many_producers(broker: BrokerUnderTest) -> Attack:
    def heartbeat(number: int) -> bytes:
        producers = [ProducerData(group_name=f"p{at}") for at in range(100)]
        body = HeartbeatData(client_id=f"c{number}", producer_data_set=producers).to_json()
        return signed(RequestCode.HEART_BEAT, PROGRAM, body=body).encode()

    return Attack([heartbeat(number) for number in range(10)], 10, takes_s={RequestCode.HEART_BEAT: 0.01})


def locks_of_many_queues(broker: BrokerUnderTest) -> Attack:
    queues = [{"topic": "orders", "brokerName": f"{at}", "queueId": at} for at in range(100)]
    body = json.dumps({"consumerGroup": "g", "clientId": "c", "mqSet": queues}).encode()
    lock = signed(RequestCode.LOCK_BATCH_MQ, PROGRAM, body=body).encode()
    return Attack([lock], takes_s={RequestCode.LOCK_BATCH_MQ: 0.005})


def questions_about_groups(broker: BrokerUnderTest) -> Attack:
    def question(code: int, group: str) -> bytes:
        fields = {"consumerGroup": group, "topic": "orders", "queueId": "0", "commitOffset": "1"}
        return signed(code, PROGRAM, fields).encode()

    codes = (
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    )
    return Attack([question(code, f"{number}-".ljust(200, "x")) for number in range(20) for code in codes])


def looks_over_many_connections(broker: BrokerUnderTest) -> Attack:
    broker.create_topic("wide", queues=1)
    look = signed(RequestCode.GET_TOPIC_STATS_INFO, PROGRAM, {"topic": "wide"}).encode()
    return Attack([look], MANY, first=QUESTION, takes_s={RequestCode.GET_TOPIC_STATS_INFO: LOOK_S})


def tiny_frames_of_many_with_a_key(broker: BrokerUnderTest) -> Attack:
    return Attack([TINY * 500], MANY, first=QUESTION)


def sends_of_another_program(broker: BrokerUnderTest) -> Attack:
    return Attack([send_request(bytes(1024)).encode() * 16], MANY)


def batches_of_another_program(broker: BrokerUnderTest) -> Attack:
    items = [BatchItem(flag=0, body=bytes(100), properties=b"") for _ in range(10)]
    fields = {**SEND_FIELDS, "b": "orders", "m": "true"}
    batch = signed(RequestCode.SEND_BATCH_MESSAGE, PROGRAM, fields, body=encode_batch_body(items)).encode()
    return Attack([batch], MANY)


def unfinished_frames(broker: BrokerUnderTest) -> Attack:
    header = b'{"code":310,"extFields":{}}'
    return Attack([struct.pack(">II", 4 * MEBIBYTE, len(header)) + header + bytes(4 * MEBIBYTE)], MANY)


def held_pulls(broker: BrokerUnderTest) -> Attack:
    return Attack([pull("g", suspended_ms=15_000)], first=heartbeat_of_a_consumer("g"))


def pulls_in_groups_without_end(broker: BrokerUnderTest) -> Attack:
    return Attack([pull(f"pulled-{number}", suspended_ms=0) for number in range(50)])


def pull(group: str, *, suspended_ms: int) -> bytes:
    header = PullMessageRequestHeader(
        consumer_group=group,
        topic="orders",
        queue_id=0,
        queue_offset=1 << 40,
        max_msg_nums=32,
        sys_flag=2 | 4,
        commit_offset=0,
        suspend_timeout_millis=suspended_ms,
        subscription="a" * 1000,
        sub_version=0,
    )
    return signed(RequestCode.PULL_MESSAGE, PROGRAM, header=header).encode()


def heartbeat_of_a_consumer(group: str) -> bytes:
    subscriptions = [SubscriptionData(topic="orders", sub_string="*")]
    consumer = ConsumerData(group_name=group, consume_type="CONSUME_PASSIVELY", subscription_data_set=subscriptions)
    body = HeartbeatData(client_id="c", consumer_data_set=[consumer]).to_json()
    return signed(RequestCode.HEART_BEAT, PROGRAM, body=body).encode()


# Each of `python -m tests.security.attacks` that is one of requests. The others open connections and shake hands, which
# test_server_turns.py and test_tls.py count.
OF_STRANGERS = (
    strangers_fields,
    strangers_routes,
    strangers_tiny_frames,
    large_sends_with_a_wrong_secret,
    unfinished_frames,
)
WITH_A_KEY = (
    pipelined_views_of_a_large_message,
    views_that_no_one_reads,
    heartbeats_with_many_producers,
    locks_of_many_queues,
    held_pulls,
    pulls_in_groups_without_end,
    questions_about_groups,
    looks_over_many_connections,
    tiny_frames_of_many_with_a_key,
)
# These go to the store together, without a look at the clock between them.
SENDS = (sends_of_another_program, batches_of_another_program)

MakeAttack = Callable[[BrokerUnderTest], Attack]
RunAttack = Callable[[MakeAttack], tuple[Attack, list[Gap]]]

# The rest of the turn of the loop in which the good client's last request was served, one in which it waits because it has used up
# its own time, and the begin of the one in which its next request is served.
TURNS = 3
SENDS_PER_TURN = 128
STRANGERS_BYTES = 64 * 1024 + 4 * 1024


@pytest.fixture
def under_attack(
    make_acl_broker: MakeAclBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> RunAttack:
    """Runs an attack; returns it, and what was served to others between two of a good client's sends."""
    keys = {"listenPort": "0", "bindAddress": "127.0.0.1", "mappedFileSizeCommitLog": str(16 * MEBIBYTE)}
    broker = make_acl_broker(ACCOUNTS, **keys, quotaCredentialConnections="1000")
    broker.create_topic("orders", queues=1)
    caplog.set_level(logging.ERROR, "brokerd")  # each refusal is a line

    def run(make: MakeAttack) -> tuple[Attack, list[Gap]]:
        attack = make(broker)
        return attack, VirtualBroker(broker, monkeypatch).under(attack)

    return run


def in_a_turn(attack: Attack) -> int:
    """How many commands of an attacker one turn has, over all its connections: it ends with the one that uses up its time."""
    slowest_s = max(attack.takes_s.values(), default=COMMAND_S)
    return math.floor(SHARE_S / slowest_s + 0.001) + 1


@pytest.mark.parametrize("make", OF_STRANGERS)
def test_a_good_client_waits_for_few_requests_and_bytes_of_strangers(make: MakeAttack, under_attack: RunAttack) -> None:
    attack, gaps = under_attack(make)
    assert max(gap.commands for gap in gaps) <= TURNS * in_a_turn(attack)
    assert 1024 < max(gap.read_bytes for gap in gaps) <= TURNS * STRANGERS_BYTES


@pytest.mark.parametrize("make", WITH_A_KEY)
def test_a_good_client_waits_for_few_requests_of_other_keys(make: MakeAttack, under_attack: RunAttack) -> None:
    attack, gaps = under_attack(make)
    assert 0 < max(gap.commands for gap in gaps) <= TURNS * in_a_turn(attack)


@pytest.mark.parametrize("make", SENDS)
def test_a_good_client_waits_for_few_sends_of_others(make: MakeAttack, under_attack: RunAttack) -> None:
    gaps = under_attack(make)[1]
    assert 0 < max(gap.commands for gap in gaps) <= TURNS * SENDS_PER_TURN


def test_looks_leave_as_much_time_to_others_as_they_take(under_attack: RunAttack) -> None:
    gaps = under_attack(looks_over_many_connections)[1]
    looks = sum(gap.commands for gap in gaps)
    assert looks * LOOK_S <= len(gaps) * COMMAND_S + LOOK_S


TRACE = b"\x01".join((b"Pub", b"1", b"r", b"g", b"t", b"M", b"", b"", b"h", b"1", b"1", b"0", b"O", b"true")) + b"\x02"


def send_of_traces(body: bytes) -> RemotingCommand:
    packed, flags = compress(body, CompressionType.ZSTD)
    fields = {**SEND_FIELDS, "b": RMQ_SYS_TRACE_TOPIC, "f": str(flags)}
    return signed(RequestCode.SEND_MESSAGE_V2, PROGRAM, fields, body=packed)


def batch() -> RemotingCommand:
    fields = {**SEND_FIELDS, "b": "orders", "m": "true"}
    return signed(RequestCode.SEND_BATCH_MESSAGE, PROGRAM, fields, body=encode_batch_body([BatchItem(0, b"x", b"")]))


@pytest.mark.parametrize("make", [lambda: send_of_traces(TRACE), lambda: send_of_traces(b"unreadable"), batch])
def test_sends_that_take_long_end_their_turn(
    make_acl_broker: MakeAclBroker, monkeypatch: pytest.MonkeyPatch, make: Callable[[], RemotingCommand]
) -> None:
    broker = make_acl_broker(ACCOUNTS, traceTopicEnable="true")
    broker.create_topic("orders")
    slow = iter(range(10**6))
    monkeypatch.setattr(broker.clock, "monotonic", lambda: 0.0015 * next(slow))  # more than a turn between two looks
    peer = RecordingPeer()
    requests = [make() for _ in range(10)]
    turns: list[int] = []
    while sum(turns) < len(requests):
        turns.append(broker.broker.dispatcher.dispatch(peer, requests[sum(turns) :]))
    assert turns == [1] * len(requests)
    assert [answer.opaque for answer in peer.take()] == [request.opaque for request in requests]


def test_sends_that_are_only_stored_are_stored_together_without_a_look_at_the_clock_each(
    make_acl_broker: MakeAclBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make_acl_broker(ACCOUNTS)
    broker.create_topic("orders")
    looks = 0

    def monotonic() -> float:
        nonlocal looks
        looks += 1
        return 0.0

    monkeypatch.setattr(broker.clock, "monotonic", monotonic)
    looks_for = []
    for count in (1, 128):
        looks = 0
        assert broker.broker.dispatcher.dispatch(RecordingPeer(), [send_request(b"x", PROGRAM)] * count) == count
        looks_for.append(looks)
    assert looks_for[0] == looks_for[1]


def test_records_of_traces_are_not_read_whole_to_be_refused(
    make_acl_broker: MakeAclBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_records, "_record", Mock(side_effect=AssertionError("read whole")))
    broker = make_acl_broker(ACCOUNTS, traceTopicEnable="true")
    codes = [broker.answer(send_of_traces(TRACE * count)).code for count in (1, trace_records.RECORDS_MAX + 1)]
    assert codes == [ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL]
