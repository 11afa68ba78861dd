"""Whatever can be said comes back as it was said, however the bytes are cut."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from mqwire import fastjson
from mqwire.bodies import (
    BrokerData,
    ConsumeStats,
    MessageQueue,
    OffsetWrapper,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicRouteData,
)
from mqwire.codes import SerializeType
from mqwire.command import RemotingCommand
from mqwire.connection import Connection
from mqwire.errors import RemoteProtocolError
from mqwire.message import (
    BatchItem,
    decode_batch_body,
    decode_record,
    encode_batch_body,
    encode_record,
    pack_host,
    properties_to_string,
    string_to_properties,
)
from mqwire.properties import format_properties, parse_properties

# Other work on the machine is no reason to fail.
unhurried = settings(deadline=None, derandomize=True)

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
names = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs"]), min_size=1, max_size=30)
property_texts = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=20
)

commands = st.builds(
    RemotingCommand,
    int16,
    version=int16,
    opaque=int32,
    flag=int32,
    remark=st.none() | texts.filter(bool),
    ext_fields=st.dictionaries(texts, texts, max_size=8),
    body=st.binary(max_size=200),
    serialize_type=st.sampled_from(SerializeType),
)


def content(command: RemotingCommand) -> tuple[object, ...]:
    return (
        command.code, command.language, command.version, command.opaque, command.flag, command.remark,
        command.ext_fields, bytes(command.body), command.serialize_type,
    )  # fmt: skip


@unhurried
@given(st.lists(commands, max_size=4), st.data())
def test_commands_come_back_however_their_bytes_are_cut(sent: list[RemotingCommand], data: st.DataObject) -> None:
    stream = b"".join(command.encode() for command in sent)
    connection = Connection()
    received: list[RemotingCommand] = []
    position = 0
    while position < len(stream):
        step = data.draw(st.integers(1, len(stream) - position))
        connection.receive_data(stream[position : position + step])
        received += connection.commands()
        position += step
    assert [content(command) for command in received] == [content(command) for command in sent]
    assert connection.buffered_bytes == 0


hosts = st.builds(
    pack_host, st.one_of(st.ip_addresses(v=4).map(str), st.ip_addresses(v=6).map(str)), st.integers(0, 65535)
)
properties = st.dictionaries(property_texts, property_texts, max_size=6)


@unhurried
@given(
    topic=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=150),
    queue_id=int32,
    queue_offset=int64,
    physical_offset=int64,
    body=st.binary(max_size=300),
    values=properties,
    born_host=hosts,
    store_host=hosts,
    born_timestamp_ms=int64,
    store_timestamp_ms=int64,
    flag=int32,
    sys_flag=st.integers(0, 2**15),
    with_record_crc=st.booleans(),
)
def test_records_come_back(values: dict[str, str], with_record_crc: bool, **fields: object) -> None:
    text = properties_to_string(values).encode()
    message = decode_record(encode_record(properties=text, with_record_crc=with_record_crc, **fields))  # type: ignore[arg-type]  # drawn by name
    for name in ("topic", "queue_id", "queue_offset", "physical_offset", "body", "flag"):
        assert getattr(message, name) == fields[name]
    assert pack_host(*message.born_host) == fields["born_host"]
    assert pack_host(*message.store_host) == fields["store_host"]
    found = dict(message.properties)
    assert (found.pop("__CRC32#", None) is not None) == with_record_crc
    assert found == values


@unhurried
@given(properties)
def test_properties_come_back(values: dict[str, str]) -> None:
    assert string_to_properties(properties_to_string(values)) == values


@unhurried
@given(st.lists(st.builds(BatchItem, int32, st.binary(max_size=60), st.binary(max_size=60)), max_size=6))
def test_batches_come_back(items: list[BatchItem]) -> None:
    assert list(decode_batch_body(encode_batch_body(items))) == items


@unhurried
@given(int32, st.binary(max_size=40), st.binary(max_size=40), st.integers(1, 300))
def test_batches_of_messages_alike_come_back(flag: int, body: bytes, properties: bytes, count: int) -> None:
    items = [BatchItem(flag, body, properties), BatchItem(0, body[::-1], bytes(len(properties)))] * count
    assert list(decode_batch_body(encode_batch_body(items))) == items
    assert list(decode_batch_body(encode_batch_body(items[1:]))) == items[1:]


routes = st.builds(
    TopicRouteData,
    order_topic_conf=st.none() | texts,
    queue_datas=st.lists(
        st.builds(QueueData, broker_name=names, read_queue_nums=int32, write_queue_nums=int32, perm=int32), max_size=3
    ),
    broker_datas=st.lists(
        st.builds(BrokerData, cluster=names, broker_name=names, broker_addrs=st.dictionaries(int64, texts, max_size=3)),
        max_size=3,
    ),
    filter_server_table=st.dictionaries(texts, st.lists(texts, max_size=2), max_size=2),
)


@unhurried
@given(routes)
def test_routes_come_back(route: TopicRouteData) -> None:
    assert TopicRouteData.from_json(route.to_json()) == route


queues = st.builds(MessageQueue, topic=texts, broker_name=texts, queue_id=int32)


@unhurried
@given(
    st.builds(
        ConsumeStats, offset_table=st.dictionaries(queues, st.builds(OffsetWrapper, broker_offset=int64), max_size=4)
    )
)
def test_tables_by_queue_come_back(stats: ConsumeStats) -> None:
    assert ConsumeStats.from_json(stats.to_json()) == stats


topic_configs = st.builds(
    TopicConfig,
    topic_name=names.filter(lambda name: not any(character.isspace() for character in name)),
    read_queue_nums=int32,
    write_queue_nums=int32,
    perm=int32,
    attributes=st.dictionaries(names, names, max_size=2),
)


@unhurried
@given(st.lists(topic_configs, max_size=5), st.booleans())
def test_registrations_come_back(configs: list[TopicConfig], compressed: bool) -> None:
    body = RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
            topic_config_table={config.topic_name: config for config in configs}
        )
    )
    assert RegisterBrokerBody.decode(body.encode(compress=compressed), compressed=compressed) == body


json_values = st.recursive(
    st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


@unhurried
@given(json_values)
def test_standard_json_is_part_of_the_dialect(value: object) -> None:
    for ascii_only in (True, False):
        assert fastjson.loads(json.dumps(value, ensure_ascii=ascii_only).encode(), max_depth=100) == value


@unhurried
@given(st.binary(max_size=200))
def test_any_bytes_are_json_or_refused(data: bytes) -> None:
    try:
        fastjson.loads(data, object_key=str)
    except RemoteProtocolError:
        return


trimmed_texts = texts.map(str.strip).filter(lambda text: "\0" not in text)


@unhurried
@given(st.dictionaries(trimmed_texts.filter(bool), trimmed_texts, max_size=5))
def test_properties_files_come_back(values: dict[str, str]) -> None:
    assert {entry.key: entry.value for entry in parse_properties(format_properties(values).encode())} == values
