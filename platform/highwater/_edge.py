"""Reading answers: mqwire's errors become the SDK's here, so that callers never see mqwire's."""

from __future__ import annotations

from typing import TypeVar

from highwater.errors import ProtocolError
from mqwire.bodies import Body
from mqwire.command import RemotingCommand
from mqwire.errors import RemoteProtocolError
from mqwire.header import CustomHeader
from mqwire.message import StoredMessage, decode_records

HeaderT = TypeVar("HeaderT", bound=CustomHeader)
BodyT = TypeVar("BodyT", bound=Body)


def read_header(response: RemotingCommand, header_type: type[HeaderT]) -> HeaderT:
    """The answer's header; raises ProtocolError that names the field."""
    try:
        return response.header(header_type)
    except RemoteProtocolError as error:
        raise ProtocolError(f"an answer cannot be read: {error}") from error


def read_body(response: RemotingCommand, body_type: type[BodyT]) -> BodyT:
    """The answer's JSON body; raises ProtocolError."""
    try:
        return body_type.from_json(response.body)
    except RemoteProtocolError as error:
        raise ProtocolError(f"an answer cannot be read: {error}") from error


def read_records(response: RemotingCommand) -> list[StoredMessage]:
    """The message records in the answer's body; raises ProtocolError when one is damaged."""
    try:
        return decode_records(response.body)
    except RemoteProtocolError as error:
        raise ProtocolError(f"a message record cannot be read: {error}") from error
