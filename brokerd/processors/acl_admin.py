"""Accounts at run time: UPDATE_AND_CREATE_ACL_CONFIG, DELETE_ACL_CONFIG, GET_BROKER_CLUSTER_ACL_INFO (RocketMQ 4's).

They need the infrastructure's account (acl_needs.py). Secrets are never answered, so GET_BROKER_CLUSTER_ACL_CONFIG (54), which does
that in RocketMQ 4, is not served.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from brokerd.acl import AccessControl
from brokerd.acl_file import AclFileError
from brokerd.processors.context import Handler, Peer
from brokerd.processors.handler import answers_refusals
from brokerd.replies import Refusal, Reply
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_broker import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
)

if TYPE_CHECKING:
    from brokerd.config import BrokerConfig

logger = logging.getLogger(__name__)


class _Broker(Protocol):
    """What these processors use of the broker."""

    config: BrokerConfig
    acl: AccessControl | None
    advertised_address: str


@answers_refusals
def update_and_create_acl_config(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """In force and durable when it is answered. What the request leaves out stays as it is."""
    acl = _access_control(broker)
    header = request.header(CreateAccessConfigRequestHeader)
    members: dict[str, Any] = {
        "accessKey": header.access_key,
        "secretKey": header.secret_key,
        "whiteRemoteAddress": header.white_remote_address,
        "admin": header.admin if "admin" in request.ext_fields else None,
        "defaultTopicPerm": header.default_topic_perm,
        "defaultGroupPerm": header.default_group_perm,
        "topicPerms": _entries(header.topic_perms),
        "groupPerms": _entries(header.group_perms),
    }
    try:
        acl.put_account(members)
    except AclFileError as error:
        raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from error
    except OSError as error:
        raise _not_written(acl, error) from error
    logger.warning("%s puts account %a", peer.remote_address[0], header.access_key)
    return request.reply()


@answers_refusals
def delete_acl_config(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """Its next request is refused; harmless when the account is gone already."""
    acl = _access_control(broker)
    access_key = request.header(DeleteAccessConfigRequestHeader).access_key
    try:
        if acl.delete_account(access_key):
            logger.warning("%s deletes account %a", peer.remote_address[0], access_key)
    except AclFileError as error:
        raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from error
    except OSError as error:
        raise _not_written(acl, error) from error
    return request.reply()


@answers_refusals
def get_broker_cluster_acl_info(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """The version of the accounts that are in force when it is answered: the file is read again first, if it has changed.

    By it the control plane sees that a written file counts, and an administrator whether all brokers have the same.
    """
    acl = _access_control(broker)
    acl.reload_if_changed()
    version = acl.data_version.to_json().decode()
    return request.reply(
        header=GetBrokerAclConfigResponseHeader(
            version=version,
            broker_name=broker.config.broker_name,
            broker_addr=broker.advertised_address,
            cluster_name=broker.config.broker_cluster_name,
        )
    )


def _access_control(broker: _Broker) -> AccessControl:
    if broker.acl is None:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            "access control is off on this broker: set aclEnable=true and aclConfigFile, and start it again",
        )
    return broker.acl


def _entries(text: str | None) -> list[str] | None:
    """`a=PUB,b=SUB` as a list; an empty text removes all entries."""
    return None if text is None else [entry for entry in text.split(",") if entry.strip()]


def _not_written(acl: AccessControl, error: OSError) -> Refusal:
    return Refusal(
        ResponseCode.SYSTEM_ERROR, f"{acl.path} could not be written: {error.strerror or error}; nothing has changed"
    )


HANDLERS: dict[RequestCode, Handler] = {
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: update_and_create_acl_config,
    RequestCode.DELETE_ACL_CONFIG: delete_acl_config,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: get_broker_cluster_acl_info,
}
