"""A broker without sockets, as in tests/brokerd, whose accounts are a platform's: the infrastructure's is apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokerd.acl_accounts import MakeAclBroker
from tests.brokerd.broker_under_test import BrokerUnderTest
from tests.brokerd.conftest import clock, make_acl_broker, make_broker
from tests.security.accounts import ACCOUNTS

__all__ = ["clock", "make_acl_broker", "make_broker"]


@pytest.fixture
def asking_broker(make_acl_broker: MakeAclBroker, tmp_path: Path) -> BrokerUnderTest:
    """One that asks clients for certificates, as those of clusters that were born with TLS do."""
    path = tmp_path / "tls.pem"
    path.touch()
    names = ("tls.server.certPath", "tls.server.keyPath", "tls.server.trustCertPath")
    as_rendered = ACCOUNTS.replace("infrastructure: true", "infrastructure: true, admin: true")
    return make_acl_broker(
        as_rendered, **dict.fromkeys(names, str(path)), **{"tls.server.need.client.auth": "optional"}
    )


@pytest.fixture
def platform_broker(make_acl_broker: MakeAclBroker) -> BrokerUnderTest:
    return make_acl_broker(ACCOUNTS)
