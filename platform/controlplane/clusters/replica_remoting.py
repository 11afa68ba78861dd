"""Roles, spoken of with brokers: status, promote, demote, freeze; and what name servers say of a group's master.

One short connection for each request, without a thread or an event loop of its own: clusters are asked every three
seconds. The control plane's credential signs everything. The brokers decide; each request names the epoch that it
expects, so that repeating one is harmless. What a web request or task may wait for a cluster (waiting.py) holds here, too: once it
is spent, everything here that asks one cluster raises ClusterSlow.
"""

import socket
import ssl
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from uuid import UUID

import msgspec

from controlplane.clusters.models import Cluster, Credential, Replica
from controlplane.clusters.remoting import GATEWAY_GROUP, cluster_slow, control_credentials, credentials_of
from controlplane.clusters.replica_answer import Answer as Answer
from controlplane.clusters.tls import cluster_tls
from controlplane.clusters.waiting import wait_budget
from highwater import Credentials, WaitBudget
from highwater.errors import TimeSpentError
from mqwire import replica_requests
from mqwire.acl import SessionCredentials, Signer
from mqwire.bodies import ClusterInfo, DataVersion, KVTable, ReplicaStatus, TopicConfig, TopicConfigSerializeWrapper
from mqwire.codes import HighwaterRequestCode, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.connection import Connection
from mqwire.errors import ProtocolError
from mqwire.first_decode import json_decoder
from mqwire.header import CustomHeader
from mqwire.headers_broker import GetBrokerAclConfigResponseHeader
from mqwire.headers_pull import ViewMessageRequestHeader
from mqwire.headers_send import SendMessageRequestHeader, SendMessageResponseHeader
from mqwire.message import StoredMessage, decode_record
from mqwire.names import AUTO_CREATE_TOPIC_KEY_TOPIC, RMQ_SYS_PROBE
from mqwire.properties import PropertiesError, parse_properties
from mqwire.replica_requests import ReplicaRequest

_CONNECT_TIMEOUT_S = 1.0
_STATUS_TIMEOUT_S = 1.5
_CHANGE_TIMEOUT_S = 6.0  # a promotion is answered when the name servers know it
_MASTER_ID = 0
_VERSION_KEY = "highwaterVersion"


@dataclass(frozen=True, slots=True)
class _Access:
    """How the control plane speaks with a cluster: who signs, and over which TLS, if any."""

    credentials: Credentials
    tls: ssl.SSLContext | None
    budget: WaitBudget | None = None

    @contextmanager
    def waiting(self, address: str, timeout_s: float) -> Iterator[float]:
        """Count the time until the block ends; the value is how long it may wait, in seconds. Raises TimeoutError."""
        if self.budget is None:
            yield timeout_s
            return
        with ExitStack() as counted:
            try:
                allowed_ms = counted.enter_context(self.budget.waiting(address, timeout_s * 1000))
            except TimeSpentError as error:
                raise TimeoutError(str(error)) from error
            yield allowed_ms / 1000


def _access(cluster: Cluster) -> _Access:
    """Return how a cluster is spoken with. Raises ClusterSlow when this web request or task has waited for it long enough."""
    budget = wait_budget(cluster.pk)
    if budget is not None and budget.is_spent:
        raise cluster_slow(cluster, budget)
    return _Access(control_credentials(cluster), cluster_tls(cluster), budget)


def _accesses(clusters: Iterable[Cluster]) -> dict[UUID, _Access]:
    """Return how each is spoken with, by its id; one query for all."""
    by_id = {cluster.pk: cluster for cluster in clusters}
    controls = Credential.objects.filter(cluster__in=by_id, is_control=True)
    return {
        row.cluster_id: _Access(credentials_of(row), cluster_tls(by_id[row.cluster_id]), wait_budget(row.cluster_id))
        for row in controls
    }


def replica_statuses(
    cluster: Cluster, addresses: Sequence[str], *, timeouts_s: Mapping[str, float] = MappingProxyType({})
) -> dict[str, Answer]:
    """Ask each replica for its role and log, all at once; takes 1.5 s at most, or what `timeouts_s` says for an address."""
    access = _access(cluster)
    if not addresses:
        return {}

    def ask(address: str) -> Answer:
        return _change(address, access, replica_requests.STATUS, timeouts_s.get(address, _STATUS_TIMEOUT_S))

    with ThreadPoolExecutor(max_workers=min(8, len(addresses))) as threads:
        return dict(zip(addresses, threads.map(ask, addresses), strict=True))


