"""The header of a send: both of its forms (SendMessageRequestHeader, ...V2), from both kinds of frames, read fast."""

from __future__ import annotations

from operator import itemgetter
from sys import intern
from typing import Final, NamedTuple

from mqwire.acl import SIGNATURE, SIGNATURE_NONCE, SIGNATURE_TIME
from mqwire.codes import RequestCode
from mqwire.command import RemotingCommand
from mqwire.errors import RemoteProtocolError
from mqwire.field_layout import MAX_KEPT_BYTES, FieldLayout, FieldLayouts


class SendOrigin(NamedTuple):
    """What a producer's sends to one topic have in common."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    sys_flag: int
    flag: int
    reconsume_times: int
    max_reconsume_times: int | None
    batch: bool


class SendHeader(NamedTuple):
    """One send. `properties` is the property string, UTF-8."""

    origin: SendOrigin
    queue_id: int
    born_timestamp_ms: int
    properties: bytes


_V1_NAMES: Final = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "l": "maxReconsumeTimes",
    "m": "batch",
}
_V2_NAMES: Final = {letter: letter for letter in _V1_NAMES}
# What differs from one send of a producer to its next.
_VARYING: Final = ("e", "g", "i")
_SIGNATURE_FIELDS: Final = (SIGNATURE, SIGNATURE_TIME, SIGNATURE_NONCE)
_ORIGINS_MAX: Final = 1024
# Of the texts that an origin is looked up by: names of groups and topics have at most 255.
_ORIGIN_CHARACTERS_MAX: Final = 1024
# What an origin is made of, without maxReconsumeTimes, which a producer does not send.
_CONSTANT: Final = "abcdfhjm"
_V2_CONSTANTS: Final = itemgetter(*_CONSTANT)
_V1_CONSTANTS: Final = itemgetter(*(_V1_NAMES[letter] for letter in _CONSTANT))

_new_tuple: Final = tuple.__new__


class SendHeaderReader:
    """Reads send headers; keeps the layouts and origins that it has met."""

    __slots__ = ("_layouts", "_layouts_v1", "_origins", "_origins_of_fields")

    def __init__(self) -> None:
        # A signature (access control) differs each time too.
        self._layouts = FieldLayouts(frozenset((*_VARYING, *_SIGNATURE_FIELDS)))
        self._layouts_v1 = FieldLayouts(frozenset((*(_V1_NAMES[letter] for letter in _VARYING), *_SIGNATURE_FIELDS)))
        self._origins: dict[FieldLayout, tuple[SendOrigin, int, int, int]] = {}
        self._origins_of_fields: dict[tuple[str, ...], SendOrigin] = {}

    def read(self, request: RemotingCommand) -> SendHeader:
        """The header of a SEND_MESSAGE, SEND_MESSAGE_V2 or SEND_BATCH_MESSAGE request.

        Raises RemoteProtocolError that names a missing or malformed field.
        """
        raw = request.raw_ext_fields
        if raw is None:
            return self._read_fields(request)
        layout, parts = (self._layouts_v1 if request.code == RequestCode.SEND_MESSAGE else self._layouts).match(raw)
        known = self._origins.get(layout)
        if known is None:
            known = self._remember(request, raw, layout)
            if known is None:
                return _from_fields(request.ext_fields, _names_for(request))
        origin, queue_id, born_timestamp_ms, properties = known
        try:
            return _new_tuple(
                SendHeader, (origin, int(parts[queue_id]), int(parts[born_timestamp_ms]), parts[properties])
            )
        except ValueError as error:
            raise RemoteProtocolError(f"a number in the send header cannot be read: {error}") from error

    def _read_fields(self, request: RemotingCommand) -> SendHeader:
        """From fields that came as JSON, taken apart already."""
        fields = request.ext_fields
        names = _names_for(request)
        try:
            constants = (_V1_CONSTANTS if names is _V1_NAMES else _V2_CONSTANTS)(fields)
            origin = self._origins_of_fields.get(constants)
            if origin is not None and names["l"] not in fields:
                return _new_tuple(
                    SendHeader,
                    (origin, int(fields[names["e"]]), int(fields[names["g"]]), fields[names["i"]].encode()),
                )
        except (KeyError, ValueError):
            return _from_fields(fields, names)  # fields that may be missing, and what is wrong with the others
        header = _from_fields(fields, names)
        if header.origin.max_reconsume_times is None and sum(map(len, constants)) <= _ORIGIN_CHARACTERS_MAX:
            if len(self._origins_of_fields) >= _ORIGINS_MAX:
                self._origins_of_fields.clear()
            self._origins_of_fields[constants] = header.origin
        return header

    def _remember(
        self, request: RemotingCommand, raw: bytes, layout: FieldLayout
    ) -> tuple[SendOrigin, int, int, int] | None:
        names = _names_for(request)
        header = _from_fields(request.ext_fields, names)
        # Java's client signs what it has put among the other fields, and writes the header's own in front of them again: of a name
        # that stands there twice the last counts, as in the signature.
        places = {name: 2 * place + 1 for place, name in enumerate(layout.varying_names)}
        try:
            queue_id, born_timestamp_ms, properties = (places[names[letter]] for letter in _VARYING)
        except KeyError:
            return None  # a message without properties: rare enough for the plain way
        known = (header.origin, queue_id, born_timestamp_ms, properties)
        if len(raw) <= MAX_KEPT_BYTES:  # a larger area gets another layout each time
            if len(self._origins) >= _ORIGINS_MAX:
                self._origins.clear()
            self._origins[layout] = known
        return known


def _names_for(request: RemotingCommand) -> dict[str, str]:
    # SEND_BATCH_MESSAGE and SEND_MESSAGE_V2 come with one-letter names, SEND_MESSAGE with long ones.
    return _V1_NAMES if request.code == RequestCode.SEND_MESSAGE else _V2_NAMES


def _from_fields(fields: dict[str, str], names: dict[str, str]) -> SendHeader:
    get = fields.get
    try:
        origin = SendOrigin(
            fields[names["a"]],
            intern(fields[names["b"]]),  # one object for all sends to a topic: the store compares it by identity
            get(names["c"]) or "",
            int(get(names["d"]) or 0),
            int(get(names["f"]) or 0),
            int(get(names["h"]) or 0),
            int(get(names["j"]) or 0),
            int(fields[names["l"]]) if get(names["l"]) else None,
            get(names["m"]) == "true",
        )
        properties = (get(names["i"]) or "").encode("utf-8", "surrogatepass")
        return SendHeader(origin, int(fields[names["e"]]), int(get(names["g"]) or 0), properties)
    except (KeyError, ValueError) as error:
        raise RemoteProtocolError(_what_is_wrong(fields, names)) from error


def _what_is_wrong(fields: dict[str, str], names: dict[str, str]) -> str:
    for letter in "abe":
        if names[letter] not in fields:
            return f"the send header lacks {names[letter]} ({_V1_NAMES[letter]})"
    for letter in "defghjl":
        value = fields.get(names[letter])
        try:
            int(value or 0)
        except ValueError:
            return f"{_V1_NAMES[letter]} of the send header is not a number: {(value or '')[:50]!r}"
    return "the send header cannot be read"
