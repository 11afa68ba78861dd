"""Schemas that a tenant gives, and bodies decoded by them: what fits is shown, and what is hostile costs and breaks nothing."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from random import Random

import pytest
from google.protobuf import any_pb2, duration_pb2, field_mask_pb2, json_format, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.topics.bodies import BodyForm, NotOfThisForm, ShownBody, body_shown
from controlplane.topics.masking import Masks, Part, Rule
from controlplane.topics.protobuf_bodies import (
    SCHEMA_MAX_BYTES,
    Decoded,
    Decoder,
    DoesNotFit,
    NotASchema,
    Schema,
    decoded,
    schema_check,
)
from controlplane.topics.protobuf_costs import TooCostly

STRING, INT64, MESSAGE = (
    FieldDescriptorProto.TYPE_STRING,
    FieldDescriptorProto.TYPE_INT64,
    FieldDescriptorProto.TYPE_MESSAGE,
)
OWN_FILES = (timestamp_pb2, any_pb2, struct_pb2, field_mask_pb2, wrappers_pb2, duration_pb2)
# Field 1 is "o-1", field 2 is 1250.
ORDER = b"\x0a\x03o-1\x10\xe2\x09"


def a_field(name: str, number: int, kind: int, type_name: str = "", repeated: bool = False) -> FieldDescriptorProto:
    found = FieldDescriptorProto(name=name, number=number)
    found.label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
    found.type = kind  # type: ignore[assignment]  # one of the constants above
    if type_name:
        found.type_name = type_name
    return found


def a_file(name: str = "shop.proto", package: str = "shop", *messages: DescriptorProto) -> FileDescriptorProto:
    return FileDescriptorProto(name=name, package=package, syntax="proto3", message_type=messages)


def schema(message: str, *files: FileDescriptorProto) -> Schema:
    return Schema(FileDescriptorSet(file=files).SerializeToString(), message)


def orders() -> Schema:
    fields = [
        a_field("id", 1, STRING),
        a_field("price_cents", 2, INT64),
        a_field("parts", 3, MESSAGE, ".shop.Order", repeated=True),
    ]
    return schema("shop.Order", a_file("shop.proto", "shop", DescriptorProto(name="Order", field=fields)))


def with_time_and_any() -> Schema:
    file = a_file(
        "shop.proto",
        "shop",
        DescriptorProto(
            name="Event",
            field=[
                a_field("at", 1, MESSAGE, ".google.protobuf.Timestamp"),
                a_field("what", 2, MESSAGE, ".google.protobuf.Any"),
            ],
        ),
    )
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/any.proto"])
    return schema("shop.Event", file)


def decode_by(one: Schema) -> Callable[[bytes], Decoded]:
    decode = Decoder(lambda _: one).for_topics(["orders"])
    assert decode is not None
    return decode


def shown(body: bytes, form: BodyForm = BodyForm.AUTO, limit: int = 1000, one: Schema | None = None) -> ShownBody:
    return body_shown(body, limit, form, None, decode_by(one or orders()))


def test_a_body_is_shown_with_its_fields_as_the_schema_names_them() -> None:
    found = shown(ORDER)
    assert (found.encoding, found.text) == ("protobuf", '{\n  "id": "o-1",\n  "price_cents": "1250"\n}')
    assert (found.size_bytes, found.truncated, found.note) == (len(ORDER), False, "")


@pytest.mark.parametrize("body", [b"hello", b'{"order": 17}', b"\x00\xff", "größer".encode()])
def test_a_body_that_does_not_fit_is_shown_as_without_a_schema(body: bytes) -> None:
    found, before = shown(body), body_shown(body, 1000)
    assert (found.encoding, found.text, found.shown_bytes) == (before.encoding, before.text, before.shown_bytes)


def test_bytes_that_do_not_fit_are_hexadecimal_with_the_reason() -> None:
    for form in (BodyForm.AUTO, BodyForm.PROTOBUF):
        found = shown(b"\x00\xff", form)
        assert (found.encoding, found.text, found.note) == ("hex", "00ff", "This body is not a message shop.Order.")


def test_fields_that_the_schema_has_not_are_said() -> None:
    found = shown(ORDER + b"\x78\x01\xff")  # field 15, and half of a varint
    assert found.encoding == "hex"
    found = shown(ORDER + b"\x78\x01")
    assert (found.encoding, found.note) == (
        "protobuf",
        "2 bytes are of fields that the schema does not have, and are left out.",
    )


def test_a_text_that_happens_to_parse_stays_a_text() -> None:
    text = b"x1"  # field 15, a varint of 49
    assert decoded(orders(), text).unknown_bytes == 2
    assert (shown(text).encoding, shown(text, BodyForm.PROTOBUF).encoding) == ("utf-8", "protobuf")


def test_protobuf_is_asked_for_where_there_is_no_schema() -> None:
    with pytest.raises(NotOfThisForm):
        body_shown(ORDER, 1000, BodyForm.PROTOBUF)


def test_a_long_message_is_cut_and_says_so() -> None:
    found = shown(b"\x0a\x80\x01" + "é".encode() * 64, limit=42)
    assert (found.truncated, found.shown_bytes, len(found.text.encode())) == (True, 41, 41)


def test_a_character_that_turns_the_text_around_is_escaped() -> None:
    body = b"\x0a\x03" + "\u202e".encode()
    assert shown(body).text == '{\n  "id": "\\u202e"\n}'


@pytest.mark.parametrize("withholds", [True, False])
@pytest.mark.parametrize("body", [ORDER, b'{"card":1}', b""])
def test_nothing_is_decoded_where_a_rule_hides_something_in_bodies(body: bytes, withholds: bool) -> None:
    masks = Masks([Rule("*", Part.BODY, "$.card", withholds)])

    def fail(_: bytes) -> Decoded:
        raise AssertionError("decoded")

    assert body_shown(body, 1000, BodyForm.AUTO, masks, fail).encoding != "protobuf"
    if body == ORDER and withholds:
        assert body_shown(body, 1000, BodyForm.PROTOBUF, masks, fail).text == ""
    else:
        with pytest.raises(NotOfThisForm):
            body_shown(body, 1000, BodyForm.PROTOBUF, masks, fail)


def test_times_and_anys_are_what_protobuf_says_though_the_set_lacks_their_files() -> None:
    at = timestamp_pb2.Timestamp(seconds=1, nanos=500_000_000).SerializeToString()
    inner = any_pb2.Any()
    inner.Pack(timestamp_pb2.Timestamp(seconds=2))
    what = inner.SerializeToString()
    schema_check(with_time_and_any())
    text = decoded(with_time_and_any(), b"\x0a" + bytes([len(at)]) + at + b"\x12" + bytes([len(what)]) + what).text
    assert '"at": "1970-01-01T00:00:01.500Z"' in text
    assert '"value": "1970-01-01T00:00:02Z"' in text


@pytest.mark.parametrize(
    "body",
    [
        b"\x0a\x0b\x08" + b"\xff" * 9 + b"\x01",  # the time -1
        b"\x0a\x0a\x08" + b"\xff" * 8 + b"\x7f",  # a time that no calendar has
        b"\x12\x08\x0a\x06shop.X",  # an Any of what no one knows
    ],
)
def test_what_json_has_no_words_for_is_shown_in_hexadecimal(body: bytes) -> None:
    found = shown(body, BodyForm.PROTOBUF, one=with_time_and_any())
    if found.encoding != "protobuf":
        assert (found.encoding, bool(found.note)) == ("hex", True)
    else:
        assert body[0] == 0x0A
        assert "1969" in found.text


def refused(one: Schema) -> tuple[str, str]:
    with pytest.raises(NotASchema) as raised:
        schema_check(one)
    return raised.value.field, raised.value.sentence


def test_a_set_is_refused_with_the_reason() -> None:
    order, of = DescriptorProto(name="Order"), "shop.Order"
    imports = a_file("shop.proto", "shop", order)
    imports.dependency.append("money.proto")
    back = a_file("money.proto", "money")
    back.dependency.append("shop.proto")
    alone = a_file("shop.proto", "shop", order)
    alone.dependency.append("shop.proto")
    wrong = a_file("shop.proto", "shop", DescriptorProto(name="Order", field=[a_field("x", 1, MESSAGE, ".no.Such")]))
    assert "no descriptor set" in refused(Schema(b"hello", of))[1]
    assert "no message at all" in refused(Schema(b"", of))[1]
    assert "lacks money.proto" in refused(schema(of, imports))[1]
    assert "import each other" in refused(schema(of, imports, back))[1]
    assert "import each other" in refused(schema(of, alone))[1]
    assert "twice" in refused(schema(of, a_file(), a_file()))[1]
    assert "no.Such" in refused(schema(of, wrong))[1]
    assert refused(Schema(b"\x00" * (SCHEMA_MAX_BYTES + 1), of)) == ("descriptor_set", "At most 256 KiB.")
    assert refused(schema("shop.order", a_file("shop.proto", "shop", order))) == (
        "message",
        "The set has no message shop.order. It has shop.Order.",
    )


def test_a_name_that_is_no_text_is_refused() -> None:
    order = DescriptorProto(name="Order", field=[a_field("id", 1, STRING)])
    whole = schema("shop.Order", a_file("shop.proto", "shop", order)).descriptor_set
    for name in (b"shop.proto", b"shop\x22", b"Order", b"id"):
        assert name in whole
        broken = Schema(whole.replace(name, b"\xff" + name[1:]), "shop.Order")
        assert "not UTF-8" in refused(broken)[1]


def test_files_may_come_in_any_order() -> None:
    money = a_file("money.proto", "money", DescriptorProto(name="Money", field=[a_field("cents", 1, INT64)]))
    shop = a_file(
        "shop.proto", "shop", DescriptorProto(name="Order", field=[a_field("price", 1, MESSAGE, ".money.Money")])
    )
    shop.dependency.append("money.proto")
    one = schema("shop.Order", shop, money)
    schema_check(one)
    assert decoded(one, b"\x0a\x02\x08\x05").text == '{\n  "price": {\n    "cents": "5"\n  }\n}'


@pytest.mark.parametrize(
    "file",
    [
        a_file("mine.proto", "google.protobuf", DescriptorProto(name="Any")),
        a_file(
            "mine.proto", "google", DescriptorProto(name="protobuf", nested_type=[DescriptorProto(name="Timestamp")])
        ),
    ],
)
def test_names_of_protobufs_own_are_not_the_tenants(file: FileDescriptorProto) -> None:
    assert "protobuf’s own" in refused(schema("google.protobuf.Any", file))[1]


def test_a_well_known_file_is_the_librarys_whatever_the_set_says() -> None:
    event = with_time_and_any()
    files = FileDescriptorSet.FromString(event.descriptor_set).file
    forged = a_file("google/protobuf/any.proto", "google.protobuf", DescriptorProto(name="Any"))
    one = schema("shop.Event", *files, forged)
    schema_check(one)
    with pytest.raises(DoesNotFit):  # by the forged one it would be an empty message
        decoded(one, b"\x12\x08\x0a\x06shop.X")


def test_a_set_of_too_many_parts_is_refused_before_it_is_built() -> None:
    many = [DescriptorProto(name=f"M{number}") for number in range(10_001)]
    assert "more than 10000" in refused(schema("shop.M1", a_file("shop.proto", "shop", *many)))[1]


def nested(levels: int) -> bytes:
    body = b""
    for _ in range(levels):
        length = len(body)
        prefix = bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])
        body = b"\x1a" + prefix + body
    return body


def test_a_body_may_nest_as_deep_as_protobuf_reads_and_no_deeper() -> None:
    assert shown(nested(90)).encoding == "protobuf"
    assert shown(nested(150), BodyForm.PROTOBUF).note == "This body is not a message shop.Order."


def test_anys_in_anys_are_followed_as_deep_as_messages_and_no_deeper() -> None:
    inner = any_pb2.Any()
    for _ in range(150):
        outer = any_pb2.Any()
        outer.Pack(inner)
        inner = outer
    packed = inner.SerializeToString()
    length = len(packed)
    body = b"\x12" + bytes([length & 127 | 128, length >> 7 & 127 | 128, length >> 14]) + packed
    assert "is not a message" in shown(body, BodyForm.PROTOBUF, one=with_time_and_any()).note


def test_a_body_that_is_too_long_is_not_decoded() -> None:
    with pytest.raises(DoesNotFit, match="more than 512 KiB"):
        decoded(orders(), b"\x1a\x00" * 262_145)


def test_what_a_body_takes_is_counted_before_it_is_decoded() -> None:
    """Two bytes make a message of 8,000 fields, one byte a name of 1,000 characters: gigabytes of memory, were they not counted."""
    wide = DescriptorProto(name="Wide", field=[a_field(f"f{number}", number, INT64) for number in range(2, 8000)])
    wide.field.append(a_field("more", 1, MESSAGE, ".shop.Wide", repeated=True))
    named = DescriptorProto(name="Named", field=[a_field("kinds", 1, FieldDescriptorProto.TYPE_ENUM, ".shop.K", True)])
    file = a_file("shop.proto", "shop", wide, named)
    file.enum_type.add(name="K").value.add(name="V" * 1000, number=0)
    for message, body in (("Wide", b"\x0a\x00" * 1000), ("Named", b"\x0a\xe0\x5d" + b"\x00" * 12_000)):
        one = schema(f"shop.{message}", file)
        schema_check(one)
        assert "too much in this body" in shown(body, BodyForm.PROTOBUF, one=one).note
    assert decoded(schema("shop.Wide", file), b"\x0a\x00" * 10).known_bytes == 20


def test_an_answer_decodes_so_much_and_no_more() -> None:
    decode = Decoder(lambda _: orders(), budget_bytes=1_000_000).for_topics(["orders"])
    assert decode is not None
    began = time.process_time()
    decode(b"\x1a\x00" * 1000)
    with pytest.raises(DoesNotFit, match="the bodies before it"):
        decode(b"\x1a\x00" * 1000)
    with pytest.raises(DoesNotFit, match="the bodies before it"):
        decode(ORDER)
    assert time.process_time() - began < 5


def test_parts_that_only_together_are_an_any_are_not_decoded() -> None:
    """By one pass each half costs nothing; protobuf joins them to a type and its bytes."""
    halves = any_pb2.Any(type_url="x/shop.Event"), any_pb2.Any(value=b"\x0a\x00")
    body = b"".join(b"\x12" + bytes([len(half)]) + half for half in (one.SerializeToString() for one in halves))
    assert "too much in this body" in shown(body, BodyForm.PROTOBUF, one=with_time_and_any()).note


@functools.cache
def a_bit_of_everything() -> Schema:
    """A message with every kind of field, a map, a group, an extension and protobuf's own types, in itself again."""
    kinds = FieldDescriptorProto.Type
    scalar = [one for one in range(1, 19) if one not in (kinds.TYPE_MESSAGE, kinds.TYPE_GROUP, kinds.TYPE_ENUM)]
    fields = [a_field(f"one_{kind}", kind, kind) for kind in scalar]
    fields += [a_field(f"many_{kind}", 20 + kind, kind, "", repeated=True) for kind in scalar]
    fields += [
        a_field("kind", 40, kinds.TYPE_ENUM, ".shop.Kind"),
        a_field("kinds", 41, kinds.TYPE_ENUM, ".shop.Kind", True),
    ]
    entry = DescriptorProto(
        name="TagsEntry", field=[a_field("key", 1, STRING), a_field("value", 2, MESSAGE, ".shop.M")]
    )
    entry.options.map_entry = True
    own = ("Timestamp", "Any", "Struct", "FieldMask", "Int64Value", "Duration")
    fields += [
        a_field("again", 42, MESSAGE, ".shop.M"),
        a_field("more", 43, MESSAGE, ".shop.M", repeated=True),
        a_field("tags", 44, MESSAGE, ".shop.M.TagsEntry", repeated=True),
        a_field("group", 45, kinds.TYPE_GROUP, ".shop.M.Group"),
        *(a_field(name.lower(), 50 + at, MESSAGE, f".google.protobuf.{name}") for at, name in enumerate(own)),
    ]
    group = DescriptorProto(name="Group", field=[a_field("inner", 1, MESSAGE, ".shop.M")])
    message = DescriptorProto(name="M", field=fields, nested_type=[entry, group])
    message.extension_range.add(start=100, end=200)
    file = a_file("shop.proto", "shop", message)
    file.syntax = "proto2"
    file.enum_type.add(name="Kind").value.add(name="A_KIND", number=1)
    file.extension.append(a_field("extra", 100, MESSAGE, ".shop.M"))
    file.extension[0].extendee = ".shop.M"
    names = ("timestamp", "any", "struct", "field_mask", "wrappers", "duration")
    file.dependency.extend(f"google/protobuf/{name}.proto" for name in names)
    return schema("shop.M", file)


