"""A broker's subscription groups."""

from __future__ import annotations

from mqwire.bodies.base import Body
from mqwire.bodies.data_version import DataVersion
from mqwire.header import Int32, Int64


class CustomizedRetryPolicy(Body, frozen=True, kw_only=True):
    """Delays between attempts, in milliseconds. Source: CustomizedRetryPolicy."""

    next: list[Int64] | None = None


class ExponentialRetryPolicy(Body, frozen=True, kw_only=True):
    """Delays that grow from `initial` to `max` milliseconds. Source: ExponentialRetryPolicy."""

    initial: Int64 = 5_000
    max: Int64 = 7_200_000
    multiplier: Int64 = 2


class GroupRetryPolicy(Body, frozen=True, kw_only=True):
    """`type` is CUSTOMIZED or EXPONENTIAL. Source: GroupRetryPolicy."""

    type: str = "CUSTOMIZED"
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


class SimpleSubscriptionData(Body, frozen=True, kw_only=True):
    """A subscription that an administrator fixed for the group. Source: SimpleSubscriptionData."""

    topic: str
    expression_type: str | None = None
    expression: str | None = None
    version: Int64 = 0


class SubscriptionGroupConfig(Body, frozen=True, kw_only=True):
    """One consumer group as a broker keeps it. Source: SubscriptionGroupConfig."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: Int32 = 1
    retry_max_times: Int32 = 16
    group_retry_policy: GroupRetryPolicy = GroupRetryPolicy()
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Int32 = 0
    consume_timeout_minute: Int32 = 15
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    attributes: dict[str, str] = {}


class SubscriptionGroupWrapper(Body, frozen=True, kw_only=True):
    """All groups of a broker, by name; `forbidden_table`: group -> topic -> bits. Source: SubscriptionGroupWrapper."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}
    forbidden_table: dict[str, dict[str, Int32]] = {}
    data_version: DataVersion = DataVersion()


class SubscriptionGroupList(Body, frozen=True, kw_only=True):
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST. Source: SubscriptionGroupList."""

    group_config_list: list[SubscriptionGroupConfig] = []


class GroupList(Body, frozen=True, kw_only=True):
    """Names of groups. Source: GroupList."""

    group_list: list[str] = []
