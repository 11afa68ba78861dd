"""kvConfig.json: RocketMQ's form, replaced as a whole, and never taken for empty when it can't be read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from namesrvd.kv_config import MAX_TOTAL_CHARACTERS, KVConfigError, KVConfigFull, KVConfigManager, load, write_durably


def test_the_file_is_rocketmqs() -> None:
    manager = KVConfigManager()
    manager.put("ORDER_TOPIC_CONFIG", "orders", "a:4;b:4")
    assert manager.encode() == b'{"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"a:4;b:4"}}}'


def test_a_javas_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text('{\n\t"configTable":{"N":{"k":"v"\n\t\t}\n\t}\n}')
    assert load(str(path)).get("N", "k") == "v"


def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "deep" / "er" / "kvConfig.json")
    manager = KVConfigManager()
    manager.put("n", "标签", "v")
    manager.put("n", "gone", "v")
    manager.delete("n", "gone")
    write_durably(path, manager.encode())
    again = load(path)
    assert again.list_by_namespace("n") == manager.list_by_namespace("n")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert os.listdir(os.path.dirname(path)) == ["kvConfig.json"]


def test_no_file_is_an_empty_table(tmp_path: Path) -> None:
    assert load(str(tmp_path / "kvConfig.json")).list_by_namespace("n") is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"configTable":{"n":1}}', b"\xff\xfe"])
def test_a_damaged_file_stops_the_start(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_bytes(content)
    with pytest.raises(KVConfigError, match=r"kvConfig\.json is damaged"):
        load(str(path))


def test_a_folder_in_its_place_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(KVConfigError, match="cannot be read"):
        load(str(tmp_path))


def test_a_failed_write_leaves_the_former_content(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    write_durably(str(path), b"former")
    (tmp_path / "kvConfig.json.tmp").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_durably(str(path), b"later")
    assert path.read_bytes() == b"former"


def test_a_namespace_ends_with_its_last_key() -> None:
    manager = KVConfigManager()
    manager.put("n", "k", "v")
    assert manager.delete("n", "k")
    assert not manager.delete("n", "k")
    assert manager.list_by_namespace("n") is None


def test_room_is_counted_and_given_back() -> None:
    manager = KVConfigManager()
    half = "x" * (MAX_TOTAL_CHARACTERS // 2)
    manager.put("n", "a", half)
    for _ in range(5):
        manager.put("n", "a", half)
    with pytest.raises(KVConfigFull):
        manager.put("n", "b", half)
    manager.delete("n", "a")
    manager.put("n", "b", half)
