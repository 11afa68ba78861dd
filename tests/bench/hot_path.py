"""What a send, a batch and a pull cost the broker: microseconds of its processor time per message, without sockets.

    PYTHONPATH=.:platform python -m tests.bench.hot_path [--rounds 5] [--only TEXT] [--profile]
    PYTHONPATH=.:platform python -m tests.bench.hot_path --against TREE

The broker's own dispatcher gets frames as a connection gives them, so many in a wake-up; nothing goes over a socket and nothing
waits for the disk. Processor time, because other processes on a small machine would drown the rest. `--against` compares with
another checkout (`git archive COMMIT | tar x -C TREE`): fresh processes of both in turn, and the medians of their medians.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import os
import pstats
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from mqwire.codes import PullSysFlag, RequestCode, SerializeType
from mqwire.command import RemotingCommand
from mqwire.connection import Connection
from mqwire.headers_pull import PullMessageRequestHeader
from mqwire.headers_send import SendMessageRequestHeader
from mqwire.message import BatchItem, encode_batch_body, properties_to_string
from tests.bench.load import RING_FRAMES, send_frames
from tests.bench.metering import QUEUES, TOPIC, System

REPOSITORY = Path(__file__).resolve().parents[2]
BATCH = 32
BATCHED_BYTES = 128
BATCHES = 256
PULLED = 32

# A case: its name, its messages in a round, and a round.
Case = tuple[str, int, Callable[[], None]]


def batch_frames(count: int) -> list[bytes]:
    """Batches as Java's BatchProducer sends them, round the queues."""
    frames = []
    for index in range(count):
        items = [
            BatchItem(
                0,
                b"%0*d" % (BATCHED_BYTES, number),
                properties_to_string({"UNIQ_KEY": f"7F000001{index * BATCH + number:024X}", "WAIT": "true"}).encode(),
            )
            for number in range(BATCH)
        ]
        header = SendMessageRequestHeader(
            producer_group="benchmark_batch_producer",
            topic=TOPIC,
            default_topic="TBW102",
            default_topic_queue_nums=QUEUES,
            queue_id=index % QUEUES,
            sys_flag=0,
            born_timestamp=1_700_000_000_000 + index,
            flag=0,
            properties=properties_to_string({"UNIQ_KEY": f"7F000002{index:024X}", "WAIT": "true"}),
            reconsume_times=0,
            unit_mode=False,
            batch=True,
        )
        command = RemotingCommand.request(
            RequestCode.SEND_BATCH_MESSAGE,
            header.to_v2(),
            body=encode_batch_body(items),
            serialize_type=SerializeType.ROCKETMQ,
        )
        frames.append(command.encode())
    return frames


def pull_frames(count: int) -> list[bytes]:
    """Pulls of 32, along one queue from its beginning, as Java's consumer asks for them."""
    frames = []
    for index in range(count):
        header = PullMessageRequestHeader(
            consumer_group="readers",
            topic=TOPIC,
            queue_id=0,
            queue_offset=index * PULLED,
            max_msg_nums=PULLED,
            sys_flag=PullSysFlag.SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=15000,
            subscription="*",
            sub_version=0,
            expression_type="TAG",
        )
        command = RemotingCommand.request(RequestCode.PULL_MESSAGE, header, serialize_type=SerializeType.ROCKETMQ)
        frames.append(command.encode())
    return frames


def cases(system: System) -> Iterator[Case]:
    def round_of(wake_ups: list[bytes]) -> Callable[[], None]:
        def run() -> None:
            connection = Connection()
            dispatch = system.broker.dispatcher.dispatch
            for data in wake_ups:
                connection.receive_data(data)
                dispatch(system.client, connection.commands())  # type: ignore[arg-type] # it is written to, and no more

        return run

    for name, serialize_type in (("JSON", SerializeType.JSON), ("binary", SerializeType.ROCKETMQ)):
        frames = send_frames(TOPIC, size_bytes=1024, queues=QUEUES, count=RING_FRAMES, serialize_type=serialize_type)
        for each in (1, 4, 16):
            wake_ups = [b"".join(frames[at : at + each]) for at in range(0, len(frames), each)]
            yield f"send of 1 KiB, {name}, {each} in a wake-up", RING_FRAMES, round_of(wake_ups)
    batches = batch_frames(BATCHES)
    yield f"batch of {BATCH} x {BATCHED_BYTES} B", BATCHES * BATCH, round_of(batches)
    yield f"pull of {PULLED} x {BATCHED_BYTES} B", _PULLS * PULLED, round_of(pull_frames(_PULLS))


_PULLS = 5 * BATCHES // QUEUES  # what five rounds of batches have left in one queue at least, all rounds along the same


def measure(rounds: int, only: str, profile: bool) -> dict[str, float]:
    """Microseconds per message by case: the medians of `rounds` rounds."""
    folder = Path(tempfile.mkdtemp(prefix="hot-path-"))
    costs: dict[str, float] = {}
    try:
        # One broker for batches and pulls, another one for sends, whose records would lie between.
        for kind in ("send", "batch"):
            system = System(folder / kind, 60_000)
            for name, messages, run in cases(system):
                if name.startswith("send") != (kind == "send") or (only not in name and not name.startswith("batch")):
                    continue
                run()
                profiler = cProfile.Profile()
                spent = []
                for _ in range(max(rounds, 4)):
                    gc.collect()
                    if profile and only in name:
                        profiler.enable()
                    began = time.process_time()
                    run()
                    spent.append((time.process_time() - began) / messages * 1e6)
                    profiler.disable()
                    system.store.flush_consume_queues()
                costs[name] = median(spent)
                if profile and only in name:
                    print(name)
                    pstats.Stats(profiler).sort_stats("tottime").print_stats(18)
            system.store.close()
    finally:
        shutil.rmtree(folder)
    return {name: cost for name, cost in costs.items() if only in name}


def measure_tree(tree: Path, rounds: int, only: str) -> dict[str, float]:
    """The same for another checkout, in a process of its own."""
    done = subprocess.run(
        [sys.executable, Path(__file__).resolve(), "--json", "--rounds", str(rounds), "--only", only],
        env={**os.environ, "PYTHONPATH": f"{tree}:{tree / 'platform'}"},
        cwd=tree,
        check=True,
        stdout=subprocess.PIPE,
    )
    costs: dict[str, float] = json.loads(done.stdout)
    return costs


def compare(other: Path, rounds: int, only: str) -> None:
    before: list[dict[str, float]] = []
    after: list[dict[str, float]] = []
    for number in range(5):
        for tree, costs in ((other, before), (REPOSITORY, after))[:: 1 if number % 2 else -1]:
            costs.append(measure_tree(tree, rounds, only))
    for name in after[0]:
        was, now = (median(costs[name] for costs in all_costs) for all_costs in (before, after))
        print(f"{name:40} {was:7.2f} us before, {now:7.2f} now: {now / was - 1:+.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="the cases whose name has this in it")
    parser.add_argument("--profile", action="store_true", help="where the time goes")
    parser.add_argument("--against", type=Path, metavar="TREE", help="another checkout, measured in turn with this one")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.against is not None:
        compare(arguments.against.resolve(), arguments.rounds, arguments.only)
        return
    costs = measure(arguments.rounds, arguments.only, arguments.profile)
    if arguments.json:
        print(json.dumps(costs))
        return
    for name, cost in costs.items():
        print(f"{name:40} {cost:7.2f} us a message")


if __name__ == "__main__":
    main()
