"""Measures Apache RocketMQ 5.5.0 and ours side by side with RocketMQ's own benchmark programs.

    ./dev bench                    everything: about an hour; wants a quiet machine
    ./dev bench --rounds 1         a third of that
    ./dev bench --quick            a smoke of seconds that measures nothing worth quoting
    ./dev bench --replication      master and slave only, with asynchronous and synchronous replication
    ./dev bench --dledger          three replicas that elect their leader only
    ./dev bench --only highwater   one side alone

In every round each system is started again with an empty store, first with asynchronous and then with synchronous flush,
and driven by the same client programs; which system goes first changes from round to round. Never two at a time.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from mqwire.codes import SerializeType
from tests.bench import load
from tests.bench.dledger import measure_dledger
from tests.bench.programs import Program, batch_producer, consumer, measure, producer, run_count
from tests.bench.replication import measure_replication
from tests.bench.report import Report
from tests.bench.systems import NAMES, QUEUES, SYSTEMS, TOPIC, FlushType, Running, System, running
from tests.remoting import create_topic

BENCH_DIR = Path(__file__).resolve().parent.parent.parent / ".local" / "bench"
SEND_AIM, BATCH_AIM, CONSUME_AIM = 2.0, 1.0, 1.0
BATCH_TOPIC = "bench-batch"
LIGHT_CLIENT_S = 8.0
CONSUMER_RUN_S = 16
QUICK_MESSAGES = 3000
FLUSH_NAMES: dict[FlushType, str] = {"ASYNC_FLUSH": "async flush", "SYNC_FLUSH": "sync flush"}


def measure_program(
    report: Report,
    under_test: Running,
    program: Program,
    flush: FlushType,
    folder: Path,
    *,
    samples: int,
    aim: float,
    topic: str = TOPIC,
) -> list[int]:
    """Runs one program against one system, adds what it printed to the report and returns it."""
    result = measure(program, under_test.namesrv, topic, folder, samples=samples)
    label = f"{program.label}, {FLUSH_NAMES[flush]}"
    report.add(under_test.system, label, result.rates, unit="messages/s", aim=aim)
    print(f"  {label}: {result.rates}", flush=True)
    if result.failures:
        cause = result.first_error or "cause not logged"
        report.notes.append(f"{NAMES[under_test.system]}: {result.failures} failures during {label}; {cause}")
    return result.rates


def measure_light_client(report: Report, under_test: Running, seconds: float) -> None:
    """Our own generator (tests/bench/load.py), which costs so little that the broker alone sets the pace."""
    create_topic(under_test.broker.address, "light", queues=QUEUES, namesrv=under_test.namesrv)
    for serialize_type in (SerializeType.JSON, SerializeType.ROCKETMQ):
        frames = load.send_frames(
            "light", size_bytes=1024, queues=QUEUES, count=load.RING_FRAMES, serialize_type=serialize_type
        )
        result = load.run_sends(under_test.broker.address, frames, in_flight=64, seconds=seconds)
        kind = "JSON" if serialize_type == SerializeType.JSON else "binary"
        label = f"light client, 64 in flight, 1024 B, {kind} headers, async flush"
        report.add(under_test.system, label, [result.messages_per_s], unit="messages/s")
        print(f"  {label}: {result.summary()}", flush=True)


def measure_async(report: Report, under_test: Running, folder: Path, samples: int) -> None:
    def run(program: Program, aim: float, topic: str, samples: int = samples) -> list[int]:
        return measure_program(
            report, under_test, program, "ASYNC_FLUSH", folder, samples=samples, aim=aim, topic=topic
        )

    run(producer(16), SEND_AIM, TOPIC)
    run(producer(64), SEND_AIM, TOPIC)
    memory = under_test.memory()
    # A topic of its own: the consumer's backlog is exactly what the batch producer leaves.
    create_topic(under_test.broker.address, BATCH_TOPIC, queues=QUEUES, namesrv=under_test.namesrv)
    batched = run(batch_producer(), BATCH_AIM, BATCH_TOPIC)
    consumed = run(consumer(), CONSUME_AIM, BATCH_TOPIC, samples=1)
    if consumed[0] * CONSUMER_RUN_S > min(batched) * (samples + 1) * 10:
        report.notes.append(f"{NAMES[under_test.system]}: the consumer may have drained its backlog.")
    measure_light_client(report, under_test, LIGHT_CLIENT_S)
    for kind, bytes_ in memory.items():
        report.add(
            under_test.system,
            f"memory after the producers, {kind}",
            [bytes_ / 1024**2],
            unit="MiB",
            higher_is_better=False,
        )


def measure_sync(report: Report, under_test: Running, folder: Path, samples: int) -> None:
    for threads in (16, 64):
        measure_program(report, under_test, producer(threads), "SYNC_FLUSH", folder, samples=samples, aim=SEND_AIM)


def full(report: Report, systems: list[System], folder: Path, *, rounds: int, samples: int) -> None:
    for round_number in range(rounds):
        order = systems if round_number % 2 == 0 else systems[::-1]
        for flush, measurements in (("ASYNC_FLUSH", measure_async), ("SYNC_FLUSH", measure_sync)):
            for system in order:
                print(f"round {round_number + 1}, {NAMES[system]}, {flush}", flush=True)
                flush_type: FlushType = "ASYNC_FLUSH" if flush == "ASYNC_FLUSH" else "SYNC_FLUSH"
                with running(system, folder / system, flush_type) as under_test:
                    report.add(
                        system,
                        "process start to first successful send",
                        [under_test.start_to_first_send_s],
                        unit="s",
                        higher_is_better=False,
                    )
                    measurements(report, under_test, folder / system, samples)


def quick(report: Report, systems: list[System], folder: Path) -> None:
    """Every part once and briefly: starts, RocketMQ's Producer for some messages, the light client for a second."""
    for system in systems:
        with running(system, folder / system, "ASYNC_FLUSH") as under_test:
            report.add(
                system,
                "process start to first successful send",
                [under_test.start_to_first_send_s],
                unit="s",
                higher_is_better=False,
            )
            sent = run_count(producer(16), QUICK_MESSAGES, under_test.namesrv, TOPIC, folder / system)
            report.add(system, "Producer, messages acknowledged", [sent], unit="messages")
            measure_light_client(report, under_test, 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="./dev bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=2, help="lines of ten seconds per run, after the first")
    parser.add_argument("--replication", action="store_true", help="groups of a master and a slave alone")
    parser.add_argument("--dledger", action="store_true", help="groups of three that elect their leader alone")
    parser.add_argument("--quick", action="store_true", help="a smoke of seconds")
    parser.add_argument("--only", choices=SYSTEMS, help="one system alone")
    options = parser.parse_args()
    systems: list[System] = [options.only] if options.only else list(SYSTEMS)
    report = Report()
    if not options.quick and report.load_average_at_start > 0.5 * (os.cpu_count() or 1):
        print(
            f"the machine is busy (load {report.load_average_at_start:.2f}): these numbers will mean little", flush=True
        )
    folder = BENCH_DIR / f"run-{os.getpid()}"
    folder.mkdir(parents=True)
    try:
        if options.quick:
            quick(report, systems, folder)
        elif options.replication:
            measure_replication(report, systems, folder, rounds=options.rounds, samples=options.samples)
        elif options.dledger:
            measure_dledger(report, systems, folder, rounds=options.rounds, samples=options.samples)
        else:
            full(report, systems, folder, rounds=options.rounds, samples=options.samples)
            measure_replication(report, systems, folder, rounds=options.rounds, samples=options.samples)
            measure_dledger(report, systems, folder, rounds=options.rounds, samples=options.samples)
    except KeyboardInterrupt:
        report.notes.append("Interrupted: not everything was measured.")
    finally:
        if not any(folder.iterdir()):
            folder.rmdir()
    print("\n" + report.markdown())
    if not options.quick:
        print(f"\nwritten to {report.write(BENCH_DIR)}")
    sys.exit(0)


if __name__ == "__main__":
    main()