def test_a_schema_with_a_bit_of_everything_is_taken() -> None:
    schema_check(a_bit_of_everything())
    assert "[shop.extra]" in decoded(a_bit_of_everything(), b"\xa2\x06\x02\x08\x01").text


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


@functools.cache
def everything() -> tuple[DescriptorPool, type[Message]]:
    pool = DescriptorPool()
    for file in (*(one.DESCRIPTOR.serialized_pb for one in OWN_FILES), *set_of(a_bit_of_everything())):
        pool.AddSerializedFile(file)
    return pool, GetMessageClass(pool.FindMessageTypeByName("shop.M"))


def set_of(one: Schema) -> list[bytes]:
    return [file.SerializeToString() for file in FileDescriptorSet.FromString(one.descriptor_set).file]


def can_be_said(body: bytes) -> bool:
    """Whether protobuf makes JSON of it without us."""
    try:
        pool, kind = everything()
        json_format.MessageToJson(kind.FromString(body), descriptor_pool=pool)
    except Exception:  # of whatever kind: what is tested is that ours is no more often in the way
        return False
    return True


def some_body(random: Random, levels: int = 4) -> bytes:
    """A few fields, in the wire's own grammar: of the message, or of no one; with messages and groups in them."""
    found = b""
    for _ in range(random.randrange(5)):
        number = random.choice([*range(1, 60), 100, 101, 536870911])
        held = random.choice(
            [random.randbytes(random.randrange(12)), b"\x08x/shop.M", some_body(random, levels - 1) if levels else b""]
        )
        if random.random() < 0.2:
            number, held = 51, b"\x0a\x08x/shop.M\x12" + varint(len(held)) + held  # an Any
        wire, value = random.choice(
            [
                (0, varint(random.getrandbits(random.choice([1, 7, 32, 64])))),
                (1, random.randbytes(8)),
                (5, random.randbytes(4)),
                (3, held + varint(number << 3 | 4)),
                *[(2, varint(len(held)) + held)] * 4,
            ]
        )
        found += varint(number << 3 | wire) + value
    return found


