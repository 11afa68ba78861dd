"""Whose fault a protocol error is."""


class ProtocolError(Exception):
    """Either side broke the remoting protocol. Raised only as one of the two below."""


class LocalProtocolError(ProtocolError):
    """Our own program asked for something that cannot be written on the wire: fix the caller."""


class RemoteProtocolError(ProtocolError):
    """The other end sent bytes that are not the protocol: answer nothing more on that connection and close it."""
