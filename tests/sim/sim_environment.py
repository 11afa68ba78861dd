"""The environment (brokerd/environment.py) of one simulated broker process, and its configuration."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING

import trio

from brokerd.clock import SystemClock
from brokerd.config import BrokerConfig, load_config
from brokerd.environment import Environment
from mqwire.mode import Mode
from tests.sim.network import ProcessNetwork
from tests.sim.sim_threads import SimThreads
from tests.sim.trio_process import TrioProcess
from tests.sim.wire import CLUSTER, DELAY_LEVELS, GROUP, QUEUES

if TYPE_CHECKING:
    from brokerd.replica.replica import ReplicaSettings
    from tests.sim.machine import Machine

ROOT = "/store"
FILE_BYTES = 16384  # a snapshot of the tables is one record, and fits
PORT = 10911
FIRST_MS = 1_700_000_000_000  # by a clock that is right, when a run begins
HAND_OVER_S = 0.00005


class SimClock(SystemClock):
    """The machine's clocks, as its process sees them."""

    def __init__(self, machine: Machine, process: TrioProcess) -> None:
        self._machine = machine
        self.monotonic = process.monotonic  # type: ignore[method-assign] # the same, a call less

    def time_ms(self) -> int:
        return self._machine.now_ms()

    def now_ms(self) -> int:
        return self._machine.now_ms()

    def thread_time(self) -> float:
        return 0.0


class StopOrders:
    """SIGTERM."""

    def __init__(self, process: TrioProcess) -> None:
        self._process = process
        self._waiter: object | None = None
        self._ordered = False
        self.given = False

    def order(self) -> None:
        self._ordered = self.given = True
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            self._process.wake(waiter)

    @contextmanager
    def entered(self) -> Iterator[Callable[[], Awaitable[str]]]:
        async def next_order() -> str:
            if not self._ordered:
                self._waiter = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._abort)
            self._ordered = False
            return "SIGTERM"

        yield next_order

    def _abort(self, _raise: object) -> trio.lowlevel.Abort:
        self._waiter = None
        return trio.lowlevel.Abort.SUCCEEDED


def environment_of(
    machine: Machine, process: TrioProcess, threads: SimThreads, orders: StopOrders, random: Random
) -> Environment:
    return Environment(
        clock=SimClock(machine, process),
        disk=machine.disk,
        network=ProcessNetwork(machine.network, process, machine.name, machine.ip),
        threads=threads,
        random=random,
        stop_orders=orders.entered,
    )


def config_of(
    settings: ReplicaSettings,
    name_servers: list[str],
    reserved_hours: int,
    *,
    indexes: bool = False,
    gives_up_damage: bool = False,
) -> BrokerConfig:
    """broker.conf for a replica with these settings. Expired files go when the disk is too full, and at no hour of the day."""
    ip, _, port = settings.address.rpartition(":")
    keys = {
        "brokerClusterName": CLUSTER,
        "brokerName": GROUP,
        "brokerId": str(settings.replica_id),
        "brokerIP1": ip,
        "listenPort": port,
        "namesrvAddr": ";".join(name_servers),
        "registerNameServerPeriod": "2000",
        "storePathRootDir": ROOT,
        "mappedFileSizeCommitLog": str(FILE_BYTES),
        "mappedFileSizeConsumeQueue": str(20 * 16),
        "flushDiskType": "SYNC_FLUSH" if settings.durable_counts else "ASYNC_FLUSH",
        "syncFlushTimeout": "1500",
        "slaveTimeout": "1500",
        "haSendHeartbeatInterval": "1000",
        "haMaxTimeSlaveNotCatchup": str(round(settings.max_time_not_level_s * 1000)),
        "totalReplicas": str(settings.total_replicas),
        "inSyncReplicas": str(settings.in_sync_replicas),
        "minInSyncReplicas": str(settings.min_in_sync_replicas),
        "enableAutoInSyncReplicas": str(settings.auto_in_sync_replicas).lower(),
        "defaultTopicQueueNums": str(QUEUES),
        "fileReservedTime": str(reserved_hours),
        "slaveReadEnable": "true",
        "accessMessageInMemoryMaxRatio": "0",  # who lags is sent to a slave
        "deleteWhen": f"{(time.localtime(FIRST_MS / 1000).tm_hour + 12) % 24:02d}",
        "cleanResourceInterval": "1000",
        "meteringIntervalMs": "0",
        "messageIndexEnable": str(indexes).lower(),
        "truncateDamagedTail": str(gives_up_damage).lower(),
        "maxHashSlotNum": "32",  # so that keys share slots, and there are several files
        "maxIndexNum": "150",
        "messageDelayLevel": DELAY_LEVELS,
    }
    if settings.mode is Mode.DLEDGER:
        keys |= {
            "enableDLegerCommitLog": "true",
            "dLegerGroup": GROUP,
            "dLegerSelfId": f"n{settings.replica_id}",
            "dLegerPeers": ";".join(f"n{key}-{address}" for key, address in settings.peers.items()),
        }
    elif not settings.starts_as_leader:
        keys["brokerRole"] = "SLAVE"
    else:
        keys["brokerRole"] = "SYNC_MASTER" if settings.mode is Mode.SYNC else "ASYNC_MASTER"
    return load_config(None, overrides=keys, environ={}, warn=lambda text: None)
