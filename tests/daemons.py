"""Our daemons, started for a test from a folder of its own, on free loopback ports, and stopped by process id.

    with DaemonCluster.start(folder, {"flushDiskType": "SYNC_FLUSH"}) as cluster:
        cluster.namesrv            # "127.0.0.1:port", for clients
        cluster.broker.address
        cluster.broker.kill(); cluster.broker.start()      # the same store and port again

A daemon that is started again keeps the port it had, which no outgoing connection gets in between.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.processes import ChildProcess, child_environment, free_ports

REPOSITORY = Path(__file__).resolve().parent.parent
MEBIBYTE = 1024 * 1024
STOP_TIMEOUT_S = 15.0

BROKER_DEFAULTS: dict[str, str] = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": "broker-a",
    "brokerId": "0",
    "defaultTopicQueueNums": "4",
    "mappedFileSizeCommitLog": str(64 * MEBIBYTE),
    "mappedFileSizeConsumeQueue": "6000000",
    "diskMaxUsedSpaceRatio": "98",
    # Its records would come at full minutes, in logs whose ends and bytes tests compare. Tests of metering switch it on.
    "meteringIntervalMs": "0",
}


def daemon_command(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def daemon_environment() -> dict[str, str]:
    return child_environment(PYTHONPATH=f"{REPOSITORY}:{REPOSITORY / 'platform'}", PYTHONUNBUFFERED="1")


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Writes a Java properties file of ``key=value`` lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), "utf-8")


@dataclass
class NameServerDaemon:
    """``python -m namesrvd`` with ``conf`` in its namesrv.conf."""

    folder: Path
    conf: Mapping[str, str] = field(default_factory=dict)
    port: int = 0
    process: ChildProcess | None = None
    host: str = "127.0.0.1"
    command_prefix: Sequence[str] = ()  # such as ip netns exec NAME

    @property
    def address(self) -> str:
        assert self.port, "the name server was never started"
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the name server is not started"
        return self.process.pid

    def start(self) -> Self:
        self.port = self.port or free_ports()
        conf = {"listenPort": str(self.port), "bindAddress": self.host, **self.conf}
        write_properties(self.folder / "namesrv.conf", conf)
        arguments = ("-c", str(self.folder / "namesrv.conf"))
        self.process = _started("namesrvd", self.folder, *arguments, prefix=self.command_prefix)
        self.port = _ready_port("namesrvd", self.process)
        return self

    def stop(self) -> int | None:
        """Stops it gracefully; returns the exit status, None when it was never started."""
        return self.process.stop(STOP_TIMEOUT_S) if self.process is not None else None

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()


@dataclass
class BrokerDaemon:
    """``python -m brokerd`` with its store in ``store_dir`` (default: store/ in its folder)."""

    folder: Path
    namesrv: str
    conf: Mapping[str, str] = field(default_factory=dict)
    store_dir: Path | None = None
    port: int = 0
    process: ChildProcess | None = None
    host: str = "127.0.0.1"
    command_prefix: Sequence[str] = ()  # such as ip netns exec NAME

    @property
    def address(self) -> str:
        assert self.port, "the broker was never started"
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the broker is not started"
        return self.process.pid

    def properties(self) -> dict[str, str]:
        """What broker.conf holds."""
        return {
            **BROKER_DEFAULTS,
            "namesrvAddr": self.namesrv,
            "listenPort": str(self.port),
            "storePathRootDir": str(self.store_dir or self.folder / "store"),
            "brokerIP1": self.host,
            "bindAddress": self.host,
            **self.conf,
        }

    def start(self) -> Self:
        self.port = self.port or free_ports()
        write_properties(self.folder / "broker.conf", self.properties())
        arguments = ("-c", str(self.folder / "broker.conf"))
        self.process = _started("brokerd", self.folder, *arguments, prefix=self.command_prefix)
        self.port = _ready_port("brokerd", self.process)
        return self

    def stop(self) -> int | None:
        """Stops it gracefully; returns the exit status, None when it was never started."""
        return self.process.stop(STOP_TIMEOUT_S) if self.process is not None else None

    def kill(self) -> None:
        """Ends it as a crash would."""
        if self.process is not None:
            self.process.kill()


@dataclass
class DaemonCluster:
    """One name server and one broker; stopped together at the end of the ``with`` block."""

    name_server: NameServerDaemon
    broker: BrokerDaemon

    @classmethod
    def start(
        cls,
        folder: Path,
        conf: Mapping[str, str] | None = None,
        *,
        namesrv_conf: Mapping[str, str] | None = None,
        store_dir: Path | None = None,
    ) -> DaemonCluster:
        """Starts both; ``conf`` goes into broker.conf and wins over the defaults here."""
        name_server = NameServerDaemon(folder / "namesrv", namesrv_conf or {}).start()
        broker = BrokerDaemon(folder / "broker", name_server.address, conf or {}, store_dir)
        try:
            broker.start()
        except BaseException:
            broker.kill()
            name_server.kill()
            raise
        return cls(name_server, broker)

    @property
    def namesrv(self) -> str:
        return self.name_server.address

    @property
    def broker_name(self) -> str:
        return self.broker.properties()["brokerName"]

    def stop(self) -> None:
        self.broker.stop()
        self.name_server.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def _started(module: str, folder: Path, *arguments: str, prefix: Sequence[str] = ()) -> ChildProcess:
    return ChildProcess(
        [*prefix, *daemon_command(module, *arguments)],
        log_path=folder / f"{module}.log",
        stdout_path=folder / f"{module}.out",
        env=daemon_environment(),
        cwd=folder,
    )


def _ready_port(module: str, process: ChildProcess) -> int:
    ready = process.wait_for_line(rf"^highwater {module} ready on \S+:(\d+)\s*$")
    return int(ready.group(1))


@dataclass
class ReplicaGroup:
    """A name server and a broker group of replicas 0, 1 …, of which 0 starts as the master.

    ``conf`` goes into every broker.conf. A replica is found by its number, whatever its role is by now.
    """

    name_server: NameServerDaemon
    replicas: list[BrokerDaemon]
    name: str = "broker-a"

    @classmethod
    def start(
        cls,
        folder: Path,
        conf: Mapping[str, str] | None = None,
        *,
        replicas: int = 2,
        synchronous: bool = False,
        name: str = "broker-a",
        name_server: NameServerDaemon | None = None,
        own_conf: Mapping[int, Mapping[str, str]] | None = None,
        hosts: Sequence[str] = (),
        command_prefixes: Sequence[Sequence[str]] = (),
    ) -> ReplicaGroup:
        """Starts all of them; returns when the master knows its slaves. ``own_conf`` is for single replicas."""
        names = name_server or NameServerDaemon(folder / "namesrv").start()
        made: list[BrokerDaemon] = []
        group = cls(names, made, name)
        try:
            for replica_id in range(replicas):
                role = "SLAVE" if replica_id else "SYNC_MASTER" if synchronous else "ASYNC_MASTER"
                properties = {
                    "brokerName": name,
                    "brokerId": str(replica_id),
                    "brokerRole": role,
                    "inSyncReplicas": "2" if synchronous else "1",
                    "totalReplicas": str(replicas),
                    "slaveReadEnable": "true",
                    **(conf or {}),
                    **((own_conf or {}).get(replica_id, {})),
                }
                replica = BrokerDaemon(folder / f"{name}-{replica_id}", names.address, properties)
                if hosts:
                    replica.host, replica.command_prefix = hosts[replica_id], command_prefixes[replica_id]
                made.append(replica.start())
        except BaseException:
            group.kill()
            raise
        return group

    @property
    def namesrv(self) -> str:
        return self.name_server.address

    def __getitem__(self, replica_id: int) -> BrokerDaemon:
        return self.replicas[replica_id]

    def kill(self) -> None:
        for replica in self.replicas:
            replica.kill()
        self.name_server.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
