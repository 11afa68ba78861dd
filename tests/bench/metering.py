"""What metering costs: processor time of the broker per send and per pull, with metering and without, in pairs.

    PYTHONPATH=.:platform python -m tests.bench.metering [--pairs 40] [--live] [--quick]

The broker's own dispatcher gets frames as a connection gives them, so many sends in a wake-up; nothing goes over a socket and
nothing waits for the disk. With --live, two running brokers are loaded over sockets instead, for two minutes: their processes'
time is read, and how many messages a second they took, which means something on a quiet machine only. Processor time, and pairs
in turn, because other processes on a small machine would drown the rest. Each difference is the median of the pairs' and where
that lies with 95 % confidence: where 0 lies between the two, none was seen.
"""

from __future__ import annotations

import argparse
import gc
import shutil
import tempfile
import time
from math import sqrt
from pathlib import Path
from statistics import median

from brokerd.broker import Broker, open_store
from brokerd.config import load_config
from brokerd.environment import Environment
from mqwire.bodies import TopicConfig
from mqwire.codes import PullSysFlag, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.connection import Connection
from mqwire.headers_pull import PullMessageRequestHeader
from mqwire.message import pack_host
from tests.bench.load import RING_FRAMES, run_sends, send_frames
from tests.daemons import BrokerDaemon, DaemonCluster
from tests.remoting import create_topic

TOPIC = "metering"
QUEUES = 8
SIZE_BYTES = 1024
SENDS_PER_ROUND = 4096
PULLS_PER_ROUND = 400
PULLED = 32
LIVE_S = 0.5
IDLE_S = 10.0


class Client:
    """A connection whose other end takes everything at once."""

    id = 1
    remote_address = ("127.0.0.1", 40000)
    remote_host = pack_host("127.0.0.1", 40000)
    closed = False
    pending_bytes = 0
    proven = True
    has_certificate = False

    def __init__(self) -> None:
        self.answers = 0
        self.last = b""

    def write(self, data: bytes) -> None:
        self.answers += 1
        self.last = data

    def flush(self) -> None:
        """There is no one to flush to."""


