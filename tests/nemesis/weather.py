"""What happens to a group, by seed: processes killed and stopped, links cut, disks filled. Pure but for `Sky`, which does it."""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from typer.testing import CliRunner

from highwater._cli_admin import app
from tests.daemons import ReplicaGroup
from tests.remoting import Refused
from tests.replication.network import HERE, Network
from tests.replication.replicas import status

DISK_BYTES = 192 * 1024 * 1024
_FULL_LEAVES_BYTES = 64 * 1024


class Kind(enum.Enum):
    KILL = "kill -9"
    PAUSE = "SIGSTOP"
    KILL_ALL = "all killed at once"
    CUT = "link cut"
    CUT_ONE_WAY = "link cut one way"
    CUT_FROM_CLIENTS = "cut off from clients"
    ISOLATE = "cut off from all"
    FULL_DISK = "disk full"
    SWITCH = "switchover"
    FAIL_OVER = "kill -9, and another is promoted"
    CHANGE_MODE = "change of the mode"


PROCESSES = (Kind.KILL, Kind.PAUSE, Kind.KILL_ALL)
LINKS = (Kind.CUT, Kind.CUT_ONE_WAY, Kind.CUT_FROM_CLIENTS, Kind.ISOLATE)


# What an operator does meanwhile, by `highwater admin`: the rule of promotion that the control plane goes by, too.
OPERATIONS = {
    "async": (Kind.SWITCH,),
    "sync": (Kind.SWITCH, Kind.FAIL_OVER),
    "changing": (Kind.CHANGE_MODE, Kind.CHANGE_MODE),
}
# A full disk may fail a sync; and where a promotion turns out not to be clean, the leadership is given back to a log in doubt.
MAY_COST_A_LOG_ITS_END = (Kind.FULL_DISK, Kind.SWITCH, Kind.FAIL_OVER)
_NEXT_MODE = {
    "sync": ["--mode", "dledger"],
    "dledger": ["--mode", "sync", "--in-sync-replicas", "2", "--min-in-sync-replicas", "2"],
}


@dataclass(frozen=True, slots=True)
class Event:
    """One disturbance of `place` (and of its link to `other`), for so long, then calm for so long."""

    kind: Kind
    place: int
    other: int
    for_s: float
    calm_s: float

    def __str__(self) -> str:
        link = f" -> {self.other}" if self.kind in (Kind.CUT, Kind.CUT_ONE_WAY, Kind.SWITCH, Kind.FAIL_OVER) else ""
        return f"{self.kind.value}: replica {self.place}{link}, {self.for_s:.1f} s"


def forecast(seed: int, replicas: int, kinds: Sequence[Kind]) -> Iterator[Event]:
    """The events of a seed, without end; those that need another replica are left out where there is none."""
    random = Random(seed)
    possible = [kind for kind in kinds if replicas > 1 or kind not in (Kind.CUT, Kind.CUT_ONE_WAY)]
    while True:
        place = random.randrange(replicas)
        other = random.choice([one for one in range(replicas) if one != place] or [place])
        yield Event(random.choice(possible), place, other, random.uniform(0.3, 3.5), random.uniform(0.2, 2.0))


class Sky:
    """Makes it happen to a running group."""

    def __init__(self, group: ReplicaGroup, places: Network | None, disks: Sequence[Path]) -> None:
        self._group = group
        self._places = places
        self._disks = disks
        self.operations: Counter[tuple[str, str]] = Counter()  # (what an operator asked for, whether it was done)

    def strike(self, event: Event) -> None:
        """Begin it, wait, and end it: what was killed is started again."""
        begin, end = {
            Kind.KILL: (self._kill, self._start),
            Kind.PAUSE: (self._pause, self._go_on),
            Kind.KILL_ALL: (self._kill_all, self._start_all),
            Kind.CUT: (self._cut, self._heal),
            Kind.CUT_ONE_WAY: (self._cut_one_way, self._heal_one_way),
            Kind.CUT_FROM_CLIENTS: (self._cut_from_clients, self._rejoin_clients),
            Kind.ISOLATE: (self._isolate, self._rejoin),
            Kind.FULL_DISK: (self._fill, self._make_room),
            Kind.SWITCH: (self._promote, self._nothing),
            Kind.FAIL_OVER: (self._fail_over, self._start),
            Kind.CHANGE_MODE: (self._change_mode, self._nothing),
        }[event.kind]
        begin(event)
        try:
            time.sleep(event.for_s)
        finally:
            end(event)

    @property
    def _network(self) -> Network:
        assert self._places is not None, "links are cut between namespaces only"
        return self._places

    def _kill(self, event: Event) -> None:
        self._group[event.place].kill()

    def _start(self, event: Event) -> None:
        self._group[event.place].start()

    def _kill_all(self, event: Event) -> None:
        for replica in self._group.replicas:
            replica.kill()

    def _start_all(self, event: Event) -> None:
        for replica in self._group.replicas:
            replica.start()

    def _pause(self, event: Event) -> None:
        os.kill(self._group[event.place].pid, signal.SIGSTOP)

    def _go_on(self, event: Event) -> None:
        os.kill(self._group[event.place].pid, signal.SIGCONT)

    def _cut(self, event: Event) -> None:
        self._network.cut(event.place, event.other)

    def _heal(self, event: Event) -> None:
        self._network.heal(event.place, event.other)

    def _cut_one_way(self, event: Event) -> None:
        self._network.cut_one_way(event.place, event.other)

    def _heal_one_way(self, event: Event) -> None:
        self._network.heal_one_way(event.place, event.other)

    def _cut_from_clients(self, event: Event) -> None:
        self._network.cut(event.place, HERE)

    def _rejoin_clients(self, event: Event) -> None:
        self._network.heal(event.place, HERE)

    def _isolate(self, event: Event) -> None:
        self._network.isolate(event.place)

    def _rejoin(self, event: Event) -> None:
        self._network.rejoin(event.place)

    def _admin(self, *arguments: str) -> None:
        """What an operator asks for may be refused, or come to nothing: the group must only stay right."""
        common = ("-n", self._group.namesrv, "-b", self._group.name)
        result = CliRunner().invoke(app, ["admin", arguments[0], *common, *arguments[1:]])
        self.operations[arguments[0], "done" if result.exit_code == 0 else "refused"] += 1

    def _promote(self, event: Event) -> None:
        self._admin("promote", "--broker-id", str(event.other))

    def _fail_over(self, event: Event) -> None:
        self._kill(event)
        self._promote(event)

    def _change_mode(self, event: Event) -> None:
        with contextlib.suppress(OSError, TimeoutError, Refused):
            self._admin("changeMode", *_NEXT_MODE[status(self._group[event.place]).mode])

    def _nothing(self, event: Event) -> None:
        """An operation ends by itself."""

    def _fill(self, event: Event) -> None:
        fill(self._disks[event.place])

    def _make_room(self, event: Event) -> None:
        filler(self._disks[event.place]).unlink(missing_ok=True)


def filler(disk: Path) -> Path:
    return disk / "filler"


def fill(disk: Path) -> None:
    """Leave next to no room on it."""
    stat = os.statvfs(disk)
    wanted = stat.f_bavail * stat.f_frsize - _FULL_LEAVES_BYTES
    with filler(disk).open("ab", buffering=0) as file:
        try:
            while wanted > 0:
                wanted -= file.write(bytes(min(1024 * 1024, wanted)))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def mount(folder: Path) -> bool:
    """A small file system of its own there; returns whether this machine allows that."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def unmount(folder: Path) -> None:
    subprocess.run(["umount", str(folder)], capture_output=True, check=False)
