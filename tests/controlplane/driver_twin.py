"""A driver in memory: what the workflow asked for, and what it is answered. For tests of which the daemon is not the point."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from django.utils import timezone

from controlplane.provisioning.drivers.base import (
    DaemonProcess,
    HostUsage,
    Inventory,
    ProcessState,
    ProcessStatus,
    ProcessUsage,
)
from controlplane.provisioning.errors import DriverError


@dataclass
class DriverTwin:
    """See `controlplane.provisioning.drivers.base.Driver`."""

    root: Path
    files: dict[str, str] = field(default_factory=dict)
    processes: dict[str, DaemonProcess] = field(default_factory=dict)
    states: dict[str, ProcessState] = field(default_factory=dict)
    taken_ports: set[int] = field(default_factory=set)
    logs: dict[str, list[str]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    away: bool = False
    hosts: list[HostUsage] = field(default_factory=list)
    usages: list[ProcessUsage] = field(default_factory=list)

    def cluster_dir(self, cluster_id: uuid.UUID) -> Path:
        return self.root / str(cluster_id)

    def files_write(self, cluster_id: uuid.UUID, files: Mapping[str, str]) -> None:
        self._called("files_write")
        self.files.update({f"{cluster_id}/{path}": text for path, text in files.items()})

    def files_remove(self, cluster_id: uuid.UUID) -> None:
        self._called("files_remove")
        self.files = {path: text for path, text in self.files.items() if not path.startswith(f"{cluster_id}/")}

    def folder_remove(self, cluster_id: uuid.UUID, folder: str) -> None:
        self._called(f"folder_remove {folder}")
        gone = f"{cluster_id}/{folder}/"
        self.files = {path: text for path, text in self.files.items() if not path.startswith(gone)}

    def process_start(self, process: DaemonProcess) -> None:
        self._called(f"start {process.name}")
        self.processes[process.name] = process
        self.states.setdefault(process.name, ProcessState.RUNNING)

    def process_remove(self, name: str) -> None:
        self._called(f"remove {name}")
        self.processes.pop(name, None)
        self.states.pop(name, None)

    def process_kill(self, name: str) -> None:
        self._called(f"kill {name}")
        self.processes.pop(name, None)
        self.states.pop(name, None)

    def process_pause(self, name: str) -> None:
        self._called(f"pause {name}")

    def process_statuses(self, names: Sequence[str]) -> dict[str, ProcessStatus]:
        self._called("statuses")
        now = timezone.now()
        return {
            name: ProcessStatus(name, self.states.get(name, ProcessState.MISSING), started_at=now) for name in names
        }

    def host_usages(self) -> list[HostUsage]:
        self._called("host_usages")
        return list(self.hosts)

    def process_usages(self) -> list[ProcessUsage]:
        return list(self.usages)

    def inventory(self) -> Inventory:
        self._called("inventory")
        clusters = {uuid.UUID(path.split("/")[0]) for path in self.files}
        return Inventory(list(self.processes), sorted(clusters))

    def log_tail(self, cluster_id: uuid.UUID, name: str, lines: int) -> list[str]:
        return self.logs.get(name, [])[-lines:]

    def port_is_free(self, host: str, port: int) -> bool:
        return port not in self.taken_ports

    def _called(self, call: str) -> None:
        if self.away:
            raise DriverError("supervisord does not answer")
        self.calls.append(call)
