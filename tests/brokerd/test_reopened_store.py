"""A store that could not be opened again, for want of a descriptor or of room, shows nothing, and is opened in a later round."""

from __future__ import annotations

import contextlib
import errno
from typing import Any, cast

import pytest
import trio

from brokerd.replica.epoch_file import EpochFile, EpochState
from brokerd.services.replica_follower import FollowerService
from brokerd.store import AppendFailedError, DiskFullError, FlushFailedError, StoreState
from brokerd.store.commit_log import CommitLog
from mqwire.codes import RequestCode, ResponseCode
from mqwire.headers_replica import ReplicaPullResponseHeader
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


def test_a_follower_that_stopped_has_gone_on_once_its_store_was_opened_again(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said for ever that it had stopped, and no one could have it promoted."""
    _, follower = pair(make_broker)
    store, following = follower.store, follower.broker.follower

    async def fails() -> None:
        raise store._status.latch(AppendFailedError("Input/output error"))

    async def round_that_fails() -> None:
        with trio.move_on_after(0.05):
            await following._one_round()

    monkeypatch.setattr(following, "_follow", fails)
    trio.run(round_that_fails)
    assert following.halted == "Input/output error"
    store.close(clean=False)
    store.open()
    assert store.refusal is None
    assert following.halted is None


def test_a_follower_that_starts_over_says_so_though_it_had_stopped_before(make_broker: MakeBroker) -> None:
    _, follower = pair(make_broker)
    following = follower.broker.follower
    following._halted, following._starting_over = "it had stopped", True
    assert "has not caught up yet" in (following.halted or "")


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


def test_a_flush_that_comes_while_it_is_closed_calls_nothing_failed(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make_broker(flushDiskType="ASYNC_FLUSH")
    broker.create_topic("orders")
    ends = [broker.store_message("orders").physical_offset for _ in range(4)]
    broker.store.flush()
    durable = CommitLog.make_recovered_durable

    def lacks_descriptors(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(CommitLog, "make_recovered_durable", lacks_descriptors)
    with pytest.raises(DiskFullError):
        broker.store.truncate(ends[2])
    assert trio.run(broker.broker.flush_service.flush_once)
    monkeypatch.setattr(CommitLog, "make_recovered_durable", durable)
    broker.store.reopen()
    assert broker.broker.refuses_sends() is None
    assert broker.store.durable_offset == broker.store.end_offset == ends[2]


@pytest.mark.parametrize("fails", [False, True])
def test_what_counts_messages_goes_by_a_truncated_log_though_writing_that_down_failed(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    leader, follower = pair(make_broker)
    replicate(leader, follower)
    end_offset = leader.store.end_offset
    leader.store_message("orders")
    replicate(leader, follower)
    told: list[int] = []
    monkeypatch.setattr(
        type(follower.broker.schedule), "log_was_truncated", lambda _: told.append(follower.store.end_offset)
    )
    saves = 0
    save = EpochFile.save

    def failing(file: EpochFile, state: EpochState) -> None:
        nonlocal saves
        saves += 1
        if fails and follower.store.end_offset == end_offset:
            raise OSError(errno.EIO, "Input/output error")
        save(file, state)

    monkeypatch.setattr(EpochFile, "save", failing)
    following = FollowerService(cast("Any", follower.broker))
    epoch = follower.broker.replica.epoch
    header = ReplicaPullResponseHeader(
        answer="diverged", epoch=epoch, diverged_epoch=epoch, diverged_end_offset=end_offset
    )
    with pytest.raises(OSError, match="Input/output") if fails else contextlib.nullcontext():
        trio.run(following._truncate_to, header)
    assert saves
    assert told == [end_offset]
