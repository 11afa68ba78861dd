"""Thousands of damaged requests into the sockets of a live broker, while another client is served all along.

Some of them are damaged as bytes; most are well-formed frames of every request code the broker knows, with
fields and bodies that no client sends. Nothing may crash, leak, reach a handler's unexpected exception, or touch what
the other client stores.
"""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from brokerd.processors import HANDLERS
from mqwire.bodies import ConsumerData, HeartbeatData, LockBatchRequestBody, ProducerData, SubscriptionData
from mqwire.codes import HighwaterRequestCode, RequestCode, ResponseCode, SerializeType
from mqwire.command import RemotingCommand
from mqwire.header import CustomHeader
from mqwire.headers_pull import PullMessageRequestHeader
from mqwire.headers_send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from mqwire.message import BatchItem, decode_records, encode_batch_body
from tests.daemons import BrokerDaemon
from tests.mutated_frames import corpus, mutated
from tests.processes import resident_bytes
from tests.remoting import connect, create_topic, exchange

SEED = 413
DAMAGED_FRAMES = 1_000  # many more: tests/security
HOSTILE_REQUESTS = 4_000
REQUESTS_PER_CONNECTION = 20
CHECK_EVERY = 250
MEBIBYTE = 1024 * 1024
GROWTH_BYTES_MAX = 16 * MEBIBYTE
ATTACKED, STEADY = "attacked", "steady"

