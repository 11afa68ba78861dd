"""A follower whose store was left closed for want of a descriptor opens it again by itself."""

from __future__ import annotations

import errno
from typing import Any, cast

import pytest
import trio

from brokerd.services.replica_follower import FollowerService
from brokerd.store import DiskFullError, StoreState
from tests.brokerd.broker_under_test import MakeBroker
from tests.brokerd.replicated_broker import pair


def test_the_next_round_opens_it_again(make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    _, follower = pair(make_broker)
    store = follower.store
    end_offset = store.end_offset
    lower = type(store)._lower_checkpoint
    lacks = OSError(errno.EMFILE, "Too many open files")

    def fail(*_: object) -> None:
        raise lacks

    monkeypatch.setattr(type(store), "_lower_checkpoint", fail)
    with pytest.raises(DiskFullError):
        store.truncate(end_offset)
    assert store.wants_reopening
    monkeypatch.setattr(type(store), "_lower_checkpoint", lower)
    following = FollowerService(cast("Any", follower.broker))

    async def rounds() -> None:
        with trio.move_on_after(0.5):
            await following._one_round()

    trio.run(rounds)
    assert store.state is StoreState.RUNNING
    assert store.end_offset == end_offset
    assert following.halted is None
