"""namesrv.conf: RocketMQ's own file and keys as one checked object.

Sources: NamesrvConfig, NettyServerConfig. RocketMQ's name server does not know `brokerChannelExpiredTimeout`,
`frameReadTimeout`, `maxConnections`, `aclEnable` and `aclConfigFile`; the last two are those of 4.x's brokers.
"""

from __future__ import annotations

import dataclasses
import difflib
import ipaddress
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mqwire.properties import PropertiesError, parse_properties
from mqwire.tls import asks_for_certificates

logger = logging.getLogger(__name__)

# Keys of RocketMQ that say nothing to this program: thread pools, Netty's buffers, the controller, Java's paths.
KEYS_WITHOUT_MEANING = frozenset(
    """
    rocketmqHome configStorePath productEnvName clusterTest clientRequestThreadPoolNums defaultThreadPoolNums
    clientRequestThreadPoolQueueCapacity defaultThreadPoolQueueCapacity unRegisterBrokerQueueCapacity
    supportActingMaster notifyMinBrokerIdChanged enableControllerInNamesrv configBlackList
    serverWorkerThreads serverCallbackExecutorThreads serverSelectorThreads serverOnewaySemaphoreValue
    serverAsyncSemaphoreValue serverSocketSndBufSize serverSocketRcvBufSize writeBufferHighWaterMark
    writeBufferLowWaterMark serverPooledByteBufAllocatorEnable enableShutdownGracefully shutdownWaitTimeSeconds
    useEpollNativeSelector serverNettyWorkerGroupEnable controllerDLegerGroup controllerDLegerPeers
    controllerDLegerSelfId controllerStorePath enableElectUncleanMaster enableElectUncleanMasterLocal
    """.split()  # noqa: SIM905 - names read better as text than as forty quoted lines
)


class ConfigError(Exception):
    """namesrv.conf cannot be used. The text names file, line, key, value and what is allowed."""


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """How one key is read: its name in the file, and a function that raises ValueError with what is allowed."""

    name: str
    read: Callable[[str], Any]
    secret: bool = False  # not shown


def _boolean(raw: str) -> bool:
    if raw.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return raw.lower() == "true"


def _integer(at_least: int, at_most: int) -> Callable[[str], int]:
    def read(raw: str) -> int:
        if not (raw.isascii() and raw.isdigit() and len(raw) <= 18 and at_least <= int(raw) <= at_most):
            raise ValueError(f"a whole number from {at_least} to {at_most}")
        return int(raw)

    return read


def _ip_address(raw: str) -> str:
    try:
        return str(ipaddress.ip_address(raw))
    except ValueError:
        raise ValueError("an IPv4 or IPv6 address of this machine, such as 0.0.0.0 or 127.0.0.1") from None


def _one_of(*words: str) -> Callable[[str], str]:
    def read(raw: str) -> str:
        if raw not in words:
            raise ValueError(" or ".join(words))
        return raw

    return read


def _path(raw: str) -> str:
    if not raw:
        raise ValueError("a file's path")
    return os.path.abspath(os.path.expanduser(raw))


def _optional_path(raw: str) -> str:
    return _path(raw) if raw else ""


def _key(name: str, default: Any, read: Callable[[str], Any], *, secret: bool = False) -> Any:
    return dataclasses.field(default=default, metadata={"key": ConfigKey(name, read, secret)}, repr=not secret)


