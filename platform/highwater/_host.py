"""Which host this is."""

from __future__ import annotations

import socket


def local_address() -> str:
    """This host's address as its peers see it; 127.0.0.1 when the host has no route anywhere. Sends nothing."""
    for family, probe in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe_socket:
                probe_socket.connect((probe, 9))
                return str(probe_socket.getsockname()[0])
        except OSError:
            continue  # no route in this family
    return "127.0.0.1"
