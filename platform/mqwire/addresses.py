"""Addresses of strangers, as they are counted."""

from __future__ import annotations

import socket
from typing import Final

_PREFIX_BYTES: Final = 8
_MAPPED: Final = "::ffff:"  # an IPv4 client on a dual-stack socket


def network_of(address: str) -> str:
    """Where a stranger with this IP address counts: at an IPv4 address itself, of an IPv6 one at its first 64 bits, all of whose
    addresses one machine may have.
    """
    if ":" not in address:
        return address
    if address.startswith(_MAPPED) and "." in address:
        return address[len(_MAPPED) :]
    packed = socket.inet_pton(socket.AF_INET6, address.partition("%")[0])
    return socket.inet_ntop(socket.AF_INET6, packed[:_PREFIX_BYTES] + bytes(_PREFIX_BYTES)) + "/64"