def accounts_versions(cluster: Cluster, addresses: Sequence[str]) -> dict[str, int | None]:
    """Ask each daemon which version of its accounts is in force, all at once; None for one that does not say."""
    access = _access(cluster)
    if not addresses:
        return {}

    def ask(address: str) -> int | None:
        try:
            reply = _request(address, access, RequestCode.GET_BROKER_CLUSTER_ACL_INFO, None, _STATUS_TIMEOUT_S)
            if reply.code != ResponseCode.SUCCESS:
                return None
            version = reply.header(GetBrokerAclConfigResponseHeader).version
            return DataVersion.from_json(version.encode()).timestamp
        except (OSError, ProtocolError):
            return None

    with ThreadPoolExecutor(max_workers=min(8, len(addresses))) as threads:
        return dict(zip(addresses, threads.map(ask, addresses), strict=True))


def broker_configurations(cluster: Cluster, addresses: Sequence[str]) -> dict[str, dict[str, str] | None]:
    """Ask each broker for the configuration that it runs with, all at once; None for one that does not say within 1.5 s."""
    if not addresses:
        return {}
    access = _access(cluster)

    def ask(address: str) -> dict[str, str] | None:
        try:
            reply = _request(address, access, RequestCode.GET_BROKER_CONFIG, None, _STATUS_TIMEOUT_S)
            if reply.code != ResponseCode.SUCCESS:
                return None
            return {entry.key: entry.value for entry in parse_properties(bytes(reply.body))}
        except (OSError, ProtocolError, PropertiesError):
            return None

    with ThreadPoolExecutor(max_workers=min(8, len(addresses))) as threads:
        return dict(zip(addresses, threads.map(ask, addresses), strict=True))


def daemon_versions(cluster: Cluster, brokers: Sequence[str], name_servers: Sequence[str]) -> dict[str, str | None]:
    """Ask each daemon which version of the program it runs, all at once: None for one that does not answer within 1.5 s, and
    an empty text for one that is too old to say.
    """
    codes = dict.fromkeys(brokers, RequestCode.GET_BROKER_RUNTIME_INFO)
    codes |= dict.fromkeys(name_servers, RequestCode.GET_NAMESRV_CONFIG)
    if not codes:
        return {}
    access = _access(cluster)

    def ask(address: str) -> str | None:
        try:
            reply = _request(address, access, codes[address], None, _STATUS_TIMEOUT_S)
            if reply.code != ResponseCode.SUCCESS:
                return None
            if codes[address] == RequestCode.GET_BROKER_RUNTIME_INFO:
                return KVTable.from_json(reply.body).table.get(_VERSION_KEY, "")
            values = {entry.key: entry.value for entry in parse_properties(bytes(reply.body))}
            return values.get(_VERSION_KEY, "")
        except (OSError, ProtocolError, PropertiesError):
            return None

    with ThreadPoolExecutor(max_workers=min(8, len(codes))) as threads:
        return dict(zip(codes, threads.map(ask, codes), strict=True))


@dataclass(frozen=True, slots=True)
class BrokerQuota:
    """One quota of a broker, by its key in broker.conf: whose it is, how much is used, and the limit."""

    quota: str
    name: str
    used: int
    limit: int


def broker_quotas(brokers: Sequence[tuple[Cluster, str]]) -> list[tuple[BrokerQuota, ...] | None]:
    """Ask brokers, each of its cluster at its address, for the use of their quotas, eight at a time; None for one that does not
    say within 1.5 s. In their order.
    """
    # Here, not in the threads: these would open connections to the database that no one closes.
    access = _accesses(cluster for cluster, _ in brokers)
    if not brokers:
        return []

    def ask(broker: tuple[Cluster, str]) -> tuple[BrokerQuota, ...] | None:
        cluster, address = broker
        try:
            reply = _request(address, access[cluster.pk], RequestCode.GET_BROKER_RUNTIME_INFO, None, _STATUS_TIMEOUT_S)
            if reply.code != ResponseCode.SUCCESS:
                return None
            quotas: tuple[BrokerQuota, ...] = json_decoder(tuple[BrokerQuota, ...]).decode(
                KVTable.from_json(reply.body).table["quotas"]
            )
            return quotas
        except (OSError, ProtocolError, KeyError, msgspec.MsgspecError):
            return None

    with ThreadPoolExecutor(max_workers=min(8, len(brokers))) as threads:
        return list(threads.map(ask, brokers))


