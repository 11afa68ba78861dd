"""Control groups of Linux: how much memory and which share of the processor and of the disk a daemon may take on this machine.

The tree is `highwater/CLUSTER/PROCESS`. Clusters share the processor evenly, however many daemons each has; each daemon has its own
bounds: of memory, page cache included (it is given back before anything is killed), and of what it reads and writes a second. A
group is nothing but files that are written in order, so what is to be written is computed here, and a shell before the daemon
writes it: after the machine's restart the groups are gone, and supervisord starts daemons by itself.

Both interfaces are served: one hierarchy with all controllers (cgroup2), and one for each controller (cgroup).
Source: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/ of the kernel.
"""

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from controlplane.common.sentences import say

_CONTROLLERS = ("memory", "cpu", "pids", "blkio", "io")
# A daemon's threads: sync threads and those that look up names. One that is taken over starts no more than these.
_TASKS_MAX = 512
# All daemons together against one process of the rest of the machine, for each core: they may use what is idle, and neither
# starves the other.
_SHARES_PER_CORE = 4 * 1024
_WEIGHT = 400
_FOLDER = "highwater"
# Writes each `file=value` up to `--`, then becomes the command. What can't be written is said in the daemon's log: a daemon without
# a bound is better than none.
_SCRIPT = (
    'while [ "$1" != -- ]; do'
    ' mkdir -p "${1%/*}" && echo "${1#*=}" > "${1%%=*}" || echo "The limit $1 is not set." >&2;'
    ' shift; done; shift; exec "$@"'
)


