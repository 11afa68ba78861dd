"""The loops around the pure parts: delayed deliveries, persisted progress, accounts changed by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from brokerd.run import watch_accounts
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
