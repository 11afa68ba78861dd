"""broker.conf: RocketMQ's own file and keys as one checked object.

Every field below is one key: its RocketMQ name, its default (RocketMQ's, unless a comment says why not), and what is
allowed. Attribute names are the keys in snake case, with the unit after numbers that have one. Keys of RocketMQ that mean
nothing here, or belong to what this version does not serve, stand in config_keys.py and are warned about. Sources:
BrokerConfig, BrokerIdentity, MessageStoreConfig, NettyServerConfig, AuthConfig, BrokerStartup.
"""

# ruff: noqa: RUF009 - the calls below make dataclass fields, each with its key
from __future__ import annotations

import dataclasses
import difflib
import logging
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from brokerd import config_dleger, config_file
from brokerd.config_keys import KEYS_NOT_SERVED, KEYS_WITHOUT_MEANING
from brokerd.config_values import (
    BrokerRole,
    ConfigKey,
    FlushDiskType,
    InnerClientCredentials,
    addresses,
    boolean,
    choice,
    credentials,
    delay_levels,
    hours,
    integer,
    ip_address,
    path,
    text,
)
from brokerd.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from mqwire.properties import PropertiesError, Property, parse_properties
from mqwire.tls import asks_for_certificates

logger = logging.getLogger("brokerd.config")

_NAME = r"(?!\.+$)[A-Za-z0-9_.|%-]{1,120}"
_NAME_ALLOWED = "1 to 120 letters, digits, _, -, ., | and %"
_TLS_MODE = "disabled|permissive|enforcing"
_CLIENT_AUTH = "none|optional|require"


class ConfigError(Exception):
    """broker.conf cannot be used. The text names file, line, key, value and what is allowed."""


