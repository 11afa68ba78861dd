"""The accounts of tests of access control, and how a request of theirs ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from mqwire.acl import SessionCredentials
from tests.brokerd.broker_under_test import BrokerUnderTest

ADMIN = SessionCredentials("operator", "operator-secret")
ALICE = SessionCredentials("alice-app", "alice-secret")

ACCOUNTS = """
globalWhiteRemoteAddresses:
  - 127.0.0.1
  - 10.*.*.*
accounts:
  - accessKey: operator
    secretKey: operator-secret
    admin: true
  - accessKey: alice-app
    secretKey: alice-secret
    whiteRemoteAddress: 127.0.0.1
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms:
      - orders=PUB|SUB
      - audit=PUB
      - news=SUB
      - closed=DENY
    groupPerms:
      - alice-group=SUB
      - idle=DENY
"""
SEND_FIELDS = {"a": "p", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0"}


class MakeAclBroker(Protocol):
    """The fixture make_acl_broker: a broker with access control, whose file holds the given text, and more keys of broker.conf."""

    def __call__(self, text: str = ..., **keys: str) -> BrokerUnderTest: ...


def accounts_file(broker: BrokerUnderTest) -> Path:
    return Path(broker.config.acl_config_file)


def code_of(
    broker: BrokerUnderTest,
    code: int,
    fields: dict[str, str] | None = None,
    *,
    signed_as: SessionCredentials = ALICE,
    **keywords: Any,
) -> int:
    return broker.ask(code, ext_fields=fields, signed_as=signed_as, **keywords).code


def remark_of(
    broker: BrokerUnderTest,
    code: int,
    fields: dict[str, str] | None = None,
    *,
    signed_as: SessionCredentials = ALICE,
    **keywords: Any,
) -> str:
    return broker.ask(code, ext_fields=fields, signed_as=signed_as, **keywords).remark or ""
