"""The records of a batch, encoded together: pure.

The messages of a batch share their queue, times and hosts, and mostly their lengths too. So what a record says about those is
packed once, again only where a length changes, and the digits of all checksums are written by one call. The records are those
that append_message.py would write for the same messages one by one; tests/brokerd/test_store_batch.py holds the two together.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from brokerd.store.consume_queue import ConsumeQueue
from brokerd.store.record import ENTRY
from brokerd.store.results import BatchToStore
from brokerd.store.send_counts import SHARDING_KEY_PREFIX, TRANSACTION_BITS, extra_units_of
from mqwire.checksum import crc32
from mqwire.codes import MessageSysFlag
from mqwire.message import (
    CRC32_PROPERTY_BYTES,
    CRC32_PROPERTY_PREFIX,
    MAX_PROPERTIES_BYTES,
    MAX_TOPIC_BYTES_V1,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
)
from mqwire.metering import UNIT_BYTES
from mqwire.names import PROPERTY_CRC32

_CRC32_NAME: Final = PROPERTY_CRC32.encode()
CRC_PROPERTY_REVERSED: Final = b"\x02%010d" + CRC32_PROPERTY_PREFIX[::-1]

# A record in front of its body: what its lengths decide, what is its own, what the batch decides.
_SIZE_AND_MAGIC: Final = struct.Struct(">II")
_OWN: Final = struct.Struct(">Iiiqq")  # body CRC, queue id, flag, queue offset, physical offset
_SHARED: Final = {
    host_bytes: struct.Struct(f">iq8sq{host_bytes}siqi") for host_bytes in (8, 20)
}  # sysFlag to body length
_UINT16: Final = struct.Struct(">H")

# These make records of another shape, or records that are counted or found in another way.
_UNCOMMON_FLAGS: Final = (
    MessageSysFlag.BORNHOST_V6 | MessageSysFlag.STOREHOSTADDRESS_V6 | MessageSysFlag.INNER_BATCH | TRANSACTION_BITS
)


class EncodedBatch(NamedTuple):
    """The bytes of a batch's records and of their ConsumeQueue entries."""

    records: bytes
    entries: bytes
    physical_offsets: list[int]
    body_bytes: int
    extra_units: int  # of metering, beyond one for each message


def is_common(batch: BatchToStore, queue: ConsumeQueue) -> bool:
    """Whether encode_batch() can take it; MessageAppender.append() takes any."""
    if len(batch.born_host) != 8 or batch.sys_flag & _UNCOMMON_FLAGS or queue.is_schedule_topic:
        return False
    properties = b"".join(batch.properties)
    # One byte is found several times as fast as a name, and few properties hold it.
    return not (0x23 in properties and _CRC32_NAME in properties) and not (
        0x48 in properties and SHARDING_KEY_PREFIX in properties
    )


def encode_batch(
    batch: BatchToStore,
    queue: ConsumeQueue,
    *,
    physical_offset: int,
    store_timestamp_ms: int,
    store_host: bytes,
    max_body_bytes: int,
) -> EncodedBatch:
    """Records with a CRC of themselves, the first at `physical_offset`, numbered from the queue's next offset on.

    Raises ValueError or struct.error for a message that breaks a limit.
    """
    middle = queue.record_middle
    magic = MESSAGE_MAGIC if len(middle) <= MAX_TOPIC_BYTES_V1 + 1 else MESSAGE_MAGIC_V2
    sys_flag = batch.sys_flag | (MessageSysFlag.STOREHOSTADDRESS_V6 if len(store_host) == 20 else 0)
    shared = _SHARED[len(store_host)]
    shared_properties = batch.shared_properties
    behind_properties_bytes = len(shared_properties) + CRC32_PROPERTY_BYTES
    around_bytes = _SIZE_AND_MAGIC.size + _OWN.size + shared.size + len(middle) + 2 + behind_properties_bytes

    queue_id = queue.queue_id
    queue_offset = queue.next_offset
    pack_own, pack_entry, join = _OWN.pack, ENTRY.pack, b"".join
    body_length = properties_length = -1
    size = body_bytes = extra_units = 0
    front = before_body = behind_body = b""
    records: list[bytes] = []
    entries: list[bytes] = []
    crcs: list[int] = []
    physical_offsets: list[int] = []
    for flag, body, properties, tags_code in zip(
        batch.flags, batch.bodies, batch.properties, batch.tags_codes, strict=True
    ):
        if len(body) != body_length or len(properties) != properties_length:
            body_length, properties_length = len(body), len(properties)
            stored_length = properties_length + behind_properties_bytes
            if body_length > max_body_bytes or stored_length > MAX_PROPERTIES_BYTES:
                raise ValueError(f"a body of {body_length} or properties of {stored_length} bytes are too long")
            size = around_bytes + body_length + properties_length
            front = _SIZE_AND_MAGIC.pack(size, magic)
            before_body = shared.pack(
                *(sys_flag, batch.born_timestamp_ms, batch.born_host, store_timestamp_ms, store_host),
                *(batch.reconsume_times, 0, body_length),
            )
            behind_body = middle + _UINT16.pack(stored_length)
        own = pack_own(crc32(body) & 0x7FFFFFFF, queue_id, flag, queue_offset, physical_offset)
        record = join((front, own, before_body, body, behind_body, properties, shared_properties))
        records.append(record)
        crcs.append(crc32(record) & 0x7FFFFFFF)
        entries.append(pack_entry(physical_offset, size, tags_code))
        physical_offsets.append(physical_offset)
        body_bytes += body_length
        if body_length > UNIT_BYTES:
            extra_units += extra_units_of(body_length)
        queue_offset += 1
        physical_offset += size
    count = len(crcs)
    crcs.reverse()  # the property has its digits the other way round; so all of them are written backwards
    crc_properties = (CRC_PROPERTY_REVERSED * count % tuple(crcs))[::-1]
    pieces = [b""] * (2 * count)
    pieces[0::2] = records
    pieces[1::2] = [
        crc_properties[at : at + CRC32_PROPERTY_BYTES] for at in range(0, len(crc_properties), CRC32_PROPERTY_BYTES)
    ]
    return EncodedBatch(join(pieces), join(entries), physical_offsets, body_bytes, extra_units)
