"""mqwire against RocketMQ's own Java classes: signatures, records, batches, message ids, commands.

The Java client computes, Python compares (and the other way round), on a thousand seeded cases each.
"""

from __future__ import annotations

import base64
import random
import string
from typing import Any

from mqwire.acl import SessionCredentials, sign_request
from mqwire.codes import SerializeType
from mqwire.command import RemotingCommand
from mqwire.connection import Connection
from mqwire.message import (
    BatchItem,
    decode_batch_body,
    decode_record,
    decode_records,
    encode_batch_body,
    encode_record,
    offset_message_id,
    pack_host,
    parse_offset_message_id,
    properties_to_string,
    string_to_properties,
    tags_code,
)
from tests.interop.clients import DriverProcess

CASES = 1000
# Letters of one to four UTF-8 bytes; the last two take two UTF-16 units, which is where Java sorts and hashes
# otherwise.
ALPHABET = string.ascii_letters + string.digits + "-_.%| äß✓世界ключ\uffee🚀𝄞"


def text(rng: random.Random, longest: int) -> str:
    return "".join(rng.choices(ALPHABET, k=rng.randrange(1, longest + 1)))


def fields(rng: random.Random, most: int) -> dict[str, str]:
    return {text(rng, 12): text(rng, 40) for _ in range(rng.randrange(most + 1))}


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def random_record(rng: random.Random, physical_offset: int) -> dict[str, Any]:
    """The fields of a record, under the names that encode_record and the Java side share."""
    addresses = ["127.0.0.1", "10.255.0.1", "::1", "2001:db8::ff00:42:8329"]
    return {
        "topic": "".join(rng.choices(string.ascii_letters, k=rng.choice([1, 20, 127]))),
        "queue_id": rng.randrange(2**31),
        "queue_offset": rng.randrange(2**62),
        "physical_offset": physical_offset,
        "flag": rng.randrange(2**31),
        "sys_flag": rng.choice([0, 1, 4, 8, 0x300, 0x101]),
        "born_timestamp_ms": rng.randrange(2**42),
        "born_host": [rng.choice(addresses), rng.randrange(1, 65536)],
        "store_timestamp_ms": rng.randrange(2**42),
        "store_host": [rng.choice(addresses), rng.randrange(1, 65536)],
        "reconsume_times": rng.randrange(20),
        "prepared_transaction_offset": rng.randrange(2**62),
        "body": rng.randbytes(rng.choice([1, 30, 1024, 5000])),
        "properties": fields(rng, 6),
    }


def encode(record: dict[str, Any], *, with_record_crc: bool) -> bytes:
    arguments = dict(record)
    arguments["properties"] = properties_to_string(record["properties"]).encode()
    arguments["born_host"] = pack_host(*record["born_host"])
    arguments["store_host"] = pack_host(*record["store_host"])
    return encode_record(**arguments, with_record_crc=with_record_crc)


