"""brokerd/config_file.py: a metadata file is replaced whole or not at all, and is never taken for empty."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from brokerd import config_file
from brokerd.config_file import UnreadableConfigFile
from tests.sim.memory_disk import Died, MemoryDisk


def test_a_file_that_never_existed_loads_as_none(tmp_path: Path) -> None:
    assert config_file.load(str(tmp_path / "topics.json"), json.loads) is None


def test_what_was_stored_is_loaded(tmp_path: Path) -> None:
    path = str(tmp_path / "config" / "topics.json")
    config_file.store(path, b'{"a":1}')
    assert config_file.load(path, json.loads) == ({"a": 1}, None)


def test_the_former_content_is_kept_as_backup(tmp_path: Path) -> None:
    path = str(tmp_path / "topics.json")
    config_file.store(path, b"[1]")
    config_file.store(path, b"[2]")
    config_file.store(path, b"[3]")
    assert (config_file.read_file(path), config_file.read_file(path + ".bak")) == (b"[3]", b"[2]")


def test_no_temporary_file_is_left(tmp_path: Path) -> None:
    path = str(tmp_path / "topics.json")
    config_file.store(path, b"[1]")
    config_file.store(path, b"[2]")
    assert sorted(os.listdir(tmp_path)) == ["topics.json", "topics.json.bak"]


def test_a_damaged_file_is_replaced_by_its_backup_and_logged(tmp_path: Path) -> None:
    path = str(tmp_path / "topics.json")
    config_file.store(path, b"[1]")
    config_file.store(path, b"[2]")
    (tmp_path / "topics.json").write_bytes(b'{"topic')
    loaded = config_file.load(path, json.loads)
    assert loaded is not None
    assert loaded[0] == [1]
    assert "damaged" in str(loaded[1])


def test_a_missing_file_is_replaced_by_its_backup(tmp_path: Path) -> None:
    path = str(tmp_path / "topics.json")
    (tmp_path / "topics.json.bak").write_bytes(b"[7]")
    loaded = config_file.load(path, json.loads)
    assert loaded is not None
    assert loaded[0] == [7]
    assert "missing" in str(loaded[1])


@pytest.mark.parametrize("garbage", [b"", b"  \n", b"{", b"\x00\x00\x00"])
def test_a_damaged_file_without_backup_is_refused(tmp_path: Path, garbage: bytes) -> None:
    path = str(tmp_path / "consumerOffset.json")
    (tmp_path / "consumerOffset.json").write_bytes(garbage)
    with pytest.raises(UnreadableConfigFile, match="Restore one of the two"):
        config_file.load(path, json.loads)


def test_a_damaged_file_with_a_damaged_backup_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "consumerOffset.json")
    (tmp_path / "consumerOffset.json").write_bytes(b"{")
    (tmp_path / "consumerOffset.json.bak").write_bytes(b"")
    with pytest.raises(UnreadableConfigFile):
        config_file.load(path, json.loads)


def test_a_missing_file_with_a_damaged_backup_is_refused(tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json.bak").write_bytes(b"{")
    with pytest.raises(UnreadableConfigFile):
        config_file.load(str(tmp_path / "consumerOffset.json"), json.loads)


def test_a_leftover_temporary_file_is_ignored(tmp_path: Path) -> None:
    path = str(tmp_path / "topics.json")
    config_file.store(path, b"[1]")
    (tmp_path / "topics.json.tmp").write_bytes(b"[")
    assert config_file.load(path, json.loads) == ([1], None)


def test_a_new_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    config_file.store(str(path), b"x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_mode_of_a_replaced_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(b"a=1")
    path.chmod(0o640)
    config_file.store(str(path), b"a=2")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("call", range(14))
def test_a_crash_at_any_step_leaves_the_old_or_the_new_content(call: int, power_cut: bool) -> None:
    path = "/config/topics.json"
    disk = MemoryDisk()
    config_file.store(path, b"[0]", disk)
    config_file.store(path, b"[1]", disk)
    disk.die_at = disk.calls + call
    try:
        config_file.store(path, b"[2]", disk)
        expected = [[2]]
    except Died:
        expected = [[1], [2]]
    assert call < 13 or expected == [[2]], "no more calls than these: one crash at each"
    loaded = config_file.load(path, json.loads, disk.after_power_cut(call) if power_cut else disk.after_kill())
    assert loaded is not None
    assert loaded[0] in expected


def test_without_hard_links_the_backup_is_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    path = str(tmp_path / "topics.json")
    config_file.store(path, b"[1]")
    config_file.store(path, b"[2]")
    assert (config_file.read_file(path), config_file.read_file(path + ".bak")) == (b"[2]", b"[1]")
