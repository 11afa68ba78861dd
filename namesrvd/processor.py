"""A request in, an answer and what else is to be done out. No socket, no file, no waiting.

Sources: DefaultRequestProcessor, ClientRequestProcessor.
"""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

import msgspec

from mqwire.acl import ACCESS_KEY
from mqwire.bodies import DataVersion, GetBrokerMemberGroupResponseBody, RegisterBrokerBody, TopicRouteData
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.errors import RemoteProtocolError
from mqwire.headers_broker import GetBrokerAclConfigResponseHeader, GetBrokerMemberGroupRequestHeader
from mqwire.headers_namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    BrokerHeartbeatRequestHeader,
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from mqwire.headers_topic import GetTopicsByClusterRequestHeader
from mqwire.properties import format_properties
from mqwire.version import program_version
from namesrvd.acl import Accounts, AclConfigError, Rights
from namesrvd.config import NamesrvConfig
from namesrvd.kv_config import NAMESPACE_ORDER_TOPIC_CONFIG, KVConfigFull, KVConfigManager
from namesrvd.route_info import BrokerIdentity, RegistrationRefused, RouteInfoManager

logger = logging.getLogger(__name__)

ZONE_NAME: Final = "__ZONE_NAME"
_CRC32_MASK: Final = 0x7FFFFFFF

# What anyone may ask; everything else needs a signature when aclEnable is on.
# Read when the process starts: what lies on the disk later is what a restart would run.
_PROGRAM_VERSION: Final = program_version("namesrvd")

OPEN_CODES: Final = frozenset({RequestCode.GET_ROUTEINFO_BY_TOPIC})
# What lists names or reads settings: for every account.
LISTING_CODES: Final = frozenset(
    {
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_BROKER_MEMBER_GROUP,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_KV_CONFIG,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
    }
)

# What an administrator may do; all other codes are for the infrastructure's account, where there is one.
ADMIN_CODES: Final = frozenset({RequestCode.DELETE_TOPIC_IN_NAMESRV, RequestCode.GET_NAMESRV_CONFIG})
# These too, in the namespace that belongs to topics: mqadmin's deleteTopic and updateOrderConf use it.
_KV_CODES: Final = frozenset({RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG})

