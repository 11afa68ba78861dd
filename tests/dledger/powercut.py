"""Power cuts of all replicas of an electing group at once: `python -m tests.dledger.powercut --cuts 20`. Needs root.

Each replica's store is on an ext4 of its own whose journal is shut down without a flush (see tests/replication/powercut.py).
What was acknowledged must be there afterwards, once, in order, and the group must elect and take sends by itself. Not part of
the default run. Exit status 1 when anything is lost.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.daemons import BrokerDaemon
from tests.dledger.groups import WAIT_S, quorum_group, wait_all_level, wait_leader
from tests.dledger.history import disturbance, final_content
from tests.processes import wait_until
from tests.remoting import create_topic
from tests.replication.powercut import Disk, Machine, why_not

TOPIC = "power"
QUEUES = 3
CONF = {"mappedFileSizeCommitLog": str(8 * 1024 * 1024)}


def campaign(folder: Path, *, cuts: int, seed: int) -> tuple[int, list[str]]:
    """Cuts the power of all three replicas so often; returns how much was acknowledged, and what is wrong."""
    chance = random.Random(seed)
    disks = [Disk(folder / f"{number}.img", folder / f"disk-{number}") for number in range(3)]
    machines = [Machine(folder / f"boot-{number}") for number in range(3)]

    def place(replica: BrokerDaemon, number: int) -> None:
        replica.store_dir = disks[number].folder / "store"
        replica.command_prefix = machines[number].prefix

    with ExitStack() as stack:
        for disk, machine in zip(disks, machines, strict=True):
            disk.make()
            stack.callback(disk.unmount)
            machine.boot()
        group = stack.enter_context(quorum_group(folder, conf=CONF, place=place))
        create_topic(group[wait_leader(group)].address, TOPIC, queues=QUEUES, namesrv=group.namesrv)
        with disturbance(group, TOPIC, QUEUES) as load:
            for number in range(QUEUES):
                load.write(f"writer-{number}", number)
            load.read_all()
            for cut in range(cuts):
                wanted = load.history.acknowledged + 50
                wait_until(
                    lambda wanted=wanted: load.history.acknowledged >= wanted,  # type: ignore[misc] # bound by its default
                    timeout_s=WAIT_S,
                    what="sends are acknowledged",
                )
                time.sleep(chance.uniform(0.0, 0.5))
                for disk in disks:
                    disk.cut()
                began_s = time.monotonic()
                for replica in group.replicas:
                    replica.kill()
                for disk in disks:  # each machine sees all mounts: none may be left over from before the cut
                    disk.unmount()
                for disk, machine in zip(disks, machines, strict=True):
                    disk.mount()
                    machine.boot()
                for number in chance.sample(range(3), 3):
                    group[number].start()
                leader = wait_leader(group)
                print(f"cut {cut + 1:3}: replica {leader} leads after {time.monotonic() - began_s:.2f} s", flush=True)
        wait_all_level(group)
        contents = [final_content(replica, TOPIC, QUEUES) for replica in group.replicas]
        wrong = load.history.violations(contents[0], dict.fromkeys(range(QUEUES), 0))
        wrong += [] if contents[0] == contents[1] == contents[2] else ["the replicas differ"]
        return load.history.acknowledged, wrong


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.dledger.powercut", description=__doc__)
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    reason = why_not()
    if reason is not None:
        print(reason)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        acknowledged, wrong = campaign(Path(folder), cuts=options.cuts, seed=options.seed)
    print(
        f"{options.cuts} power cuts of all three replicas: {acknowledged} acknowledged, {len(wrong)} violations {wrong[:5]}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