def assert_same_record(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    for name in set(mine) - {"born_host", "store_host", "body", "properties", "sys_flag"}:
        assert theirs[name] == mine[name], name
    assert base64.b64decode(theirs["body"]) == mine["body"]
    properties = {name: value for name, value in (theirs["properties"] or {}).items() if name != "__CRC32#"}
    assert properties == mine["properties"]
    for host in ("born_host", "store_host"):
        ip, port = theirs[host]
        assert (pack_host(ip, port)) == pack_host(*mine[host]), host


def test_signatures_equal_those_of_the_java_client(java_client: DriverProcess) -> None:
    rng = random.Random("signatures")
    requests: list[dict[str, Any]] = []
    for index in range(CASES):
        requests.append(
            {
                "code": rng.randrange(1, 400),
                "fields": fields(rng, 15),
                "body": None if index % 4 == 0 else encoded(rng.randbytes(rng.randrange(1, 3000))),
                "access_key": text(rng, 20),
                "secret_key": text(rng, 40),
                "token": text(rng, 30) if index % 7 == 0 else None,
            }
        )
    signed = java_client.order("acl_sign", requests=requests)
    for request, expected in zip(requests, signed, strict=True):
        body = base64.b64decode(request["body"] or "")
        command = RemotingCommand.request(request["code"], ext_fields=request["fields"], body=body)
        sign_request(command, SessionCredentials(request["access_key"], request["secret_key"], request["token"]))
        assert command.ext_fields == expected


def test_java_decodes_the_records_that_we_encode(java_client: DriverProcess) -> None:
    rng = random.Random("records")
    records, stream = [], b""
    for index in range(CASES):
        record = random_record(rng, len(stream))
        records.append(record)
        stream += encode(record, with_record_crc=index % 2 == 0)
    decoded = java_client.order("decode_records", records=encoded(stream))
    for mine, theirs in zip(records, decoded, strict=True):
        assert_same_record(mine, theirs)
    # And our own decoder sees what Java's saw.
    for ours, theirs in zip(decode_records(stream), decoded, strict=True):
        assert (ours.sys_flag, ours.body_crc, ours.size_bytes) == (
            theirs["sys_flag"],
            theirs["body_crc"],
            theirs["size_bytes"],
        )
        assert ours.offset_message_id == theirs["msg_id"]


def test_we_decode_the_records_that_java_encodes(java_client: DriverProcess) -> None:
    rng = random.Random("java records")
    records = [random_record(rng, index * 100) for index in range(CASES)]
    as_json = [record | {"body": encoded(record["body"])} for record in records]
    for mine, theirs in zip(records, java_client.order("encode_records", records=as_json), strict=True):
        raw = base64.b64decode(theirs)
        decoded = decode_record(raw)
        for name in set(mine) - {"born_host", "store_host", "sys_flag"}:
            assert getattr(decoded, name) == mine[name], name
        assert pack_host(*decoded.born_host) == pack_host(*mine["born_host"])
        assert pack_host(*decoded.store_host) == pack_host(*mine["store_host"])
        # Written again from what was read, the record is the same, byte for byte: Java's order of properties is a
        # hash map's, so the property text is taken as it came.
        again = encode(mine | {"properties": decoded.properties}, with_record_crc=False)
        assert decode_record(again) == decoded
        assert again == raw


def test_batches_are_the_same_both_ways(java_client: DriverProcess) -> None:
    rng = random.Random("batches")
    for _ in range(50):
        items: list[dict[str, Any]] = [
            {"flag": rng.randrange(100), "body": rng.randbytes(rng.randrange(1, 300)), "properties": fields(rng, 4)}
            for _ in range(20)
        ]
        as_json = [item | {"body": encoded(item["body"])} for item in items]
        theirs = base64.b64decode(java_client.order("encode_batch", messages=as_json))
        decoded = decode_batch_body(theirs)
        assert [(item.flag, item.body, string_to_properties(item.properties.decode())) for item in decoded] == [
            (item["flag"], item["body"], item["properties"]) for item in items
        ]
        mine = encode_batch_body(
            BatchItem(item["flag"], item["body"], properties_to_string(item["properties"]).encode()) for item in items
        )
        read = java_client.order("decode_batch", body=encoded(mine))
        assert [(item["flag"], base64.b64decode(item["body"]), item["properties"]) for item in read] == [
            (item["flag"], item["body"], item["properties"]) for item in items
        ]


def test_message_ids_are_the_same(java_client: DriverProcess) -> None:
    rng = random.Random("ids")
    positions: list[dict[str, Any]] = [
        {
            "host": [rng.choice(["127.0.0.1", "192.168.250.3", "2001:db8::1"]), rng.randrange(1, 65536)],
            "offset": rng.randrange(2**63),
        }
        for _ in range(CASES)
    ]
    for position, theirs in zip(positions, java_client.order("message_ids", positions=positions), strict=True):
        mine = offset_message_id(pack_host(*position["host"]), position["offset"])
        assert mine == theirs["id"]
        (ip, port), offset = parse_offset_message_id(mine)
        assert ([ip, port], offset) == (position["host"], position["offset"])


def test_tag_hashes_are_those_of_java(java_client: DriverProcess) -> None:
    rng = random.Random("tags")
    tags = [text(rng, 30) for _ in range(CASES)]
    assert [tags_code(tag) for tag in tags] == java_client.order("hash_codes", texts=tags)


def random_commands(rng: random.Random) -> list[dict[str, Any]]:
    return [
        {
            "code": rng.randrange(0, 1000),
            "opaque": rng.randrange(2**31),
            "remark": text(rng, 30) if rng.random() < 0.5 else None,
            "fields": fields(rng, 10),
            "body": rng.randbytes(rng.randrange(0, 200)),
            "response": rng.random() < 0.5,
            "oneway": rng.random() < 0.2,
            "serialize_type": "ROCKETMQ" if index % 2 else "JSON",
        }
        for index in range(CASES)
    ]


def test_we_read_the_commands_that_java_writes(java_client: DriverProcess) -> None:
    commands = random_commands(random.Random("java commands"))
    as_json = [command | {"body": encoded(command["body"])} for command in commands]
    frames = java_client.order("encode_commands", commands=as_json)
    connection = Connection()
    connection.receive_data(b"".join(base64.b64decode(frame) for frame in frames))
    for expected, command in zip(commands, connection.commands(), strict=True):
        assert (command.code, command.opaque) == (expected["code"], expected["opaque"])
        assert (command.is_response, command.is_oneway) == (expected["response"], expected["oneway"])
        assert command.remark == expected["remark"]
        assert command.ext_fields == expected["fields"]
        assert bytes(command.body) == expected["body"]
        assert SerializeType(command.serialize_type).name == expected["serialize_type"]


def test_java_reads_the_commands_that_we_write(java_client: DriverProcess) -> None:
    commands = random_commands(random.Random("our commands"))
    frames = [
        RemotingCommand(
            command["code"],
            opaque=command["opaque"],
            flag=command["response"] * 1 + command["oneway"] * 2,
            remark=command["remark"],
            ext_fields=command["fields"],
            body=command["body"],
            serialize_type=SerializeType[command["serialize_type"]],
        ).encode()
        for command in commands
    ]
    decoded = java_client.order("decode_commands", frames=[encoded(frame) for frame in frames])
    for mine, theirs in zip(commands, decoded, strict=True):
        assert (theirs["code"], theirs["opaque"]) == (mine["code"], mine["opaque"])
        assert theirs["flag"] == mine["response"] * 1 + mine["oneway"] * 2
        assert theirs["remark"] == mine["remark"]
        assert theirs["fields"] == mine["fields"]
        assert base64.b64decode(theirs["body"]) == mine["body"]
        assert theirs["serialize_type"] == mine["serialize_type"]
        assert theirs["language"] == "PYTHON"