def replica_promote(
    cluster: Cluster,
    address: str,
    *,
    group: str,
    replica_id: int,
    expected_epoch: int,
    new_epoch: int,
    in_sync: Sequence[int] = (),
    with_incomplete_log: bool = False,
    lacks_an_epoch: bool = False,
    lost: Sequence[int] = (),
) -> Answer:
    """Have the replica lead in `new_epoch` if it is in `expected_epoch` now. `in_sync`: who promised, and follows in a moment.
    `with_incomplete_log`: although its log may lack records at its end; else it refuses then.
    `lacks_an_epoch`: someone may have led in one of which the log has nothing.
    `lost`: of a group that elects, the voters that are gone for good.
    """
    request = replica_requests.promote(
        group,
        replica_id,
        expected_epoch=expected_epoch,
        new_epoch=new_epoch,
        in_sync=in_sync,
        with_incomplete_log=with_incomplete_log,
        lacks_an_epoch=lacks_an_epoch,
        lost=lost,
    )
    return _change(address, _access(cluster), request, _CHANGE_TIMEOUT_S)


def replica_fences(
    cluster: Cluster,
    addresses: Sequence[str],
    *,
    group: str,
    epoch: int,
    timeouts_s: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, Answer]:
    """Ask each replica, all at once, to promise the epoch: to lead and to follow no one in it or below; takes 1.5 s at most, or
    what `timeouts_s` says for an address.
    """
    access, request = _access(cluster), replica_requests.demote(group, epoch=epoch)
    if not addresses:
        return {}

    def ask(address: str) -> Answer:
        return _change(address, access, request, timeouts_s.get(address, _STATUS_TIMEOUT_S))

    with ThreadPoolExecutor(max_workers=min(8, len(addresses))) as threads:
        return dict(zip(addresses, threads.map(ask, addresses), strict=True))


def replica_recovery_promise(
    cluster: Cluster, address: str, *, group: str, epoch: int, leader_address: str | None, lost: Sequence[int]
) -> Answer:
    """Ask a replica of a group that elects to promise the epoch to a recovery without its voters that are `lost`, after which the
    one at `leader_address` is to lead, or itself where none is named.
    """
    request = replica_requests.demote(group, epoch=epoch, leader_address=leader_address, lost=lost)
    return _change(address, _access(cluster), request, _STATUS_TIMEOUT_S)


def replica_freeze_sends(cluster: Cluster, address: str, *, group: str, epoch: int, for_ms: int) -> Answer:
    """Have the master refuse sends for so long, 0 to take them again."""
    request = replica_requests.freeze_sends(group, epoch=epoch, for_ms=for_ms)
    return _change(address, _access(cluster), request, _STATUS_TIMEOUT_S)


def network_cut(cluster: Cluster, address: str, *, group: str, replica_id: int, for_ms: int) -> Answer:
    """Have the replica be cut off from everyone for so long, a moment after it answered; it ends by itself."""
    request = replica_requests.cut_network(group, replica_id, for_ms=for_ms)
    return _change(address, _access(cluster), request, _STATUS_TIMEOUT_S)


def replica_transfer(cluster: Cluster, address: str, *, group: str, target: int) -> Answer:
    """Ask the leader of a group that elects to hand its role over; begun when answered, done when the target leads."""
    return _change(address, _access(cluster), replica_requests.transfer(group, target), _STATUS_TIMEOUT_S)


def replica_members(
    cluster: Cluster,
    address: str,
    *,
    group: str,
    change: str,
    replica_id: int | None,
    replica_address: str | None = None,
) -> Answer:
    """Ask the leader of a group that elects for one change of who counts: addObserver (with `replica_address`), addVoter,
    removeVoter or prefer. In force when answered, final when its status says that no change is pending.
    """
    request = replica_requests.change_members(group, change, replica_id, replica_address=replica_address)
    return _change(address, _access(cluster), request, _STATUS_TIMEOUT_S)


