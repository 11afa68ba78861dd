"""Bytes in, commands out: the receiving half of one connection, without a socket.

Strategy: keep what has arrived in one buffer and cut every complete frame out of it per call, so that a reader works
in bulk; or so many of them as it serves in a turn, for commands take many times the memory of their bytes. Lengths are
validated before anything is allocated for them, and a frame that grows byte by byte costs linear time.
"""

from __future__ import annotations

import struct
import sys
from enum import Enum
from typing import Final

from mqwire.command import BINARY_HEADER_MIN_BYTES, RemotingCommand, binary_command, decode_header
from mqwire.errors import RemoteProtocolError

# NettyDecoder's own limit; a daemon sets its smaller ones.
DEFAULT_MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
DEFAULT_MAX_HEADER_BYTES: Final = 1024 * 1024


_FRAME_START: Final = struct.Struct(">IIhBhiiII")
_FRAME_START_BYTES: Final = _FRAME_START.size


class _NeedData(Enum):
    NEED_DATA = "NEED_DATA"


NEED_DATA: Final = _NeedData.NEED_DATA


class Connection:
    """The frames of one connection.

    `max_frame_bytes` bounds everything after the four length bytes, `max_header_bytes` the header alone; both may be
    changed at any time (a daemon raises them once a peer has shown who it is). After a RemoteProtocolError the
    connection stays broken and says so again.
    """

    __slots__ = (
        "_at",
        "_broken",
        "_buffer",
        "_data",
        "_ends",
        "_next_commands",
        "_next_frame_end",
        "_saw_all",
        "max_frame_bytes",
        "max_header_bytes",
    )

    def __init__(
        self, *, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES, max_header_bytes: int = DEFAULT_MAX_HEADER_BYTES
    ) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.max_header_bytes = max_header_bytes
        # What is being cut, from `_at` on, and where in it the commands end that were looked at; the buffer is what came later.
        self._data = b""
        self._at = 0
        self._ends: list[int] = []
        self._saw_all = True  # the last look: no more commands are in the data
        self._buffer = bytearray()
        self._next_frame_end = 4  # nothing is worth looking at before this many bytes are here
        self._next_commands: list[RemotingCommand] = []
        # Only what is wrong: an exception would hold all frames and their data, in a circle with this, after the end.
        self._broken: str | None = None

    @property
    def buffered_bytes(self) -> int:
        """How much is held: of an unfinished frame, and of commands that were not taken yet."""
        return len(self._data) - self._at + len(self._buffer)

    @property
    def has_more(self) -> bool:
        """Whether the last look, or what was not taken of it, left something to find, a malformed frame included."""
        return bool(self._data)

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Take what the socket gave; costs nothing but the copy."""
        self._buffer += data

    def commands(self) -> list[RemotingCommand]:
        """Every command that is complete by now, in order.

        Raises RemoteProtocolError at the first malformed frame; the commands in front of it are handed out first, and
        the error comes with the next call.
        """
        if self._next_commands:
            ready, self._next_commands = self._next_commands, []
            return ready
        found = self.look(sys.maxsize)
        self.take(len(found))
        return found

    def look(self, most: int) -> list[RemotingCommand]:
        """As `commands`, but at most so many, which come again with the next call until they are taken."""
        if self._broken is not None:
            raise RemoteProtocolError(self._broken)
        while True:
            if not self._data:
                if len(self._buffer) < self._next_frame_end:
                    return []
                self._data, self._buffer = bytes(self._buffer), bytearray()
            found: list[RemotingCommand] = []
            self._ends = []
            try:
                self._decode_frames(self._data, self._at, most, found, self._ends)
            except RemoteProtocolError as error:
                self._saw_all = False
                if found:
                    return found
                self._broken = str(error)
                self._data, self._at, self._buffer = b"", 0, bytearray()
                raise
            self._saw_all = len(found) < most
            if found:
                return found
            self._keep_the_rest()

    def take(self, count: int) -> None:
        """The first `count` commands of the last look are done with."""
        if count:
            self._at = self._ends[count - 1]
            del self._ends[:count]
        if not self._ends and (self._saw_all or self._at == len(self._data)):
            self._keep_the_rest()

    def _keep_the_rest(self) -> None:
        """Wait for more of the frame that begins here."""
        self._buffer[:0] = self._data[self._at :]
        self._data, self._at = b"", 0

    def _decode_frames(
        self, data: bytes, position: int, most: int, found: list[RemotingCommand], ends: list[int]
    ) -> None:
        available = len(data)
        append, end_at = found.append, ends.append
        unpack_from = _FRAME_START.unpack_from
        max_frame_bytes = self.max_frame_bytes
        max_header_bytes = self.max_header_bytes
        while available - position >= _FRAME_START_BYTES:
            # Most frames have a binary header without a remark: one call takes their whole fixed part apart. For any
            # other, all but the first two numbers mean nothing.
            (frame_length, mark, code, language, version, opaque, flag, remark_length, fields_length) = unpack_from(
                data, position
            )
            header_length = mark & 0xFFFFFF
            if frame_length > max_frame_bytes or header_length > max_header_bytes or header_length > frame_length - 4:
                break  # the careful way below says what is wrong
            frame_end = position + 4 + frame_length
            if frame_end > available:
                self._next_frame_end = frame_end - position
                return
            header_end = position + 8 + header_length
            if mark >> 24 == 1 and remark_length == 0 and header_length == BINARY_HEADER_MIN_BYTES + fields_length:
                fields = data[position + _FRAME_START_BYTES : header_end]
                body = data[header_end:frame_end]
                append(binary_command(code, language, version, opaque, flag, None, fields, body))
            else:
                append(decode_header(data[position + 8 : header_end], mark >> 24, data[header_end:frame_end]))
            end_at(frame_end)
            position = frame_end
            if len(ends) >= most:
                return
        self._decode_short_frames(data, position, most, found, ends)

    def _decode_short_frames(
        self, data: bytes, position: int, most: int, found: list[RemotingCommand], ends: list[int]
    ) -> None:
        """The rest: an unfinished frame, tiny frames, or a length that is a lie."""
        available = len(data)
        while available - position >= 4 and len(ends) < most:
            frame_length = int.from_bytes(data[position : position + 4], "big")
            if frame_length > self.max_frame_bytes or frame_length < 4:
                raise RemoteProtocolError(
                    f"a frame claims {frame_length} bytes; between 4 and {self.max_frame_bytes} are allowed"
                )
            if available - position < 8:
                self._next_frame_end = 8
                return
            mark = int.from_bytes(data[position + 4 : position + 8], "big")
            header_length = mark & 0xFFFFFF
            if header_length > frame_length - 4 or header_length > self.max_header_bytes:
                raise RemoteProtocolError(
                    f"a header claims {header_length} bytes of a frame of {frame_length};"
                    f" at most {self.max_header_bytes} are allowed"
                )
            frame_end = position + 4 + frame_length
            if frame_end > available:
                self._next_frame_end = frame_end - position
                return
            header_end = position + 8 + header_length
            found.append(decode_header(data[position + 8 : header_end], mark >> 24, data[header_end:frame_end]))
            ends.append(frame_end)
            position = frame_end
        self._next_frame_end = 4

    def next_event(self) -> RemotingCommand | _NeedData:
        """The next command, or NEED_DATA; the one-at-a-time twin of `commands`."""
        if not self._next_commands:
            self._next_commands = self.commands()
            if not self._next_commands:
                return NEED_DATA
        return self._next_commands.pop(0)