_NAME: Final = re.compile(r"[^\s\x00-\x1f\"\\]{1,255}")
# Go's client takes the addresses out of their JSON with a knife: what would mislead it may not be in them.
_ADDRESS: Final = re.compile(r"[^\s\x00-\x1f\"\\,{}]{1,255}:[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one request leads to.

    `reply` is None for a one-way request. `trusted` says that the peer has shown to be a broker or an administrator,
    `proven` that it has shown any account; where there are none, it was served a request.
    `kv_changed` asks to persist the KV configuration before the reply is sent.
    """

    reply: RemotingCommand | None
    trusted: bool = False
    proven: bool = False
    kv_changed: bool = False


class _Refusal(Exception):
    """The answer to a request that is well-formed but not granted."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class Processor:
    """Serves every request code that a name server has."""

    def __init__(
        self,
        config: NamesrvConfig,
        route_info: RouteInfoManager,
        kv_config: KVConfigManager,
        *,
        accounts: Accounts | None = None,
        clock_ms: Callable[[], float],
    ) -> None:
        """`accounts` None leaves everything open (aclEnable=false). The clock is monotonic."""
        self._config = config
        self._routes = route_info
        self._kv = kv_config
        self._accounts = accounts
        self._clock_ms = clock_ms
        self._ready_ms = clock_ms() + config.wait_seconds_for_service * 1000 * config.need_wait_for_service
        self._handlers: dict[int, Callable[[Hashable, RemotingCommand], Outcome]] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._get_route_info_by_topic,
            RequestCode.REGISTER_BROKER: self._register_broker,
            RequestCode.UNREGISTER_BROKER: self._unregister_broker,
            RequestCode.BROKER_HEARTBEAT: self._broker_heartbeat,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._get_broker_cluster_info,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._get_broker_member_group,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._get_all_topic_list,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._get_topics_by_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._get_system_topic_list,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm_of_broker,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm_of_broker,
            RequestCode.PUT_KV_CONFIG: self._put_kv_config,
            RequestCode.GET_KV_CONFIG: self._get_kv_config,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv_config,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._get_kv_list_by_namespace,
            RequestCode.GET_NAMESRV_CONFIG: self._get_namesrv_config,
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO: self._get_acl_info,
        }

    @property
    def codes(self) -> frozenset[int]:
        """The request codes that are served."""
        return frozenset(self._handlers)

    def process(
        self, channel: Hashable, request: RemotingCommand, *, has_certificate: bool = False, is_proven: bool = False
    ) -> Outcome | None:
        """Serve one request that came over `channel`; None for what is no request. Never raises for what peers send.
        `has_certificate`: the channel's other end showed one that was checked; `is_proven`: it has shown an account before.
        """
        if request.is_response:
            return None
        outcome = self._serve(channel, request, has_certificate)
        proven = is_proven or outcome.proven or self._shows_account(request, has_certificate)
        reply = None if request.is_oneway else outcome.reply
        return Outcome(reply, trusted=outcome.trusted, proven=proven, kv_changed=outcome.kv_changed)

    def _shows_account(self, request: RemotingCommand, has_certificate: bool) -> bool:
        """Whether a request for what is open to all came from someone known."""
        if self._accounts is None or has_certificate:
            return True
        if request.code not in OPEN_CODES or ACCESS_KEY not in request.ext_fields:
            return False
        return self._accounts.why_refused(request, Rights.ANY_ACCOUNT) is None

    def _serve(self, channel: Hashable, request: RemotingCommand, has_certificate: bool) -> Outcome:
        handler = self._handlers.get(request.code)
        if handler is None:
            remark = f"request code {request.code} is not supported by this name server"
            return Outcome(request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))
        try:
            if self._accounts is None or request.code in OPEN_CODES:
                return handler(channel, request)
            needed = _rights_needed(request)
            lacks = self._config.asks_for_certificates and not has_certificate
            why = self._accounts.why_refused(request, needed, lacks_certificate=lacks)
            if why is not None:
                return Outcome(request.reply(ResponseCode.NO_PERMISSION, why))
            outcome = handler(channel, request)
            trusted = needed > Rights.ANY_ACCOUNT
            return Outcome(outcome.reply, trusted=trusted, proven=True, kv_changed=outcome.kv_changed)
        except RegistrationRefused as refused:
            logger.warning("refused over %s: %s", channel, refused)
            header = None if refused.epoch is None else RegisterBrokerResponseHeader(epoch=refused.epoch)
            return Outcome(request.reply(refused.code, str(refused), header=header))
        except _Refusal as refusal:
            return Outcome(request.reply(refusal.code, refusal.remark))
        except RemoteProtocolError as error:
            return Outcome(request.reply(ResponseCode.SYSTEM_ERROR, f"the request cannot be read: {error}"))

    # --- routes ----------------------------------------------------------------------------------------------------

    def _get_route_info_by_topic(self, _channel: Hashable, request: RemotingCommand) -> Outcome:
        if self._clock_ms() < self._ready_ms:
            raise _Refusal(
                ResponseCode.SYSTEM_ERROR,
                "name server not ready: it has just started and waits for the brokers to register",
            )
        topic = request.header(GetRouteInfoRequestHeader).topic
        route = self._routes.pickup_topic_route_data(topic)
        if route is None:
            raise _Refusal(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {topic[:255]}\n"
                "Create the topic first; if it exists, check that its broker runs and registers with this name server.",
            )
        if self._config.order_message_enable:
            order = self._kv.get(NAMESPACE_ORDER_TOPIC_CONFIG, topic)
            route = msgspec.structs.replace(route, order_topic_conf=order)
        return Outcome(request.reply(body=route.to_json()))

    def _get_broker_cluster_info(self, _channel: Hashable, request: RemotingCommand) -> Outcome:
        return Outcome(request.reply(body=self._routes.all_cluster_info().to_json()))

    def _get_broker_member_group(self, _channel: Hashable, request: RemotingCommand) -> Outcome:
        header = request.header(GetBrokerMemberGroupRequestHeader)
        group = self._routes.broker_member_group(header.cluster_name, header.broker_name)
        return Outcome(request.reply(body=GetBrokerMemberGroupResponseBody(broker_member_group=group).to_json()))

    def _get_all_topic_list(self, _channel: Hashable, request: RemotingCommand) -> Outcome:
        if not self._config.enable_all_topic_list:
            raise _Refusal(ResponseCode.SYSTEM_ERROR, "disable: enableAllTopicList is false here")
        return Outcome(request.reply(body=self._routes.all_topic_list().to_json()))

    def _get_topics_by_cluster(self, _channel: Hashable, request: RemotingCommand) -> Outcome:
        if not self._config.enable_topic_list:
            raise _Refusal(ResponseCode.SYSTEM_ERROR, "disable: enableTopicList is false here")
        cluster = request.header(GetTopicsByClusterRequestHeader).cluster
        return Outcome(request.reply(body=self._routes.topics_by_cluster(cluster).to_json()))

    def _get_system_topic_list(self, _channel: Hashable, request: RemotingCommand) -> Outcome:
        return Outcome(request.reply(body=self._routes.system_topic_list().to_json()))

    # --- brokers ---------------------------------------------------------------------------------------------------

    def _register_broker(self, channel: Hashable, request: RemotingCommand) -> Outcome:
        header = request.header(RegisterBrokerRequestHeader)
        broker = _identity(header.cluster_name, header.broker_name, header.broker_id, header.broker_addr)
        if header.body_crc32 and header.body_crc32 != zlib.crc32(request.body) & _CRC32_MASK:
            raise _Refusal(ResponseCode.SYSTEM_ERROR, "crc32 not match: the registration's body is damaged")
        body = (
            RegisterBrokerBody.decode(request.body, compressed=header.compressed)
            if len(request.body)
            else RegisterBrokerBody()
        )
        result = self._routes.register_broker(
            broker,
            body.topic_config_serialize_wrapper,
            channel=channel,
            ha_server_addr=header.ha_server_addr,
            filter_servers=body.filter_server_list,
            zone_name=request.ext_fields.get(ZONE_NAME),
            heartbeat_timeout_ms=header.heartbeat_timeout_millis,
            enable_acting_master=header.enable_acting_master,
            epoch=header.epoch,
        )
        order = None
        if self._config.return_order_topic_config_to_broker:
            order = self._kv.list_by_namespace(NAMESPACE_ORDER_TOPIC_CONFIG)
        reply = request.reply(
            header=RegisterBrokerResponseHeader(ha_server_addr=result.ha_server_addr, master_addr=result.master_addr),
            body=b"" if order is None else order.to_json(),
        )
        return Outcome(reply, trusted=True)

    def _unregister_broker(self, _channel: Hashable, request: RemotingCommand) -> Outcome:
        header = request.header(UnRegisterBrokerRequestHeader)
        broker = _identity(header.cluster_name, header.broker_name, header.broker_id, header.broker_addr)
        if self._routes.unregister_broker(broker):
            logger.info(
                "unregistered: cluster=%s broker=%s id=%d address=%s",
                broker.cluster_name, broker.broker_name, broker.broker_id, broker.broker_addr,
            )  # fmt: skip
        return Outcome(request.reply())

    def _broker_heartbeat(self, _channel: Hashable, request: RemotingCommand) -> Outcome:
        header = request.header(BrokerHeartbeatRequestHeader)
        # A broker of a controller mode may leave its id out; only the master's matters here.
        broker_id = -1 if header.broker_id is None else header.broker_id
        broker = BrokerIdentity(header.cluster_name, header.broker_name, broker_id, header.broker_addr)
        self._routes.heartbeat(broker, header.epoch)
        return Outcome(request.reply(), trusted=True)

    def _query_data_version(self, _channel: Hashable, request: RemotingCommand) -> Outcome:
        header = request.header(QueryDataVersionRequestHeader)
        version = DataVersion.from_json(request.body)
        changed = self._routes.is_broker_topic_config_changed(header.cluster_name, header.broker_addr, version)
        self._routes.touch(header.cluster_name, header.broker_addr)
        known = self._routes.data_version_of(header.cluster_name, header.broker_addr)
        reply = request.reply(
            header=QueryDataVersionResponseHeader(changed=changed), body=b"" if known is None else known.to_json()
        )
        return Outcome(reply)

    # --- topics and permissions ------------------------------------------------------------------------------------

    def _register_topic(self, _channel: Hashable, request: RemotingCommand) -> Outcome:
        topic = request.header(RegisterTopicRequestHeader).topic
        queues = TopicRouteData.from_json(request.body).queue_datas
        if queues and not self._routes.register_topic(topic, queues):
            raise _Refusal(ResponseCode.SYSTEM_ERROR, f"topic {topic[:255]} names a broker that is not registered here")
        return Outcome(request.reply())

    def _delete_topic(self, _channel: Hashable, request: RemotingCommand) -> Outcome:
        header = request.header(DeleteTopicFromNamesrvRequestHeader)
        self._routes.delete_topic(header.topic, header.cluster_name or None)
        logger.info("topic deleted: topic=%r cluster=%r", header.topic, header.cluster_name or "(all)")
        return Outcome(request.reply())

    def _wipe_write_perm_of_broker(self, _channel: Hashable, request: RemotingCommand) -> Outcome:
        name = request.header(WipeWritePermOfBrokerRequestHeader).broker_name
        count = self._routes.wipe_write_perm_of_broker(name)
        logger.info("write permission wiped: broker=%r topics=%d", name, count)
        return Outcome(request.reply(header=WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count)))

    def _add_write_perm_of_broker(self, _channel: Hashable, request: RemotingCommand) -> Outcome:
        name = request.header(AddWritePermOfBrokerRequestHeader).broker_name
        count = self._routes.add_write_perm_of_broker(name)
        logger.info("write permission added: broker=%r topics=%d", name, count)
        return Outcome(request.reply(header=AddWritePermOfBrokerResponseHeader(add_topic_count=count)))

    # --- settings --------------------------------------------------------------------------------------------------

    def _put_kv_config(self, _channel: Hashable, request: RemotingCommand) -> Outcome:
        header = request.header(PutKVConfigRequestHeader)
        try:
            self._kv.put(header.namespace, header.key, header.value)
        except KVConfigFull as full:
            raise _Refusal(ResponseCode.SYSTEM_ERROR, str(full)) from full
        return Outcome(request.reply(), kv_changed=True)

    def _get_kv_config(self, _channel: Hashable, request: RemotingCommand) -> Outcome:
        header = request.header(GetKVConfigRequestHeader)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            raise _Refusal(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace[:255]} Key: {header.key[:255]}",
            )
        return Outcome(request.reply(header=GetKVConfigResponseHeader(value=value)))

    def _delete_kv_config(self, _channel: Hashable, request: RemotingCommand) -> Outcome:
        header = request.header(DeleteKVConfigRequestHeader)
        return Outcome(request.reply(), kv_changed=self._kv.delete(header.namespace, header.key))

    def _get_kv_list_by_namespace(self, _channel: Hashable, request: RemotingCommand) -> Outcome:
        namespace = request.header(GetKVListByNamespaceRequestHeader).namespace
        table = self._kv.list_by_namespace(namespace)
        if table is None:
            raise _Refusal(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace[:255]}")
        return Outcome(request.reply(body=table.to_json()))

    def _get_namesrv_config(self, _channel: Hashable, request: RemotingCommand) -> Outcome:
        values = {**self._config.to_properties(), "highwaterVersion": _PROGRAM_VERSION}
        return Outcome(request.reply(body=format_properties(values).encode()))

    def _get_acl_info(self, _channel: Hashable, request: RemotingCommand) -> Outcome:
        """The version of the accounts in force. The file is read again first: by that its writer sees that it counts."""
        if self._accounts is None:
            raise _Refusal(ResponseCode.SYSTEM_ERROR, "access control is off on this name server: set aclEnable=true")
        try:
            self._accounts.refresh()
        except AclConfigError as error:
            raise _Refusal(ResponseCode.SYSTEM_ERROR, f"the accounts stay as they were: {error}") from error
        header = GetBrokerAclConfigResponseHeader(
            version=self._accounts.data_version.to_json().decode(),
            broker_name="",
            broker_addr="",
            cluster_name="",
        )
        return Outcome(request.reply(header=header))


