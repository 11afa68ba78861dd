"""TLS between clients and daemons."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute
from anyio.streams.tls import TLSListener
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from highwater import AsyncAdmin, errors
from mqwire.bodies import ClusterInfo
from tests.highwater.scripted import ScriptedServer

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1, signed by itself, with its key in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    path.write_bytes(private + built.public_bytes(serialization.Encoding.PEM))
    return path


@asynccontextmanager
async def tls_server(certificate: Path) -> AsyncIterator[ScriptedServer]:
    """A name server that speaks TLS and knows no broker."""
    server = ScriptedServer()
    empty = ClusterInfo().to_json()
    server.scripts = {106: lambda request: request.reply(body=empty)}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    server.port = listener.extra(SocketAttribute.local_port)
    async with TLSListener(listener, context, standard_compatible=False) as tls, anyio.create_task_group() as tasks:
        tasks.start_soon(tls.serve, server.serve)
        yield server
        tasks.cancel_scope.cancel()


async def test_requests_go_over_tls_to_a_server_that_is_trusted(certificate: Path) -> None:
    trusting = ssl.create_default_context(cafile=certificate)
    async with tls_server(certificate) as server, AsyncAdmin(server.address, use_tls=trusting) as admin:
        assert (await admin.cluster_info()).cluster_addr_table == {}
        assert server.connection_count == 1


async def test_a_server_that_is_not_trusted_is_refused(certificate: Path) -> None:
    async with tls_server(certificate) as server, AsyncAdmin(server.address, use_tls=True) as admin:
        with pytest.raises(errors.ConnectError, match="no TLS"):
            await admin.cluster_info()


async def test_without_tls_nothing_is_sent_to_a_server_that_wants_it(certificate: Path) -> None:
    async with tls_server(certificate) as server, AsyncAdmin(server.address) as admin:
        with pytest.raises(errors.HighwaterError):
            await admin.cluster_info()
        assert server.requests == []
