"""Where the local platform keeps things, and on which ports it listens."""

from __future__ import annotations

import json
import os
import socket
import stat
from pathlib import Path

import pytest

from deploy.local.layout import SOCKET_PATH_BYTES_MAX, Layout, write_private
from deploy.local.ports import USUAL_PORTS, Ports, is_free
from deploy.local.secrets_file import NAMES, load_secrets
from deploy.local.terminal import DevError


def test_the_state_directory_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HIGHWATER_STATE_DIR", str(tmp_path / "elsewhere"))
    assert Layout.from_environment().state == tmp_path / "elsewhere"


def test_a_short_path_keeps_the_socket_in_the_state_directory() -> None:
    layout = Layout(Path("/srv/highwater/.local"))
    assert layout.supervisor_socket == Path("/srv/highwater/.local/supervisor/supervisor.sock")


def test_a_deep_path_moves_the_socket_where_it_fits() -> None:
    layout = Layout(Path("/srv") / ("deep" * 30) / ".local")
    assert len(os.fsencode(layout.supervisor_socket)) <= SOCKET_PATH_BYTES_MAX


def test_two_deep_paths_have_different_sockets() -> None:
    first, second = (Layout(Path("/srv") / ("deep" * 30) / name) for name in ("a", "b"))
    assert first.supervisor_socket != second.supervisor_socket


def test_no_one_else_can_enter_the_state_directory(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "state")
    layout.create()
    assert stat.S_IMODE(layout.state.stat().st_mode) == 0o700


def test_a_state_directory_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DevError, match="Way out: use a writable checkout"):
        Layout(tmp_path / "file" / "state").create()


def test_private_files_are_private_from_the_first_byte(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        write_private(tmp_path / "secret", "x")
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600


def test_passwords_are_made_once(tmp_path: Path) -> None:
    first = load_secrets(tmp_path / "secrets.json")
    assert set(first) == set(NAMES)
    assert len(set(first.values())) == len(NAMES)
    assert load_secrets(tmp_path / "secrets.json") == first


def test_a_broken_password_file_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "secrets.json").write_text("{")
    with pytest.raises(DevError, match="is not JSON"):
        load_secrets(tmp_path / "secrets.json")
    assert (tmp_path / "secrets.json").read_text() == "{"


def test_a_port_is_kept_for_a_web_server_that_starts(tmp_path: Path) -> None:
    ports = Ports(tmp_path / "ports.json", usual=False)
    port = ports.choose("web")
    with ports.held("web"), socket.socket() as web_server:
        assert not is_free(port), "another platform that starts now takes another one"
        web_server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as granian does
        web_server.bind(("127.0.0.1", port))
        web_server.listen()
        with socket.create_connection(("127.0.0.1", port)) as client:
            web_server.accept()[0].sendall(b"hello")
            assert client.recv(5) == b"hello", "no request goes astray"


def test_a_port_that_was_taken_meanwhile_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    ports = Ports(tmp_path / "ports.json", usual=False)
    with socket.socket() as quicker:
        quicker.bind(("127.0.0.1", ports.choose("web")))
        with pytest.raises(DevError, match="was taken in this moment"), ports.held("web"):
            pass


def test_a_taken_port_is_replaced_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        taken = stranger.getsockname()[1]
        monkeypatch.setitem(USUAL_PORTS, "web", taken)
        ports = Ports(tmp_path / "ports.json")
        chosen = ports.choose("web")
    assert chosen != taken
    assert ports.surprises() == [f"web listens on port {chosen}, because {taken} was taken when it first started"]


def test_a_chosen_port_is_remembered(tmp_path: Path) -> None:
    chosen = Ports(tmp_path / "ports.json", usual=False).choose("web")
    again = Ports(tmp_path / "ports.json", usual=False)
    assert again["web"] == chosen
    assert again.choose("web") == chosen


def test_a_broken_port_file_only_costs_the_memory(tmp_path: Path) -> None:
    (tmp_path / "ports.json").write_text("[")
    port = Ports(tmp_path / "ports.json", usual=False).choose("redis")
    assert is_free(port)
    assert json.loads((tmp_path / "ports.json").read_text()) == {"redis": port}


def test_tokens_that_were_asked_for_differently_are_kept_apart() -> None:
    layout = Layout(Path("/srv/state"))
    files = {layout.token_file(*asked) for asked in (("acme", []), ("acme", ["--role", "viewer"]), ("globex", []))}
    assert len(files) == 3
    assert layout.token_file("acme", []) == Path("/srv/state/tokens/acme")
