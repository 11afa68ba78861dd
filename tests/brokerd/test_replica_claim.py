"""A restarted leader's claim: whoever has agreed may pull in the new epoch before all others have agreed."""

from __future__ import annotations

from brokerd.replica.pull_protocol import Fenced, ReplicaPull
from tests.brokerd.conftest import BrokerUnderTest, ManualClock


def restarted_leader(folder, clock: ManualClock) -> BrokerUnderTest:
    made = BrokerUnderTest(folder, clock)
    made.broker.replica.add_known_replica(1, "127.0.0.1:2")
    made.restart()
    assert made.broker.replica.must_claim
    return made


def pull(epoch: int) -> ReplicaPull:
    return ReplicaPull(
        group="broker-a", replica_id=1, leader_epoch=epoch, end_offset=0, last_epoch=0, durable_offset=0, max_bytes=1,
        max_wait_ms=0,
    )  # fmt: skip


def test_a_follower_that_agreed_and_pulls_too_early_does_not_end_the_claim(tmp_path) -> None:
    under_test = restarted_leader(tmp_path, ManualClock())
    replica = under_test.broker.replica
    epoch = replica.begin_claim()
    assert isinstance(replica.pulled(pull(epoch), "127.0.0.1:2", 0.0), Fenced)
    assert replica.must_claim
    replica.end_claim()
    replica.claimed(epoch, 0.0, 0)
    assert replica.leads
    under_test.stop()


def test_an_epoch_above_the_claimed_one_ends_the_claim(tmp_path) -> None:
    under_test = restarted_leader(tmp_path, ManualClock())
    replica = under_test.broker.replica
    epoch = replica.begin_claim()
    replica.pulled(pull(epoch + 1), "127.0.0.1:2", 0.0)
    assert not replica.must_claim
    assert replica.epoch == epoch + 1
    under_test.stop()