class System:
    """A whole broker without sockets."""

    def __init__(self, folder: Path, interval_ms: int) -> None:
        overrides = {
            "storePathRootDir": str(folder),
            "meteringIntervalMs": str(interval_ms),
            "diskSpaceWarningLevelRatio": "100",
            "brokerIP1": "127.0.0.1",
        }
        self.config = load_config(None, overrides=overrides, environ={}, warn=lambda _text: None)
        self.store, _report = open_store(self.config, pack_host("127.0.0.1", 10911), Environment())
        self.broker = Broker(self.config, self.store, 10911, Environment())
        self.broker.load()
        self.broker.topic_configs.put(TopicConfig(topic_name=TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES))
        self.client = Client()

    def sends(self, frames: list[bytes]) -> float:
        """Microseconds of processor time per message; each of `frames` is what one wake-up reads."""
        connection = Connection()
        dispatch = self.broker.dispatcher.dispatch
        gc.collect()
        began = time.process_time()
        for frame in frames:
            connection.receive_data(frame)
            dispatch(self.client, connection.commands())  # type: ignore[arg-type] # it is written to, and no more
        spent = time.process_time() - began
        self.store.flush_consume_queues()
        return spent / SENDS_PER_ROUND * 1e6

    def pulls(self) -> float:
        """Microseconds of processor time per pull."""
        header = PullMessageRequestHeader(
            consumer_group="readers",
            topic=TOPIC,
            queue_id=0,
            queue_offset=0,
            max_msg_nums=PULLED,
            sys_flag=PullSysFlag.SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
        frame = RemotingCommand.request(RequestCode.PULL_MESSAGE, header).encode()
        connection = Connection()
        gc.collect()
        began = time.process_time()
        for _ in range(PULLS_PER_ROUND):
            connection.receive_data(frame)
            self.broker.dispatcher.dispatch(self.client, connection.commands())  # type: ignore[arg-type] # as above
        return (time.process_time() - began) / PULLS_PER_ROUND * 1e6


def process_s(pid: int) -> float:
    """Processor time of all threads of a process by now."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def live_sends(broker: BrokerDaemon, frames: list[bytes], in_flight: int) -> tuple[float, float]:
    """(microseconds of the broker's processor time per message, messages a second)."""
    began = process_s(broker.pid)
    result = run_sends(broker.address, frames, in_flight=in_flight, seconds=LIVE_S, warm_up_s=0.0)
    assert set(result.codes) == {ResponseCode.SUCCESS}, result.codes
    return (process_s(broker.pid) - began) / result.messages * 1e6, result.messages_per_s


def idle_ms(brokers: list[BrokerDaemon], seconds: float) -> list[float]:
    """Milliseconds of each broker's processor time per second while no one asks them for anything."""
    time.sleep(seconds / 2)  # the last load's flushes come to their end
    began = [process_s(broker.pid) for broker in brokers]
    time.sleep(seconds)
    return [(process_s(broker.pid) - before) / seconds * 1e3 for broker, before in zip(brokers, began, strict=True)]


def live(folder: Path, pairs: int, idle_s: float) -> None:
    """Two brokers, under load in turn."""
    frames = send_frames(TOPIC, size_bytes=SIZE_BYTES, queues=QUEUES, count=RING_FRAMES)
    with (
        DaemonCluster.start(folder / "off", {"meteringIntervalMs": "0"}) as off,
        DaemonCluster.start(folder / "on", {"meteringIntervalMs": "60000"}) as on,
    ):
        for cluster in (off, on):
            create_topic(cluster.broker.address, TOPIC, queues=QUEUES)
        for in_flight in (1, 16, 64):
            costs: list[tuple[float, float]] = []
            rates: list[tuple[float, float]] = []
            for number in range(pairs + 1):
                order = (off, on) if number % 2 else (on, off)
                found = {id(each): live_sends(each.broker, frames, in_flight) for each in order}
                costs.append((found[id(off)][0], found[id(on)][0]))
                rates.append((found[id(off)][1], found[id(on)][1]))
            compare(f"live send, {in_flight} in flight", "us", costs[1:])
            compare("  messages a second", "  ", rates[1:])
        without, with_metering = idle_ms([off.broker, on.broker], idle_s)
        print(f"at rest {without:.2f} ms/s of processor time without, {with_metering:.2f} with", flush=True)


def wake_ups(sends_each: int) -> list[bytes]:
    frames = send_frames(TOPIC, size_bytes=SIZE_BYTES, queues=QUEUES, count=SENDS_PER_ROUND)
    return [b"".join(frames[at : at + sends_each]) for at in range(0, len(frames), sends_each)]


def compare(name: str, unit: str, pairs: list[tuple[float, float]]) -> None:
    without, with_metering = (median(values) for values in zip(*pairs, strict=True))
    ratios = sorted(on / off - 1 for off, on in pairs)
    # The 95 % interval of a median, by ranks: it asks nothing of how the values are spread.
    rank = max(0, round(len(ratios) / 2 - 0.98 * sqrt(len(ratios))))
    low, high = ratios[rank], ratios[-1 - rank]
    print(
        f"{name:28} {without:8.2f} {unit} without, {with_metering:8.2f} with: {median(ratios):+.2%} ({low:+.2%} .. {high:+.2%})",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=40, help="per figure; a pair takes a second with --live")
    parser.add_argument("--live", action="store_true", help="running brokers, over sockets")
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    arguments = parser.parse_args()
    pairs = 2 if arguments.quick else arguments.pairs
    root = Path(tempfile.mkdtemp(prefix="metering-"))
    try:
        if arguments.live:
            live(root, pairs, 1.0 if arguments.quick else IDLE_S)
            return
        off, on = System(root / "off", 0), System(root / "on", 60_000)
        for sends_each in (1, 4, 16, 64):
            frames = wake_ups(sends_each)
            measured = []
            for number in range(pairs + 1):
                first, second = (off, on) if number % 2 else (on, off)
                costs = {first: first.sends(frames), second: second.sends(frames)}
                measured.append((costs[off], costs[on]))
            compare(f"send, {sends_each} in a wake-up", "us", measured[1:])  # the first pair warms up
        measured = []
        for number in range(pairs + 1):
            first, second = (off, on) if number % 2 else (on, off)
            costs = {first: first.pulls(), second: second.pulls()}
            measured.append((costs[off], costs[on]))
        assert len(on.client.last) > PULLED * SIZE_BYTES, "pulls found nothing"
        compare(f"pull of {PULLED}", "us", measured[1:])
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
