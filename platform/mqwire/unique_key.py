"""UNIQ_KEY: the id that a message gets before it leaves, laid out as RocketMQ's MessageClientIDSetter does.

    | IPv4 4 (IPv6 16) | process 2 | instance 4 | milliseconds since the month began 4 | counter 2 |   in hexadecimal

The time inside lets a query by id guess the day to search, so the layout matters beyond being unique.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from datetime import UTC, datetime, timedelta


class UniqueKeyGenerator:
    """Makes keys that differ within this process and, by address, process and instance, from everyone else's."""

    def __init__(self, ip: str) -> None:
        self._ip = _pack(ip)
        self._instance = secrets.token_bytes(4)
        self._counter = 0
        self._month_start_ms = 0
        self._next_month_start_ms = 0

    def next_key(self, now_ms: int | None = None) -> str:
        """A new key: 32 hexadecimal digits with IPv4, 56 with IPv6."""
        now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        if not self._month_start_ms <= now < self._next_month_start_ms:
            self._month_start_ms, self._next_month_start_ms = _month_around(now)
        self._counter = (self._counter + 1) & 0xFFFF
        # os.getpid() on each call: a forked child must not repeat its parent's keys.
        return (
            self._ip
            + (os.getpid() & 0xFFFF).to_bytes(2, "big")
            + self._instance
            + (now - self._month_start_ms).to_bytes(4, "big")
            + self._counter.to_bytes(2, "big")
        ).hex().upper()  # fmt: skip


def key_time_ms(key: str, now_ms: int | None = None) -> int:
    """About when a key was made, in milliseconds since 1970; right if that is less than a month ago.

    Raises ValueError for a text that isn't a key.
    """
    raw = bytes.fromhex(key)
    if len(raw) not in (16, 28):
        raise ValueError(f"{key!r} is not a UNIQ_KEY: it has neither 32 nor 56 hexadecimal digits")
    span_ms = int.from_bytes(raw[-6:-2], "big")
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    month_start, _next = _month_around(now)
    if month_start + span_ms > now:
        month_start, _next = _month_around(month_start - 1)
    return month_start + span_ms


def parse_client(key: str) -> str:
    """The address of the client that made a key. Raises ValueError for a text that isn't a key."""
    raw = bytes.fromhex(key)
    if len(raw) not in (16, 28):
        raise ValueError(f"{key!r} is not a UNIQ_KEY: it has neither 32 nor 56 hexadecimal digits")
    return socket.inet_ntop(socket.AF_INET if len(raw) == 16 else socket.AF_INET6, raw[:-12])


def _pack(ip: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6 if ":" in ip else socket.AF_INET, ip)


def _month_around(now_ms: int) -> tuple[int, int]:
    """The local month that holds `now_ms`, as (start, start of the next); local because RocketMQ's is."""
    local_zone = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone().tzinfo
    moment = datetime.fromtimestamp(now_ms / 1000, local_zone)
    start = moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    following = (start + timedelta(days=32)).replace(day=1)
    return int(start.timestamp() * 1000), int(following.timestamp() * 1000)
