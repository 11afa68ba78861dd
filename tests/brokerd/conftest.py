"""A broker for each test; broker_under_test.py says what it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokerd.acl_accounts import ACCOUNTS, MakeAclBroker
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker, ManualClock, RecordingPeer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make_broker(tmp_path: Path, clock: ManualClock) -> Iterator[MakeBroker]:
    """Makes a broker with the given keys of broker.conf; all are stopped at the end."""
    made: list[BrokerUnderTest] = []

    def make(**keys: str) -> BrokerUnderTest:
        folder = tmp_path / f"broker{len(made)}"
        folder.mkdir()
        made.append(BrokerUnderTest(folder, clock, **keys))
        return made[-1]

    yield make
    for broker in made:
        broker.stop()


@pytest.fixture
def broker(make_broker: MakeBroker) -> BrokerUnderTest:
    """A broker with RocketMQ's defaults."""
    return make_broker()


@pytest.fixture
def new_peer() -> type[RecordingPeer]:
    return RecordingPeer


@pytest.fixture
def make_acl_broker(make_broker: MakeBroker, tmp_path: Path) -> MakeAclBroker:
    """A broker with access control, whose file holds the given text, and more keys of broker.conf."""

    def make(text: str = ACCOUNTS, **keys: str) -> BrokerUnderTest:
        path = tmp_path / "plain_acl.yml"
        path.write_text(text)
        return make_broker(aclEnable="true", aclConfigFile=str(path), **keys)

    return make


@pytest.fixture
def acl_broker(make_acl_broker: MakeAclBroker) -> BrokerUnderTest:
    return make_acl_broker()