@dataclass(slots=True)
class BrokerConfig:
    """All that broker.conf says. Made by `load_config`; changed afterwards only through `change`."""

    # What this broker is.
    broker_cluster_name: str = text("brokerClusterName", "DefaultCluster", pattern=_NAME, allowed=_NAME_ALLOWED)
    broker_name: str = text("brokerName", "", pattern=_NAME, allowed=_NAME_ALLOWED)  # empty: the host's name
    broker_id: int = integer("brokerId", 0)
    broker_role: BrokerRole = choice("brokerRole", BrokerRole.ASYNC_MASTER)
    broker_permission: int = integer("brokerPermission", 6, at_most=7, hot=True)
    region_id: str = text("regionId", "DefaultRegion")

    # Where it listens and registers.
    namesrv_addr: tuple[str, ...] = addresses("namesrvAddr")  # empty: $NAMESRV_ADDR, else none
    bind_address: str = ip_address("bindAddress", "0.0.0.0")  # noqa: S104  # RocketMQ's default; bindAddress narrows it
    listen_port: int = integer("listenPort", 10911, at_most=65535)  # 0: a free one, named in the ready line
    leader_listen_port: int = integer("leaderListenPort", 0, at_most=65535, hot=True)  # ours: of the leader; 0: off
    broker_ip1: str = ip_address("brokerIP1", "")  # what clients are given; empty: this host's address
    broker_ip2: str = ip_address("brokerIP2", "")  # what slaves are given; empty: brokerIP1
    server_channel_max_idle_time_seconds: int = integer("serverChannelMaxIdleTimeSeconds", 120, at_least=1)
    server_socket_backlog: int = integer("serverSocketBacklog", 1024, at_least=1, at_most=65535)
    register_name_server_period_ms: int = integer("registerNameServerPeriod", 30_000, at_least=10, at_most=60_000)
    # RocketMQ's default is 24 s; a name server that is dead must not delay a stop that long.
    register_broker_timeout_ms: int = integer("registerBrokerTimeoutMills", 6_000, at_least=10)
    channel_expired_timeout_ms: int = integer("channelExpiredTimeout", 120_000, at_least=100)
    inner_client_authentication_credentials: InnerClientCredentials | None = credentials(
        "innerClientAuthenticationCredentials"
    )

    # TLS, by RocketMQ's system properties of these names: on all ports, beside plain text, told apart by the first byte.
    tls_server_mode: str = text(
        "tls.server.mode", "permissive", pattern=_TLS_MODE, allowed=_TLS_MODE.replace("|", " or ")
    )
    tls_server_cert_path: str = path("tls.server.certPath", "")  # empty: no TLS is offered
    tls_server_key_path: str = path("tls.server.keyPath", "")
    tls_server_key_password: str = text("tls.server.keyPassword", "", secret=True)
    tls_server_trust_cert_path: str = path("tls.server.trustCertPath", "")
    tls_server_need_client_auth: str = text(
        "tls.server.need.client.auth", "none", pattern=_CLIENT_AUTH, allowed=_CLIENT_AUTH.replace("|", " or ")
    )
    tls_enable: bool = boolean("tls.enable", False)  # of this broker's own connections to name servers and replicas
    tls_client_cert_path: str = path("tls.client.certPath", "")
    tls_client_key_path: str = path("tls.client.keyPath", "")
    tls_client_trust_cert_path: str = path("tls.client.trustCertPath", "")

    # Who may do what.
    acl_enable: bool = boolean("aclEnable", False)
    acl_config_file: str = path("aclConfigFile", "")  # ours; empty: plain_acl.yml beside broker.conf

    # Quotas, ours; 0: none. Of this broker; what is over one is refused with SYSTEM_BUSY (quotas.py).
    quota_credential_messages_per_second: int = integer("quotaCredentialMessagesPerSecond", 0, hot=True)
    quota_credential_bytes_per_second: int = integer("quotaCredentialBytesPerSecond", 0, at_most=2**59, hot=True)
    quota_credential_connections: int = integer("quotaCredentialConnections", 0, hot=True)
    quota_credential_held_pulls: int = integer("quotaCredentialHeldPulls", 0, hot=True)
    quota_topic_messages_per_second: int = integer("quotaTopicMessagesPerSecond", 0, hot=True)
    quota_topic_bytes_per_second: int = integer("quotaTopicBytesPerSecond", 0, at_most=2**59, hot=True)
    quota_topic_held_pulls: int = integer("quotaTopicHeldPulls", 0, hot=True)
    quota_topic_stored_bytes: int = integer("quotaTopicStoredBytes", 0, at_most=2**59, hot=True)
    quota_topics: int = integer("quotaTopics", 0, hot=True)
    quota_queues: int = integer("quotaQueues", 0, hot=True)
    quota_groups: int = integer("quotaGroups", 0, hot=True)
    quota_stored_bytes: int = integer("quotaStoredBytes", 0, at_most=2**59, hot=True)

    # Topics and groups.
    auto_create_topic_enable: bool = boolean("autoCreateTopicEnable", True, hot=True)
    auto_create_subscription_group: bool = boolean("autoCreateSubscriptionGroup", True, hot=True)
    default_topic_queue_nums: int = integer("defaultTopicQueueNums", 8, at_least=1, at_most=1024, hot=True)
    cluster_topic_enable: bool = boolean("clusterTopicEnable", True)
    broker_topic_enable: bool = boolean("brokerTopicEnable", True)
    trace_topic_enable: bool = boolean("traceTopicEnable", False)
    msg_trace_topic_name: str = text("msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC", pattern=_NAME, allowed=_NAME_ALLOWED)
    trace_on: bool = boolean("traceOn", True)
    notify_consumer_ids_changed_enable: bool = boolean("notifyConsumerIdsChangedEnable", True, hot=True)
    reject_pull_consumer_enable: bool = boolean("rejectPullConsumerEnable", False, hot=True)

    # Messages. An answer with one must fit in what a connection may leave unread (DISCONNECT_BYTES in peer.py), replicas' too.
    max_message_size_bytes: int = integer("maxMessageSize", 4 * 1024 * 1024, at_least=1024, at_most=24 * 1024 * 1024)
    message_delay_level: DelayLevels = delay_levels("messageDelayLevel", DEFAULT_DELAY_LEVELS)
    flush_delay_offset_interval_ms: int = integer("flushDelayOffsetInterval", 10_000, at_least=10)
    flush_consumer_offset_interval_ms: int = integer("flushConsumerOffsetInterval", 5_000, at_least=10)
    long_polling_enable: bool = boolean("longPollingEnable", True, hot=True)
    short_polling_time_ms: int = integer("shortPollingTimeMills", 1_000, at_most=60_000, hot=True)
    max_transfer_bytes_on_message_in_memory: int = integer("maxTransferBytesOnMessageInMemory", 256 * 1024, hot=True)
    max_transfer_count_on_message_in_memory: int = integer("maxTransferCountOnMessageInMemory", 32, hot=True)
    access_message_in_memory_max_ratio: int = integer("accessMessageInMemoryMaxRatio", 40, at_most=100, hot=True)
    metering_interval_ms: int = integer("meteringIntervalMs", 60_000, at_most=3_600_000)  # ours; 0: off

    # The store.
    store_path_root_dir: str = path("storePathRootDir", os.path.join(os.path.expanduser("~"), "store"))
    store_path_commit_log: str = path("storePathCommitLog", "")  # empty: storePathRootDir/commitlog
    store_path_consume_queue: str = path("storePathConsumeQueue", "")  # always storePathRootDir/consumequeue
    mapped_file_size_commit_log_bytes: int = integer(
        "mappedFileSizeCommitLog", 1024**3, at_least=4096, aliases=("mapedFileSizeCommitLog",)
    )
    mapped_file_size_consume_queue_bytes: int = integer(
        "mappedFileSizeConsumeQueue", 300_000 * 20, at_least=20, aliases=("mapedFileSizeConsumeQueue",)
    )
    flush_disk_type: FlushDiskType = choice("flushDiskType", FlushDiskType.ASYNC_FLUSH)
    flush_interval_commit_log_ms: int = integer("flushIntervalCommitLog", 500, at_least=1)
    flush_interval_consume_queue_ms: int = integer("flushIntervalConsumeQueue", 1_000, at_least=1)
    sync_flush_timeout_ms: int = integer("syncFlushTimeout", 5_000, at_least=1)
    delete_when_hours: tuple[int, ...] = hours("deleteWhen", (4,))
    file_reserved_time_hours: int = integer("fileReservedTime", 72)
    disk_max_used_space_ratio: int = integer("diskMaxUsedSpaceRatio", 75, at_least=1, at_most=100)
    disk_space_warning_level_ratio: int = integer("diskSpaceWarningLevelRatio", 90, at_least=1, at_most=100)
    disk_space_clean_forcibly_ratio: int = integer("diskSpaceCleanForciblyRatio", 85, at_least=1, at_most=100)
    # RocketMQ's default is true; here a full disk refuses sends rather than delete what is younger than fileReservedTime.
    clean_file_forcibly_enable: bool = boolean("cleanFileForciblyEnable", False)
    clean_resource_interval_ms: int = integer("cleanResourceInterval", 10_000, at_least=10)
    enabled_append_prop_crc: bool = boolean("enabledAppendPropCRC", True)
    # An operator's word, for a group without another copy: what is damaged and not known to be durable is cut off at the start.
    truncate_damaged_tail: bool = boolean("truncateDamagedTail", False)

    # Replication and elections. What this version cannot obey is refused in `_refuse_what_is_not_there`.
    ha_listen_port: int = integer("haListenPort", 0, at_most=65535)  # 0: replicas pull from listenPort
    ha_master_address: str = text("haMasterAddress", "")
    ha_send_heartbeat_interval_ms: int = integer("haSendHeartbeatInterval", 5_000, at_least=10)
    ha_max_gap_not_in_sync_bytes: int = integer("haMaxGapNotInSync", 256 * 1024 * 1024)
    ha_max_time_slave_not_catchup_ms: int = integer("haMaxTimeSlaveNotCatchup", 15_000, at_least=100)
    slave_timeout_ms: int = integer("slaveTimeout", 3_000, at_least=1)
    slave_read_enable: bool = boolean("slaveReadEnable", False, hot=True)
    total_replicas: int = integer("totalReplicas", 1, at_least=1)
    in_sync_replicas: int = integer("inSyncReplicas", 1, at_least=1)
    min_in_sync_replicas: int = integer("minInSyncReplicas", 1, at_least=1)
    enable_auto_in_sync_replicas: bool = boolean("enableAutoInSyncReplicas", False)
    enable_dleger_commit_log: bool = boolean("enableDLegerCommitLog", False)
    dleger_group: str = text("dLegerGroup", "")
    dleger_peers: dict[int, str] = config_dleger.peers("dLegerPeers")
    dleger_self_id: str = text("dLegerSelfId", "", pattern=r"(n[0-9]{1,4})?", allowed='an id as "n0"')
    preferred_leader_id: str = text("preferredLeaderId", "", pattern=r"(n[0-9]{1,4})?", allowed='an id as "n0"')
    enable_controller_mode: bool = boolean("enableControllerMode", False)

    # RocketMQ 5's own access control: refused when on, for ours is aclEnable and silence would leave the broker open.
    authentication_enabled: bool = boolean("authenticationEnabled", False)
    authorization_enabled: bool = boolean("authorizationEnabled", False)

    # The index of keys.
    message_index_enable: bool = boolean("messageIndexEnable", True)
    max_hash_slot_num: int = integer("maxHashSlotNum", 5_000_000, at_least=1)
    max_index_num: int = integer("maxIndexNum", 20_000_000, at_least=2)
    max_msgs_num_batch: int = integer("maxMsgsNumBatch", 64, at_least=1, at_most=1024)
    default_query_max_num: int = integer("defaultQueryMaxNum", 32, at_least=1, at_most=1024)

    # Not a key: where the configuration came from; None when there was no file.
    file_path: str | None = None

    def change(self, changes: Mapping[str, str], *, persist: bool = True) -> set[str]:
        """Applies `changes` (key -> text) at run time, all of them or none, and writes them to the file.

        Returns the keys whose value is another one now. Raises ConfigError for a key that is not hot or a bad value,
        and OSError when the file cannot be written; nothing has been changed then.
        """
        values: dict[str, tuple[dataclasses.Field[Any], Any]] = {}
        for name, raw in changes.items():
            field = _FIELDS_BY_KEY.get(name)
            if field is None or not _key(field).hot:
                raise ConfigError(
                    f"{name!a} cannot be changed while the broker runs; what can: {', '.join(sorted(HOT_KEYS))}"
                )
            values[_key(field).name] = (field, _read(_key(field), raw.strip(), f"{name}={raw!a}"))
        if "leaderListenPort" in values and (cause := _leader_port_refusal(self, values["leaderListenPort"][1])):
            raise ConfigError("=".join(cause))
        changed = {name for name, (field, value) in values.items() if getattr(self, field.name) != value}
        if persist and self.file_path is not None and changed:
            updates = {name: _key(field).write(value) for name, (field, value) in values.items() if name in changed}
            config_file.store(self.file_path, _rewritten(config_file.read_file(self.file_path), updates))
        for field, value in values.values():
            setattr(self, field.name, value)
        return changed

    def to_properties(self) -> dict[str, str]:
        """Every key with its value, for GET_BROKER_CONFIG. Secrets are not in it."""
        return {_key(field).name: _key(field).write(getattr(self, field.name)) for field in _KEY_FIELDS}

    @property
    def asks_for_certificates(self) -> bool:
        """Whether clients that connect with TLS are asked for a certificate; then the infrastructure shows one."""
        return asks_for_certificates(self.tls_server_mode, self.tls_server_cert_path, self.tls_server_need_client_auth)

    @property
    def config_folder(self) -> str:
        """Where topics.json and its kin are: storePathRootDir/config, as in RocketMQ."""
        return os.path.join(self.store_path_root_dir, "config")


