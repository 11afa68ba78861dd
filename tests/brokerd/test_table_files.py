"""brokerd/services/table_files.py: the files of topics and groups are written after the answers, off the event loop."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from unittest.mock import Mock

import pytest
import trio

from brokerd import config_file
from brokerd.store import Disk, StoreError
from mqwire.bodies import SubscriptionGroupConfig, TopicConfig
from tests.brokerd.broker_under_test import BrokerUnderTest

STORE = config_file.store
Store = Callable[[str, bytes, Disk], None]


def topics_on_disk(broker: BrokerUnderTest) -> set[str]:
    path = broker.folder / "store" / "config" / "topics.json"
    content = json.loads(path.read_text()) if path.exists() else {"topicConfigTable": {}}
    return {name for name in content["topicConfigTable"] if name.startswith("orders")}


async def until(condition: Callable[[], bool]) -> None:
    while True:
        if condition():
            return
        await trio.sleep(0.01)


def replace_store(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    monkeypatch.setattr(config_file, "store", store)


@pytest.mark.trio
async def test_a_changed_table_is_written_in_a_thread(broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def noting(path: str, content: bytes, disk: Disk) -> None:
        threads.append(threading.current_thread())
        STORE(path, content, disk)

    replace_store(monkeypatch, noting)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.broker.table_files.run)
        broker.create_topic("orders")
        await until(lambda: bool(threads))
        nursery.cancel_scope.cancel()
    assert threading.current_thread() not in threads
    assert topics_on_disk(broker) == {"orders"}


@pytest.mark.trio
async def test_changes_during_a_write_share_the_next_one(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    begun, may_end = threading.Event(), threading.Event()

    def slow(path: str, content: bytes, disk: Disk) -> None:
        begun.set()
        may_end.wait()
        STORE(path, content, disk)
        written.append(path)

    replace_store(monkeypatch, slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.broker.table_files.run)
        broker.create_topic("orders-0")
        await trio.to_thread.run_sync(begun.wait)
        for number in range(1, 50):
            broker.create_topic(f"orders-{number}")
        may_end.set()
        await until(lambda: len(topics_on_disk(broker)) == 50)
        nursery.cancel_scope.cancel()
    assert len([path for path in written if path.endswith("topics.json")]) == 2


@pytest.mark.trio
async def test_a_file_that_the_disk_refuses_is_written_once_it_takes_it(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = Mock(side_effect=OSError(28, "No space left on device"))
    replace_store(monkeypatch, refused)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.broker.table_files.run)
        broker.create_topic("orders")
        await until(lambda: refused.called)
        replace_store(monkeypatch, STORE)
        await until(lambda: topics_on_disk(broker) == {"orders"})
        nursery.cancel_scope.cancel()


def test_the_first_change_after_others_wrote_the_file_replaces_it_before_the_answer(broker: BrokerUnderTest) -> None:
    broker.stop()
    (broker.folder / "store" / "config" / "topics.json").write_text(
        '{"dataVersion":{"counter":9},"topicConfigTable":{"mine":{"topicName":"mine","perm":6}}}'
    )
    broker.start()
    broker.create_topic("orders")
    broker.crash()  # with nothing else written: the operator's file would count more than the log again
    assert isinstance(broker.broker.topic_configs.select("orders"), TopicConfig)


def stop_for_a_file_of_others(broker: BrokerUnderTest, name: str, content: str) -> None:
    broker.stop()
    (broker.folder / "store" / "config" / name).write_text(content)


def test_a_change_is_refused_while_a_file_that_others_wrote_cannot_be_replaced(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start would believe that file, and the change would be gone."""
    groups = '{"dataVersion":{"counter":9},"subscriptionGroupTable":{"mine":{"groupName":"mine"}}}'
    stop_for_a_file_of_others(broker, "subscriptionGroup.json", groups)
    replace_store(monkeypatch, Mock(side_effect=OSError(28, "No space left on device")))
    broker.start()
    with pytest.raises(StoreError, match=r"subscriptionGroup\.json, which others wrote, cannot be replaced"):
        broker.broker.subscription_groups.put(SubscriptionGroupConfig(group_name="g"))
    assert broker.broker.subscription_groups.select("g") is None
    replace_store(monkeypatch, STORE)
    broker.broker.subscription_groups.put(SubscriptionGroupConfig(group_name="g"))
    broker.crash()
    assert broker.broker.subscription_groups.select("g") is not None
    assert broker.broker.subscription_groups.select("mine") is not None


def test_a_reset_outlasts_offsets_that_others_wrote(broker: BrokerUnderTest) -> None:
    broker.create_topic("orders")
    stop_for_a_file_of_others(broker, "consumerOffset.json", '{"offsetTable":{"orders@g":{0:7}}}')
    broker.start()
    broker.broker.consumer_offsets.reset("orders", "g", {0: 3})
    broker.crash()
    assert broker.broker.consumer_offsets.query("orders", "g", 0) == 3
