"""How long a group is without a leader after kill -9, and without a write: `python -m tests.dledger.kill_leader [--kills 20]`.

Three brokers on the loopback under load from our SDK and, with --java, a stock Java client. Measured from the kill: when a
replica leads and takes sends (asked each 10 ms), and when the first send of a client of ours succeeds that asks the name
server again on failure. Not part of the default run. Exit status 1 when anything acknowledged is lost.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from highwater import HighwaterError, Message, Producer, SendStatus
from tests.daemons import ReplicaGroup
from tests.dledger.groups import WAIT_S, leader_among, quorum_group, status, wait_all_level, wait_leader
from tests.dledger.history import disturbance, final_content
from tests.interop.clients import JavaClient
from tests.processes import wait_until
from tests.remoting import create_topic

TOPIC = "kills"
QUEUES = 3
LOOK_S = 0.01
CALM_S = 1.0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.dledger.kill_leader", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--java", action="store_true", help="load from a stock Java client too (poll_ms 500)")
    parser.add_argument("--flush", choices=("SYNC_FLUSH", "ASYNC_FLUSH"), default="SYNC_FLUSH")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        group = stack.enter_context(quorum_group(Path(folder), conf={"flushDiskType": options.flush}))
        create_topic(group[wait_leader(group)].address, TOPIC, queues=QUEUES, namesrv=group.namesrv)
        elected: list[float] = []
        written: list[float] = []
        with disturbance(group, TOPIC, QUEUES) as load:
            for number in range(QUEUES):
                load.write(f"load-{number}", number)
            load.read_all()
            if options.java:
                load.write_with(stack.enter_context(JavaClient(Path(folder) / "java")), "java")
            with Producer(group.namesrv, "first-write", retry_times_when_send_failed=0) as producer:
                for kill in range(options.kills):
                    before = load.history.acknowledged
                    wait_until(
                        lambda before=before: load.history.acknowledged > before + 50,  # type: ignore[misc] # bound by its default
                        timeout_s=WAIT_S,
                        what="the load runs",
                    )
                    leader_s, write_s = one_kill(group, producer)
                    elected.append(leader_s)
                    written.append(write_s)
                    print(f"kill {kill + 1:3}: new leader {leader_s:.3f} s, first write {write_s:.3f} s", flush=True)
        wait_all_level(group)
        contents = [final_content(replica, TOPIC, QUEUES) for replica in group.replicas]
        violations = load.history.violations(contents[0], dict.fromkeys(range(QUEUES), 0))
        violations += [] if contents[0] == contents[1] == contents[2] else ["the replicas differ"]
        print(f"{load.history.acknowledged} acknowledged, {len(violations)} violations {violations[:5]}")
        show("new leader", elected)
        show("first write", written)
    return 1 if violations else 0


def one_kill(group: ReplicaGroup, producer: Producer) -> tuple[float, float]:
    """Kills the leader, waits for the next one and a write, and starts it again; returns both in seconds."""
    former = wait_leader(group)
    wrote: list[float] = []

    def write() -> None:
        while not wrote:
            try:
                if (
                    producer.send(Message(TOPIC, b"probe", keys=[f"probe-{time.monotonic():f}"])).status
                    is SendStatus.SEND_OK
                ):
                    wrote.append(time.monotonic())
            except HighwaterError:
                time.sleep(LOOK_S)

    began_s = time.monotonic()
    group[former].kill()
    thread = threading.Thread(target=write)
    thread.start()
    while leader_among(group, former) is None:
        time.sleep(LOOK_S)
    leader_s = time.monotonic() - began_s
    thread.join()
    group[former].start()
    wait_all_calm(group)
    return leader_s, wrote[0] - began_s


def wait_all_calm(group: ReplicaGroup) -> None:
    """Until the replica that was killed follows again: else a second kill would leave no majority."""

    def following() -> bool:
        leader = wait_leader(group)
        reported = status(group[leader])
        return sum(one.in_sync for one in reported.followers) == len(group.replicas) - 1

    wait_until(following, timeout_s=WAIT_S, what="all replicas are in sync")
    time.sleep(CALM_S)


def show(what: str, seconds: Sequence[float]) -> None:
    ranked = sorted(seconds)
    p99 = ranked[min(len(ranked) - 1, round(0.99 * (len(ranked) - 1)))]
    print(
        f"{what}: min {ranked[0]:.2f} s, p50 {statistics.median(ranked):.2f} s, p99 {p99:.2f} s, max {ranked[-1]:.2f} s"
        f" ({len(ranked)} kills)"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
