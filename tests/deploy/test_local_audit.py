"""`./dev audit`: what it has audited, and that it never passes for clean what it could not ask about."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.audit import audit
from deploy.local.terminal import DevError


class NoSuchPage(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def service() -> Iterator[str]:
    with http.server.HTTPServer(("127.0.0.1", 0), NoSuchPage) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def auditor(folder: Path, exit_code: int) -> Path:
    """Stands in for uv: notes how it was called."""
    program = folder / "uv"
    program.write_text(f'#!/bin/sh\necho "$@" > called\nexit {exit_code}\n')
    program.chmod(0o755)
    return program


def test_where_the_service_is_not_reachable_nothing_passes_for_audited(tmp_path: Path) -> None:
    with pytest.raises(DevError, match="Nothing was audited"):
        audit(auditor(tmp_path, 0), tmp_path, "http://127.0.0.1:1/")
    assert not (tmp_path / "called").exists()


def test_the_locked_requirements_are_audited_as_they_are_pinned(tmp_path: Path, service: str) -> None:
    audit(auditor(tmp_path, 0), tmp_path, service)
    called = (tmp_path / "called").read_text()
    assert "--disable-pip --require-hashes -r requirements-dev.txt" in called


def test_what_is_found_is_a_failure(tmp_path: Path, service: str) -> None:
    with pytest.raises(DevError, match="Not clean"):
        audit(auditor(tmp_path, 1), tmp_path, service)
