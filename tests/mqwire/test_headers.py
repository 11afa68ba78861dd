"""Custom headers: which fields there are, what they are called on the wire, and which may be missing."""

from __future__ import annotations

import importlib
import pkgutil

import msgspec
import pytest

import mqwire
from mqwire.errors import RemoteProtocolError
from mqwire.header import CustomHeader
from mqwire.headers_client import UnregisterClientRequestHeader
from mqwire.headers_namesrv import QueryDataVersionResponseHeader, RegisterBrokerRequestHeader
from mqwire.headers_offset import (
    GetMaxOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    ResetOffsetRequestHeader,
)
from mqwire.headers_pull import PullMessageRequestHeader, PullMessageResponseHeader
from mqwire.headers_send import (
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from mqwire.headers_topic import CreateTopicRequestHeader


def all_header_types() -> list[type[CustomHeader]]:
    found: list[type[CustomHeader]] = []
    for module_info in pkgutil.iter_modules(mqwire.__path__):
        if module_info.name.startswith("headers_"):
            module = importlib.import_module(f"mqwire.{module_info.name}")
            found += [
                value
                for value in vars(module).values()
                if isinstance(value, type) and issubclass(value, CustomHeader) and value.__module__ == module.__name__
            ]
    return found


HEADER_TYPES = all_header_types()
COMMON = {"ns", "nsd", "bname", "oway", "lo"}


def wire_names(header_type: type[CustomHeader]) -> set[str]:
    return set(header_type.__struct_encode_fields__) - COMMON


def required_names(header_type: type[CustomHeader]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(header_type) if field.required}


# Facts of RocketMQ's classes: the fields with CFNotNull (but without an initial value), and all other fields.
JAVA_FIELDS = [
    (
        SendMessageRequestHeader,
        "producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag bornTimestamp flag",
        "properties reconsumeTimes unitMode batch maxReconsumeTimes",
    ),
    (SendMessageRequestHeaderV2, "a b c d e f g h", "i j k l m n"),
    (
        SendMessageResponseHeader,
        "msgId queueId queueOffset",
        "transactionId batchUniqId recallHandle MSG_REGION TRACE_ON",
    ),
    (
        PullMessageRequestHeader,
        "consumerGroup topic queueId queueOffset maxMsgNums sysFlag commitOffset suspendTimeoutMillis subVersion",
        "subscription expressionType maxMsgBytes requestSource proxyFrowardClientId",
    ),
    (
        PullMessageResponseHeader,
        "suggestWhichBrokerId nextBeginOffset minOffset maxOffset",
        "offsetDelta topicSysFlag groupSysFlag forbiddenType",
    ),
    (
        ConsumerSendMsgBackRequestHeader,
        "offset group delayLevel",
        "originMsgId originTopic unitMode maxReconsumeTimes",
    ),
    (
        EndTransactionRequestHeader,
        "producerGroup tranStateTableOffset commitLogOffset commitOrRollback msgId",
        "topic fromTransactionCheck transactionId",
    ),
    (UnregisterClientRequestHeader, "clientID", "producerGroup consumerGroup"),
    (QueryConsumerOffsetRequestHeader, "consumerGroup topic queueId", "setZeroIfNotFound"),
    (
        CreateTopicRequestHeader,
        "topic defaultTopic readQueueNums writeQueueNums perm topicFilterType",
        "topicSysFlag order attributes force",
    ),
    (
        RegisterBrokerRequestHeader,
        "brokerName brokerAddr clusterName haServerAddr brokerId",
        "heartbeatTimeoutMillis enableActingMaster compressed bodyCrc32 epoch",
    ),
    (ResetOffsetRequestHeader, "group topic timestamp", "queueId offset isForce"),
]


@pytest.mark.parametrize(
    ("header_type", "required", "optional"), JAVA_FIELDS, ids=lambda value: getattr(value, "__name__", "")
)
def test_fields_and_their_necessity_are_rocketmqs(
    header_type: type[CustomHeader], required: str, optional: str
) -> None:
    assert required_names(header_type) == set(required.split())
    assert wire_names(header_type) == set(required.split()) | set(optional.split())


def example_of(header_type: type[CustomHeader], *, all_fields: bool) -> CustomHeader:
    """An instance with some value in every required field, or in every field."""
    values: dict[str, str] = {}
    for field in msgspec.structs.fields(header_type):
        if field.required or all_fields:
            text = str(field.type)
            values[field.encode_name] = "true" if "bool" in text else "7" if "int" in text else "text"
    return header_type.from_ext_fields(values)


@pytest.mark.parametrize("header_type", HEADER_TYPES)
@pytest.mark.parametrize("all_fields", [False, True])
def test_every_header_comes_back_as_it_was_written(header_type: type[CustomHeader], all_fields: bool) -> None:
    header = example_of(header_type, all_fields=all_fields)
    fields = header.to_ext_fields()
    assert header_type.from_ext_fields(fields) == header
    assert all(isinstance(value, str) for value in fields.values())


@pytest.mark.parametrize("header_type", [kind for kind in HEADER_TYPES if required_names(kind)])
def test_a_missing_field_is_named(header_type: type[CustomHeader]) -> None:
    complete = example_of(header_type, all_fields=False).to_ext_fields()
    for name in required_names(header_type):
        with pytest.raises(RemoteProtocolError, match=rf"{header_type.__name__}.*`{name}`"):
            header_type.from_ext_fields({key: value for key, value in complete.items() if key != name})


@pytest.mark.parametrize("text", ["", "x", "1.5", " 1", "1 ", "+1", "0x1", "2147483648", "-2147483649", "\uff19"])
def test_what_is_no_32_bit_number_is_refused_by_the_fields_name(text: str) -> None:
    fields = {"consumerGroup": "g", "topic": "t", "queueId": text}
    with pytest.raises(RemoteProtocolError, match="queueId"):
        QueryConsumerOffsetRequestHeader.from_ext_fields(fields)


@pytest.mark.parametrize("text", ["9223372036854775808", "-9223372036854775809", "1" * 5000])
def test_what_is_no_64_bit_number_is_refused_by_the_fields_name(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="offset"):
        QueryConsumerOffsetResponseHeader.from_ext_fields({"offset": text})


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 0])
def test_64_bit_numbers_keep_every_digit(number: int) -> None:
    fields = QueryConsumerOffsetResponseHeader(offset=number).to_ext_fields()
    assert QueryConsumerOffsetResponseHeader.from_ext_fields(fields).offset == number


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("false", False), ("True", True), ("1", True), ("0", False)]
)
def test_truth_is_read_as_the_clients_write_it(text: str, value: bool) -> None:
    header = GetMaxOffsetRequestHeader.from_ext_fields({"topic": "t", "queueId": "0", "committed": text})
    assert header.committed is value