def _key(field: dataclasses.Field[Any]) -> ConfigKey:
    key: ConfigKey = field.metadata["key"]
    return key


_VALUE_CHARACTERS_MAX: Final = 4096  # dozens of addresses
_KEY_FIELDS = [field for field in dataclasses.fields(BrokerConfig) if "key" in field.metadata]
_FIELDS_BY_KEY = {name: field for field in _KEY_FIELDS for name in (_key(field).name, *_key(field).aliases)}
HOT_KEYS = frozenset(_key(field).name for field in _KEY_FIELDS if _key(field).hot)
# What a tenant's admin account may change of them. The others bind a port or size the broker's memory and answers.
TENANTS_HOT_KEYS = frozenset(
    {
        "brokerPermission",
        "autoCreateTopicEnable",
        "autoCreateSubscriptionGroup",
        "defaultTopicQueueNums",
        "notifyConsumerIdsChangedEnable",
        "rejectPullConsumerEnable",
        "longPollingEnable",
        "shortPollingTimeMills",
        "slaveReadEnable",
    }
)


def _read(key: ConfigKey, raw: str, place: str) -> Any:
    try:
        if len(raw) > _VALUE_CHARACTERS_MAX:
            raise ValueError(f"a text of at most {_VALUE_CHARACTERS_MAX} characters")
        return key.read(raw)
    except ValueError as error:
        shown = "a value that is not shown" if key.secret else ascii(raw[:200])
        raise ConfigError(f"{place.split('=')[0]}: {shown} is not possible; allowed is {error}") from None