@dataclass(frozen=True, slots=True)
class NamesrvConfig:
    """All that namesrv.conf says. Attribute names are the keys in snake case, times in milliseconds."""

    bind_address: str = _key("bindAddress", "0.0.0.0", _ip_address)  # noqa: S104  # RocketMQ's default; bindAddress narrows it
    listen_port: int = _key("listenPort", 9876, _integer(0, 65535))  # 0: a free one, named when ready
    server_socket_backlog: int = _key("serverSocketBacklog", 1024, _integer(1, 65535))
    server_channel_max_idle_time_seconds: int = _key("serverChannelMaxIdleTimeSeconds", 120, _integer(1, 86_400))
    max_connections: int = _key("maxConnections", 16_000, _integer(1, 1_000_000))
    frame_read_timeout_ms: int = _key("frameReadTimeout", 15_000, _integer(10, 600_000))
    scan_not_active_broker_interval_ms: int = _key("scanNotActiveBrokerInterval", 10_000, _integer(10, 600_000))
    broker_channel_expired_timeout_ms: int = _key("brokerChannelExpiredTimeout", 120_000, _integer(10, 86_400_000))
    kv_config_path: str = _key("kvConfigPath", "", _path)  # empty: ~/namesrv/kvConfig.json
    order_message_enable: bool = _key("orderMessageEnable", False, _boolean)
    return_order_topic_config_to_broker: bool = _key("returnOrderTopicConfigToBroker", True, _boolean)
    enable_all_topic_list: bool = _key("enableAllTopicList", True, _boolean)
    enable_topic_list: bool = _key("enableTopicList", True, _boolean)
    need_wait_for_service: bool = _key("needWaitForService", False, _boolean)
    wait_seconds_for_service: int = _key("waitSecondsForService", 45, _integer(0, 3600))
    delete_topic_with_broker_registration: bool = _key("deleteTopicWithBrokerRegistration", False, _boolean)
    # TLS, by RocketMQ's system properties of these names: beside plain text, distinguished by the first byte.
    tls_server_mode: str = _key("tls.server.mode", "permissive", _one_of("disabled", "permissive", "enforcing"))
    tls_server_cert_path: str = _key("tls.server.certPath", "", _optional_path)  # empty: no TLS is offered
    tls_server_key_path: str = _key("tls.server.keyPath", "", _optional_path)
    tls_server_key_password: str = _key("tls.server.keyPassword", "", str, secret=True)
    tls_server_trust_cert_path: str = _key("tls.server.trustCertPath", "", _optional_path)
    tls_server_need_client_auth: str = _key(
        "tls.server.need.client.auth", "none", _one_of("none", "optional", "require")
    )
    acl_enable: bool = _key("aclEnable", False, _boolean)
    acl_config_file: str = _key("aclConfigFile", "", _path)  # empty: plain_acl.yml beside this file

    @property
    def asks_for_certificates(self) -> bool:
        """Whether clients that connect with TLS are asked for a certificate; then the infrastructure shows one."""
        return asks_for_certificates(self.tls_server_mode, self.tls_server_cert_path, self.tls_server_need_client_auth)

    def to_properties(self) -> dict[str, str]:
        """The values by their keys, as text."""
        values: dict[str, str] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            key = _key_of(field)
            if key.secret and value:
                value = "(not shown)"
            values[key.name] = str(value).lower() if isinstance(value, bool) else str(value)
        return values


def _key_of(field: dataclasses.Field[Any]) -> ConfigKey:
    key: ConfigKey = field.metadata["key"]
    return key


_FIELDS = {_key_of(field).name: field for field in dataclasses.fields(NamesrvConfig)}


def load_config(
    file_path: str | None,
    *,
    overrides: Mapping[str, str] | None = None,
    warn: Callable[[str], None] = logger.warning,
) -> NamesrvConfig:
    """The configuration from `file_path` (None: defaults), changed by `overrides` (key -> text, the command line's).

    `warn` is called once with all unknown and meaningless keys, and once per key that stands there twice.
    Raises ConfigError.
    """
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    ignored: list[str] = []
    for line, name, raw in _entries(file_path):
        field = _FIELDS.get(name)
        if field is None:
            ignored.append(f"{name} (line {line}{_why_ignored(name)})")
            continue
        if name in lines:
            warn(f"{file_path}, line {line}, {name}: given before, in line {lines[name]}; this one counts")
        lines[name] = line
        values[field.name] = _read(_key_of(field), raw, f"{file_path}, line {line}")
    if ignored:
        warn(f"{file_path}: these keys have no meaning here and are ignored: {', '.join(ignored)}")
    for name, raw in (overrides or {}).items():
        values[_FIELDS[name].name] = _read(_key_of(_FIELDS[name]), raw, "command line")
    values.setdefault("kv_config_path", _path("~/namesrv/kvConfig.json"))
    if "acl_config_file" not in values:
        folder = os.path.dirname(os.path.abspath(file_path)) if file_path else os.getcwd()
        values["acl_config_file"] = os.path.join(folder, "plain_acl.yml")
    return NamesrvConfig(**values)


def _entries(file_path: str | None) -> list[tuple[int, str, str]]:
    if file_path is None:
        return []
    try:
        with open(file_path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise ConfigError(f"{file_path} cannot be read: {error.strerror or error}") from error
    try:
        return [(entry.line, entry.key, entry.value) for entry in parse_properties(content)]
    except PropertiesError as error:
        raise ConfigError(f"{file_path}, {error}") from error


def _read(key: ConfigKey, raw: str, place: str) -> Any:
    try:
        return key.read(raw)
    except ValueError as error:
        raise ConfigError(f"{place}: {key.name}={raw} cannot be used; allowed is {error}") from None


def _why_ignored(name: str) -> str:
    if name in KEYS_WITHOUT_MEANING:
        return ""
    known = {key.lower(): key for key in (*_FIELDS, *KEYS_WITHOUT_MEANING)}
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.75)
    return f": unknown, did you mean {known[close[0]]}?" if close else ": unknown"
