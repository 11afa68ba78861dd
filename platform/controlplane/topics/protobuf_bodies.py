"""Bodies that are protobuf: a schema, checked, and bodies decoded by it to JSON. Pure.

A schema is a compiled FileDescriptorSet, as `protoc --include_imports --descriptor_set_out` writes it. It comes from a member of a
tenant and a body from any of the tenant's programs, so both are hostile: each schema has a pool of its own, of bounded size, and
what a body takes is counted before it is decoded (`protobuf_costs`).
"""

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Protocol

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    json_format,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from controlplane.common.sentences import say
from controlplane.topics.protobuf_costs import Costs, Malformed, TooCostly

SCHEMA_MAX_BYTES = 256 * 1024
MESSAGE_NAME_MAX_CHARACTERS = 255
_FILES_MAX = 1000
# Files, messages, fields, enumerations with their values, extensions and services: each is an object of the pool.
_PARTS_MAX = 10_000
# The full names of all of these together: those of what is nested repeat those around it.
_NAMES_MAX_CHARACTERS = 1024 * 1024
_BODY_MAX_BYTES = 512 * 1024
# What bodies take in memory and JSON, as `protobuf_costs` counts it: of one body, and of all in an answer.
_BODY_MAX_COST_BYTES = 8 * 1024 * 1024
_ANSWER_MAX_COST_BYTES = 16 * 1024 * 1024
_NAMES_SAID = 5
_REASON_MAX_CHARACTERS = 200
_POOLS_KEPT = 8
_OWN_PREFIX = "google.protobuf."
# The library's JSON knows these by name, and takes their fields for granted: so they are its own, whatever the set says they are.
_WELL_KNOWN = {
    one.DESCRIPTOR.name: one.DESCRIPTOR.serialized_pb
    for one in (
        any_pb2,
        api_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        source_context_pb2,
        struct_pb2,
        timestamp_pb2,
        type_pb2,
        wrappers_pb2,
    )
}


class _Named(Protocol):
    name: str


class NotASchema(ValueError):
    """The schema can't be used: `sentence` says why, `field` which part of the request it is about."""

    def __init__(self, sentence: str, field: str = "descriptor_set") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.field = field


class DoesNotFit(ValueError):
    """The body can't be decoded by the schema: `sentence` says why."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class Schema:
    """Which message bodies are. `descriptor_set` is a serialized FileDescriptorSet, `message` a full name such as `shop.Order`."""

    descriptor_set: bytes
    message: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """A body as indented JSON. `known_bytes` are in fields that the schema has, `unknown_bytes` in others, which `text` has not.

    `cost_bytes` is what decoding it took of a decoder's budget.
    """

    text: str
    known_bytes: int
    unknown_bytes: int
    cost_bytes: int


@dataclass(frozen=True, slots=True)
class _Compiled:
    pool: DescriptorPool
    kind: Descriptor
    message: type[Message]
    costs: Costs


def schema_check(schema: Schema) -> None:
    """Raise NotASchema for what can't be used."""
    files = _files_of(schema.descriptor_set)
    names = [name for file in files if file.name not in _WELL_KNOWN for name in _messages(file)]
    taken = next((name for name in names if name.startswith(_OWN_PREFIX)), None)
    if taken is not None:
        raise NotASchema(say("%(name)s is a name of protobuf’s own.", name=_short(taken)))
    if schema.message not in names:
        raise NotASchema(_no_such_message(schema.message, names), "message")
    try:
        _compiled(schema)
    except Exception as error:  # whatever the library makes of a hostile schema, it is not one that we can use
        raise NotASchema(say("Protobuf refuses the set: %(reason)s", reason=_short(str(error)))) from error


