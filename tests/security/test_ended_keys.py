"""What a key opened ends with it, at a real broker."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from mqwire.acl import Signer
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_broker import CreateAccessConfigRequestHeader, DeleteAccessConfigRequestHeader
from tests.remoting import exchange
from tests.security.accounts import ACCOUNTS, OTHER_PROGRAM, PLATFORM, PROGRAM, TENANT_ADMIN, signed
from tests.security.live_broker import LiveBroker, answers, send_request


@contextlib.contextmanager
def stopped(broker: LiveBroker) -> Iterator[None]:
    """Have it stopped afterwards."""
    try:
        yield
    finally:
        broker.daemon.stop()


def delete_program() -> RemotingCommand:
    header = DeleteAccessConfigRequestHeader(access_key=PROGRAM.access_key)
    request = RemotingCommand.request(RequestCode.DELETE_ACL_CONFIG, header)
    Signer(PLATFORM).sign(request)
    return request


def test_a_deleted_keys_connections_end_and_others_go_on(tmp_path: Path) -> None:
    broker = LiveBroker(tmp_path / "broker")
    with stopped(broker), broker.connection() as its, broker.connection() as others:
        assert exchange(its, send_request(b"x")).code == ResponseCode.SUCCESS
        assert exchange(others, send_request(b"x", OTHER_PROGRAM)).code == ResponseCode.SUCCESS
        with broker.connection() as platform:
            assert exchange(platform, delete_program()).code == ResponseCode.SUCCESS
        assert answers(its, 1) == []
        assert exchange(others, send_request(b"x", OTHER_PROGRAM)).code == ResponseCode.SUCCESS


def test_who_changes_the_own_secret_is_answered_before_the_connection_ends(tmp_path: Path) -> None:
    accounts = tmp_path / "accounts.yml"
    accounts.write_text("".join(line for line in ACCOUNTS.splitlines(keepends=True) if "control-plane" not in line))
    broker = LiveBroker(tmp_path / "broker", aclConfigFile=str(accounts))
    with stopped(broker), broker.connection() as stream:
        header = CreateAccessConfigRequestHeader(
            access_key=TENANT_ADMIN.access_key, secret_key="another-secret", admin=True
        )
        request = signed(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, TENANT_ADMIN, header=header)
        assert exchange(stream, request).code == ResponseCode.SUCCESS
        assert answers(stream, 1) == []