# These do what they are asked: with the right fields they rightly end the service that this test needs.
_HARMFUL_CODES = {
    HighwaterRequestCode.REPLICA_PROMOTE,
    HighwaterRequestCode.REPLICA_DEMOTE,
    HighwaterRequestCode.REPLICA_FREEZE_SENDS,
    HighwaterRequestCode.REPLICA_RECLAIM,
    HighwaterRequestCode.METERING_CLOSE,
    HighwaterRequestCode.NETWORK_CUT,
    RequestCode.UPDATE_BROKER_CONFIG,
}
CODES = sorted(
    (
        HANDLERS.keys()
        | {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
        | {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, HighwaterRequestCode.REPLICA_PULL, 0, 9999, -1}
    )
    - _HARMFUL_CODES
)

_OWN_HEADERS: dict[int, type[CustomHeader]] = {
    RequestCode.SEND_MESSAGE: SendMessageRequestHeader,
    RequestCode.SEND_MESSAGE_V2: SendMessageRequestHeaderV2,
    RequestCode.SEND_BATCH_MESSAGE: SendMessageRequestHeaderV2,
    RequestCode.PULL_MESSAGE: PullMessageRequestHeader,
    RequestCode.LITE_PULL_MESSAGE: PullMessageRequestHeader,
}
# Aimed elsewhere, or there would soon be nothing left to attack.
_DELETING_CODES = {RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.DELETE_SUBSCRIPTIONGROUP}

HOSTILE_VALUES = [
    "",
    " ",
    "-1",
    "0",
    "1",
    "2147483647",
    "2147483648",
    "-2147483649",
    "9223372036854775807",
    "-9223372036854775808",
    "9" * 40,
    "1e9",
    "NaN",
    "0x10",
    "+5",
    " 5",
    "\uff11\uff12",  # digits, but not ASCII's
    "true",
    "null",
    "../../etc/passwd",
    "/",
    ".",
    "..",
    "a" * 255,
    "a" * 70_000,
    "\x00",
    "\x01\x02",
    "KEYS\x01a\x02TAGS\x01b\x02DELAY\x0199\x02",
    "TRAN_MSG\x01true\x02",
    "DELAY\x01-5\x02",
    "%RETRY%",
    "%RETRY%x",
    "%DLQ%x",
    "TBW102",
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_EPOCH",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    ATTACKED,
    "标签",
    "🚀",
    "[",
    "{}",
    "a || b || " * 200,
]


def _header_types() -> list[type[CustomHeader]]:
    found: list[type[CustomHeader]] = []
    waiting: list[type[CustomHeader]] = [CustomHeader]
    while waiting:
        header_type = waiting.pop()
        found.append(header_type)
        waiting += header_type.__subclasses__()
    return found


def _usual_fields() -> dict[str, str]:
    """A plausible value for every field of every header, so that one set of fields gets past any handler's front."""
    fields: dict[str, str] = {}
    for header_type in _header_types():
        for info in msgspec.structs.fields(header_type):
            annotation = str(info.type)
            fields[info.encode_name] = "0" if "int" in annotation else "false" if "bool" in annotation else "group"
    topics = dict.fromkeys(("topic", "b", "defaultTopic", "c", "originTopic"), ATTACKED)
    numbers = {"readQueueNums": "4", "writeQueueNums": "4", "perm": "6", "maxMsgNums": "32"}
    texts = {"attributes": "", "boundaryType": "LOWER", "expressionType": "TAG", "i": "TAGS\x01a\x02"}
    return fields | topics | numbers | texts


def _bodies() -> list[bytes]:
    heartbeat = HeartbeatData(
        client_id="127.0.0.1@fuzz",
        producer_data_set=[ProducerData(group_name="group")],
        consumer_data_set=[
            ConsumerData(
                group_name="group",
                consume_type="CONSUME_PASSIVELY",
                message_model="CLUSTERING",
                consume_from_where="CONSUME_FROM_FIRST_OFFSET",
                subscription_data_set=[SubscriptionData(topic=ATTACKED, sub_string="*", sub_version=1)],
                unit_mode=False,
            )
        ],
    )
    lock = LockBatchRequestBody(consumer_group="group", client_id="127.0.0.1@fuzz", mq_set=[])
    well_formed = [
        heartbeat.to_json(),
        lock.to_json(),
        encode_batch_body([BatchItem(0, b"x" * 50, b"TAGS\x01a\x02")] * 3),
    ]
    return [
        *well_formed,
        *(body[: len(body) // 2] for body in well_formed),
        b"",
        b"{}",
        b"[]",
        b"null",
        b"1",
        b'"text"',
        b"[" * 50_000,
        b'{"a":' * 5_000,
        b'{"topic":' + b"9" * 10_000 + b"}",
        b"\xff" * 100,
        b"x" * 4096,
    ]


def _hostile_request(usual: dict[str, str], bodies: list[bytes], source: random.Random) -> bytes:
    """A well-formed frame with a few fields missing or replaced, and some body."""
    code = source.choice(CODES)
    # The hot path refuses requests with dozens of fields, so these get their own ones only.
    own = _OWN_HEADERS.get(code)
    names = [info.encode_name for info in msgspec.structs.fields(own)] if own else sorted(usual)
    damaged = {name: usual[name] for name in names}
    if code in _DELETING_CODES:
        damaged["topic"] = damaged["groupName"] = "spare"
    for name in source.sample(names, source.randint(0, min(6, len(names)))):
        if source.random() < 0.3:
            del damaged[name]
        else:
            damaged[name] = source.choice(HOSTILE_VALUES)
    command = RemotingCommand.request(
        code,
        ext_fields=damaged,
        body=source.choice(bodies),
        oneway=source.random() < 0.1,
        serialize_type=source.choice(list(SerializeType)),
    )
    command.version = source.choice([0, 1, 252, 479, 2**15 - 1])
    return command.encode()


def _attack(address: str, data: bytes, label: str) -> None:
    """Sends ``data`` and reads until the broker closes, which it may do at any time."""
    with connect(address) as hostile:
        try:
            hostile.sendall(data)
            hostile.shutdown(socket.SHUT_WR)
            while hostile.recv(MEBIBYTE):
                continue
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN):
                raise AssertionError(f"{label}: the broker neither answered nor closed: {error}") from error


class SteadyClient:
    """Sends and reads back over one connection from before the attack until after it."""

    def __init__(self, address: str) -> None:
        self._stream = connect(address)
        self.bodies: list[bytes] = []

    def send(self, label: str) -> None:
        body = f"{label} ".encode() * 20
        header = SendMessageRequestHeader(
            producer_group=STEADY,
            topic=STEADY,
            default_topic="TBW102",
            default_topic_queue_nums=1,
            queue_id=0,
            sys_flag=0,
            born_timestamp=1_700_000_000_000,
            flag=0,
        )
        response = exchange(self._stream, RemotingCommand.request(RequestCode.SEND_MESSAGE, header, body=body))
        assert response.code == ResponseCode.SUCCESS, f"{label}: {response.remark}"
        assert int(response.ext_fields["queueOffset"]) == len(self.bodies), label
        self.bodies.append(body)

    def read_all(self) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < len(self.bodies):
            header = PullMessageRequestHeader(
                consumer_group=STEADY,
                topic=STEADY,
                queue_id=0,
                queue_offset=len(found),
                max_msg_nums=32,
                sys_flag=4,  # PullSysFlag: the subscription travels with the request
                commit_offset=0,
                suspend_timeout_millis=0,
                subscription="*",
                sub_version=0,
                expression_type="TAG",
            )
            response = exchange(self._stream, RemotingCommand.request(RequestCode.PULL_MESSAGE, header))
            assert response.code == ResponseCode.SUCCESS, response.remark
            found += [message.body for message in decode_records(response.body)]
        return found

    def close(self) -> None:
        self._stream.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerDaemon]:
    # No name server: the broker serves all the same, and the test is about its own port.
    conf = {"mappedFileSizeConsumeQueue": str(20 * 1000), "mappedFileSizeCommitLog": str(16 * MEBIBYTE)}
    daemon = BrokerDaemon(tmp_path / "broker", "", conf)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.kill()


@pytest.mark.timeout(280)
def test_thousands_of_damaged_requests_leave_broker_and_other_clients_unharmed(broker: BrokerDaemon) -> None:
    for topic in (ATTACKED, STEADY):
        create_topic(broker.address, topic, queues=4)
    source = random.Random(SEED)
    steady = SteadyClient(broker.address)
    frames, fields, bodies = corpus(), _usual_fields(), _bodies()
    steady.send("before")
    before_bytes = resident_bytes(broker.pid)

    for number in range(DAMAGED_FRAMES):
        _attack(broker.address, mutated(source.choice(frames), source), f"seed={SEED} frame={number}")
        if number % CHECK_EVERY == 0:
            steady.send(f"frame {number}")
    for number in range(0, HOSTILE_REQUESTS, REQUESTS_PER_CONNECTION):
        requests = [_hostile_request(fields, bodies, source) for _ in range(REQUESTS_PER_CONNECTION)]
        _attack(broker.address, b"".join(requests), f"seed={SEED} request={number}")
        if number % CHECK_EVERY == 0:
            steady.send(f"request {number}")

    assert resident_bytes(broker.pid) - before_bytes < GROWTH_BYTES_MAX
    assert steady.read_all() == steady.bodies
    assert broker.process is not None
    assert "Traceback" not in broker.process.log_path.read_text("utf-8", "replace")

    # And the store is sound: it stops cleanly, opens again, and still has everything.
    steady.close()
    assert broker.stop() == 0
    broker.start()
    reopened = SteadyClient(broker.address)
    reopened.bodies = steady.bodies
    assert reopened.read_all() == steady.bodies
    reopened.close()
