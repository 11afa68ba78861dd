"""The loops around the pure parts: delayed deliveries, persisted progress, accounts changed by hand."""

from __future__ import annotations

import contextlib
import errno
import json
from pathlib import Path

import pytest
import trio

from brokerd.broker import Broker
from brokerd.environment import Environment
from brokerd.run import open_broker, serve, watch_accounts
from brokerd.store import OsDisk
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker, ManualClock


@pytest.mark.trio
async def test_delayed_messages_are_delivered_and_their_progress_is_persisted(
    make_broker: MakeBroker, clock: ManualClock, autojump_clock: trio.testing.MockClock
) -> None:
    broker = make_broker(flushDelayOffsetInterval="10000")
    broker.store_message("orders", b"later", properties={"DELAY": "1"})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.broker.schedule.run)
        await trio.sleep(0.5)
        assert broker.messages("orders") == []
        clock.advance(1)
        await trio.sleep(0.5)
        assert [message.body for message in broker.messages("orders")] == [b"later"]
        broker.store.flush()
        await trio.sleep(11)
        nursery.cancel_scope.cancel()  # ends when the thread that writes has ended
    content = (broker.folder / "store" / "config" / "delayOffset.json").read_text()
    assert json.loads(content)["offsetTable"] == {"1": 1}


@pytest.mark.trio
async def test_deliveries_go_on_after_a_failure_that_no_one_foresaw(
    broker: BrokerUnderTest, clock: ManualClock, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.store_message("orders", b"later", properties={"DELAY": "1"})
    clock.advance(1)
    failures = [KeyError("unforeseen")]
    deliver_due = broker.broker.schedule.deliver_due

    def failing_once() -> bool:
        if failures:
            raise failures.pop()
        return deliver_due()

    monkeypatch.setattr(broker.broker.schedule, "deliver_due", failing_once)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.broker.schedule.run)
        await trio.sleep(11)
        assert [message.body for message in broker.messages("orders")] == [b"later"]
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_accounts_that_were_changed_by_hand_are_taken_over_within_seconds(
    make_broker: MakeBroker, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text("accounts: [{accessKey: operator, secretKey: operator-secret, admin: true}]")
    broker = make_broker(aclEnable="true", aclConfigFile=str(path))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch_accounts, broker.access_control)
        await trio.sleep(1.5)
        path.write_text("accounts: [{accessKey: newcomer, secretKey: newcomer-secret, admin: true}]")
        await trio.sleep(1.5)
        assert list(broker.access_control.accounts) == ["newcomer"]
        nursery.cancel_scope.cancel()


class DiskThatMayRefuseTables(OsDisk):
    """Small files of the broker's can be read then, and not be replaced."""

    refuses = False

    def rename(self, source: str, target: str) -> None:
        if self.refuses and ("/config/" in target or target.endswith("epoch.json")):
            raise OSError(errno.EIO, "Input/output error")
        super().rename(source, target)


@pytest.mark.trio
async def test_a_stop_closes_the_log_though_no_table_can_be_written(make_broker: MakeBroker) -> None:
    """The next start took it for killed."""
    disk = DiskThatMayRefuseTables()
    made: list[Broker] = []

    async def order() -> str:
        made[0].consumer_offsets.commit("orders", "g", 0, 1)
        disk.refuses = True
        return "an order"

    before = make_broker(listenPort="0")
    before.stop()
    environment = Environment(disk=disk, clock=before.clock, stop_orders=lambda: contextlib.nullcontext(order))
    server, broker = open_broker(before.config, environment)
    made.append(broker)
    await serve(server, broker, environment, on_ready=lambda _: None)
    assert not (before.folder / "store" / "abort").exists()
