"""Queue locks of orderly consumers."""

from __future__ import annotations

import pytest

from brokerd import rebalance_lock
from mqwire.bodies import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker, ManualClock
from tests.brokerd.replicated_broker import pair, replicate


def queues(*queue_ids: int) -> list[MessageQueue]:
    return [MessageQueue(topic="orders", broker_name="broker-a", queue_id=queue_id) for queue_id in queue_ids]


def lock(broker: BrokerUnderTest, client_id: str, *queue_ids: int, group: str = "g") -> list[int]:
    body = LockBatchRequestBody(consumer_group=group, client_id=client_id, mq_set=queues(*queue_ids))
    reply = broker.ask(RequestCode.LOCK_BATCH_MQ, body=body.to_json())
    return sorted(each.queue_id for each in LockBatchResponseBody.from_json(reply.body).lock_ok_mq_set)


def unlock(broker: BrokerUnderTest, client_id: str, *queue_ids: int) -> RemotingCommand:
    body = LockBatchRequestBody(consumer_group="g", client_id=client_id, mq_set=queues(*queue_ids))
    return broker.ask(RequestCode.UNLOCK_BATCH_MQ, body=body.to_json())


@pytest.fixture(autouse=True)
def _topic(broker: BrokerUnderTest) -> None:
    broker.create_topic("orders", queues=4)


def test_what_does_not_exist_is_not_locked(broker: BrokerUnderTest) -> None:
    absent = [
        MessageQueue(topic="orders", broker_name="broker-a", queue_id=4),
        MessageQueue(topic="nothing", broker_name="broker-a", queue_id=0),
        MessageQueue(topic="orders", broker_name="another", queue_id=0),
    ]
    body = LockBatchRequestBody(consumer_group="g", client_id="c1", mq_set=[*absent, *queues(0)])
    reply = broker.ask(RequestCode.LOCK_BATCH_MQ, body=body.to_json())
    assert LockBatchResponseBody.from_json(reply.body).lock_ok_mq_set == queues(0)


