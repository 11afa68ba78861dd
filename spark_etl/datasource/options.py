"""The data source's options, checked. Pure.

Spark hands options over as texts, with names in any case.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

from spark_etl.errors import OptionError
from spark_etl.transforms.time import to_ms

EARLIEST: Final = "earliest"
LATEST: Final = "latest"


@dataclass(frozen=True, slots=True)
class Position:
    """Where to begin or to end in each queue: at its first or its next offset, at a time, or at offsets by queue.

    `offsets` maps "broker:queue" to an offset.
    """

    kind: Literal["earliest", "latest", "time", "offsets"]
    timestamp_ms: int = 0
    offsets: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Options:
    """What to read, from where. See OPTIONS for each one's meaning."""

    namesrv: str
    topic: str
    access_key: str
    secret_key: str = field(repr=False)
    use_tls: bool
    tls_ca: str
    starting: Position
    ending: Position
    max_messages_per_trigger: int | None
    max_messages_per_partition: int | None
    overlap_messages: int
    fail_on_data_loss: bool
    group: str | None
    request_timeout_ms: int
    retry_timeout_ms: int


# name -> (default, what it is). "" is: not given.
OPTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "namesrv": ("", "name servers, host:port;host:port (required)"),
    "topic": ("", "the topic (required)"),
    "accessKey": ("", "credentials, where the cluster has access control"),
    "secretKey": ("", "their secret"),
    "useTls": ("false", "true or false; tlsCa alone means true"),
    "tlsCa": (
        "",
        "the authority that signed the cluster's certificates: its PEM text, or a file that every executor has",
    ),
    "startingOffsets": (
        EARLIEST,
        'earliest, latest, or JSON {"broker-a:0": 17}; queues not named begin at their first',
    ),
    "startingTimestamp": ("", "begin at the first message stored then or later: 2026-11-21T13:00:00Z or epoch ms"),
    "endingOffsets": (LATEST, "as startingOffsets; batch only, the offset itself is not read"),
    "endingTimestamp": ("", "end before the first message stored then or later; batch only"),
    "maxMessagesPerTrigger": ("", "at most so many messages in a micro-batch"),
    "maxMessagesPerPartition": ("", "split a queue's range into partitions of so many messages"),
    "overlapMessages": (
        "0",
        "read so many messages before the checkpoint again, per queue: for readers that deduplicate",
    ),
    "failOnDataLoss": (
        "true",
        "fail when messages were deleted or lost before they were read; false goes on after them",
    ),
    "group": ("", "the group in whose name to pull, where access control asks for one"),
    "requestTimeoutMs": ("3000", "for one request"),
    "retryTimeoutMs": ("60000", "how long a broker may be away (restart, failover) before reading fails"),
}
_BY_LOWER: Final = {name.lower(): name for name in OPTIONS}
# Spark's own, that it passes on to every source.
_IGNORED: Final = frozenset({"path"})


def parse_options(given: Mapping[str, str], *, streaming: bool) -> Options:
    """The options; raises OptionError that names the option, and the way out."""
    values = {name: default for name, (default, _) in OPTIONS.items()}
    for key, value in given.items():
        name = _BY_LOWER.get(key.lower())
        if name is None:
            if key.lower() in _IGNORED:
                continue
            raise _unknown(key)
        values[name] = value.strip()
    for name in ("namesrv", "topic"):
        if not values[name]:
            raise OptionError(f"Option {name} is missing.", f'add .option("{name}", ...): {OPTIONS[name][1]}.')
    if bool(values["accessKey"]) != bool(values["secretKey"]):
        missing = "secretKey" if values["accessKey"] else "accessKey"
        raise OptionError(f"Option {missing} is missing: only half of the credentials is given.", f"add {missing}.")
    if values["tlsCa"] and any(key.lower() == "usetls" for key in given) and not _boolean("useTls", values):
        raise OptionError("Option tlsCa is given, and useTls is false.", "leave one of them out.")
    if streaming and (values["endingTimestamp"] or values["endingOffsets"] != LATEST):
        raise OptionError("A stream has no end.", "leave endingOffsets and endingTimestamp out, or use spark.read.")
    return Options(
        namesrv=values["namesrv"],
        topic=values["topic"],
        access_key=values["accessKey"],
        secret_key=values["secretKey"],
        use_tls=_boolean("useTls", values) or bool(values["tlsCa"]),
        tls_ca=values["tlsCa"],
        starting=_position("starting", values, given),
        ending=_position("ending", values, given),
        max_messages_per_trigger=_optional_count("maxMessagesPerTrigger", values),
        max_messages_per_partition=_optional_count("maxMessagesPerPartition", values),
        overlap_messages=_integer("overlapMessages", values, minimum=0),
        fail_on_data_loss=_boolean("failOnDataLoss", values),
        group=values["group"] or None,
        request_timeout_ms=_integer("requestTimeoutMs", values, minimum=1),
        retry_timeout_ms=_integer("retryTimeoutMs", values, minimum=0),
    )


def _unknown(key: str) -> OptionError:
    near = difflib.get_close_matches(key.lower(), _BY_LOWER, n=1)
    guess = f"did you mean {_BY_LOWER[near[0]]}? " if near else ""
    return OptionError(f"There is no option {key!r}.", f"{guess}The options are {', '.join(OPTIONS)}.")


def _boolean(name: str, values: Mapping[str, str]) -> bool:
    text = values[name].lower()
    if text not in ("true", "false"):
        raise OptionError(f"Option {name} is {values[name]!r}.", "it must be true or false.")
    return text == "true"


def _integer(name: str, values: Mapping[str, str], *, minimum: int) -> int:
    text = values[name]
    if not (text.isascii() and text.isdigit()) or int(text) < minimum or int(text) >= 2**63:
        raise OptionError(f"Option {name} is {text!r}.", f"it must be a whole number of at least {minimum}.")
    return int(text)


def _optional_count(name: str, values: Mapping[str, str]) -> int | None:
    return _integer(name, values, minimum=1) if values[name] else None


def _position(side: Literal["starting", "ending"], values: Mapping[str, str], given: Mapping[str, str]) -> Position:
    offsets_name, time_name = f"{side}Offsets", f"{side}Timestamp"
    offsets, time = values[offsets_name], values[time_name]
    if time:
        if any(key.lower() == offsets_name.lower() for key in given):
            raise OptionError(f"Both {offsets_name} and {time_name} are given.", "leave one of them out.")
        return Position("time", timestamp_ms=_timestamp_ms(time_name, time))
    if offsets.lower() == EARLIEST:
        return Position("earliest")
    if offsets.lower() == LATEST:
        return Position("latest")
    return Position("offsets", offsets=_offsets(offsets_name, offsets))


def _timestamp_ms(name: str, text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 15:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise OptionError(
            f"Option {name} is {text!r}.", "write it as 2026-11-21T13:00:00Z, with its zone, or in epoch milliseconds."
        )
    return to_ms(moment)


def _offsets(name: str, text: str) -> dict[str, int]:
    try:
        offsets = json.loads(text)
    except ValueError:
        offsets = None
    good = isinstance(offsets, dict) and all(
        isinstance(offset, int) and not isinstance(offset, bool) and offset >= 0 and ":" in queue
        for queue, offset in offsets.items()
    )
    if not good:
        raise OptionError(
            f"Option {name} is {text[:200]!r}.",
            'it must be earliest, latest, or JSON like {"broker-a:0": 17, "broker-a:1": 4}.',
        )
    return dict(offsets)
