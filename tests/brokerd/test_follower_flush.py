"""What a follower has received is made durable whatever else is at work with its store: it counts by that."""

from __future__ import annotations

from typing import Any, cast

import trio
from trio.testing import wait_all_tasks_blocked

from brokerd.services.replica_follower import FollowerService
from tests.brokerd.broker_under_test import MakeBroker
from tests.brokerd.replicated_broker import pair
from tests.sim.store_harness import message


def test_records_that_came_while_another_task_was_alone_with_the_store_are_flushed(make_broker: MakeBroker) -> None:
    """They stayed in memory until the next ones came, and their senders waited in vain."""
    _, follower = pair(make_broker)
    store = follower.store
    store.append([message(b"received")])
    assert store.durable_offset < store.end_offset
    following = FollowerService(cast("Any", follower.broker))

    async def run() -> None:
        flushed = trio.Event()
        async with trio.open_nursery() as nursery:
            async with follower.broker.store_gate.alone():
                nursery.start_soon(following._flush_until_done, flushed)
                await wait_all_tasks_blocked()
            with trio.fail_after(10):
                await flushed.wait()

    trio.run(run)
    assert store.durable_offset == store.end_offset
