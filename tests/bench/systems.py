"""The two systems that are measured, started alike: one name server, one broker, a new store, default file sizes."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mqwire.codes import ResponseCode, SerializeType
from mqwire.connection import Connection
from tests.bench.load import send_frames
from tests.daemons import BrokerDaemon, NameServerDaemon
from tests.interop.apache import ApacheBroker, ApacheNameServer
from tests.processes import resident_bytes
from tests.remoting import RECEIVE_BYTES, connect, create_topic, wait_for_registration

System = Literal["apache", "highwater"]
FlushType = Literal["ASYNC_FLUSH", "SYNC_FLUSH"]
SYSTEMS: tuple[System, ...] = ("apache", "highwater")
NAMES: dict[System, str] = {"apache": "Apache RocketMQ 5.5.0", "highwater": "Highwater"}

TOPIC = "bench"
QUEUES = 16
FIRST_SEND_TOPIC = "first-send"  # created by the send itself
FIRST_SEND_TIMEOUT_S = 60.0

# What Apache's own start script chooses, but for the sizes: it asks for 8 GB.
APACHE_HEAP = ("-Xms1g", "-Xmx1g")
APACHE_FLAGS = (
    "-XX:+UseG1GC",
    "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:MaxDirectMemorySize=2g",
)
CONF = {"mappedFileSizeCommitLog": str(1024**3), "fileReservedTime": "72", "diskMaxUsedSpaceRatio": "98"}


@dataclass
class Running:
    """A system under test."""

    system: System
    namesrv: str
    broker: ApacheBroker | BrokerDaemon
    start_to_first_send_s: float

    def memory(self) -> dict[str, int]:
        """Resident bytes of the broker: all of them, and those that are its own (not mapped files)."""
        status = Path(f"/proc/{self.broker.pid}/status").read_text()
        own = re.search(r"RssAnon:\s+(\d+) kB", status)
        assert own is not None, "this kernel doesn't report RssAnon"
        return {"resident": resident_bytes(self.broker.pid), "anonymous": int(own.group(1)) * 1024}


@contextmanager
def running(system: System, folder: Path, flush: FlushType) -> Iterator[Running]:
    """Starts a system with an empty store and waits for its first successful send; ends it by process id."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    conf = {**CONF, "flushDiskType": flush}
    name_server: ApacheNameServer | NameServerDaemon
    broker: ApacheBroker | BrokerDaemon
    if system == "apache":
        name_server = ApacheNameServer(folder / "namesrv")
        name_server.start()
        # The whole JVM with both its compilers; requests may wait as long as the clients do.
        conf |= {"waitTimeMillsInSendQueue": "3000", "timerWheelEnable": "true"}
        broker = ApacheBroker(
            folder / "broker",
            name_server.address,
            conf,
            heap=APACHE_HEAP,
            flags=APACHE_FLAGS,
            quick_start=False,
        )
    else:
        name_server = NameServerDaemon(folder / "namesrv")
        name_server.start()
        broker = BrokerDaemon(folder / "broker", name_server.address, conf)
    try:
        seconds = _start_and_send(broker)
        wait_for_registration(name_server.address, broker.properties()["brokerName"])
        create_topic(broker.address, TOPIC, queues=QUEUES, namesrv=name_server.address)
        yield Running(system, name_server.address, broker, seconds)
    finally:
        broker.kill()
        if name_server.process is not None:
            name_server.process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _start_and_send(broker: ApacheBroker | BrokerDaemon) -> float:
    """Seconds from the start of the broker's process to the answer of its first successful send."""
    frame = send_frames(FIRST_SEND_TOPIC, size_bytes=100, queues=1, count=1, serialize_type=SerializeType.JSON)[0]
    broker.start()
    assert broker.process is not None
    started_s = broker.process.started_at_s
    _retry_until(lambda: _sends(broker.address, frame), started_s + FIRST_SEND_TIMEOUT_S)
    return time.monotonic() - started_s


def _retry_until(attempt: Callable[[], bool], deadline_s: float) -> None:
    while not attempt():
        assert time.monotonic() < deadline_s, f"no successful send in {FIRST_SEND_TIMEOUT_S} s"
        time.sleep(0.01)


def _sends(address: str, frame: bytes) -> bool:
    try:
        with connect(address) as stream:
            stream.sendall(frame)
            connection = Connection()
            while data := stream.recv(RECEIVE_BYTES):
                connection.receive_data(data)
                for response in connection.commands():
                    return response.code == ResponseCode.SUCCESS
    except OSError:
        return False
    return False
