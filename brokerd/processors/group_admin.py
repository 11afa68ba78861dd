"""Subscription groups: create and update, delete, list. Source: AdminBrokerProcessor."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from brokerd.processors.context import Handler, Peer
from brokerd.processors.handler import answers_refusals, changing_tables, existing_group, not_written
from brokerd.processors.topic_admin import page
from brokerd.replies import Refusal, Reply
from brokerd.store import StoreError
from brokerd.subscription_group import invalid_group_config
from mqwire.bodies import SubscriptionGroupConfig, SubscriptionGroupList, SubscriptionGroupWrapper
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_group import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
    GetSubscriptionGroupConfigRequestHeader,
)
from mqwire.names import RETRY_GROUP_TOPIC_PREFIX

if TYPE_CHECKING:
    from brokerd.consumer_offset import ConsumerOffsetManager
    from brokerd.processors.context import MetadataLog
    from brokerd.subscription_group import SubscriptionGroupManager
    from brokerd.topic_config import TopicConfigManager

logger = logging.getLogger(__name__)


class _Broker(Protocol):
    """What these processors use of the broker."""

    topic_configs: TopicConfigManager
    subscription_groups: SubscriptionGroupManager
    consumer_offsets: ConsumerOffsetManager

    @property
    def metadata_log(self) -> MetadataLog: ...

    def register_soon(self) -> None: ...


@answers_refusals
def update_and_create_subscription_group(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """Answered when as many replicas hold it as a message needs."""
    changing_tables(broker.metadata_log)
    _put(broker, peer, [SubscriptionGroupConfig.from_client(request.body)])
    return broker.metadata_log.answer(request.reply())


@answers_refusals
def update_and_create_subscription_group_list(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """Several groups, all or none."""
    changing_tables(broker.metadata_log)
    configs = SubscriptionGroupList.from_client(request.body).group_config_list
    if not configs:
        raise Refusal(ResponseCode.INVALID_PARAMETER, "the list of groups is empty")
    _put(broker, peer, configs)
    return broker.metadata_log.answer(request.reply())


def _put(broker: _Broker, peer: Peer, configs: list[SubscriptionGroupConfig]) -> None:
    for config in configs:
        remark = invalid_group_config(config)
        if remark is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
    try:
        changed = broker.subscription_groups.put_all(configs)
    except StoreError as error:
        raise not_written(error) from error
    try:
        _ensure_retry_topics(broker, configs)
    except StoreError as error:
        raise Refusal(
            not_written(error).code, f"the groups are written, their retry topics are not: {error}. Then repeat it"
        ) from error
    if changed:
        names = ", ".join(config.group_name for config in configs)
        logger.info("%s puts groups: %s", peer.remote_address[0], names)


def _ensure_retry_topics(broker: _Broker, configs: list[SubscriptionGroupConfig]) -> None:
    """RocketMQ makes them with the first heartbeat, so that new consumers wait for the next route update."""
    created = False
    for config in configs:
        retry_topic = RETRY_GROUP_TOPIC_PREFIX + config.group_name
        if config.retry_queue_nums > 0 and broker.topic_configs.select(retry_topic) is None:
            broker.topic_configs.create_for_send_back(retry_topic, config.retry_queue_nums)
            created = True
    if created:
        broker.register_soon()


@answers_refusals
def delete_subscription_group(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """The group, and its offsets too when the request says so; harmless when it is gone already."""
    changing_tables(broker.metadata_log)
    header = request.header(DeleteSubscriptionGroupRequestHeader)
    try:
        if broker.subscription_groups.delete(header.group_name):
            logger.warning("%s deletes group %a", peer.remote_address[0], header.group_name)
        if header.clean_offset:
            broker.consumer_offsets.remove_group(header.group_name)
    except StoreError as error:
        raise not_written(error) from error
    return broker.metadata_log.answer(request.reply())


def get_all_subscription_group_config(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """All groups, or a page of them (5.3 and later ask for pages)."""
    header = request.header(GetAllSubscriptionGroupRequestHeader)
    whole = broker.subscription_groups.to_wrapper()
    names = page(
        sorted(whole.subscription_group_table),
        header.data_version,
        whole.data_version,
        header.group_seq,
        header.max_group_num,
    )
    body = SubscriptionGroupWrapper(
        subscription_group_table={name: whole.subscription_group_table[name] for name in names},
        forbidden_table={name: whole.forbidden_table[name] for name in names if name in whole.forbidden_table},
        data_version=whole.data_version,
    )
    total = len(whole.subscription_group_table)
    return request.reply(header=GetAllSubscriptionGroupResponseHeader(total_group_num=total), body=body.to_json())


@answers_refusals
def get_subscription_group_config(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """One group."""
    config = existing_group(broker.subscription_groups, request.header(GetSubscriptionGroupConfigRequestHeader).group)
    return request.reply(body=config.to_json())


HANDLERS: dict[RequestCode, Handler] = {
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: update_and_create_subscription_group,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: update_and_create_subscription_group_list,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: delete_subscription_group,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: get_all_subscription_group_config,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: get_subscription_group_config,
}
