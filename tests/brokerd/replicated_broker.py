"""Two whole brokers of one group without sockets: what one's log holds is handed to the other as a pull would."""

from __future__ import annotations

from brokerd.replica.pull_protocol import Diverged, ReplicaPull, SendBytes, Truncate
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker

MAX_BYTES = 1 << 20
ADDRESSES = ("10.0.0.1:10911", "10.0.0.2:10911")


def pair(make_broker: MakeBroker, **keys: str) -> tuple[BrokerUnderTest, BrokerUnderTest]:
    """A leader, replica 0, and its follower, replica 1, which holds what the leader holds."""
    leader = make_broker(**keys)
    follower = make_broker(brokerRole="SLAVE", brokerId="1", totalReplicas="2", **keys)
    replicate(leader, follower)
    return leader, follower


def in_sync_pair(make_broker: MakeBroker, **keys: str) -> tuple[BrokerUnderTest, BrokerUnderTest]:
    """A pair in which a message counts once both replicas hold it, on disk unless `keys` say otherwise."""
    keys = {"inSyncReplicas": "2", "flushDiskType": "SYNC_FLUSH", **keys}
    leader = make_broker(brokerRole="SYNC_MASTER", **keys)
    follower = make_broker(brokerRole="SLAVE", brokerId="1", totalReplicas="2", **keys)
    settle(leader, follower)
    return leader, follower


def settle(leader: BrokerUnderTest, follower: BrokerUnderTest) -> None:
    """Flush and pull until all that the leader has is confirmed, and the follower knows that."""
    for _ in range(3):
        leader.store.flush()
        leader.broker.held_changed()
        replicate(leader, follower)
        follower.store.flush()


def replicate(leader: BrokerUnderTest, follower: BrokerUnderTest) -> None:
    """Pull until the follower holds all, truncating what the leader never had."""
    leading, following = leader.broker.replica, follower.broker.replica
    assert leading.leads
    if following.epoch < leading.epoch:
        follower.broker.saw_epoch(leading.epoch, ADDRESSES[0])
    while True:
        pull = following.next_pull(max_bytes=MAX_BYTES, max_wait_ms=0)
        decision = leading.pulled(pull, ADDRESSES[1], leader.clock.monotonic())
        leader.broker.held_changed()
        if isinstance(decision, Diverged):
            _truncate(follower, decision)
            continue
        assert isinstance(decision, SendBytes), decision
        data = leader.store.read_raw(decision.from_offset, MAX_BYTES)
        delivered = leader.broker.schedule.table_at(decision.from_offset + len(data))
        follower.broker.metadata_log.receive(
            data,
            lambda piece: following.received(piece, follower.store.end_offset, leading.epoch, leading.confirm_offset),
        )
        follower.broker.schedule.take_over(delivered)
        follower.broker.replicated(has_data=bool(data))
        if not data:
            return


def _truncate(follower: BrokerUnderTest, decision: Diverged) -> None:
    following = follower.broker.replica
    cut = following.diverged(decision.divergence)
    assert isinstance(cut, Truncate), cut
    following.truncate(cut.to_offset, follower.store.truncate)  # type: ignore[arg-type] # truncate's report is not needed
    follower.broker.log_was_truncated()


def report(leader: BrokerUnderTest, pull: ReplicaPull) -> None:
    """A follower's pull arrives."""
    leader.broker.replica.pulled(pull, ADDRESSES[1], leader.clock.monotonic())
    leader.broker.held_changed()


def promote(
    broker: BrokerUnderTest, other: BrokerUnderTest, *, loses: bool = False, lacks_an_epoch: bool = False
) -> None:
    """`broker` leads in an epoch above both; `other` does not know it yet, as a dead one does not. `loses`: it may lack what the
    other has, and someone has agreed to that; `lacks_an_epoch`: all of an epoch that another one led in.
    """
    replica = broker.broker.replica
    epoch = max(replica.epoch, other.broker.replica.epoch) + 1
    now = (broker.clock.monotonic(), broker.clock.time_ms())
    replica.promote(replica.epoch, epoch, *now, with_incomplete_log=loses, lacks_an_epoch=lacks_an_epoch)
    broker.broker.role_changed()


def reclaim(leader: BrokerUnderTest, follower: BrokerUnderTest) -> None:
    """A leader that was restarted leads again, as its follower agrees; that one has not pulled since."""
    replica, clock = leader.broker.replica, leader.clock
    epoch = replica.begin_reclaim()
    follower.broker.replica.grant_reclaim(
        replica_id=0,
        epoch=epoch,
        last_epoch=replica.epochs.last_epoch,
        end_offset=leader.store.end_offset,
        address=ADDRESSES[0],
    )
    replica.end_reclaim()
    replica.reclaimed(epoch, clock.monotonic(), clock.time_ms())
    leader.broker.role_changed()


def lead_again(broker: BrokerUnderTest) -> None:
    """In a new epoch, with whatever the tables say when they can't be read again."""
    replica = broker.broker.replica
    fence = replica.epoch + 1
    replica.step_down(fence, None)
    broker.broker.role_changed()
    replica.promote(fence, fence + 1, broker.clock.monotonic(), broker.clock.time_ms())
    broker.broker.role_changed()
    broker.store.flush()
    broker.broker.held_changed()
