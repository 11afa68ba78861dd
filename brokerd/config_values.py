"""How the values of broker.conf are read and written: one reader per kind of value, each naming what it allows.

A reader takes the text after `key=` and returns the value, or raises ValueError whose text ends the sentence
"allowed is ...".
"""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from brokerd.delay_levels import DelayLevels, parse_delay_levels

E = TypeVar("E", bound=Enum)


class BrokerRole(Enum):
    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class FlushDiskType(Enum):
    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


@dataclass(frozen=True, slots=True)
class InnerClientCredentials:
    """What the broker signs its own requests to name servers with. Its repr does not show the secret."""

    access_key: str
    secret_key: str = dataclasses.field(repr=False)


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key of broker.conf. `hot` keys may be changed at run time (UPDATE_BROKER_CONFIG)."""

    name: str
    read: Callable[[str], Any]
    write: Callable[[Any], str] = str
    hot: bool = False
    secret: bool = False
    aliases: tuple[str, ...] = ()


def _field(key: ConfigKey, default: Any) -> Any:
    return dataclasses.field(default=default, metadata={"key": key})


def text(
    name: str,
    default: str,
    *,
    pattern: str = r".*",
    allowed: str = "any text",
    hot: bool = False,
    secret: bool = False,
) -> str:
    def read(raw: str) -> str:
        if not re.fullmatch(pattern, raw):
            raise ValueError(allowed)
        return raw

    def write(value: str) -> str:
        return "(not shown)" if secret and value else value

    value: str = _field(ConfigKey(name, read, write, hot=hot, secret=secret), default)
    return value


def path(name: str, default: str) -> str:
    """A path; `~` is the home folder. Empty means "below storePathRootDir" where the caller says so."""

    def read(raw: str) -> str:
        if "\0" in raw or "," in raw:
            raise ValueError("one path, without a comma: several CommitLog folders are not supported")
        return os.path.abspath(os.path.expanduser(raw)) if raw else ""

    value: str = _field(ConfigKey(name, read), default)
    return value


def integer(
    name: str,
    default: int,
    *,
    at_least: int = 0,
    at_most: int = 2**31 - 1,
    hot: bool = False,
    aliases: tuple[str, ...] = (),
) -> int:
    def read(raw: str) -> int:
        # int() alone would also take "1_000", " 7 " and digits of other scripts.
        if re.fullmatch(r"[+-]?[0-9]{1,18}", raw) and at_least <= int(raw) <= at_most:
            return int(raw)
        raise ValueError(f"a whole number from {at_least} to {at_most}")

    value: int = _field(ConfigKey(name, read, hot=hot, aliases=aliases), default)
    return value


def boolean(name: str, default: bool, *, hot: bool = False) -> bool:
    def read(raw: str) -> bool:
        lowered = raw.lower()
        if lowered not in ("true", "false"):
            raise ValueError("true or false")
        return lowered == "true"

    value: bool = _field(ConfigKey(name, read, lambda value: "true" if value else "false", hot=hot), default)
    return value


def choice(name: str, default: E, *, hot: bool = False) -> E:
    kind = type(default)

    def read(raw: str) -> E:
        for member in kind:
            if member.value == raw.upper():
                return member
        raise ValueError(" or ".join(str(member.value) for member in kind))

    value: E = _field(ConfigKey(name, read, lambda value: str(value.value), hot=hot), default)
    return value


def hours(name: str, default: tuple[int, ...], *, hot: bool = False) -> tuple[int, ...]:
    """Hours of the day, as "04" or "04;16"."""

    def read(raw: str) -> tuple[int, ...]:
        found = tuple(int(part) for part in raw.split(";") if re.fullmatch(r"[0-9]{1,2}", part.strip()))
        if not found or len(found) != len(raw.split(";")) or max(found) > 23:
            raise ValueError('hours from 00 to 23 with ; between them, as in "04" or "04;16"')
        return found

    def write(value: tuple[int, ...]) -> str:
        return ";".join(f"{hour:02d}" for hour in value)

    value: tuple[int, ...] = _field(ConfigKey(name, read, write, hot=hot), default)
    return value


def ip_address(name: str, default: str) -> str:
    def read(raw: str) -> str:
        try:
            return str(ipaddress.ip_address(raw)) if raw else ""
        except ValueError:
            raise ValueError("an IPv4 or IPv6 address") from None

    value: str = _field(ConfigKey(name, read), default)
    return value


def addresses(name: str) -> tuple[str, ...]:
    """host:port with ; between them; IPv6 addresses stand in brackets."""

    def read(raw: str) -> tuple[str, ...]:
        found = tuple(part.strip() for part in raw.split(";") if part.strip())
        for address in found:
            matched = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+):([0-9]{1,5})", address)
            if matched is None or not 0 < int(matched[2]) < 65536:
                raise ValueError('host:port with ; between them, as in "127.0.0.1:9876;10.0.0.2:9876"')
        return found

    value: tuple[str, ...] = _field(ConfigKey(name, read, ";".join), ())
    return value


def delay_levels(name: str, default: str) -> DelayLevels:
    def write(levels: DelayLevels) -> str:
        return " ".join(_shortest_step(delay_ms) for delay_ms in levels.delays_ms)

    value: DelayLevels = _field(ConfigKey(name, parse_delay_levels, write), parse_delay_levels(default))
    return value


def _shortest_step(delay_ms: int) -> str:
    for unit, unit_ms in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000)):
        if delay_ms and delay_ms % unit_ms == 0:
            return f"{delay_ms // unit_ms}{unit}"
    return f"{delay_ms // 1000}s"


def credentials(name: str) -> InnerClientCredentials | None:
    """RocketMQ 5's JSON: {"accessKey":"..","secretKey":".."}."""
    allowed = 'JSON of this form: {"accessKey":"..","secretKey":".."}'

    def read(raw: str) -> InnerClientCredentials | None:
        if not raw:
            return None
        try:
            decoded = json.loads(raw)
        except ValueError as error:
            raise ValueError(allowed) from error
        if not isinstance(decoded, dict):
            raise ValueError(allowed)
        access_key, secret_key = decoded.get("accessKey"), decoded.get("secretKey")
        if not isinstance(access_key, str) or not isinstance(secret_key, str) or not access_key or not secret_key:
            raise ValueError(allowed)
        return InnerClientCredentials(access_key, secret_key)

    key = ConfigKey(name, read, lambda value: "" if value is None else "(not shown)", secret=True)
    value: InnerClientCredentials | None = _field(key, None)
    return value
