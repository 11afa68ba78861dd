"""A group under load that no one disturbs elects no one: `python -m tests.dledger.steady [--minutes 30] [--writers 8]`.

Not part of the default run. Exit status 1 when an election happened after the founding one, or anything is wrong in the end.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.dledger.groups import quorum_group, status, wait_all_level, wait_leader
from tests.dledger.history import disturbance, final_content
from tests.remoting import create_topic

TOPIC = "steady"
LOOK_S = 5.0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.dledger.steady", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--writers", type=int, default=8)
    options = parser.parse_args(arguments)
    queues = options.writers
    with tempfile.TemporaryDirectory() as folder, quorum_group(Path(folder)) as group:
        create_topic(group[wait_leader(group)].address, TOPIC, queues=queues, namesrv=group.namesrv)
        first = status(group[wait_leader(group)]).epoch
        began_s = time.monotonic()
        with disturbance(group, TOPIC, queues) as load:
            for number in range(queues):
                load.write(f"writer-{number}", number)
            load.read_all()
            while time.monotonic() - began_s < options.minutes * 60:
                time.sleep(LOOK_S)
        took_s = time.monotonic() - began_s
        wait_all_level(group)
        last = status(group[wait_leader(group)]).epoch
        contents = [final_content(replica, TOPIC, queues) for replica in group.replicas]
        wrong = load.history.violations(contents[0], dict.fromkeys(range(queues), 0))
        wrong += [] if contents[0] == contents[1] == contents[2] else ["the replicas differ"]
    failed = sum(send.outcome != "acknowledged" for send in load.history.sends)
    print(
        f"{took_s:.0f} s, {load.history.acknowledged} acknowledged ({load.history.acknowledged / took_s:.0f}/s),"
        f" {failed} not, {last - first} elections, {len(wrong)} violations {wrong[:5]}"
    )
    return 1 if wrong or last != first else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