def test_truth_is_written_as_java_reads_it() -> None:
    assert QueryDataVersionResponseHeader(changed=True).to_ext_fields() == {"changed": "true"}
    assert QueryDataVersionResponseHeader(changed=False).to_ext_fields() == {"changed": "false"}


def test_fields_that_are_not_known_are_ignored() -> None:
    header = QueryConsumerOffsetResponseHeader.from_ext_fields({"offset": "1", "Signature": "x", "later": "y"})
    assert header.offset == 1


def test_none_is_not_written() -> None:
    header = PullMessageResponseHeader(suggest_which_broker_id=0, next_begin_offset=1, min_offset=0, max_offset=1)
    assert set(header.to_ext_fields()) == {"suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"}


def test_a_topic_called_null_is_a_topic() -> None:
    assert GetMaxOffsetRequestHeader.from_ext_fields({"topic": "null", "queueId": "0"}).topic == "null"


def test_the_long_and_the_short_send_header_say_the_same() -> None:
    long = example_of(SendMessageRequestHeader, all_fields=True)
    assert isinstance(long, SendMessageRequestHeader)
    short = long.to_v2()
    assert short.to_v1() == msgspec.structs.replace(long, ns=None, nsd=None, oway=None, lo=None)
    assert short.to_ext_fields()["a"] == long.producer_group


def test_headers_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        QueryConsumerOffsetResponseHeader(offset=1).offset = 2  # type: ignore[misc]  # that is the point