def replica_mode(cluster: Cluster, leader: ReplicaStatus, *, group: str, mode: str, in_sync_replicas: int) -> Answer:
    """Ask a group's leader, which said this of itself, for another mode; written when answered, in force on each replica when
    its status shows it. Refused where it has been asked for a mode since it said so.
    """
    request = replica_requests.change_mode(group, mode, in_sync_replicas=in_sync_replicas, leader=leader)
    return _change(leader.address, _access(cluster), request, _STATUS_TIMEOUT_S)


@dataclass(frozen=True, slots=True)
class Closed:
    """What a broker answered to METERING_CLOSE: whether everything that it counted is recorded, or why it said nothing."""

    recorded: bool = False
    error: str = ""


def metering_close(cluster: Cluster, address: str) -> Closed:
    """Have a broker refuse its clients and record what it counted; ask until `recorded`."""
    access = _access(cluster)
    try:
        reply = _request(address, access, HighwaterRequestCode.METERING_CLOSE, None, _CHANGE_TIMEOUT_S)
    except (OSError, ProtocolError) as error:
        return Closed(error=str(error) or type(error).__name__)
    if reply.code != ResponseCode.SUCCESS:
        return Closed(error=reply.remark or f"response code {reply.code}")
    return Closed(recorded=reply.ext_fields.get("recorded") == "true")


def record_at(cluster: Cluster, address: str, offset: int) -> StoredMessage | None:
    """Return the record that begins at this offset of the CommitLog; None when none does, or no one answers."""
    header = ViewMessageRequestHeader(offset=offset)
    try:
        reply = _request(address, _access(cluster), RequestCode.VIEW_MESSAGE_BY_ID, header, _STATUS_TIMEOUT_S)
        return decode_record(reply.body) if reply.code == ResponseCode.SUCCESS else None
    except (OSError, ProtocolError):
        return None


def topic_table(cluster: Cluster, address: str) -> dict[str, TopicConfig] | None:
    """Return every topic that the broker keeps, by name; None when it does not answer."""
    try:
        reply = _request(address, _access(cluster), RequestCode.GET_ALL_TOPIC_CONFIG, None, _CHANGE_TIMEOUT_S)
        if reply.code != ResponseCode.SUCCESS:
            return None
        return dict(TopicConfigSerializeWrapper.from_json(reply.body).topic_config_table)
    except (OSError, ProtocolError):
        return None


def group_masters(cluster: Cluster, group: str, leader_addresses: Collection[str]) -> dict[str, str | None]:
    """Return whom each name server knows as the group's master: None when it knows none or does not answer.

    It is a replica's own address, also where the master is registered with its group's leader port, one of
    `leader_addresses`. No one connects anywhere else, whatever a name server says.
    """
    access = _access(cluster)
    replicas = Replica.objects.filter(group__cluster=cluster, group__name=group, port__isnull=False)
    own_addresses = {replica.address for replica in replicas}
    found: dict[str, str | None] = {}
    for name_server in cluster.name_server_addresses:
        master = _named_by(name_server, access, group)
        if master is not None and master not in own_addresses:
            if master not in leader_addresses:
                found[name_server] = None
                continue
            status = replica_statuses(cluster, [master])[master].status
            master = master if status is None else status.address
        found[name_server] = master
    return found


def _named_by(name_server: str, access: _Access, group: str) -> str | None:
    """Return where a name server sends producers of the group; None when it knows no leader or does not answer."""
    try:
        reply = _request(name_server, access, RequestCode.GET_BROKER_CLUSTER_INFO, None, _STATUS_TIMEOUT_S)
        data = ClusterInfo.from_json(reply.body).broker_addr_table.get(group)
    except (OSError, ProtocolError):
        return None
    return None if data is None else data.broker_addrs.get(_MASTER_ID)


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """What a master answered to a message of ours, as producers read it: SEND_OK, SLAVE_NOT_AVAILABLE, or why not at all.

    `acknowledged` says that enough replicas have it, `queue_offset` where it stands in the probe topic's only queue.
    """

    answer: str
    stored: bool = False
    acknowledged: bool = False
    queue_offset: int | None = None


def probe_send(cluster: Cluster, address: str) -> ProbeAnswer:
    """Send a message to the group's probe topic, which no tenant reads and no one pays for.

    `stored` says that the master took it. With too few slaves (SLAVE_NOT_AVAILABLE) it does take sends.
    """
    return _probe(address, _access(cluster), b"probe")


