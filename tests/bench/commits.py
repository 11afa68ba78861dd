"""What an offset commit costs that is answered: latency, and the broker's processor time, beside a send's.

    PYTHONPATH=.:platform python -m tests.bench.commits [--against TREE] [--flush SYNC_FLUSH] [--replicas 2]

One connection per commit in flight, each in a queue of its own. The two trees take turns, so that a busy machine is busy for both.
"""

from __future__ import annotations

import argparse
import os
import selectors
import shutil
import socket
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import tests.daemons
from mqwire.bodies import SubscriptionGroupConfig
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.connection import Connection
from mqwire.headers_offset import UpdateConsumerOffsetRequestHeader
from tests.bench.load import send_frames
from tests.daemons import ReplicaGroup
from tests.remoting import RECEIVE_BYTES, call, connect, create_topic
from tests.replication.replicas import wait_in_sync

QUEUES = 16
MESSAGES = 32_000
TOPIC = "commits"
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def processor_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def fill(address: str) -> None:
    """Messages for the offsets to pass."""
    frames = send_frames(TOPIC, size_bytes=10, queues=QUEUES, count=MESSAGES)
    with connect(address) as stream:
        connection = Connection()
        for begin in range(0, MESSAGES, 200):
            stream.sendall(b"".join(frames[begin : begin + 200]))
            answered = 0
            while answered < 200:
                connection.receive_data(stream.recv(RECEIVE_BYTES))
                answered += len(connection.commands())


class Committer:
    """One connection that commits one message after the other."""

    def __init__(self, address: str, group: str, queue_id: int) -> None:
        self.stream: socket.socket = connect(address)
        self._connection = Connection()
        self._group, self._queue_id, self._offset = group, queue_id, 0
        self.begun_s = 0.0

    def commit(self) -> None:
        self._offset += 1
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=self._group, topic=TOPIC, queue_id=self._queue_id, commit_offset=self._offset
        )
        frame = RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, header).encode()
        self.begun_s = time.perf_counter()
        self.stream.sendall(frame)

    def answered(self) -> bool:
        self._connection.receive_data(self.stream.recv(RECEIVE_BYTES))
        answers = self._connection.commands()
        assert all(answer.code == ResponseCode.SUCCESS for answer in answers), answers
        return bool(answers)


def measure(address: str, pid: int, group: str, in_flight: int, seconds: float) -> tuple[float, float, float]:
    """Median latency in ms, commits a second, processor time of the broker in us per commit."""
    body = SubscriptionGroupConfig(group_name=group).to_json()
    call(address, RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body))
    committers = [Committer(address, group, queue_id) for queue_id in range(in_flight)]
    selector = selectors.DefaultSelector()
    latencies: list[float] = []
    for one in committers:
        selector.register(one.stream, selectors.EVENT_READ, one)
    spent_s, began_s = processor_s(pid), time.perf_counter()
    for one in committers:
        one.commit()
    while time.perf_counter() - began_s < seconds:
        for key, _ in selector.select(5.0):
            one = key.data
            if one.answered():
                latencies.append(time.perf_counter() - one.begun_s)
                one.commit()
    took_s, spent_s = time.perf_counter() - began_s, processor_s(pid) - spent_s
    for one in committers:
        one.stream.close()
    count = len(latencies)
    return statistics.median(latencies) * 1000, count / took_s, spent_s / count * 1e6


def start(folder: Path, tree: Path, replicas: int, flush: str, stack: ExitStack) -> ReplicaGroup:
    tests.daemons.REPOSITORY = tree  # what the daemons run
    conf = {"flushDiskType": flush, "mappedFileSizeCommitLog": str(1 << 28)}
    group = stack.enter_context(ReplicaGroup.start(folder, conf, replicas=replicas, synchronous=replicas > 1))
    create_topic(group[0].address, TOPIC, queues=QUEUES, namesrv=group.namesrv)
    if replicas > 1:
        wait_in_sync(group)
    fill(group[0].address)
    return group


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--flush", default="SYNC_FLUSH", choices=("SYNC_FLUSH", "ASYNC_FLUSH"))
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    here = Path(__file__).parents[2]
    trees = {"here": here} | ({"against": options.against} if options.against else {})
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        groups = {
            name: start(folder / name, tree, options.replicas, options.flush, stack) for name, tree in trees.items()
        }
        for in_flight in (1, QUEUES):
            found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in groups}
            for number in range(options.rounds):
                for name, group in sorted(groups.items(), reverse=number % 2 == 1):
                    consumers = f"group-{in_flight}-{number}"
                    found[name].append(measure(group[0].address, group[0].pid, consumers, in_flight, options.seconds))
            for name, rounds in found.items():
                latency, rate, cost = (statistics.median(column) for column in zip(*rounds, strict=True))
                print(
                    f"{name}: {in_flight} in flight, {options.flush}, {options.replicas} replicas: {latency:.2f} ms,"
                    f" {rate:.0f}/s, {cost:.0f} us of processor time each; load {os.getloadavg()[0]:.1f}"
                )


if __name__ == "__main__":
    main()
