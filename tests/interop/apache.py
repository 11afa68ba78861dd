"""A real Apache RocketMQ 5.5.0 name server and broker, started from their Maven artefacts in a folder of their own.

    with ApacheCluster.start(folder) as cluster:
        cluster.namesrv            # "127.0.0.1:port", for clients
        cluster.broker.address

``conf`` entries go into broker.conf as they are (RocketMQ's own keys) and win over the defaults here. A broker can be
stopped or killed and started again on the same store and the same port.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.daemons import write_properties
from tests.interop.java_toolchain import SMALL_HEAP, java_command
from tests.processes import ChildProcess, child_environment, free_ports

MEBIBYTE = 1024 * 1024

BROKER_DEFAULTS: dict[str, str] = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": "broker-a",
    "brokerId": "0",
    "brokerIP1": "127.0.0.1",
    "bindAddress": "127.0.0.1",
    "autoCreateTopicEnable": "true",
    "defaultTopicQueueNums": "4",
    # Apache refuses with code 2 after 200 ms in its queue; a busy test machine would make that a random failure.
    "waitTimeMillsInSendQueue": "5000",
    # Apache maps whole files at once: its own sizes (1 GiB) would only cost memory here.
    "mappedFileSizeCommitLog": str(64 * MEBIBYTE),
    "mappedFileSizeConsumeQueue": "6000000",
    "warmMapedFileEnable": "false",
    "timerWheelEnable": "false",
    # Until this has passed for the first time, the thread that writes transaction metrics spins: 10 s of a processor by default.
    "transactionMetricFlushInterval": "200",
    "fileReservedTime": "72",
    "diskMaxUsedSpaceRatio": "98",
}


def rocketmq_home(folder: Path) -> dict[str, str]:
    """Environment with a ROCKETMQ_HOME of its own; RocketMQ only wants a conf/ folder there."""
    (folder / "conf").mkdir(parents=True, exist_ok=True)
    return child_environment(ROCKETMQ_HOME=str(folder))


@dataclass
class ApacheNameServer:
    """``org.apache.rocketmq.namesrv.NamesrvStartup`` on a free loopback port."""

    folder: Path
    heap: Sequence[str] = ("-Xms64m", "-Xmx128m")
    port: int = field(default_factory=free_ports)
    process: ChildProcess | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> Self:
        write_properties(self.folder / "namesrv.conf", {"listenPort": str(self.port), "bindAddress": "127.0.0.1"})
        command = java_command(
            "org.apache.rocketmq.namesrv.NamesrvStartup",
            *("-c", str(self.folder / "namesrv.conf")),
            home=self.folder / "home",
            heap=self.heap,
        )
        self.process = ChildProcess(command, log_path=self.folder / "namesrv.log", env=rocketmq_home(self.folder))
        self.process.wait_for_line("The Name Server boot success")
        return self

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()


@dataclass
class ApacheBroker:
    """``org.apache.rocketmq.broker.BrokerStartup`` with its store in ``store_dir`` (default: store/ in its folder).

    Binds ``port``, ``port`` - 2 (its second door for administration) and ``port`` + 1 (replication).
    """

    folder: Path
    namesrv: str
    conf: Mapping[str, str] = field(default_factory=dict)
    store_dir: Path | None = None
    heap: Sequence[str] = SMALL_HEAP
    flags: Sequence[str] = ()
    quick_start: bool = True
    port: int = field(default_factory=lambda: free_ports(-2, 0, 1))
    process: ChildProcess | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the broker is not started"
        return self.process.pid

    def properties(self) -> dict[str, str]:
        """What broker.conf holds."""
        store = self.store_dir or self.folder / "store"
        return {
            **BROKER_DEFAULTS,
            "namesrvAddr": self.namesrv,
            "listenPort": str(self.port),
            "haListenPort": str(self.port + 1),
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
            **self.conf,
        }

    def start(self) -> Self:
        write_properties(self.folder / "broker.conf", self.properties())
        command = java_command(
            "org.apache.rocketmq.broker.BrokerStartup",
            *("-c", str(self.folder / "broker.conf")),
            home=self.folder / "home",
            heap=self.heap,
            flags=self.flags,
            quick_start=self.quick_start,
        )
        self.process = ChildProcess(command, log_path=self.folder / "broker.log", env=rocketmq_home(self.folder))
        self.process.wait_for_line("boot success")
        return self

    def stop(self) -> None:
        """A clean stop: Apache's shutdown hook writes checkpoint and offsets and removes its abort file."""
        if self.process is not None:
            self.process.stop(timeout_s=30.0)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()


@dataclass
class ApacheCluster:
    """One name server and one broker; stopped together at the end of the ``with`` block."""

    name_server: ApacheNameServer
    broker: ApacheBroker

    @classmethod
    def start(
        cls, folder: Path, conf: Mapping[str, str] | None = None, *, store_dir: Path | None = None
    ) -> ApacheCluster:
        name_server = ApacheNameServer(folder / "namesrv").start()
        broker = ApacheBroker(folder / "broker", name_server.address, conf or {}, store_dir)
        try:
            broker.start()
        except BaseException:
            broker.kill()
            name_server.stop()
            raise
        return cls(name_server, broker)

    @property
    def namesrv(self) -> str:
        return self.name_server.address

    @property
    def broker_name(self) -> str:
        return self.broker.properties()["brokerName"]

    def stop(self) -> None:
        """Ends both at once, without Apache's graceful stop of about ten seconds: call ``broker.stop()`` first to keep
        its store.
        """
        self.broker.kill()
        if self.name_server.process is not None:
            self.name_server.process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
