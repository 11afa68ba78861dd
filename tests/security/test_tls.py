"""TLS on the ports of brokers and name servers, beside plain text."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
import trio
from cryptography.hazmat.primitives import serialization

from brokerd.admission import Admission
from brokerd.config import BrokerConfig
from brokerd.environment import OsNetwork
from brokerd.server import Server
from controlplane.clusters.models import Cluster
from controlplane.clusters.secrets import secret_encrypt
from controlplane.clusters.tls import cluster_tls
from highwater import Credentials, Message, Producer
from mqwire.acl import Signer, sign_request
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.tls import ReloadedContext, TlsConfigError, TlsFiles, server_context
from namesrvd.config import NamesrvConfig
from namesrvd.server import OPEN_RECORD_BYTES
from namesrvd.server import Server as NameServer
from tests.daemons import BrokerDaemon, NameServerDaemon
from tests.noted_turns import turns_noted
from tests.processes import wait_until
from tests.remoting import connect, exchange
from tests.security.accounts import ACCOUNTS, PLATFORM, PROGRAM
from tests.security.certificates import Authority
from tests.security.live_broker import MEBIBYTE, LiveBroker
from tests.security.test_no_one_takes_the_name_server_down import name_server

MakeLiveBroker = Callable[..., LiveBroker]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def make_live_broker(tmp_path: Path) -> Iterator[MakeLiveBroker]:
    made: list[LiveBroker] = []

    def make(*prefix: str, **conf: str) -> LiveBroker:
        made.append(LiveBroker(tmp_path / f"live{len(made)}", prefix, **conf))
        return made[-1]

    yield make
    for broker in made:
        broker.daemon.kill()


def keys(authority: Authority, name: str = "broker", **more: str) -> dict[str, str]:
    identity = authority.issue(name)
    return {
        "tls.server.certPath": str(identity.cert_path),
        "tls.server.keyPath": str(identity.key_path),
        "tls.server.trustCertPath": str(authority.cert_path),
        **more,
    }


def secured(address: str, context: ssl.SSLContext) -> ssl.SSLSocket:
    return context.wrap_socket(connect(address), server_hostname="127.0.0.1")


def route_request() -> RemotingCommand:
    return RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO)


def test_plain_text_and_tls_share_the_port(make_live_broker: MakeLiveBroker, authority: Authority) -> None:
    broker = make_live_broker(**keys(authority))
    with secured(broker.address, authority.client_context()) as stream, broker.connection() as plain:
        assert broker.send(stream).code == ResponseCode.SUCCESS
        assert broker.send(plain).code == ResponseCode.SUCCESS
        assert stream.version() == "TLSv1.3"


def test_large_messages_and_many_requests_pass_through_tls(
    make_live_broker: MakeLiveBroker, authority: Authority
) -> None:
    broker = make_live_broker(**keys(authority))
    with secured(broker.address, authority.client_context()) as stream:
        for size in (0, 1, 16 * 1024, 4 * MEBIBYTE - 1024, *range(100, 300)):
            assert broker.send(stream, bytes(size) or b"x").code == ResponseCode.SUCCESS


def test_enforcing_takes_no_plain_text(authority: Authority, tmp_path: Path) -> None:
    daemon = BrokerDaemon(tmp_path, "", keys(authority, **{"tls.server.mode": "enforcing"})).start()
    try:
        with connect(daemon.address) as plain, pytest.raises(ConnectionError):
            exchange(plain, route_request())
        with secured(daemon.address, authority.client_context()) as stream:
            request = RemotingCommand.request(RequestCode.GET_BROKER_CONFIG)
            assert exchange(stream, request).code == ResponseCode.SUCCESS
    finally:
        daemon.kill()


@pytest.mark.parametrize("conf", [{}, {"tls.server.mode": "disabled"}])
def test_where_tls_is_not_offered_a_handshake_ends_the_connection(
    make_live_broker: MakeLiveBroker, authority: Authority, conf: dict[str, str]
) -> None:
    broker = make_live_broker(**({} if not conf else keys(authority, **conf)))
    with pytest.raises((OSError, ssl.SSLError)):
        secured(broker.address, authority.client_context())


def test_versions_older_than_1_2_are_refused(make_live_broker: MakeLiveBroker, authority: Authority) -> None:
    broker = make_live_broker(**keys(authority))
    assert server_context(TlsFiles(**paths(authority, "x"))).minimum_version is ssl.TLSVersion.TLSv1_2
    old = authority.client_context()
    old.set_ciphers("ALL:@SECLEVEL=0")  # OpenSSL itself offers so old a version no more
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError, match=r"(?i)alert.protocol.version"):
        secured(broker.address, old)
    context = authority.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with secured(broker.address, context) as stream:
        assert stream.version() == "TLSv1.2"


def paths(authority: Authority, name: str) -> dict[str, str]:
    identity = authority.issue(name)
    return {"cert_path": str(identity.cert_path), "key_path": str(identity.key_path)}


def serial_of(address: str, context: ssl.SSLContext) -> str:
    with secured(address, context) as stream:
        certificate = stream.getpeercert()
        assert certificate is not None
        return str(certificate["serialNumber"])


def test_a_renewed_certificate_is_shown_without_a_restart(
    make_live_broker: MakeLiveBroker, authority: Authority
) -> None:
    broker = make_live_broker(**keys(authority, "renewed"))
    context = authority.client_context()
    with secured(broker.address, context) as earlier:
        before = serial_of(broker.address, context)
        authority.issue("renewed")
        wait_until(lambda: serial_of(broker.address, context) != before, timeout_s=30, what="the new certificate")
        assert broker.send(earlier).code == ResponseCode.SUCCESS


def test_keys_may_be_encrypted(make_live_broker: MakeLiveBroker, authority: Authority, tmp_path: Path) -> None:
    conf = keys(authority, "encrypted")
    plain_key = serialization.load_pem_private_key(Path(conf["tls.server.keyPath"]).read_bytes(), password=None)
    encrypted = tmp_path / "encrypted.key"
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    encrypted.write_bytes(plain_key.private_bytes(*form, serialization.BestAvailableEncryption(b"a-secret")))
    conf |= {"tls.server.keyPath": str(encrypted), "tls.server.keyPassword": "a-secret"}
    broker = make_live_broker(**conf)
    names = NameServerDaemon(tmp_path / "names", conf).start()
    try:
        for address in (broker.address, names.address):
            with secured(address, authority.client_context()) as stream:
                assert stream.version() == "TLSv1.3"
    finally:
        names.kill()


def test_files_that_broke_leave_the_former_certificate_in_force(authority: Authority) -> None:
    now = [0.0]
    files = TlsFiles(**paths(authority, "breaking"))
    reloaded = ReloadedContext(files, server_context, lambda: now[0])
    before = reloaded.get()
    Path(files.cert_path).write_text("no certificate")
    now[0] += 2
    assert reloaded.get() is before
    with pytest.raises(TlsConfigError, match=r"tls\.server\.certPath"):
        server_context(files)


def test_a_client_without_a_certificate_is_refused_where_one_is_required(
    make_live_broker: MakeLiveBroker, authority: Authority, tmp_path: Path
) -> None:
    conf = keys(authority, "strict", **{"tls.server.need.client.auth": "require"})
    broker = make_live_broker(**conf)
    with secured(broker.address, authority.client_context(authority.issue("replica"))) as stream:
        assert broker.send(stream).code == ResponseCode.SUCCESS
    stranger = Authority(tmp_path / "another-ca").issue("stranger")
    for context in (authority.client_context(), authority.client_context(stranger)):
        with pytest.raises(OSError), secured(broker.address, context) as stream:  # noqa: PT011 - closed or refused
            broker.send(stream)


def test_the_control_plane_shows_a_certificate_of_the_clusters_ca_and_trusts_no_other(
    make_live_broker: MakeLiveBroker, authority: Authority, tmp_path: Path
) -> None:
    requiring = {"tls.server.need.client.auth": "require", "tls.server.trustCertPath": str(authority.cert_path)}
    broker = make_live_broker(**keys(authority, "broker", **requiring))

    def context_of(owner: Authority) -> ssl.SSLContext:
        context = cluster_tls(
            Cluster(tls_ca=owner.pair.cert_pem, tls_ca_key_encrypted=secret_encrypt(owner.pair.key_pem))
        )
        assert context is not None
        return context

    with secured(broker.address, context_of(authority)) as stream:
        assert broker.send(stream).code == ResponseCode.SUCCESS
    with pytest.raises(ssl.SSLCertVerificationError):
        secured(broker.address, context_of(Authority(tmp_path / "another-ca")))


def test_a_handshake_that_stalls_holds_up_no_one(make_live_broker: MakeLiveBroker, authority: Authority) -> None:
    broker = make_live_broker(**keys(authority))
    with socket.create_connection(broker.address.rsplit(":", 1)) as stalled:  # type: ignore[arg-type] # its two parts
        stalled.sendall(b"\x16\x03\x01")
        with secured(broker.address, authority.client_context()) as stream:
            assert broker.send(stream).code == ResponseCode.SUCCESS


def test_stalled_handshakes_that_made_room_hold_no_descriptors(
    make_live_broker: MakeLiveBroker, authority: Authority
) -> None:
    broker = make_live_broker("prlimit", "--nofile=400:400", "--", **keys(authority))
    with contextlib.ExitStack() as strangers, broker.connection() as earlier:
        assert broker.send(earlier).code == ResponseCode.SUCCESS
        for _ in range(600):
            strangers.enter_context(connect(broker.address)).sendall(b"\x16\x03\x01")
        with secured(broker.address, authority.client_context()) as later:
            assert broker.send(later).code == ResponseCode.SUCCESS
        assert broker.send(earlier).code == ResponseCode.SUCCESS
    assert "Too many open files" not in broker.log


def test_where_all_is_enforced_brokers_register_the_sdk_sends_and_a_stolen_key_of_the_infrastructure_rules_nothing(
    authority: Authority, tmp_path: Path
) -> None:
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    acl = {"aclEnable": "true", "aclConfigFile": str(accounts)}
    enforcing = {"tls.server.mode": "enforcing"}
    asking = {**enforcing, "tls.server.need.client.auth": "optional"}
    names = NameServerDaemon(tmp_path / "names", {**acl, **keys(authority, "names", **asking)}).start()
    own = authority.issue("own")
    conf = {
        **acl,
        **keys(authority, "enforced", **asking),
        "tls.enable": "true",
        "tls.client.certPath": str(own.cert_path),
        "tls.client.keyPath": str(own.key_path),
        "tls.client.trustCertPath": str(authority.cert_path),
        "innerClientAuthenticationCredentials": '{"accessKey":"control-plane","secretKey":"control-plane-secret"}',
        "autoCreateTopicEnable": "true",
    }
    broker = BrokerDaemon(tmp_path / "broker", names.address, conf).start()
    try:
        with connect(names.address) as plain, pytest.raises(ConnectionError):
            exchange(plain, route_request())

        def registered() -> bool:
            with secured(names.address, authority.client_context(own)) as stream:
                request = route_request()
                sign_request(request, PROGRAM)
                return broker.address.encode() in bytes(exchange(stream, request).body)

        wait_until(registered, timeout_s=60, what="the registration over TLS")
        credentials = Credentials(PROGRAM.access_key, PROGRAM.secret_key)
        with Producer(names.address, credentials=credentials, use_tls=authority.client_context()) as producer:
            assert producer.send(Message("orders", b"over TLS")).status.name == "SEND_OK"
        for address in (names.address, broker.address):  # with the infrastructure's key, as a thief of it
            assert accounts_asked(address, authority.client_context(own)) == ResponseCode.SUCCESS
            assert accounts_asked(address, authority.client_context()) == ResponseCode.NO_PERMISSION
    finally:
        broker.kill()
        names.kill()


def accounts_asked(address: str, context: ssl.SSLContext) -> int:
    """How the infrastructure's request for the version of the accounts is answered."""
    request = RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
    Signer(PLATFORM).sign(request)
    with secured(address, context) as stream:
        return exchange(stream, request).code


