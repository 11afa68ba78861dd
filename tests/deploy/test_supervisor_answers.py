"""An answer that declares a document type is refused by both of supervisord's clients, before anything in it is expanded."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controlplane.provisioning.drivers.supervisor_rpc import SupervisorRpc
from controlplane.provisioning.errors import DriverError
from deploy.local.layout import Layout
from deploy.local.supervisor import Supervisor

PLAIN = "<methodResponse><params><param><value><struct><member><name>statename</name><value><string>RUNNING</string></value>"
PLAIN += "</member></struct></value></param></params></methodResponse>"
EXPLODING = '<!DOCTYPE a [<!ENTITY x "RUNNING">]>' + PLAIN.replace("RUNNING", "&x;")


@contextmanager
def supervisord_that_answers(path: Path, xml: str) -> Iterator[None]:
    """One request on a unix socket is answered with this text."""
    body = f'<?xml version="1.0"?>{xml}'.encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                request = b""
                while b"</methodCall>" not in request:
                    request += connection.recv(65536)
                connection.sendall(head + body)

        thread = threading.Thread(target=answer)
        thread.start()
        yield
        thread.join(timeout=10)


def of_the_platform(socket_path: Path) -> str:
    return str(SupervisorRpc(str(socket_path))._call("getState"))


def test_the_platforms_client_takes_an_answer_without_one(tmp_path: Path) -> None:
    with supervisord_that_answers(tmp_path / "s", PLAIN):
        assert "RUNNING" in of_the_platform(tmp_path / "s")


def test_the_platforms_client_refuses_a_document_type(tmp_path: Path) -> None:
    with (
        supervisord_that_answers(tmp_path / "s", EXPLODING),
        pytest.raises(DriverError, match="declares a document type"),
    ):
        of_the_platform(tmp_path / "s")


@pytest.mark.parametrize(("xml", "is_taken"), [(PLAIN, True), (EXPLODING, False)])
def test_the_developers_client_refuses_a_document_type(xml: str, is_taken: bool, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "s")
    layout.supervisor_socket.parent.mkdir(parents=True, exist_ok=True)
    with supervisord_that_answers(layout.supervisor_socket, xml):
        assert (Supervisor.connect(layout) is not None) is is_taken