def load_config(
    file_path: str | None,
    *,
    overrides: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    warn: Callable[[str], None] = logger.warning,
) -> BrokerConfig:
    """The configuration from `file_path` (None: defaults), changed by `overrides` (key -> text, the command line's).

    `warn` is called once with all keys that have no meaning here, and once per key that is unknown, doubtful or of a
    service that this version does not offer.
    Raises ConfigError.
    """
    config = BrokerConfig(file_path=None if file_path is None else os.path.abspath(file_path))
    lines: dict[str, int] = {}
    without_meaning: list[str] = []
    for line, name, raw in _entries(file_path):
        place = f"{file_path}, line {line}, {name}"
        field = _FIELDS_BY_KEY.get(name)
        if field is None:
            if name in KEYS_WITHOUT_MEANING:
                without_meaning.append(name)
            elif name in KEYS_NOT_SERVED:
                warn(f"{place}: has no effect: {KEYS_NOT_SERVED[name]}")
            else:
                warn(f"{file_path}, line {line}: {name!a} is not a key of broker.conf{_did_you_mean(name)}")
            continue
        key = _key(field)
        if key.name in lines:
            warn(f"{place}: given before, in line {lines[key.name]}; this one counts")
        lines[key.name] = line
        setattr(config, field.name, _read(key, raw, place))
    if without_meaning:
        warn(f"{file_path}: these keys of RocketMQ have no meaning here and are ignored: {', '.join(without_meaning)}")
    for name, raw in (overrides or {}).items():
        field = _FIELDS_BY_KEY.get(name)
        if field is None:
            raise ConfigError(f"command line: {name!a} is not a key of broker.conf{_did_you_mean(name)}")
        setattr(config, field.name, _read(_key(field), raw, f"command line, {name}"))
        lines[_key(field).name] = 0
    _fill_in(config, os.environ if environ is None else environ, lines, warn)
    _refuse_what_is_not_there(config, file_path, lines)
    return config