@pytest.mark.trio
async def test_a_connection_that_made_room_before_its_first_turn_ends_no_broker(authority: Authority) -> None:
    cert_path, key_path = paths(authority, "room").values()
    config = BrokerConfig(
        bind_address="127.0.0.1", listen_port=0, tls_server_cert_path=cert_path, tls_server_key_path=key_path
    )
    server = Server(config, OsNetwork())
    server._admission = Admission(1)
    server.listen()
    with trio.fail_after(30), connect(server.address), connect(server.address):  # both are accepted in one step
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run, Mock())
            (await trio.to_thread.run_sync(secured, server.address, authority.client_context())).close()
            nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_each_step_of_a_handshake_takes_a_strangers_turn_at_a_broker(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert_path, key_path = paths(authority, "turns").values()
    config = BrokerConfig(
        bind_address="127.0.0.1", listen_port=0, tls_server_cert_path=cert_path, tls_server_key_path=key_path
    )
    server = Server(config, OsNetwork())
    noted = turns_noted(monkeypatch, server._shares)
    server.listen()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run, Mock())
            context = authority.client_context()
            with await trio.to_thread.run_sync(secured, server.address, context):
                while len(noted) < 2:  # nothing has been asked yet
                    await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    assert noted[:2] == ["turn of a stranger", "time of a stranger"]


