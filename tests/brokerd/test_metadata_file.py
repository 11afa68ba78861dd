"""brokerd/metadata.py: snapshots stored from several threads never go back in time."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from brokerd import config_file
from brokerd.metadata import MetadataFile, decode
from brokerd.store import OsDisk
from mqwire.bodies import DelayOffsetSerializeWrapper


@pytest.fixture
def file(tmp_path: Path) -> MetadataFile:
    return MetadataFile(OsDisk(), str(tmp_path), "delayOffset.json")


def test_an_older_snapshot_does_not_replace_a_newer_one(file: MetadataFile) -> None:
    older, newer = file.snapshot(b"older"), file.snapshot(b"newer")
    file.store(newer)
    file.store(older)
    assert config_file.read_file(file.path) == b"newer"


def test_a_snapshot_that_could_not_be_stored_can_be_stored_again(
    file: MetadataFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = file.snapshot(b"content")

    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(config_file, "store", full)
        with pytest.raises(OSError, match="No space"):
            file.store(snapshot)
    file.store(snapshot)
    assert config_file.read_file(file.path) == b"content"


def test_many_threads_leave_the_newest_snapshot_whole(file: MetadataFile) -> None:
    snapshots = [file.snapshot(b"%d" % number * 5000) for number in range(20)]
    threads = [threading.Thread(target=file.store, args=(snapshot,)) for snapshot in snapshots]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert config_file.read_file(file.path) == snapshots[-1].content


def test_a_file_larger_than_any_frame_is_read() -> None:
    entries = ",".join(f"{level}:{level}" for level in range(1, 600_000))
    table = decode(DelayOffsetSerializeWrapper, f'{{"offsetTable":{{{entries}}}}}'.encode()).offset_table
    assert len(table) == 599_999


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b'{"offsetTable":{"a":"b"}}', b"[" * 100_000])
def test_damaged_content_is_reported_as_such(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(DelayOffsetSerializeWrapper, content)