def _entries(file_path: str | None) -> list[Property]:
    if file_path is None:
        return []
    try:
        content = config_file.read_file(file_path)
    except OSError as error:
        raise ConfigError(f"{file_path} cannot be read: {error.strerror or error}") from error
    try:
        return parse_properties(content)
    except PropertiesError as error:
        raise ConfigError(f"{file_path}, {error}") from error


def _did_you_mean(name: str) -> str:
    known = {key.lower(): key for key in (*KEYS_WITHOUT_MEANING, *KEYS_NOT_SERVED, *_FIELDS_BY_KEY)}
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.75)
    return f"; did you mean {known[close[0]]}?" if close else " and is ignored"


def _fill_in_dleger(config: BrokerConfig, lines: Mapping[str, int]) -> None:
    """Roles are elected, the id comes from dLegerSelfId, and a majority's word is about what is on disk unless asked otherwise."""
    if "flushDiskType" not in lines:
        config.flush_disk_type = FlushDiskType.SYNC_FLUSH
    config.broker_id = config_dleger.peer_id(config.dleger_self_id) or 0
    own = config.dleger_peers.get(config.broker_id)
    if own is not None and not config.ha_listen_port and config_dleger.port_of(own) != config.listen_port:
        config.ha_listen_port = config_dleger.port_of(own)


