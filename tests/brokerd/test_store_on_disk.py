"""On the real disk, with real processes: the parts that a disk in memory can't prove."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from brokerd.store import MessageStore, MessageToStore, OsDisk, StoreConfig, StoreLockedError, SystemClock
from tests.sim.store_harness import HOST, ManualClock, bodies, fill, message, read_all

ROOT = Path(__file__).resolve().parents[2]


def on_disk(root: Path, **changes: object) -> MessageStore:
    config = StoreConfig(
        root_dir=str(root),
        mapped_file_size_commit_log_bytes=1 << 16,
        mapped_file_size_consume_queue_bytes=20 * 100,
        disk_space_warning_level_ratio=1.0,
        **changes,  # type: ignore[arg-type]  # passed on as they are
    )
    return MessageStore(config, disk=OsDisk(), clock=SystemClock(), store_host=HOST)


def test_a_store_on_the_real_disk_survives_a_restart(tmp_path: Path) -> None:
    store = on_disk(tmp_path)
    store.open()
    fill(store, 1000)
    store.close()
    store = on_disk(tmp_path)
    report = store.open()
    assert report.clean_shutdown
    assert bodies(store) == [b"%06d" % number + b"." * 194 for number in range(1000)]
    store.close(clean=False)
    store = on_disk(tmp_path)
    assert not store.open().clean_shutdown
    assert len(bodies(store)) == 1000
    store.close()


def test_files_are_full_size_and_consume_queue_files_have_holes(tmp_path: Path) -> None:
    store = on_disk(tmp_path)
    store.open()
    fill(store, 1000)
    store.close()
    assert {path.stat().st_size for path in (tmp_path / "commitlog").iterdir()} == {1 << 16}
    assert {path.stat().st_size for path in (tmp_path / "consumequeue/orders/0").iterdir()} == {2000}


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    store = on_disk(tmp_path)
    store.open()
    program = (
        "import sys; from brokerd.store import *\n"
        "store = MessageStore(StoreConfig(root_dir=sys.argv[1]), disk=OsDisk(), clock=SystemClock(), store_host=bytes(8))\n"
        "try: store.open()\n"
        "except StoreLockedError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "another broker serves this directory" in done.stdout
    with pytest.raises(StoreLockedError):
        on_disk(tmp_path).open()
    fill(store, 3)
    store.close()


def test_a_killed_process_leaves_all_that_append_returned(tmp_path: Path) -> None:
    program = (
        "import os, sys; from brokerd.store import *\n"
        "from tests.brokerd.test_store_on_disk import on_disk; from pathlib import Path\n"
        "from tests.sim.store_harness import fill\n"
        "store = on_disk(Path(sys.argv[1])); store.open()\n"
        "fill(store, 500); store.flush_consume_queues(); fill(store, 500, first=500)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"},
        check=False,
    )
    assert done.returncode == -9
    store = on_disk(tmp_path)
    report = store.open()
    assert report.durable_mark > 0
    assert report.end_offset > report.durable_mark
    assert len(bodies(store)) == 1000
    store.close()


def test_flushes_in_a_thread_go_on_beside_appends_and_reads(tmp_path: Path) -> None:
    store = on_disk(tmp_path, open_files_max=2)
    store.open()
    stop = threading.Event()
    flushed: list[int] = []
    failures: list[BaseException] = []

    def flush() -> None:
        try:
            while not stop.is_set():
                before = store.end_offset
                durable = store.flush()
                assert durable >= before
                flushed.append(durable)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        for number in range(300):
            fill(store, 20, first=number * 20)
            if number % 50 == 0:
                written = store.write_consume_queues()
                worker = threading.Thread(target=store.sync_consume_queues, args=(written,))
                worker.start()
                store.get_messages("orders", 0, number, 32, 100_000)
                worker.join()
    finally:
        stop.set()
        thread.join()
    assert not failures
    assert flushed == sorted(flushed)
    assert len(bodies(store)) == 6000
    store.close()
    store = on_disk(tmp_path)
    store.open()
    assert len(bodies(store)) == 6000
    store.close()


def test_thousands_of_queues_need_few_open_files(tmp_path: Path) -> None:
    store = on_disk(tmp_path, open_files_max=8)
    store.open()
    messages: list[MessageToStore] = [message(b"%d" % number, topic=f"topic-{number}") for number in range(1500)]
    for position in range(0, 1500, 100):
        store.append(messages[position : position + 100])
    store.flush_consume_queues()
    open_files = len(list(Path("/proc/self/fd").iterdir()))
    assert len(read_all(store)) == 1500
    assert len(list(Path("/proc/self/fd").iterdir())) <= open_files + 8
    store.close()


def test_the_real_clock_and_disk_say_something(tmp_path: Path) -> None:
    assert SystemClock().now_ms() > ManualClock().now_ms() > 0
    usage = OsDisk().usage(str(tmp_path))
    assert 0.0 <= usage.used_ratio <= 1.0
    assert OsDisk().boot_id()


def test_a_file_that_cannot_be_looked_for_is_not_taken_for_absent(tmp_path: Path) -> None:
    """A broker that took its tombstones, or its checkpoint, for absent would begin without them."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(OSError, match="symbolic links"):
        OsDisk().exists(str(loop))
    assert not OsDisk().exists(str(tmp_path / "absent"))
    (tmp_path / "file").touch()
    assert OsDisk().exists(str(tmp_path / "file"))
    assert not OsDisk().exists(str(tmp_path / "file" / "below"))
