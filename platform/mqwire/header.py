"""CustomHeader: the typed form of a command's extension fields.

On the wire every field is text. A header class names its fields in snake_case; the wire's name is the camelCase of it,
or stands in `msgspec.field(name=...)` where RocketMQ's own name is not regular (`clientID`).

Which fields are required follows RocketMQ's classes: CFNotNull without an initial value is required here, everything
else has a default. Fields that a class doesn't know are ignored, as Java does: peers of other versions may send more.

Source: CommandCustomHeader, RemotingCommand.decodeCommandCustomHeader, RpcRequestHeader, TopicRequestHeader.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

from mqwire.errors import RemoteProtocolError
from mqwire.first_decode import convert

# Java's Integer and Long: a number outside of them is refused here rather than wrapped around somewhere later.
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

HeaderT = TypeVar("HeaderT", bound="CustomHeader")

_wire_names: dict[type[CustomHeader], tuple[tuple[str, str], ...]] = {}


class CustomHeader(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of all headers: immutable, compared by value."""

    def to_ext_fields(self) -> dict[str, str]:
        """The fields by their wire names, as text; None is left out."""
        header_type = type(self)
        names = _wire_names.get(header_type)
        if names is None:
            names = tuple(zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True))
            _wire_names[header_type] = names
        fields: dict[str, str] = {}
        for attribute, wire_name in names:
            value: Any = getattr(self, attribute)
            if value is None:
                continue
            if value is True:
                fields[wire_name] = "true"
            elif value is False:
                fields[wire_name] = "false"
            else:
                fields[wire_name] = str(value)
        return fields

    @classmethod
    def from_ext_fields(cls: type[HeaderT], ext_fields: dict[str, str]) -> HeaderT:
        """A header from what arrived. Raises RemoteProtocolError that names the missing or unreadable field."""
        try:
            header: HeaderT = convert(ext_fields, cls)
            return header
        except msgspec.ValidationError as error:
            raise RemoteProtocolError(f"{cls.__name__}: {error}") from error


class RpcRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """What any request to a broker may carry beside its own fields.

    `ns` is a client's namespace and `nsd` whether names already carry it; `bname` is the broker's name that the client
    believes to talk to; `oway` marks a request that wants no answer.
    """

    ns: str | None = None
    nsd: bool | None = None
    bname: str | None = None
    oway: bool | None = None


class TopicRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """A request about one topic; `lo` says that the queue is a static topic's logical one."""

    lo: bool | None = None