def _rights_needed(request: RemotingCommand) -> Rights:
    if request.code in LISTING_CODES:
        return Rights.ANY_ACCOUNT
    if request.code in _KV_CODES:
        of_topics = request.ext_fields.get("namespace") == NAMESPACE_ORDER_TOPIC_CONFIG
        return Rights.ADMINISTRATOR if of_topics else Rights.INFRASTRUCTURE
    return Rights.ADMINISTRATOR if request.code in ADMIN_CODES else Rights.INFRASTRUCTURE


def _identity(cluster_name: str, broker_name: str, broker_id: int, broker_addr: str) -> BrokerIdentity:
    """The broker that a request names; refused when clients could not use such names."""
    for what, name in (("clusterName", cluster_name), ("brokerName", broker_name)):
        if not _NAME.fullmatch(name):
            raise _Refusal(
                ResponseCode.SYSTEM_ERROR, f"{what} {name[:255]!r} must be 1 to 255 characters without blanks or quotes"
            )
    if not _ADDRESS.fullmatch(broker_addr):
        raise _Refusal(ResponseCode.SYSTEM_ERROR, f"brokerAddr {broker_addr[:255]!r} must be host:port")
    if broker_id < 0:
        raise _Refusal(ResponseCode.SYSTEM_ERROR, f"brokerId {broker_id} must be 0 for a master, above 0 for a slave")
    return BrokerIdentity(cluster_name, broker_name, broker_id, broker_addr)