@dataclass(frozen=True, slots=True)
class IoLimit:
    """What a daemon may read from a disk, and as much that it may write to it; `device` is the kernel's number, major:minor."""

    device: str
    bytes_per_s: int


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Where control groups are made: `unified`, or by controller; neither where the kernel or the container has none."""

    unified: Path | None
    by_controller: dict[str, Path]

    @property
    def roots(self) -> list[Path]:
        """All folders below which groups are made."""
        return [self.unified] if self.unified is not None else list(self.by_controller.values())


def hierarchies(mounts: str | None = None) -> Hierarchies:
    """Return what is mounted; `mounts` is the text of /proc/mounts. Of cgroup2 only where it has the controllers for memory and
    processor: beside the older interface it is empty.
    """
    by_controller: dict[str, Path] = {}
    for line in (Path("/proc/mounts").read_text("utf-8") if mounts is None else mounts).splitlines():
        _, folder, kind, options, *_ = line.split(" ")
        if kind == "cgroup2":
            controllers = Path(folder) / "cgroup.controllers"
            if controllers.is_file() and {"memory", "cpu"} <= set(controllers.read_text("utf-8").split()):
                return Hierarchies(Path(folder), {})
        if kind == "cgroup":
            by_controller.update(dict.fromkeys(set(options.split(",")) & set(_CONTROLLERS), Path(folder)))
    return Hierarchies(None, by_controller)


def unlimited_reason(found: Hierarchies | None = None) -> str:
    """Return why daemons run without limits of the machine; empty where they have some."""
    if not settings.HIGHWATER_DAEMON_MEMORY_MIB:
        return say("HIGHWATER_DAEMON_MEMORY_MIB is 0.")
    if os.geteuid() != 0:
        return say("The platform does not run as root, and so cannot make control groups.")
    found = found or hierarchies()
    if found.unified is None and not {"memory", "cpu"} <= found.by_controller.keys():
        return say("No control groups for memory and processor are mounted (/proc/mounts).")
    for root in found.roots:
        if not os.access(root, os.W_OK):
            return say("%(root)s is read-only, as in a container without --privileged.", root=str(root))
    return ""


def disk_of(folder: Path, devices: Path = Path("/sys/dev/block")) -> str | None:
    """Return the number of the disk that a folder is on, major:minor; None where it is on none of its own, as in memory."""
    number = folder.stat().st_dev
    device = devices / f"{os.major(number)}:{os.minor(number)}"
    if not device.exists():
        return None
    if (device / "partition").exists():  # disks have limits, their parts none
        return (device.resolve().parent / "dev").read_text("utf-8").strip()
    return device.name


def io_limit(found: Hierarchies) -> IoLimit | str:
    """Return what each daemon may read and write, or why it has no bound. Where daemons have limits at all."""
    if not settings.HIGHWATER_DAEMON_IO_MIB_PER_S:
        return say("HIGHWATER_DAEMON_IO_MIB_PER_S is 0.")
    if found.unified is not None:
        has_controller = "io" in (found.unified / "cgroup.controllers").read_text("utf-8").split()
    else:
        has_controller = "blkio" in found.by_controller
    if not has_controller:
        return say("No control groups for disks are mounted (/proc/mounts).")
    device = disk_of(settings.HIGHWATER_STATE_DIR)
    if device is None:
        return say(
            "%(folder)s is on no disk of this machine that has limits.", folder=str(settings.HIGHWATER_STATE_DIR)
        )
    return IoLimit(device, settings.HIGHWATER_DAEMON_IO_MIB_PER_S * 1024 * 1024)


def limited(cluster_id: uuid.UUID, name: str, command: Sequence[str]) -> list[str]:
    """Return the command that runs `command` within the limits of that daemon; `command` itself where there are none."""
    found = hierarchies()
    if unlimited_reason(found):
        return list(command)
    memory_bytes = settings.HIGHWATER_DAEMON_MEMORY_MIB * 1024 * 1024
    io = io_limit(found)
    files = writes(
        *(found, str(cluster_id), name, memory_bytes, os.cpu_count() or 1), io if isinstance(io, IoLimit) else None
    )
    return ["sh", "-c", _SCRIPT, "limited", *(f"{path}={value}" for path, value in files), "--", *command]


def writes(
    found: Hierarchies, cluster: str, name: str, memory_bytes: int, cores: int, io: IoLimit | None = None
) -> list[tuple[Path, str]]:
    """Return what is to be written, in order; the last makes the process that writes it a member."""
    if found.unified is not None:
        return _unified(found.unified, cluster, name, memory_bytes, io)
    files: list[tuple[Path, str]] = []
    for controller, root in sorted(found.by_controller.items()):
        group = root / _FOLDER / cluster / name
        match controller:
            case "memory":
                files.append((group / "memory.limit_in_bytes", str(memory_bytes)))
            case "cpu":
                files.append((root / _FOLDER / "cpu.shares", str(min(_SHARES_PER_CORE * cores, 2**18))))
            case "pids":
                files.append((group / "pids.max", str(_TASKS_MAX)))
            case "blkio" if io is not None:
                # Brokers sync what they write, which counts as theirs; what the kernel writes later by itself does not.
                for what in ("read", "write"):
                    limit = f"{io.device} {io.bytes_per_s}"
                    files.append((group / f"blkio.throttle.{what}_bps_device", limit))
        files.append((group / "cgroup.procs", "0"))
    return files


def _unified(root: Path, cluster: str, name: str, memory_bytes: int, io: IoLimit | None) -> list[tuple[Path, str]]:
    top = root / _FOLDER
    known = (root / "cgroup.controllers").read_text("utf-8").split()
    below = " ".join(f"+{one}" for one in known if one in _CONTROLLERS)
    group = top / cluster / name
    files = [(folder / "cgroup.subtree_control", below) for folder in (root, top, top / cluster)]
    files += [(top / "cpu.weight", str(_WEIGHT)), (group / "memory.max", str(memory_bytes))]
    if "pids" in known:
        files.append((group / "pids.max", str(_TASKS_MAX)))
    if io is not None:
        files.append((group / "io.max", f"{io.device} rbps={io.bytes_per_s} wbps={io.bytes_per_s}"))
    return [*files, (group / "cgroup.procs", "0")]


def groups_remove(name: str) -> None:
    """Remove the groups of a daemon that has ended, and its cluster's with the last one."""
    for root in hierarchies().roots:
        for group in (root / _FOLDER).glob(f"*/{name}"):
            for folder in (group, group.parent):
                try:
                    folder.rmdir()
                except OSError:  # still in use: an empty group costs nothing, and the next start takes it again
                    break
