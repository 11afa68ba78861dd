"""What Linux reports of a host and of a process in /proc. A look costs a few small files; nothing here keeps anything."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from controlplane.provisioning.drivers.base import HostUsage, ProcessUsage

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Of the first line of /proc/stat: user nice system idle iowait irq softirq steal; guest times are in user already.
_IDLE = (3, 4)
_TIMES = 8
# Of /proc/PID/stat after the name in brackets, which may hold anything.
_USER_TICKS, _SYSTEM_TICKS, _START_TICKS = 11, 12, 19


@dataclass(frozen=True, slots=True)
class Proc:
    """One /proc; another root is for tests."""

    root: Path = Path("/proc")

    def host(self, name: str, disk: Path) -> HostUsage:
        """Return what the host has, with the disk that holds `disk`."""
        ticks = [int(word) for word in self._text("stat").splitlines()[0].split()[1 : 1 + _TIMES]]
        memory = dict(line.split(":", 1) for line in self._text("meminfo").splitlines())
        space = shutil.disk_usage(disk)
        used, _, limit = self._text("sys/fs/file-nr").split()
        return HostUsage(
            host=name,
            cores=os.cpu_count() or 1,
            cpu_busy_s=(sum(ticks) - sum(ticks[one] for one in _IDLE)) / _TICKS_PER_SECOND,
            cpu_total_s=sum(ticks) / _TICKS_PER_SECOND,
            load=float(self._text("loadavg").split()[0]),
            memory_bytes=_kibibytes(memory["MemTotal"]),
            memory_available_bytes=_kibibytes(memory["MemAvailable"]),
            disk_bytes=space.total,
            disk_free_bytes=space.free,
            descriptors=int(used),
            # Without a limit the kernel says a number that no machine reaches.
            descriptors_max=int(limit) if int(limit) < 2**62 else None,
        )

    def process(self, name: str, host: str, pid: int) -> ProcessUsage | None:
        """Return what a process has used; None when it has ended, or may not be looked at."""
        try:
            fields = self._text(f"{pid}/stat").rpartition(")")[2].split()
            memory_pages = int(self._text(f"{pid}/statm").split()[1])
        except (OSError, IndexError, ValueError):  # it ended between two looks
            return None
        read_bytes, written_bytes = self._disk_bytes(pid)
        return ProcessUsage(
            name=name,
            host=host,
            life=f"{pid}-{fields[_START_TICKS]}",
            cpu_s=(int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) / _TICKS_PER_SECOND,
            memory_bytes=memory_pages * _PAGE_BYTES,
            read_bytes=read_bytes,
            written_bytes=written_bytes,
            descriptors=self._descriptors(pid),
        )

    def _disk_bytes(self, pid: int) -> tuple[int | None, int | None]:
        try:
            values = dict(line.split(": ", 1) for line in self._text(f"{pid}/io").splitlines())
        except OSError:  # another user's, or it ended: not known
            return None, None
        return int(values["read_bytes"]), int(values["write_bytes"])

    def _descriptors(self, pid: int) -> int | None:
        try:
            return len(os.listdir(self.root / str(pid) / "fd"))
        except OSError:
            return None

    def _text(self, name: str) -> str:
        return (self.root / name).read_text("utf-8", "replace")


def _kibibytes(value: str) -> int:
    return int(value.split()[0]) * 1024
