"""What a driver offers: files, processes, logs and ports on the machine where a cluster's daemons run.

Every method is idempotent, because a step may run twice. Names of processes are unique over all clusters.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Protocol

PROCESS_PREFIX = "hw-"  # of each daemon's name: what else the machinery runs is not ours to judge


class ProcessState(StrEnum):
    """supervisord's words, and MISSING for a process that it doesn't know."""

    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    BACKOFF = "backoff"
    STOPPING = "stopping"
    EXITED = "exited"
    FATAL = "fatal"
    UNKNOWN = "unknown"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class DaemonProcess:
    """A daemon as it is to run. `configuration` is the text that it reads: when it changes, the daemon is restarted.

    `user` is the OS user number that it runs as, who owns its folder then; 0: the platform's own.
    """

    name: str
    cluster_id: uuid.UUID
    command: Sequence[str]
    configuration: str
    environment: Mapping[str, str] = field(default_factory=dict)
    user: int = 0


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """What the driver knows of a process. `description` is the machinery's own words."""

    name: str
    state: ProcessState
    pid: int | None = None
    started_at: datetime | None = None
    stopped_at: datetime | None = None
    exit_status: int | None = None
    description: str = ""


@dataclass(frozen=True, slots=True)
class Inventory:
    """What is on the machine: names of daemons' processes, and ids of clusters that have a directory."""

    processes: Sequence[str]
    clusters: Sequence[uuid.UUID]


@dataclass(frozen=True, slots=True)
class HostUsage:
    """What a host has and what is used of it. Processor times are seconds since its start, summed over its cores: what was used
    between two moments is their difference. None: the host does not tell.
    """

    host: str
    cores: int
    cpu_busy_s: float
    cpu_total_s: float
    load: float | None
    memory_bytes: int
    memory_available_bytes: int
    disk_bytes: int
    disk_free_bytes: int
    descriptors: int | None
    descriptors_max: int | None


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """What a running daemon has used since its start; `life` is another word after each start. None: not known."""

    name: str
    host: str
    life: str
    cpu_s: float
    memory_bytes: int
    read_bytes: int | None
    written_bytes: int | None
    descriptors: int | None


class Driver(Protocol):
    """See the module. Every method raises DriverError when the machinery does not answer."""

    def cluster_dir(self, cluster_id: uuid.UUID) -> Path:
        """Return the directory of a cluster's files, as its daemons see it."""
        ...

    def files_write(self, cluster_id: uuid.UUID, files: Mapping[str, str]) -> None:
        """Write files by path relative to the cluster's directory, readable by the daemons only; each atomically."""
        ...

    def files_remove(self, cluster_id: uuid.UUID) -> None:
        """Remove the cluster's directory with everything in it."""
        ...

    def folder_remove(self, cluster_id: uuid.UUID, folder: str) -> None:
        """Remove one folder below the cluster's directory with everything in it."""
        ...

    def process_start(self, process: DaemonProcess) -> None:
        """Have the process run, and restarted whenever it ends. A running one with other settings is restarted."""
        ...

    def process_remove(self, name: str) -> None:
        """Stop the process and forget it. Returns when it has ended."""
        ...

    def process_kill(self, name: str) -> None:
        """The same without giving it the time to stop in good order: for one that hangs, while others wait for its end."""
        ...

    def process_pause(self, name: str) -> None:
        """Have the process do nothing from now on, until it is killed: as if its machine were gone. Harmless where none runs."""
        ...

    def process_statuses(self, names: Sequence[str]) -> dict[str, ProcessStatus]:
        """Return the status of each; MISSING for those that the machinery doesn't know."""
        ...

    def host_usages(self) -> list[HostUsage]:
        """Return what each host of the daemons has, and what is used of it."""
        ...

    def process_usages(self) -> list[ProcessUsage]:
        """Return what each daemon that runs has used; a daemon that can't be looked at is left out."""
        ...

    def inventory(self) -> Inventory:
        """Return all daemons and directories of clusters that are there, whether a row knows of them or not."""
        ...

    def log_tail(self, cluster_id: uuid.UUID, name: str, lines: int) -> list[str]:
        """Return the last lines of a process's log, oldest first; empty when there is none."""
        ...

    def port_is_free(self, host: str, port: int) -> bool:
        """Return whether nothing listens on the port now."""
        ...