def decoded(schema: Schema, body: bytes, most_cost_bytes: int = _BODY_MAX_COST_BYTES) -> Decoded:
    """Return the body of at most 512 KiB as JSON, with fields named as in the schema. Raises DoesNotFit, TooCostly."""
    if len(body) > _BODY_MAX_BYTES:
        raise DoesNotFit(
            say("A body of more than %(kibibytes)s KiB is not decoded.", kibibytes=_BODY_MAX_BYTES // 1024)
        )
    try:
        compiled = _compiled(schema)
        cost_bytes = compiled.costs.count(compiled.kind, body, most_cost_bytes)
        message = compiled.message()
        message.ParseFromString(body)
        in_all = message.ByteSize()
        message.DiscardUnknownFields()
        known = message.ByteSize()
        text = json_format.MessageToJson(
            message, preserving_proto_field_name=True, ensure_ascii=False, descriptor_pool=compiled.pool
        )
    except TooCostly:
        raise
    except (DecodeError, Malformed) as error:
        raise DoesNotFit(say("This body is not a message %(name)s.", name=schema.message)) from error
    except (
        Exception
    ) as error:  # such as a time that no calendar has, an Any of a type that the set has not, or one too deep
        raise DoesNotFit(
            say("This body parses as a message %(name)s, but JSON can’t say what is in it.", name=schema.message)
        ) from error
    return Decoded(text, known, in_all - known, cost_bytes)


class Decoder:
    """Decodes the bodies of one answer by the schemas of their topics, as long as `budget_bytes` of cost last."""

    def __init__(
        self,
        schema_of: Callable[[str], Schema | None] = lambda _: None,
        budget_bytes: int = _ANSWER_MAX_COST_BYTES,
    ) -> None:
        self._schema_of = functools.cache(schema_of)
        self._left_bytes = budget_bytes

    def for_topics(self, topics: Iterable[str]) -> Callable[[bytes], Decoded] | None:
        """Return how to decode a body that belongs to these topics, by the first of their schemas; None without any."""
        for topic in topics:
            schema = self._schema_of(topic)
            if schema is not None:
                return functools.partial(self._decoded, schema)
        return None

    def _decoded(self, schema: Schema, body: bytes) -> Decoded:
        """Return the body decoded, and pay for it; also for one that was counted in vain. Raises DoesNotFit."""
        allowed_bytes = min(self._left_bytes, _BODY_MAX_COST_BYTES)
        try:
            found = decoded(schema, body, allowed_bytes)
        except TooCostly as error:
            self._left_bytes -= allowed_bytes
            if allowed_bytes < _BODY_MAX_COST_BYTES:
                raise DoesNotFit(
                    say("It is not decoded: the bodies before it are as much as one answer decodes.")
                ) from error
            raise DoesNotFit(say("There is too much in this body to decode it.")) from error
        self._left_bytes -= found.cost_bytes
        return found


@functools.lru_cache(maxsize=_POOLS_KEPT)
def _compiled(schema: Schema) -> _Compiled:
    """Return the schema's pool and message, kept by the schema's content. Raises whatever the library does."""
    pool = DescriptorPool()
    files = _files_of(schema.descriptor_set)
    for file in files:
        own = _WELL_KNOWN.get(file.name)
        pool.AddSerializedFile(file.SerializeToString() if own is None else own)
    kind = pool.FindMessageTypeByName(schema.message)
    return _Compiled(
        pool,
        kind,
        GetMessageClass(kind),
        Costs(pool, has_any=any(file.name == any_pb2.DESCRIPTOR.name for file in files)),
    )


def _files_of(descriptor_set: bytes) -> list[FileDescriptorProto]:
    """Return the set's files, each after those that it imports. Raises NotASchema."""
    if len(descriptor_set) > SCHEMA_MAX_BYTES:
        raise NotASchema(say("At most %(most)s KiB.", most=SCHEMA_MAX_BYTES // 1024))
    try:
        files = FileDescriptorSet.FromString(descriptor_set).file
    except DecodeError as error:
        raise NotASchema(
            say("This is no descriptor set. It is what protoc writes with --include_imports --descriptor_set_out=FILE.")
        ) from error
    for file in files:
        _check_texts(file.name, file.package, *file.dependency)
    by_name = {file.name: file for file in files}
    if len(by_name) < len(files):
        twice = next(name for name, count in Counter(file.name for file in files).items() if count > 1)
        raise NotASchema(say("The set has %(name)s twice.", name=_short(twice)))
    _check_parts(files)
    order: TopologicalSorter[str] = TopologicalSorter()
    for file in files:
        order.add(file.name, *file.dependency)
        for name in file.dependency:
            if name in by_name:
                continue
            if name not in _WELL_KNOWN:
                raise NotASchema(
                    say(
                        "The set lacks %(missing)s, which %(name)s imports. Write it with `protoc --include_imports`.",
                        missing=_short(name),
                        name=_short(file.name),
                    )
                )
            order.add(name, *FileDescriptorProto.FromString(_WELL_KNOWN[name]).dependency)
    try:
        names = list(order.static_order())
    except CycleError as error:
        raise NotASchema(say("Files of the set import each other.")) from error
    return [by_name[name] if name in by_name else FileDescriptorProto.FromString(_WELL_KNOWN[name]) for name in names]


def _messages(file: FileDescriptorProto) -> Iterator[str]:
    """Yield the full names of a file's messages, those within others too. The entries of maps are none."""
    left = [(file.package, one) for one in reversed(file.message_type)]
    while left:
        scope, message = left.pop()
        name = f"{scope}.{message.name}" if scope else message.name
        if not message.options.map_entry:
            yield name
        left.extend((name, one) for one in reversed(message.nested_type))


def _check_parts(files: Collection[FileDescriptorProto]) -> None:
    """Raise NotASchema for more than a pool should hold."""
    if len(files) > _FILES_MAX:
        raise NotASchema(say("The set has more than %(most)s files.", most=_FILES_MAX))
    characters = 0
    for count, name in enumerate(itertools.chain.from_iterable(map(_names_of_parts, files)), 1):
        characters += len(name)
        if count > _PARTS_MAX:
            raise NotASchema(say("The set has more than %(most)s messages, fields and values.", most=_PARTS_MAX))
        if characters > _NAMES_MAX_CHARACTERS:
            raise NotASchema(say("The names in the set are too long."))


def _names_of_parts(file: FileDescriptorProto) -> Iterator[str]:
    """Yield the full name of each part, each an object of the pool, which keeps it."""
    yield file.name
    for service in file.service:
        yield from _within(file.package, [service])
        yield from _within(f"{file.package}.{service.name}", service.method)
    yield from _within(file.package, file.extension)
    yield from _enumerations(file.package, file.enum_type)
    left = [(file.package, one) for one in file.message_type]
    while left:
        scope, message = left.pop()
        if message.options.message_set_wire_format:
            raise NotASchema(say("%(name)s is a message set, which is not supported.", name=_short(message.name)))
        yield from _within(scope, [message])
        name = f"{scope}.{message.name}"
        for parts in (message.field, message.extension, message.oneof_decl):
            yield from _within(name, parts)
        yield from _enumerations(name, message.enum_type)
        left.extend((name, one) for one in message.nested_type)


def _enumerations(scope: str, enumerations: Iterable[EnumDescriptorProto]) -> Iterator[str]:
    for one in enumerations:
        yield from _within(scope, [one])
        yield from _within(scope, one.value)  # beside the enumeration, as in C


def _within(scope: str, parts: Iterable[_Named]) -> Iterator[str]:
    for one in parts:
        _check_texts(one.name)
        yield f"{scope}.{one.name}"


def _check_texts(*texts: str | bytes) -> None:
    """Raise NotASchema for a name that is not UTF-8: the library gives its bytes, though it declares texts."""
    if not all(isinstance(one, str) for one in texts):
        raise NotASchema(say("A name in the set is not UTF-8."))


def _no_such_message(wanted: str, names: Collection[str]) -> str:
    if not names:
        return say("The set has no message at all.")
    some = ", ".join(_short(name) for name in list(names)[:_NAMES_SAID])
    if len(names) > _NAMES_SAID:
        return say("The set has no message %(name)s. It has %(some)s and others.", name=_short(wanted), some=some)
    return say("The set has no message %(name)s. It has %(some)s.", name=_short(wanted), some=some)


def _short(text: str) -> str:
    return "".join(one if one.isprintable() else "\ufffd" for one in text[:_REASON_MAX_CHARACTERS])
