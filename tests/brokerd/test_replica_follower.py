"""How a follower looks for its leader."""

from __future__ import annotations

from typing import NoReturn

import trio
import trio.testing

from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker

DEAD, LEADING = "10.0.0.1:10911", "10.0.0.3:10911"
LONG_S = 90.0


def asked_after_long(follower: BrokerUnderTest) -> list[str]:
    """Which replicas a follower asks that has found no leader for long."""
    asked: list[str] = []

    async def refuse(host: str, port: int) -> NoReturn:
        asked.append(f"{host}:{port}")
        await trio.lowlevel.checkpoint()
        raise ConnectionRefusedError("Connection refused")

    follower.broker._connect = refuse  # type: ignore[method-assign]

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follower.broker.follower.run)
            await trio.sleep(LONG_S)
            nursery.cancel_scope.cancel()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    return asked[-4:]


def test_a_follower_that_found_no_leader_for_long_asks_each_replica_all_the_same(make_broker: MakeBroker) -> None:
    """It asked one of them for ever: where that one was dead, no leader that was promoted later had this follower."""
    follower = make_broker(brokerRole="SLAVE", brokerId="1", totalReplicas="3")
    replica = follower.broker.replica
    replica.add_known_replica(0, DEAD)
    replica.add_known_replica(2, LEADING)
    replica.saw_epoch(2, LEADING)
    assert set(asked_after_long(follower)) == {DEAD, LEADING}
