"""A broker's own state: statistics and the 4.x access rules."""

from __future__ import annotations

from mqwire.bodies.base import Body
from mqwire.header import Int64


class BrokerStatsItem(Body, frozen=True, kw_only=True):
    """Count, rate per second and average of one period. Source: BrokerStatsItem."""

    sum: Int64 = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body, frozen=True, kw_only=True):
    """VIEW_BROKER_STATS_DATA's answer. Source: BrokerStatsData."""

    stats_minute: BrokerStatsItem = BrokerStatsItem()
    stats_hour: BrokerStatsItem = BrokerStatsItem()
    stats_day: BrokerStatsItem = BrokerStatsItem()


class PlainAccessConfig(Body, frozen=True, kw_only=True):
    """One account of plain_acl.yml. Permissions read `topic=PUB|SUB`. Source: PlainAccessConfig of 4.9."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None
