"""The accounts of a platform's cluster: the infrastructure's, a tenant's administrator and a program of the tenant's."""

from __future__ import annotations

from collections.abc import Callable

from mqwire.acl import SessionCredentials, Signer, sign_request
from mqwire.command import RemotingCommand
from mqwire.header import CustomHeader
from tests.brokerd.broker_under_test import FIRST_MS, BrokerUnderTest

PLATFORM = SessionCredentials("control-plane", "control-plane-secret")
TENANT_ADMIN = SessionCredentials("tenant-admin", "tenant-admin-secret")
PROGRAM = SessionCredentials("tenant-app", "tenant-app-secret")
OTHER_PROGRAM = SessionCredentials("other-app", "other-app-secret")

ACCOUNTS = """
accounts:
  - {accessKey: control-plane, secretKey: control-plane-secret, infrastructure: true}
  - {accessKey: tenant-admin, secretKey: tenant-admin-secret, admin: true}
  - {accessKey: tenant-app, secretKey: tenant-app-secret, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}
  - {accessKey: other-app, secretKey: other-app-secret, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}
"""


def signed(
    code: int,
    credentials: SessionCredentials,
    fields: dict[str, str] | None = None,
    *,
    header: CustomHeader | None = None,
    body: bytes = b"",
    version: int = 1,
    clock_ms: Callable[[], int] = lambda: FIRST_MS,
) -> RemotingCommand:
    """A request as a stock client signs it (version 1), or as the platform does (2)."""
    request = RemotingCommand.request(code, header, ext_fields=fields, body=body)
    if version == 1:
        sign_request(request, credentials)
    else:
        Signer(credentials, clock_ms).sign(request)
    return request


def ask(broker: BrokerUnderTest, code: int, credentials: SessionCredentials, **keywords: object) -> RemotingCommand:
    """The answer to a request signed as its account signs."""
    version = 2 if credentials is PLATFORM else 1
    return broker.answer(signed(code, credentials, version=version, **keywords))  # type: ignore[arg-type] # passed on
