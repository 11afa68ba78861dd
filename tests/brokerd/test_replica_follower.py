"""How a follower looks for its leader, and what it does when it cannot go on."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
import trio
import trio.testing

from brokerd.services.remoting_client import RemotingClient
from brokerd.store import StoreError
from mqwire.command import RemotingCommand
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker, RecordingPeer
from tests.brokerd.replicated_broker import ADDRESSES, pair

DEAD, LEADING = "10.0.0.1:10911", "10.0.0.3:10911"
LONG_S = 90.0


def asked_after_long(follower: BrokerUnderTest) -> list[str]:
    """Which replicas a follower asks that has found no leader for long."""
    asked: list[str] = []

    async def refuse(host: str, port: int) -> NoReturn:
        asked.append(f"{host}:{port}")
        await trio.lowlevel.checkpoint()
        raise ConnectionRefusedError("Connection refused")

    follower.broker._connect = refuse  # type: ignore[method-assign] # what it connects with

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


class _Direct(RemotingClient):
    """Its other end is the leader itself."""

    def __init__(self, leader: BrokerUnderTest) -> None:
        super().__init__(ADDRESSES[0], sign=lambda _: None, connect=NotImplemented)
        self._leader = leader

    async def request(self, command: RemotingCommand, *, timeout_s: float) -> RemotingCommand:
        await trio.sleep(0.01)
        peer = RecordingPeer()
        answers = self._leader.request(command.code, ext_fields=command.ext_fields, body=bytes(command.body), peer=peer)
        if not answers:  # it is held
            self._leader.clock.advance(1)
            self._leader.broker.answer_expired()
            answers = peer.take()
        return answers[0]


def test_a_follower_goes_on_once_its_disk_takes_again_what_it_did_not_take(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stopped for good, though its store refused nothing."""
    leader, follower = pair(make_broker)
    leader.store_message("orders")
    append_raw, failures = follower.store.append_raw, iter([StoreError("consumequeue can't be written: EIO")])

    def failing_once(*arguments: Any, **keywords: Any) -> int:
        for failure in failures:
            raise failure
        return append_raw(*arguments, **keywords)

    monkeypatch.setattr(follower.store, "append_raw", failing_once)
    monkeypatch.setattr(follower.broker, "client_of", lambda _address, **_: _Direct(leader))

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follower.broker.follower.run)
            await trio.sleep(10)
            nursery.cancel_scope.cancel()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    assert follower.store.end_offset == leader.store.end_offset
    assert follower.broker.follower.halted is None
