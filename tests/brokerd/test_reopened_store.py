"""A store that could not be opened again, for want of a descriptor or of room, shows nothing, and is opened in a later round."""

from __future__ import annotations

import errno
from typing import Any, cast

import pytest
import trio

from brokerd.services.replica_follower import FollowerService
from brokerd.store import DiskFullError, FlushFailedError, StoreState
from mqwire.codes import RequestCode, ResponseCode
from tests.brokerd.broker_under_test import MakeBroker
from tests.brokerd.replicated_broker import pair, replicate
from tests.brokerd.test_damaged_replica import damage, repair
from tests.brokerd.test_offset_authority import pull_fields


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


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), DiskFullError),
        (FlushFailedError("syncing failed"), FlushFailedError),
    ],
)
def test_a_log_that_cannot_be_opened_again_after_a_repair_shows_no_one_what_is_not_confirmed(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch, failure: Exception, raised: type[Exception]
) -> None:
    leader, follower = pair(make_broker)
    leader.create_topic("orders")
    leader.create_group("g")
    damaged_from = [leader.store_message("orders") for _ in range(4)][1].physical_offset
    replicate(leader, follower)
    unconfirmed = leader.store_message("orders")
    data = leader.store.read_raw(unconfirmed.physical_offset, unconfirmed.size_bytes)
    follower.store.append_raw(data, follower.store.end_offset)
    confirmed = follower.broker.replica.confirm_offset
    follower.store.close(clean=False)
    damage(follower, damaged_from)
    follower.start()
    opened = type(follower.store).open

    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(type(follower.store), "open", fail)
    with pytest.raises(raised):
        repair(leader, follower)
    assert follower.store.wants_reopening
    answer = follower.ask(RequestCode.PULL_MESSAGE, ext_fields=pull_fields(4))
    assert (answer.code, answer.body) == (ResponseCode.SYSTEM_BUSY, b"")
    assert follower.store.confirm_offset == 0
    monkeypatch.setattr(type(follower.store), "open", opened)
    follower.store.reopen()
    assert follower.store.confirm_offset <= confirmed < follower.store.end_offset
