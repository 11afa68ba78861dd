"""RocketMQ's remoting protocol, sans-io: bytes in, commands out, and back.

    connection = Connection()
    connection.receive_data(data)                      # whatever the socket gave
    for command in connection.commands():              # or next_event(), one at a time
        header = command.header(PullMessageRequestHeader)
        socket.send(command.reply(body=...).encode())

Headers stand in `headers_<family>`, JSON bodies in `bodies`, message records in `message`. README.md says more.
"""

from mqwire.codes import LanguageCode, RequestCode, ResponseCode, SerializeType
from mqwire.command import RemotingCommand
from mqwire.connection import NEED_DATA, Connection
from mqwire.errors import LocalProtocolError, ProtocolError, RemoteProtocolError

__all__ = [
    "NEED_DATA",
    "Connection",
    "LanguageCode",
    "LocalProtocolError",
    "ProtocolError",
    "RemoteProtocolError",
    "RemotingCommand",
    "RequestCode",
    "ResponseCode",
    "SerializeType",
]
