"""Headers of broker administration: configuration, statistics, 4.x access control, high availability."""

from __future__ import annotations

from mqwire.header import CustomHeader


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


class GetBrokerAclConfigResponseHeader(CustomHeader, frozen=True, kw_only=True):
    """GET_BROKER_CLUSTER_ACL_INFO (52): the version of the rules in force, a DataVersion's JSON."""

    version: str
    all_acl_file_version: str | None = None
    broker_name: str
    broker_addr: str
    cluster_name: str


class GetBrokerMemberGroupRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """GET_BROKER_MEMBER_GROUP (901)."""

    cluster_name: str
    broker_name: str
