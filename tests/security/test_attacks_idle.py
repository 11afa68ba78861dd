"""What the measurement of silent clients measures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.security import attacks
from tests.security.live_broker import MEBIBYTE


@pytest.mark.parametrize(("flags", "daemon"), [((), "brokerd"), (("--name-server",), "namesrvd")])
def test_silent_clients_are_those_of_the_daemon_that_was_named(
    flags: tuple[str, ...], daemon: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured: list[str] = []

    def resident_bytes(pid: int) -> int:
        measured.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "))
        return len(measured) * MEBIBYTE

    monkeypatch.setattr(attacks, "resident_bytes", resident_bytes)
    monkeypatch.setattr("tests.security.live_broker.resident_bytes", resident_bytes)
    assert attacks.main([*flags, "--idle", "20"]) == 0
    assert len(measured) == 2
    assert all(f"-m {daemon} " in line for line in measured)
    name = "name server" if flags else "broker"
    assert capsys.readouterr().out == f"{name}, 20 silent clients: 2 MiB, 1 MiB without them\n"
