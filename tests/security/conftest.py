"""A broker without sockets, as in tests/brokerd, whose accounts are a platform's: the infrastructure's is apart."""

from __future__ import annotations

import pytest

from tests.brokerd.broker_under_test import BrokerUnderTest
from tests.brokerd.conftest import MakeAclBroker, clock, make_acl_broker, make_broker
from tests.security.accounts import ACCOUNTS

__all__ = ["clock", "make_acl_broker", "make_broker"]


@pytest.fixture
def platform_broker(make_acl_broker: MakeAclBroker) -> BrokerUnderTest:  # noqa: F811 - the fixture of that name
    return make_acl_broker(ACCOUNTS)
