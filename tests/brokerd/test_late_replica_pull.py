"""A pull that a follower sent on a former connection may arrive after one that it sent on the present one."""

from __future__ import annotations

from mqwire.codes import HighwaterRequestCode
from mqwire.headers_replica import ReplicaPullRequestHeader
from tests.brokerd.broker_under_test import BrokerUnderTest, RecordingPeer


def is_answered_at_once(broker: BrokerUnderTest, peer: RecordingPeer, end_offset: int) -> bool:
    """A pull from there on."""
    replica = broker.broker.replica
    header = ReplicaPullRequestHeader(
        group=replica.settings.group, replica_id=1, leader_epoch=replica.epoch, end_offset=end_offset,
        last_epoch=replica.epochs.last_epoch, durable_offset=end_offset, max_bytes=1024, max_wait_millis=500,
        address="10.0.0.2:10911",
    )  # fmt: skip
    return bool(broker.request(HighwaterRequestCode.REPLICA_PULL, header, peer=peer))


def test_a_held_pull_is_answered_when_another_one_of_its_follower_arrives(broker: BrokerUnderTest) -> None:
    """Else the follower would wait for that answer, silent, and an elected leader would take it for gone."""
    end_offset, former, present = broker.store.end_offset, RecordingPeer(), RecordingPeer()
    assert is_answered_at_once(broker, present, end_offset)  # it learns confirmOffset
    assert not is_answered_at_once(broker, present, end_offset)
    is_answered_at_once(broker, former, end_offset)
    assert len(present.take()) == 1
