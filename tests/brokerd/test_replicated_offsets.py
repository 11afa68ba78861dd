"""Consumer offsets between replicas: merged upwards, resets first, and bounded by a log that lost its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerd.config import BrokerConfig, load_config
from brokerd.consumer_offset import ConsumerOffsetManager
from brokerd.store import OsDisk

TOPIC, GROUP = "orders", "billing"


@pytest.fixture
def config(tmp_path: Path) -> BrokerConfig:
    return load_config(None, overrides={"storePathRootDir": str(tmp_path)}, environ={}, warn=lambda _text: None)


def manager(config: BrokerConfig, offset: int | None = None) -> ConsumerOffsetManager:
    made = ConsumerOffsetManager(config, lambda: 0, OsDisk())
    if offset is not None:
        made.commit(TOPIC, GROUP, 0, offset)
    return made


def test_a_higher_offset_is_taken_and_a_lower_one_is_told_back(config: BrokerConfig) -> None:
    own = manager(config, 5)
    assert own.merge(manager(config, 7).to_wrapper()) == []
    assert own.query(TOPIC, GROUP, 0) == 7
    assert own.merge(manager(config, 3).to_wrapper()) == [(TOPIC, GROUP, 0, 7)]
    assert own.query(TOPIC, GROUP, 0) == 7


def test_a_reset_elsewhere_lowers_the_offset_once(config: BrokerConfig) -> None:
    own, theirs = manager(config, 9), manager(config, 9)
    theirs.reset(TOPIC, GROUP, 0, 2)
    assert own.merge(theirs.to_wrapper()) == []
    assert own.query(TOPIC, GROUP, 0) == 2
    own.commit(TOPIC, GROUP, 0, 4)
    assert own.merge(theirs.to_wrapper()) == [(TOPIC, GROUP, 0, 4)]


def test_a_reset_here_is_not_undone_by_a_replica_that_missed_it(config: BrokerConfig) -> None:
    own = manager(config, 9)
    own.reset(TOPIC, GROUP, 0, 2)
    assert own.merge(manager(config, 9).to_wrapper()) == []
    assert own.query(TOPIC, GROUP, 0) == 2


def test_reset_counts_survive_a_restart(config: BrokerConfig) -> None:
    own = manager(config, 9)
    own.reset(TOPIC, GROUP, 0, 2)
    own.persist()
    again = manager(config)
    again.load()
    assert again.to_wrapper().reset_count_table == {f"{TOPIC}@{GROUP}": {0: 1}}


def test_offsets_behind_the_queues_end_come_back_to_it(config: BrokerConfig) -> None:
    own = manager(config, 9)
    own.bound(lambda _topic, _queue_id: 6)
    assert own.query(TOPIC, GROUP, 0) == 6


def test_offsets_of_a_queue_that_is_not_there_are_left_alone(config: BrokerConfig) -> None:
    own = manager(config, 9)
    own.bound(lambda _topic, _queue_id: None)
    assert own.query(TOPIC, GROUP, 0) == 9