def _fill_in(
    config: BrokerConfig, environ: Mapping[str, str], lines: Mapping[str, int], warn: Callable[[str], None]
) -> None:
    """Values that depend on others or on the machine."""
    if not config.namesrv_addr and environ.get("NAMESRV_ADDR"):
        key = _key(_FIELDS_BY_KEY["namesrvAddr"])
        config.namesrv_addr = _read(key, environ["NAMESRV_ADDR"].strip(), "environment variable NAMESRV_ADDR")
    config.broker_name = config.broker_name or _host_name()
    config.broker_ip1 = config.broker_ip1 or local_address()
    config.broker_ip2 = config.broker_ip2 or config.broker_ip1
    root = config.store_path_root_dir
    config.store_path_commit_log = config.store_path_commit_log or os.path.join(root, "commitlog")
    queues = os.path.join(root, "consumequeue")
    if config.store_path_consume_queue not in ("", queues):
        # RocketMQ's sample files have the key, but its store never read it either.
        warn(f"storePathConsumeQueue={config.store_path_consume_queue} is ignored: ConsumeQueues are in {queues}")
    config.store_path_consume_queue = queues
    if not config.acl_config_file:
        beside = os.path.dirname(config.file_path) if config.file_path else config.config_folder
        config.acl_config_file = os.path.join(beside, "plain_acl.yml")
    if config.enable_dleger_commit_log:
        _fill_in_dleger(config, lines)
    elif config.broker_role is not BrokerRole.SLAVE and config.broker_id != 0:
        warn(f"brokerId={config.broker_id} is taken as 0: a broker of role {config.broker_role.value} is the master")
        config.broker_id = 0


def _leader_port_refusal(config: BrokerConfig, port: int) -> tuple[str, str] | None:
    taken = {config.listen_port: "listenPort", config.ha_listen_port: "haListenPort"}.get(port)
    if taken is None or not port:
        return None
    return (
        "leaderListenPort",
        f"{port} is {taken} already; allowed is a port for the group's leader alone, or 0 for none",
    )


def _refuse_what_is_not_there(config: BrokerConfig, file_path: str | None, lines: Mapping[str, int]) -> None:
    """A key that this version cannot obey must not be obeyed in silence."""
    cause = None
    if config.enable_dleger_commit_log:
        cause = config_dleger.why_not(
            config.dleger_self_id,
            config.preferred_leader_id,
            config.dleger_peers,
            config.dleger_group,
            config.broker_name,
        )
    if cause is None:
        cause = _leader_port_refusal(config, config.leader_listen_port)
    if cause is not None:
        pass
    elif config.tls_server_mode == "enforcing" and not config.tls_server_cert_path:
        cause = (
            "tls.server.mode",
            "enforcing needs a certificate: name its file in tls.server.certPath, or allow permissive",
        )
    elif config.enable_controller_mode:
        cause = ("enableControllerMode", "true is not supported: replicas elect by themselves; allowed is false")
    elif config.authentication_enabled or config.authorization_enabled:
        name = "authenticationEnabled" if config.authentication_enabled else "authorizationEnabled"
        cause = (
            name,
            "true is not supported; for access control write aclEnable=true and aclConfigFile=<plain_acl.yml>",
        )
    if cause is not None:
        at_line = lines.get(cause[0], 0 if file_path is None else None)
        place = f"{file_path}, line {at_line}" if at_line else "command line" if at_line == 0 else f"{file_path}"
        raise ConfigError(f"{place}, {cause[0]}: {cause[1]}")


def _host_name() -> str:
    name = "".join(
        letter for letter in socket.gethostname() if letter.isascii() and (letter.isalnum() or letter in "-_.")
    )
    return name or "DEFAULT_BROKER"


def local_address() -> str:
    """This host's address as others see it, loopback when it has no other. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # A route is chosen for a datagram's destination without sending one. 192.0.2.1 is set aside by RFC 5737.
            probe.connect(("192.0.2.1", 9))
            address: str = probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
    return address


def _rewritten(content: bytes, updates: Mapping[str, str]) -> bytes:
    """The properties file with new values; comments, order and all other keys stay."""
    left = dict(updates)
    lines: list[str | None] = list(content.decode().splitlines())
    for line, name, _raw in parse_properties(content):
        field = _FIELDS_BY_KEY.get(name)
        if field is None or _key(field).name not in updates:
            continue
        value = left.pop(_key(field).name, None)
        index = line - 1
        while _continues(lines[index]) and index + 1 < len(lines):
            lines[index] = None
            index += 1
        # Of a key that stands there twice, all but the first go: one value is in force.
        lines[index] = None if value is None else f"{name}={value}"
    written = [line for line in lines if line is not None]
    written += [f"{name}={value}" for name, value in left.items()]
    return ("\n".join(written) + "\n").encode()


def _continues(line: str | None) -> bool:
    """Whether the next line belongs to this one: it ends with a backslash that is not itself escaped."""
    return line is not None and (len(line) - len(line.rstrip("\\"))) % 2 == 1