def test_locks_beyond_the_bound_are_not_given_until_others_are_free(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock(broker, "c1", 0, 1)
    monkeypatch.setattr(rebalance_lock, "LOCKS_BYTES_MAX", broker.broker.rebalance_locks._kept_bytes)
    assert lock(broker, "c1", 0, 1, 2) == [0, 1]
    unlock(broker, "c1", 0)
    assert lock(broker, "c1", 2, 3) == [2]


def test_locks_take_as_much_memory_as_their_clients_ids(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock(broker, "c1", 0, 1)
    monkeypatch.setattr(rebalance_lock, "LOCKS_BYTES_MAX", broker.broker.rebalance_locks._kept_bytes)
    unlock(broker, "c1", 0)
    assert lock(broker, "c" * 300, 0) == []
    assert lock(broker, "\U0001f600" * 100, 0) == []
    assert lock(broker, "c2", 0) == [0]


def test_what_all_locks_take_is_nothing_when_none_is_left(broker: BrokerUnderTest, clock: ManualClock) -> None:
    locks = broker.broker.rebalance_locks
    lock(broker, "c1", 0, 1)
    lock(broker, "client-2", 2, group="h")
    unlock(broker, "c1", 0)
    clock.advance(61)
    lock(broker, "the-client-3", 2, group="h")
    clock.advance(61)
    locks.scan()
    assert locks._kept_bytes == 0


@pytest.mark.parametrize("name", ["absent", "g" * 121, "of{characters"])
def test_a_group_that_does_not_exist_and_is_not_made_locks_nothing(make_broker: MakeBroker, name: str) -> None:
    broker = make_broker(autoCreateSubscriptionGroup="false" if name == "absent" else "true")
    body = LockBatchRequestBody(consumer_group=name, client_id="c1", mq_set=queues(0))
    reply = broker.ask(RequestCode.LOCK_BATCH_MQ, body=body.to_json())
    assert reply.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert broker.broker.rebalance_locks._locks == {}


def test_a_lock_that_comes_before_the_first_heartbeat_makes_its_group(broker: BrokerUnderTest) -> None:
    """As a pull does: a client rebalances more often than it sends heartbeats."""
    assert lock(broker, "c1", 0, group="new") == [0]
    assert broker.broker.subscription_groups.select("new") is not None


def test_a_clients_id_has_a_bound(broker: BrokerUnderTest) -> None:
    body = LockBatchRequestBody(consumer_group="g", client_id="c" * 513, mq_set=queues(0))
    assert broker.ask(RequestCode.LOCK_BATCH_MQ, body=body.to_json()).code == ResponseCode.INVALID_PARAMETER


def test_a_slave_locks_nothing(make_broker: MakeBroker) -> None:
    """A member that took it for the master, as it was just now, would work on a queue that another has locked at the new one."""
    leader, follower = pair(make_broker)
    leader.create_topic("orders", queues=4)
    replicate(leader, follower)
    assert lock(leader, "c1", 0) == [0]
    body = LockBatchRequestBody(consumer_group="g", client_id="c2", mq_set=queues(0))
    assert follower.ask(RequestCode.LOCK_BATCH_MQ, body=body.to_json()).code == ResponseCode.SERVICE_NOT_AVAILABLE


def test_free_queues_are_locked(broker: BrokerUnderTest) -> None:
    assert lock(broker, "c1", 0, 1) == [0, 1]


def test_another_clients_queues_are_not(broker: BrokerUnderTest) -> None:
    lock(broker, "c1", 0)
    assert lock(broker, "c2", 0, 1) == [1]


def test_another_group_has_locks_of_its_own(broker: BrokerUnderTest) -> None:
    lock(broker, "c1", 0)
    assert lock(broker, "c2", 0, group="h") == [0]


def test_the_holder_renews_its_lock(broker: BrokerUnderTest, clock: ManualClock) -> None:
    lock(broker, "c1", 0)
    clock.advance(50)
    assert lock(broker, "c1", 0) == [0]
    clock.advance(50)
    assert lock(broker, "c2", 0) == []


def test_a_lock_expires_after_60_seconds(broker: BrokerUnderTest, clock: ManualClock) -> None:
    lock(broker, "c1", 0)
    clock.advance(60)
    assert lock(broker, "c2", 0) == []
    clock.advance(1)
    assert lock(broker, "c2", 0) == [0]


def test_a_jump_of_the_wall_clock_frees_nothing(broker: BrokerUnderTest, clock: ManualClock) -> None:
    lock(broker, "c1", 0)
    clock.wall_ms += 3_600_000
    assert lock(broker, "c2", 0) == []


def test_an_unlocked_queue_is_free(broker: BrokerUnderTest) -> None:
    lock(broker, "c1", 0)
    unlock(broker, "c1", 0)
    assert lock(broker, "c2", 0) == [0]


def test_no_one_unlocks_anothers_queue(broker: BrokerUnderTest) -> None:
    lock(broker, "c1", 0)
    unlock(broker, "c2", 0)
    assert lock(broker, "c2", 0) == []


def test_expired_locks_cost_no_memory(broker: BrokerUnderTest, clock: ManualClock) -> None:
    locks = broker.broker.rebalance_locks
    lock(broker, "c1", 0)
    clock.advance(61)
    locks.scan()
    assert locks.holder("g", queues(0)[0]) is None
    assert locks._locks == {}


@pytest.mark.parametrize("body", [b'{"mqSet":[]}', b'{"consumerGroup":"g"}', b'{"clientId":"c"}'])
def test_a_lock_of_no_one_is_refused(broker: BrokerUnderTest, body: bytes) -> None:
    assert broker.ask(RequestCode.LOCK_BATCH_MQ, body=body).code == ResponseCode.INVALID_PARAMETER
