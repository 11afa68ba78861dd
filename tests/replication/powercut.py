"""Power cuts of replicas: `python -m tests.replication.powercut --cuts 50`, or `./dev powercut`. Needs root.

Each replica's store is on an ext4 of its own, in a file mounted over a loop device. A cut shuts that file system down
without flushing its journal (EXT4_IOC_SHUTDOWN, NOLOGFLUSH): what was not synced is gone after the next mount, and what
the process still writes fails, as when the power goes. Then the process is killed, the file system mounted again, and
the replica started, with the boot id of a machine that was booted again: by that a store knows what a power cut may have
left of unsynced writes, which it cuts, from damage, which it does not.

Under synchronous flush and replication every acknowledged message must be there afterwards, whichever replica was cut, or
both at once; and the group must take sends again by itself, with both replicas in sync.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from mqwire.codes import ResponseCode
from tests.daemons import BrokerDaemon, ReplicaGroup
from tests.processes import wait_until
from tests.remoting import create_topic
from tests.replication.replicas import WAIT_S, promote, read_all, send_raw, status, wait_in_sync

TOPIC = "power"
IMAGE_BYTES = 1024 * 1024 * 1024
EXT4_IOC_SHUTDOWN = 0x8004587D
NOLOGFLUSH = 2
SENDERS = 4
Kind = Literal["master", "slave", "both", "master, slave promoted"]
KINDS: tuple[Kind, ...] = ("master", "slave", "both", "master, slave promoted")
CONF = {
    "haSendHeartbeatInterval": "500",
    "haMaxTimeSlaveNotCatchup": "2000",
    "slaveTimeout": "1000",
    "mappedFileSizeCommitLog": str(8 * 1024 * 1024),
}
BOOT_ID = "/proc/sys/kernel/random/boot_id"


def why_not() -> str | None:
    """Why the power cannot be cut here; None when it can."""
    if os.geteuid() != 0:
        return "cutting a file system's power needs root"
    if not all(shutil.which(tool) for tool in ("mkfs.ext4", "mount", "umount", "unshare")):
        return "cutting a file system's power needs mkfs.ext4, mount, umount and unshare"
    with tempfile.TemporaryDirectory() as folder:
        disk = Disk(Path(folder) / "probe.img", Path(folder) / "probe", size_bytes=16 * 1024 * 1024)
        try:
            disk.make()
        except subprocess.CalledProcessError as error:
            return f"no loop mounts here: {error.stderr.strip()[:100]}"
        disk.unmount()
        machine = Machine(Path(folder) / "boot_id")
        machine.boot()
        reported = subprocess.run([*machine.prefix, "cat", BOOT_ID], capture_output=True, text=True, check=False)
        if reported.stdout != machine.boot_file.read_text("ascii"):
            return f"no boot id of one's own here: {reported.stderr.strip()[:100]}"
    return None


@dataclass
class Machine:
    """What a replica takes for the machine that it runs on: each boot has its id."""

    boot_file: Path

    def boot(self) -> None:
        self.boot_file.write_text(f"{uuid.uuid4()}\n", "ascii")

    @property
    def prefix(self) -> list[str]:
        """In front of a command, to run it on this machine. What is mounted outside later is seen in there too."""
        there = f'mount --bind {self.boot_file} {BOOT_ID} && exec "$@"'
        return ["unshare", "--mount", "--propagation", "slave", "sh", "-c", there, "sh"]


@dataclass
class Disk:
    """One replica's file system."""

    image: Path
    folder: Path
    size_bytes: int = IMAGE_BYTES

    def make(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.image.open("wb") as file:
            file.truncate(self.size_bytes)
        _run("mkfs.ext4", "-q", "-F", str(self.image))
        self.mount()

    def mount(self) -> None:
        _run("mount", "-o", "loop", str(self.image), str(self.folder))

    def unmount(self) -> None:
        _run("umount", str(self.folder))

    def cut(self) -> None:
        """The power goes: nothing that was not synced survives the next mount."""
        fd = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", NOLOGFLUSH))
        finally:
            os.close(fd)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


@contextmanager
def disks_of(folder: Path, count: int, *, size_bytes: int = IMAGE_BYTES) -> Iterator[list[Disk]]:
    """So many disks, mounted; unmounted at the end, when no process uses them any more."""
    place = folder / "disks"
    disks = [Disk(folder / f"disk-{number}.img", place / f"{number}", size_bytes) for number in range(count)]
    with ExitStack() as stack:
        # Other mount namespaces (of `ip netns exec`) take copies of our mounts: shared, these end with ours.
        place.mkdir()
        _run("mount", "--bind", str(place), str(place))
        stack.callback(_run, "umount", str(place))
        _run("mount", "--make-shared", str(place))
        for disk in disks:
            disk.make()
            stack.callback(disk.unmount)
        yield disks


@dataclass
class Load:
    """Senders that go on whatever happens, and what was acknowledged to them."""

    group: ReplicaGroup
    master: int = 0
    acknowledged: list[bytes] = field(default_factory=list)
    sent: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._send, daemon=True) for _ in range(SENDERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def wait_for(self, count: int) -> None:
        """Returns once so many messages are acknowledged."""
        wait_until(lambda: len(self.acknowledged) >= count, timeout_s=WAIT_S, what=f"{count} messages are acknowledged")

    def _send(self) -> None:
        while not self._over.is_set():
            with self._lock:
                self.sent += 1
                body = b"%d" % self.sent
            try:
                code = send_raw(self.group[self.master], TOPIC, body, queue=0)
            except OSError:
                time.sleep(0.05)
                continue
            if code == ResponseCode.SUCCESS:
                with self._lock:
                    self.acknowledged.append(body)
            else:
                time.sleep(0.02)


def revive(replica: BrokerDaemon, disk: Disk, machine: Machine) -> None:
    """What happens when the power is back."""
    replica.kill()
    disk.unmount()
    disk.mount()
    machine.boot()
    replica.start()


def one_cut(load: Load, disks: list[Disk], machines: list[Machine], kind: Kind) -> None:
    """Cuts, brings everything back, and waits until the group acknowledges again with both replicas."""
    group, master = load.group, load.master
    slave = 1 - master
    cut = {"master": [master], "slave": [slave], "both": [master, slave]}.get(kind, [master])
    for number in cut:
        disks[number].cut()
    if kind == "master, slave promoted":
        group[master].kill()
        promote(group, slave)
        load.master = slave
    for number in cut:
        revive(group[number], disks[number], machines[number])
    load.master = _leader(group)
    wait_in_sync(group, load.master)


def _leader(group: ReplicaGroup) -> int:
    """Who leads when all are back: the master of before, or the slave where that has the longer log.

    It has when its disk was the quicker one: the master lost its own last records, which no answer called safe.
    """
    leaders: list[int] = []

    def found() -> bool:
        leaders[:] = [number for number in (0, 1) if status(group[number]).accepts_sends]
        return bool(leaders)

    wait_until(found, timeout_s=WAIT_S, what="a master leads again")
    return leaders[0]


def check(load: Load) -> tuple[int, int]:
    """(lost, stored twice) of what was acknowledged by now."""
    acknowledged = list(load.acknowledged)
    stored = Counter(message.body for message in read_all(load.group[load.master], TOPIC))
    return sum(not stored[body] for body in acknowledged), sum(count > 1 for count in stored.values())


def campaign(
    folder: Path, cuts: int, seed: int, *, flush: str = "SYNC_FLUSH", kinds: Sequence[Kind] = KINDS, say: bool = False
) -> tuple[int, int, int]:
    """(acknowledged, lost, twice) after so many cuts of these kinds, or the first that loses something."""
    choose = random.Random(seed)
    with ExitStack() as stack:
        disks = stack.enter_context(disks_of(folder, 2))
        own = {number: {"storePathRootDir": str(disk.folder / "store")} for number, disk in enumerate(disks)}
        machines = [Machine(folder / f"boot_id-{number}") for number in (0, 1)]
        for machine in machines:
            machine.boot()
        group = stack.enter_context(
            ReplicaGroup.start(
                folder,
                {**CONF, "flushDiskType": flush},
                synchronous=True,
                own_conf=own,
                hosts=["127.0.0.1"] * 2,
                command_prefixes=[machine.prefix for machine in machines],
            )
        )
        wait_in_sync(group)
        create_topic(group[0].address, TOPIC, queues=1, namesrv=group.namesrv)
        load = Load(group)
        lost = twice = 0
        with load.running():
            for number in range(cuts):
                load.wait_for(len(load.acknowledged) + 50)
                time.sleep(choose.uniform(0.0, 0.5))
                kind = choose.choice(kinds)
                try:
                    one_cut(load, disks, machines, kind)
                except AssertionError as error:
                    logs = "\n".join(replica.process.log_tail(15) for replica in group.replicas if replica.process)
                    raise AssertionError(f"cut {number + 1} ({kind}): {error}\n{logs}") from error
                lost, twice = check(load)
                if say:
                    print(
                        f"cut {number + 1} of {cuts} ({kind}): {len(load.acknowledged)} acknowledged, {lost} lost,"
                        f" {twice} twice",
                        flush=True,
                    )
                if lost or twice:
                    break
        lost, twice = check(load)
        return len(load.acknowledged), lost, twice


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev powercut", description="Cut the power of replicas under load.")
    parser.add_argument("--cuts", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--control",
        action="store_true",
        help="cut both each time under ASYNC_FLUSH: that must lose acknowledged messages",
    )
    options = parser.parse_args(arguments)
    reason = why_not()
    if reason is not None:
        print(f"./dev powercut: {reason}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="highwater-powercut-") as folder:
        if options.control:
            acknowledged, lost, _ = campaign(
                Path(folder), options.cuts, options.seed, flush="ASYNC_FLUSH", kinds=("both",), say=True
            )
            print(f"ASYNC_FLUSH: of {acknowledged} acknowledged messages {lost} are lost")
            return 0 if lost else 1
        acknowledged, lost, twice = campaign(Path(folder), options.cuts, options.seed, say=True)
    print(f"{options.cuts} cuts: {acknowledged} messages acknowledged, {lost} lost, {twice} stored twice")
    return 1 if lost or twice else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
