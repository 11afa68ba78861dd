"""Which replicas hold a message, by their own words."""

from __future__ import annotations

import msgspec
import pytest

from controlplane.insight.whereabouts import Holding, replica_holding
from mqwire.bodies import ReplicaStatus

LEADER = ReplicaStatus(
    cluster="orders",
    group="broker-a",
    replica_id=0,
    advertised_broker_id=0,
    address="10.0.0.1:10911",
    role="master",
    mode="sync",
    epoch=3,
    log_epoch=3,
    epoch_map=[],
    min_offset=100,
    end_offset=1000,
    durable_offset=1000,
    held_offset=1000,
    confirm_offset=800,
    flush_disk_type="ASYNC_FLUSH",
    in_sync_replicas=2,
    min_in_sync_replicas=1,
    in_sync=[0],
    accepts_sends=True,
    promotable=True,
)


def replica(**changes: object) -> ReplicaStatus:
    return msgspec.structs.replace(LEADER, role="slave", **changes)


@pytest.mark.parametrize(
    ("status", "span", "holding"),
    [
        (replica(), (700, 800), Holding.HOLDS),
        (replica(), (800, 900), Holding.HOLDS),
        (replica(held_offset=850), (800, 900), Holding.LACKS),
        (replica(log_epoch=2), (800, 900), Holding.UNKNOWN),
        (replica(log_epoch=2), (700, 800), Holding.HOLDS),
        (replica(min_offset=500), (400, 500), Holding.DELETED),
    ],
)
def test_a_replicas_word_tells_whether_it_holds_a_message(
    status: ReplicaStatus, span: tuple[int, int], holding: Holding
) -> None:
    assert replica_holding(*span, status, LEADER)[0] == holding


def test_past_the_high_watermark_nothing_is_known_without_a_leader() -> None:
    assert replica_holding(800, 900, replica(), None)[0] == Holding.UNKNOWN
