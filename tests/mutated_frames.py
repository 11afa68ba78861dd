"""Damaged frames for fuzzing decoders and daemons; the same random source gives the same frames."""

from __future__ import annotations

import random
import struct

from mqwire.bodies import (
    BrokerData,
    DataVersion,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicRouteData,
)
from mqwire.codes import SerializeType
from mqwire.command import RemotingCommand
from mqwire.headers_namesrv import GetRouteInfoRequestHeader, RegisterBrokerRequestHeader
from mqwire.headers_pull import PullMessageRequestHeader
from mqwire.headers_send import SendMessageRequestHeaderV2


def corpus() -> list[bytes]:
    """Well-formed frames of several kinds, in both header codecs."""
    topics = {name: TopicConfig(topic_name=name) for name in ("orders", "标签", "TBW102")}
    registration = RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
            topic_config_table=topics, data_version=DataVersion(counter=3)
        )
    )
    register = RegisterBrokerRequestHeader(
        broker_name="a", broker_addr="127.0.0.1:10911", cluster_name="c", ha_server_addr="127.0.0.1:10912", broker_id=0
    )
    send = SendMessageRequestHeaderV2(
        producer_group="g",
        topic="orders",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=1,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        flag=0,
        properties="KEYS\x01k\x02WAIT\x01true\x02",
        batch=False,
    )
    pull = PullMessageRequestHeader(
        consumer_group="g",
        topic="orders",
        queue_id=1,
        queue_offset=5,
        max_msg_nums=32,
        sys_flag=3,
        commit_offset=5,
        suspend_timeout_millis=15_000,
        subscription="a || b",
        sub_version=1,
    )
    route = TopicRouteData(
        queue_datas=[QueueData(broker_name="a", read_queue_nums=4, write_queue_nums=4, perm=6)],
        broker_datas=[BrokerData(cluster="c", broker_name="a", broker_addrs={0: "127.0.0.1:10911"})],
    )
    frames: list[bytes] = []
    for kind in SerializeType:
        request = RemotingCommand.request(105, GetRouteInfoRequestHeader(topic="orders"), serialize_type=kind)
        frames += [
            request.encode(),
            request.reply(body=route.to_json()).encode(),
            request.reply(17, "no route for 标签").encode(),
            RemotingCommand.request(
                103, register, body=registration.encode(compress=True), serialize_type=kind
            ).encode(),
            RemotingCommand.request(310, send, body=b"x" * 200, serialize_type=kind).encode(),
            RemotingCommand.request(11, pull, serialize_type=kind).encode(),
        ]
    return frames


INTERESTING_NUMBERS = [
    0,
    1,
    3,
    4,
    8,
    20,
    21,
    127,
    128,
    255,
    256,
    65_535,
    65_536,
    0xFFFFFF,
    2**24,
    2**31 - 1,
    2**31,
    2**32 - 1,
]


def mutated(frame: bytes, random_source: random.Random) -> bytes:
    """The frame with one to four faults: bits, bytes, lies about lengths, pieces lost, added or repeated."""
    data = bytearray(frame)
    for _ in range(random_source.randint(1, 4)):
        kind = random_source.randrange(7)
        position = random_source.randrange(len(data)) if data else 0
        if kind == 0 and data:
            data[position] ^= 1 << random_source.randrange(8)
        elif kind == 1 and data:
            data[position] = random_source.randrange(256)
        elif kind == 2:
            del data[position : position + random_source.randint(1, 16)]
        elif kind == 3:
            data[position:position] = random_source.randbytes(random_source.randint(1, 16))
        elif kind == 4:
            # Lengths stand at the front and inside the header: most lies go there.
            at = random_source.choice([0, 4, 8 + 9, 8 + 13, 8 + 17, position])
            data[at : at + 4] = struct.pack(">I", random_source.choice(INTERESTING_NUMBERS))
        elif kind == 5:
            data += data[: random_source.randint(1, 40)]
        else:
            # The frame's own length is made true again, so that what is inside gets looked at.
            data[0:4] = struct.pack(">I", max(len(data) - 4, 0))
    return bytes(data)