@pytest.mark.parametrize("within", [b"\0\0", b"\x02\x01a", b"\x03\x04"])
def test_a_field_without_a_number_is_passed_over_where_protobuf_does(within: bytes) -> None:
    group = varint(536870911 << 3 | 3) + within + varint(536870911 << 3 | 4)
    for body in (group, within):
        try:
            decoded(a_bit_of_everything(), body)
        except DoesNotFit:
            assert not can_be_said(body)
        else:
            assert can_be_said(body)


@pytest.mark.parametrize("field", ["group", "message_in_a_group"])
def test_a_message_in_the_form_that_its_field_has_not_is_passed_over(field: str) -> None:
    fields = {one.name: one for one in everything()[1].DESCRIPTOR.fields}
    group = fields["group"].number
    message = next(one.number for one in fields.values() if one.type == FieldDescriptorProto.TYPE_MESSAGE)
    no_message = b"\x08x/shop.M"
    body = (
        varint(group << 3 | 2) + varint(len(no_message)) + no_message
        if field == "group"
        else varint(message << 3 | 3) + b"\x0d\0\0\0\0" + varint(message << 3 | 4)
    )
    assert can_be_said(body)
    assert decoded(a_bit_of_everything(), body).unknown_bytes == len(body)


@given(st.integers(0, 2**64), st.binary(max_size=20), st.integers(0, 60))
@settings(max_examples=200, deadline=None)
def test_no_body_becomes_more_than_was_counted_and_none_raises_else(seed: int, noise: bytes, at: int) -> None:
    whole = some_body(Random(seed))
    body = whole[:at] + noise + whole[at:]
    found, reason = Decoded("", 0, 0, 0), ""
    try:
        found = decoded(a_bit_of_everything(), body)
    except TooCostly:
        return
    except DoesNotFit as error:
        reason = error.sentence
    assert len(found.text) <= found.cost_bytes
    assert not reason or not can_be_said(body)


@given(st.binary(max_size=40), st.integers(0, 400), st.integers(0, 20))
@settings(max_examples=150, deadline=None)
def test_a_damaged_set_is_refused_or_taken_and_raises_nothing_else(bits: bytes, at: int, removed: int) -> None:
    whole = a_bit_of_everything().descriptor_set
    damaged = Schema(whole[:at] + bits + whole[at + removed :], "shop.M")
    try:
        schema_check(damaged)
    except NotASchema:
        return
    for body in (b"", b"\xa2\x06\x02\x08\x01", b"\x9a\x03\x0a\x0a\x08x/shop.M"):
        with contextlib.suppress(DoesNotFit):
            decoded(damaged, body)


def test_a_decoder_takes_the_first_schema_of_a_messages_topics() -> None:
    asked: list[str] = []

    def find(topic: str) -> Schema | None:
        asked.append(topic)
        return orders() if topic == "orders" else None

    decoder = Decoder(find)
    assert decoder.for_topics(["payments"]) is None
    for _ in range(2):
        decode = decoder.for_topics(["payments", "orders"])
        assert decode is not None
        assert decode(ORDER).known_bytes == len(ORDER)
    assert asked == ["payments", "orders"]
