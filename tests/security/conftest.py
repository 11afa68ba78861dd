"""A broker without sockets, as in tests/brokerd, whose accounts are a platform's: the infrastructure's is apart."""

from __future__ import annotations

import pytest

from tests.brokerd.acl_accounts import MakeAclBroker
from tests.brokerd.broker_under_test import BrokerUnderTest
from tests.brokerd.conftest import clock, make_acl_broker, make_broker
from tests.security.accounts import ACCOUNTS

__all__ = ["clock", "make_acl_broker", "make_broker"]


@pytest.fixture
def platform_broker(make_acl_broker: MakeAclBroker) -> BrokerUnderTest:
    return make_acl_broker(ACCOUNTS)