@dataclass(frozen=True, slots=True)
class GroupProducer:
    """Sends probes to one group as a producer does: to whom the name servers name. It reads no row once it is made, so that
    threads can share it.
    """

    group: str
    access: _Access
    name_servers: Sequence[str]
    addresses: frozenset[str]

    @classmethod
    def of(cls, cluster: Cluster, group: str, leader_addresses: Collection[str]) -> "GroupProducer":
        """Return the producer of one group; it connects to its replicas' addresses and `leader_addresses` alone."""
        replicas = Replica.objects.filter(group__cluster=cluster, group__name=group, port__isnull=False)
        known = frozenset({*(replica.address for replica in replicas), *leader_addresses})
        return cls(group, _access(cluster), tuple(cluster.name_server_addresses), known)

    def leader_address(self) -> str | None:
        """Ask the name servers, one after the other, where to send; None when none of them names a leader."""
        for name_server in self.name_servers:
            leader = _named_by(name_server, self.access, self.group)
            if leader in self.addresses:
                return leader
        return None

    def send(self, address: str, body: bytes) -> ProbeAnswer:
        """Send one probe, once."""
        return _probe(address, self.access, body)


def _probe(address: str, access: _Access, body: bytes) -> ProbeAnswer:
    header = SendMessageRequestHeader(
        producer_group=GATEWAY_GROUP,
        topic=RMQ_SYS_PROBE,
        default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=0,
    )
    try:
        reply = _request(address, access, RequestCode.SEND_MESSAGE, header, _STATUS_TIMEOUT_S, body=body)
    except (OSError, ProtocolError) as error:
        return ProbeAnswer(str(error) or type(error).__name__)
    match reply.code:
        case ResponseCode.SUCCESS:
            return ProbeAnswer("SEND_OK", stored=True, acknowledged=True, queue_offset=_queue_offset(reply))
        case ResponseCode.SLAVE_NOT_AVAILABLE:
            return ProbeAnswer("SLAVE_NOT_AVAILABLE", stored=True, queue_offset=_queue_offset(reply))
    return ProbeAnswer(reply.remark or f"response code {reply.code}")


def _queue_offset(reply: RemotingCommand) -> int | None:
    try:
        return reply.header(SendMessageResponseHeader).queue_offset
    except ProtocolError:
        return None


def _change(address: str, access: _Access, request: ReplicaRequest, timeout_s: float) -> Answer:
    try:
        reply = _request(address, access, request.code, request.header, timeout_s)
        if reply.code != ResponseCode.SUCCESS:
            for_good = reply.code == ResponseCode.INVALID_PARAMETER
            error = reply.remark or f"response code {reply.code}"
            return Answer(error=error, refused=True, refused_for_good=for_good)
        return Answer(status=ReplicaStatus.from_json(reply.body))
    except (OSError, ProtocolError) as error:
        return Answer(error=str(error) or type(error).__name__)


@lru_cache(maxsize=1024)
def _signer(credentials: Credentials) -> Signer:
    """One for each account and process: brokers remember what each has signed."""
    return Signer(SessionCredentials(credentials.access_key, credentials.secret_key))


def _request(
    address: str,
    access: _Access,
    code: int,
    header: CustomHeader | None,
    timeout_s: float,
    *,
    body: bytes = b"",
) -> RemotingCommand:
    request = RemotingCommand.request(code, header, body=body)
    _signer(access.credentials).sign(request)
    host, _, port = address.rpartition(":")
    incoming = Connection()
    with ExitStack() as closing:
        timeout_s = closing.enter_context(access.waiting(address, timeout_s))
        deadline = time.monotonic() + timeout_s
        stream = closing.enter_context(
            socket.create_connection((host, int(port)), timeout=min(timeout_s, _CONNECT_TIMEOUT_S))
        )
        if access.tls is not None:
            stream = closing.enter_context(access.tls.wrap_socket(stream))
        stream.sendall(request.encode())
        while True:
            stream.settimeout(max(0.01, deadline - time.monotonic()))
            data = stream.recv(256 * 1024)
            if not data:
                raise ConnectionError(f"{address} closed the connection")
            incoming.receive_data(data)
            for command in incoming.commands():
                if command.is_response and command.opaque == request.opaque:
                    return command
            if time.monotonic() > deadline:
                raise TimeoutError(f"{address} does not answer")
