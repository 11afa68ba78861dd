"""Every setting that comes from the environment: its type, default and meaning. `docs/settings.md` is printed from here by

    ./dev manage settings_table

A value is checked when a process starts: what can't be read, or is out of bounds, stops it with a sentence that names the
variable. Each may come from a file instead, named by the variable with `_FILE` appended (SECRET_KEY_FILE=/run/secrets/secret_key).
"""

import difflib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_network
from typing import Any
from urllib.parse import urlsplit

import environ
from django.core.checks import CheckMessage, Warning
from django.core.exceptions import ImproperlyConfigured

env = environ.FileAwareEnv()

_PREFIX = "HIGHWATER_"
# Read elsewhere: by ./dev, the tests, the SDK and the Spark jobs.
_OF_OTHERS = re.compile(
    r"HIGHWATER_(ACCESS_KEY|SECRET_KEY|NAMESRV\w*|ENDPOINT|TLS\w*|TOKEN|CLI|CONFIGURATION|STACK|OPERATOR_PASSWORD|JARS"
    r"|TEST_\w+|API_\w+|INTEROP_\w+|SCREENSHOTS)"
)


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable. `default` as it would be written in the environment, None where it must be given; `read` raises ValueError."""

    name: str
    kind: str
    default: str | None
    meaning: str
    read: Callable[[str], Any]


def _text(text: str) -> str:
    return text


def _whole(least: int, most: int | None = None) -> Callable[[str], int]:
    def read(text: str) -> int:
        return int(_bounded(int(text), least, most))

    return read


def _number(least: float) -> Callable[[str], float]:
    return lambda text: _bounded(float(text), least, None)


def _bounded(value: float, least: float, most: float | None) -> float:
    if not value >= least:  # nor is what is not a number
        raise ValueError(f"at least {least} is allowed")
    if most is not None and value > most:
        raise ValueError(f"at most {most} is allowed")
    return value


def _choice(*values: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in values:
            raise ValueError(f"allowed is {', '.join(values)}")
        return text

    return read


def _yes_or_no(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0", "yes", "no", "on", "off"):
        raise ValueError("allowed is true or false")
    return text.lower() in ("true", "1", "yes", "on")


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _networks(text: str) -> list[str]:
    return [str(ip_network(part, strict=False)) for part in _list(text)]


def _ipv4_address(text: str) -> str:
    try:
        return str(IPv4Address(text))
    except ValueError:
        raise ValueError("it is an IPv4 address, as 203.0.113.7: daemons bind to it") from None


def _web_address(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
        raise ValueError("it is the address of the console, as https://mq.example.com")
    return text.rstrip("/")


def _ports(text: str) -> str:
    found = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text)
    if found is None or not 1024 <= int(found[1]) < int(found[2]) <= 65535:
        raise ValueError("it is two ports, 1024 or above, as 20000-29999")
    return text


def _long_secret(text: str) -> str:
    if len(text) < 50:
        raise ValueError("it has at least 50 characters; `openssl rand -base64 48` prints such a key")
    return text


def _intervals(text: str) -> dict[str, int]:
    parts = [part.split("=", 1) for part in text.split(";") if part]
    if any(len(part) != 2 for part in parts):
        raise ValueError("it is job=seconds;job=seconds, or empty")
    return {name.strip(): int(seconds) for name, seconds in parts}


def _json_or_path(text: str) -> str:
    if text.lstrip().startswith("{"):
        json.loads(text)
    return text


_JOBS_INTERVALS = "ingest=300;usage_billing=300;lag_analytics=300;billing_check=86400;compaction=21600"

SETTINGS: dict[str, Setting] = {
    one.name: one
    for one in (
        Setting(
            "SECRET_KEY", "text", None, "Signs sessions and encrypts the clusters' secrets. Keep it.", _long_secret
        ),
        Setting("SECRET_KEY_FALLBACKS", "list", "", "Former keys, while they are replaced.", _list),
        Setting("ALLOWED_HOSTS", "list", None, "The console's host names. Only in production.", _list),
        Setting("DATABASE_URL", "URL", "postgres://127.0.0.1:5432/highwater", "PostgreSQL 15 or newer.", _text),
        Setting("REDIS_URL", "URL", "redis://127.0.0.1:6379/0", "The queue of operations, and the cache.", _text),
        Setting("EMAIL_URL", "URL", "smtp://127.0.0.1:25", "The mail server. Only in production.", _text),
        Setting("DEFAULT_FROM_EMAIL", "text", "highwater@localhost", "Who mails come from. Only in production.", _text),
        Setting(
            "HIGHWATER_PUBLIC_URL", "URL", "http://127.0.0.1:8000", "Where people reach the console.", _web_address
        ),
        Setting(
            "HIGHWATER_SSL_REDIRECT", "true, false", "true", "Send plain HTTP to HTTPS. Only in production.", _yes_or_no
        ),
        Setting(
            "HIGHWATER_PROXY_SSL_HEADER",
            "true, false",
            "false",
            "Believe X-Forwarded-Proto: only behind a proxy that overwrites it.",
            _yes_or_no,
        ),
        Setting(
            "HIGHWATER_TRUSTED_PROXIES",
            "number",
            "0",
            "So many proxies add to X-Forwarded-For: for clients' addresses in limits and in the audit trail.",
            _whole(0, 10),
        ),
        Setting(
            "HIGHWATER_SIGN_UP",
            "open, identity, closed",
            "open",
            "Who may make an account: everyone, by an identity provider only, or no one.",
            _choice("open", "identity", "closed"),
        ),
        Setting(
            "HIGHWATER_IDENTITY_PROVIDERS",
            "JSON or path",
            "",
            "OpenID Connect providers to log in with (docs/operations.md).",
            _text,
        ),
        Setting(
            "HIGHWATER_SESSION_IDLE_MINUTES", "minutes", "60", "A session ends after so long without use.", _whole(1)
        ),
        Setting("HIGHWATER_SESSION_HOURS", "hours", "12", "A session ends at this age.", _whole(1)),
        Setting(
            "HIGHWATER_REMEMBERED_IDLE_DAYS",
            "days",
            "14",
            "As HIGHWATER_SESSION_IDLE_MINUTES, where its user chose to stay logged in.",
            _whole(1),
        ),
        Setting("HIGHWATER_REMEMBERED_DAYS", "days", "30", "As HIGHWATER_SESSION_HOURS, for those.", _whole(1)),
        Setting("HIGHWATER_TENANTS_PER_USER", "number", "5", "So many tenants one person may make.", _whole(0)),
        Setting(
            "HIGHWATER_STATE_DIR",
            "path",
            ".local",
            "Clusters' data, the supervisor, the lake. Below the checkout.",
            _text,
        ),
        Setting(
            "HIGHWATER_SUPERVISOR_SOCKET",
            "path",
            "",
            "Where supervisord listens; empty: supervisor/supervisor.sock of the state directory.",
            _text,
        ),
        Setting(
            "HIGHWATER_ADVERTISED_HOST",
            "IPv4 address",
            "127.0.0.1",
            "An address of this host: name servers and brokers bind to it, and tenants' programs connect to it.",
            _ipv4_address,
        ),
        Setting("HIGHWATER_PORT_RANGE", "ports", "20000-29999", "Ports of name servers and brokers.", _ports),
        Setting(
            "HIGHWATER_DAEMON_USERS",
            "number",
            "600000",
            "As root, a cluster's daemons run as the user of this number and a port of theirs; 0: as the platform.",
            _whole(0, 2**31),
        ),
        Setting(
            "HIGHWATER_DAEMON_MEMORY_MIB",
            "number",
            "2048",
            "What each daemon may take, where control groups can be made; 0: no limit.",
            _whole(0),
        ),
        Setting(
            "HIGHWATER_DAEMON_IO_MIB_PER_S",
            "number",
            "256",
            "What each daemon may read from its disk, and write to it, in a second, where control groups can be made; 0: no limit.",
            _whole(0),
        ),
        Setting(
            "HIGHWATER_DELETE_UNDO_HOURS",
            "hours",
            "24",
            "So long a deleted cluster is kept, stopped, and can be restored; 0: it is removed at once.",
            _number(0),
        ),
        Setting(
            "HIGHWATER_MEMORY_OVERCOMMIT",
            "number",
            "16",
            "How many times the hosts' memory may be promised to daemons, each by HIGHWATER_DAEMON_MEMORY_MIB, before clusters"
            " are refused; 0: as often as wanted.",
            _number(0),
        ),
        Setting(
            "HIGHWATER_DISK_OVERCOMMIT",
            "number",
            "16",
            "How many times the hosts' disks may be promised to brokers, each by its tenant's stored_bytes and three eighths"
            " more, for records of its tables and for ConsumeQueues, before clusters are refused. With 1 no cluster fills the"
            " disk of another; 0: as often as wanted.",
            _number(0),
        ),
        Setting(
            "HIGHWATER_WEB_THREADS",
            "number",
            "4",
            "Requests that one web process answers at once. ./dev up: always 4.",
            _whole(1, 256),
        ),
        Setting(
            "HIGHWATER_STEP_LEASE_S",
            "seconds",
            "8",
            "A worker that is silent for so long has its step taken over.",
            _number(1),
        ),
        Setting(
            "HIGHWATER_METERING_INTERVAL_MS",
            "milliseconds",
            "60000",
            "How often brokers record usage; counts when a broker next starts. ./dev up: 30000.",
            _whole(0),
        ),
        Setting(
            "HIGHWATER_LOG_LEVEL",
            "level",
            "INFO",
            "Of the control plane.",
            _choice("DEBUG", "INFO", "WARNING", "ERROR"),
        ),
        Setting(
            "HIGHWATER_WEBHOOK_NETWORKS",
            "list of networks",
            "",
            "Beside the public internet, where tenants may have alerts sent, by plain http, too.",
            _networks,
        ),
        Setting(
            "HIGHWATER_JOBS",
            "on, off, auto",
            "auto",
            "Spark's jobs; auto: as soon as PySpark and Java are there.",
            _choice("on", "off", "auto"),
        ),
        Setting("HIGHWATER_SPARK_MASTER", "text", "local[*,4]", "Spark's master. ./dev up: local[2,4].", _text),
        Setting("HIGHWATER_SPARK_CONF", "JSON or path", "", "More of Spark's settings.", _json_or_path),
        Setting("HIGHWATER_LAKE", "path or URL", "", "The lake's tables; empty: lake of the state directory.", _text),
        Setting("HIGHWATER_CHECKPOINTS", "path", "", "Of the jobs; empty: checkpoints of the state directory.", _text),
        Setting("HIGHWATER_LAKE_NAMESPACE", "text", "highwater", "Of the lake's tables in their catalog.", _text),
        Setting(
            "HIGHWATER_LAKE_DAYS",
            "days",
            "400",
            "Metering records stay so long; a backfill reaches no further.",
            _whole(1),
        ),
        Setting("HIGHWATER_QUARANTINE_DAYS", "days", "90", "Records that no job could read stay so long.", _whole(1)),
        Setting(
            "HIGHWATER_LAKE_SNAPSHOT_HOURS",
            "hours",
            "48",
            "Versions of tables that no invoice refers to stay so long.",
            _whole(1),
        ),
        Setting("HIGHWATER_LAKE_ORPHAN_HOURS", "hours", "72", "Files that killed jobs left stay so long.", _whole(1)),
        Setting("HIGHWATER_JOB_TIMEOUT_S", "seconds", "1800", "A job that runs longer is ended.", _whole(1)),
        Setting("HIGHWATER_JOB_TIMEOUT_PER_DAY_S", "seconds", "180", "More for each day of a backfill.", _whole(0)),
        Setting(
            "HIGHWATER_JOB_RESIDENT_IDLE_S",
            "seconds",
            "1800",
            "Spark's session ends after so long without a job; 0: a process for each.",
            _number(0),
        ),
        Setting(
            "HIGHWATER_JOB_INTERVALS_S",
            "job=seconds;…",
            _JOBS_INTERVALS,
            "How often jobs run; without one, by hand only.",
            _intervals,
        ),
        Setting("HIGHWATER_JOB_RUN_HISTORY_DAYS", "days", "90", "The list of runs reaches so far back.", _whole(1)),
    )
}


def value(name: str, default: str | None = None, *, required: bool = False) -> Any:
    """Return a setting's value from the environment, its `_FILE`, or its default (`default` where a layer has another, none
    where it is `required`).

    Raises ImproperlyConfigured for a missing one, and for a value that can't be read.
    """
    setting = SETTINGS[name]
    fallback = setting.default if default is None else default
    text = env.str(name, default=None if required else fallback)
    if text is None:
        raise ImproperlyConfigured(f"{name} is not set: {setting.meaning}")
    try:
        return setting.read(text.strip())  # a file's last line ends, too
    except ValueError as error:
        shown = "its value" if "SECRET" in name else repr(text)
        raise ImproperlyConfigured(f"{name}: {shown} can't be used: {error}. {setting.meaning}") from error


def strangers(environment: Mapping[str, str]) -> list[str]:
    """Return a sentence for each variable HIGHWATER_* that nothing reads, with the likely one."""
    found = []
    for name in sorted(environment):
        known = name.removesuffix("_FILE") in SETTINGS or _OF_OTHERS.fullmatch(name)
        if name.startswith(_PREFIX) and not known:
            likely = difflib.get_close_matches(name, SETTINGS, n=1)
            found.append(f"{name} is no setting{f'; did you mean {likely[0]}?' if likely else '.'}")
    return found


def settings_check(**_: object) -> list[CheckMessage]:
    """Django's check: a warning for each variable that nothing reads."""
    return [Warning(sentence, id="highwater.W001") for sentence in strangers(os.environ)]


def rendered() -> str:
    """Return docs/settings.md."""
    rows = [
        f"| `{one.name}` | {one.kind} | {'required' if one.default is None else f'`{one.default}`' if one.default else ''} |"
        f" {one.meaning} |"
        for one in SETTINGS.values()
    ]
    return "\n".join([*_HEAD, *rows, ""])


_HEAD = [
    "# Settings",
    "",
    "Printed by `./dev manage settings_table`; what is written here by hand is lost. All come from the environment, and are",
    "checked when a process starts: one that can't be read stops it with a sentence, and a variable `HIGHWATER_…` that nothing",
    "reads is reported by `manage.py check`. Each may come from a file, named by the variable with `_FILE` appended:",
    "`SECRET_KEY_FILE=/run/secrets/secret_key`.",
    "",
    "| Variable | Type | Default | Meaning |",
    "|---|---|---|---|",
]