@pytest.mark.trio
async def test_each_step_of_a_handshake_takes_a_strangers_turn_at_a_name_server(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert_path, key_path = paths(authority, "turns").values()
    config = NamesrvConfig(
        bind_address="127.0.0.1", listen_port=0, tls_server_cert_path=cert_path, tls_server_key_path=key_path
    )
    server = name_server(config)
    noted = turns_noted(monkeypatch, server._shares)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            host, port = await nursery.start(server.run)
            context = authority.client_context()
            with await trio.to_thread.run_sync(secured, f"{host}:{port}", context):
                # For the first byte, and each of two messages; nothing has been asked yet.
                while noted.count("turn of a stranger") < 3:
                    await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    assert "time of a stranger" in noted


@contextlib.asynccontextmanager
async def served(authority: Authority) -> AsyncIterator[tuple[NameServer, ssl.SSLSocket]]:
    """A name server in this process, and a stranger that speaks TLS with it."""
    cert_path, key_path = paths(authority, "served").values()
    config = NamesrvConfig(
        bind_address="127.0.0.1", listen_port=0, tls_server_cert_path=cert_path, tls_server_key_path=key_path
    )
    server, context = name_server(config), authority.client_context()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            host, port = await nursery.start(server.run)
            with await trio.to_thread.run_sync(secured, f"{host}:{port}", context) as stream:
                yield server, stream
            nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_requests_of_a_stranger_that_came_together_over_tls_take_a_turn_each(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "x"}, oneway=True)
    async with served(authority) as (server, stream):
        noted = turns_noted(monkeypatch, server._shares)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        for _ in range(15):
            stream.sendall(request.encode())
        last = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "x"})
        stream.sendall(last.encode())
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
        await trio.to_thread.run_sync(stream.recv, 1000)
    assert noted.count("time of a stranger") >= 15


@pytest.mark.trio
async def test_a_part_of_a_record_counts_among_what_strangers_have_under_way(authority: Authority) -> None:
    async with served(authority) as (server, stream):
        os.write(stream.fileno(), PART_OF_A_RECORD)
        while server._frames[False].total_bytes != OPEN_RECORD_BYTES:
            await trio.lowlevel.checkpoint()


@pytest.mark.trio
async def test_a_part_of_a_record_counts_at_a_broker_too(authority: Authority) -> None:
    cert_path, key_path = paths(authority, "served").values()
    config = BrokerConfig(
        bind_address="127.0.0.1", listen_port=0, tls_server_cert_path=cert_path, tls_server_key_path=key_path
    )
    server, context = Server(config, OsNetwork()), authority.client_context()
    server.listen()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run, Mock())
            with await trio.to_thread.run_sync(secured, server.address, context) as stream:
                os.write(stream.fileno(), PART_OF_A_RECORD)
                while [peer.unfinished_bytes for peer in server.peers] != [OPEN_RECORD_BYTES]:
                    await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()


# Its header says that it has 16 KiB.
PART_OF_A_RECORD = b"\x17\x03\x03\x40\x00" + bytes(100)
