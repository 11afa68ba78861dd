"""Headers of broker administration: configuration, statistics, 4.x access control, high availability."""

from __future__ import annotations

from mqwire.header import CustomHeader, Int32, Int64


class GetBrokerConfigResponseHeader(CustomHeader, frozen=True, kw_only=True):
    """GET_BROKER_CONFIG (26); the body is the configuration as properties text, `version` a DataVersion's JSON."""

    version: str


class ViewBrokerStatsDataRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """VIEW_BROKER_STATS_DATA (315)."""

    stats_name: str
    stats_key: str


class CreateAccessConfigRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """UPDATE_AND_CREATE_ACL_CONFIG (50), as 4.x clients send it; permission lists are joined by commas."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


class DeleteAccessConfigRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """DELETE_ACL_CONFIG (51)."""

    access_key: str


class UpdateGlobalWhiteAddrsConfigRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG (53); addresses are joined by commas."""

    global_white_addrs: str
    acl_file_full_path: str | None = None


class GetBrokerAclConfigResponseHeader(CustomHeader, frozen=True, kw_only=True):
    """GET_BROKER_CLUSTER_ACL_INFO (52): the version of the rules in force, a DataVersion's JSON."""

    version: str
    all_acl_file_version: str | None = None
    broker_name: str
    broker_addr: str
    cluster_name: str


class ExchangeHAInfoRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """EXCHANGE_BROKER_HA_INFO (906)."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


class ExchangeHAInfoResponseHeader(CustomHeader, frozen=True, kw_only=True):
    """Answer to EXCHANGE_BROKER_HA_INFO."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


class NotifyMinBrokerIdChangeRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """NOTIFY_MIN_BROKER_ID_CHANGE (905), name server to brokers."""

    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


class GetBrokerMemberGroupRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """GET_BROKER_MEMBER_GROUP (901)."""

    cluster_name: str
    broker_name: str


class NotifyBrokerRoleChangedRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """NOTIFY_BROKER_ROLE_CHANGED (1008)."""

    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    master_broker_id: Int64 | None = None
