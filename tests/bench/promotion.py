"""A promotion, from the click (POST …/promote/) to the first accepted write, of a synchronous pair with a hung master.

    PYTHONPATH=.:platform python -m tests.bench.promotion [--rounds 3] [--only idle|busy] [--others 6]

On a platform of its own, as `./dev up` starts it. The master is stopped by SIGSTOP: it keeps its port and its connections. Once the
control plane has noticed, the promotion is asked for, while a probe is sent every 50 ms whether or not the one before was answered.
`busy`: the workers have just been given the creation of other clusters. Prints a table; nothing is judged.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from highwater import HighwaterError, Message, Producer
from tests.failover.live_group import LiveGroup, wait_for
from tests.support.platform_stack import PlatformStack, running_platform

TENANT, TOPIC = "promotions", "probes"
PROBE_EVERY_S = 0.05
_PROBE_TIMEOUT_MS = 1000
_THREADS = 40  # a master that hangs keeps each probe for a second
_GIVEN_UP_S = 60.0
_AT_ONCE = 3  # more operations of one tenant wait for each other


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds, from the click on; `noticed_s` from the signal on. None: no write was accepted. `ended` is the operation's state."""

    load: str
    noticed_s: float
    answered_s: float
    first_write_s: float | None
    ended: str = "completed"


def first_accepted_s(accepted_at_s: Sequence[float], click_s: float) -> float | None:
    """How long after the click the first write was accepted; one that was accepted before does not count."""
    return min((at_s - click_s for at_s in accepted_at_s if at_s >= click_s), default=None)


def table(rounds: Sequence[Round]) -> str:
    """The rounds and the medians of each load, as a Markdown table."""
    lines = ["| workers, operation | noticed s | POST answered s | first write s |", "|---|---|---|---|"]
    lines += [_row(f"{one.load}, {one.ended}", one.noticed_s, one.answered_s, one.first_write_s) for one in rounds]
    for load in dict.fromkeys(one.load for one in rounds):
        of_load = [one for one in rounds if one.load == load]
        writes = [one.first_write_s for one in of_load if one.first_write_s is not None]
        lines.append(
            _row(
                f"{load}, median of {len(of_load)}",
                statistics.median(one.noticed_s for one in of_load),
                statistics.median(one.answered_s for one in of_load),
                statistics.median(writes) if len(writes) == len(of_load) else None,
            )
        )
    return "\n".join(lines)


def _row(load: str, *values_s: float | None) -> str:
    return f"| {load} | {' | '.join('none' if one is None else f'{one:.2f}' for one in values_s)} |"


class Prober:
    """Sends one probe every 50 ms and remembers when each was accepted."""

    def __init__(self, live: LiveGroup) -> None:
        self.accepted_at_s: list[float] = []
        self._over = threading.Event()
        self._producer = Producer(
            namesrv=live.get()["namesrv_addr"],
            group="promotion-bench",
            credentials=live.credentials,
            timeout_ms=_PROBE_TIMEOUT_MS,
            retry_times_when_send_failed=0,
            poll_name_server_interval_ms=500,
        )
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Prober:
        self._producer.start()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self._producer.stop()

    def _run(self) -> None:
        with ThreadPoolExecutor(max_workers=_THREADS) as threads:
            while not self._over.wait(PROBE_EVERY_S):
                threads.submit(self._send)
            threads.shutdown(cancel_futures=True)

    def _send(self) -> None:
        try:
            self._producer.send(Message(TOPIC, b"probe"))
        except HighwaterError:
            return  # that is what is measured
        self.accepted_at_s.append(time.monotonic())


def measure(platform: PlatformStack, live: LiveGroup, load: str, others: int) -> Round:
    """Hang the master and promote the other replica; the group is healthy before and after."""
    group = live.wait_group(_is_healthy, "healthy")
    with Prober(live) as prober:
        wait_for(lambda: len(prober.accepted_at_s), lambda count: count > 10, "probes are accepted")
        hung_s = time.monotonic()
        os.kill(live.pid(group["master_id"]), signal.SIGSTOP)
        wait_for(live.group, lambda found: found["state"] == "no_master", "the master is missed")
        noticed_s = time.monotonic() - hung_s
        with _busy(platform, live, others if load == "busy" else 0):
            click_s = time.monotonic()
            answer = live.ask("promote")
            answered_s = time.monotonic() - click_s
            assert answer.status_code == 202, answer.text
            while (found_s := first_accepted_s(prober.accepted_at_s, click_s)) is None:
                if time.monotonic() > click_s + _GIVEN_UP_S:
                    break
                time.sleep(0.01)
            operation = live.finished(answer.json())
    if operation["state"] != "completed":
        print(f"{operation['state']}: {operation['error']}", flush=True)
    return Round(load, noticed_s, answered_s, found_s, operation["state"])


@contextmanager
def _busy(platform: PlatformStack, live: LiveGroup, count: int) -> Iterator[None]:
    """The workers create so many clusters of other tenants from now on, three of each at once; they are deleted afterwards."""
    tenants = [f"others-{time.monotonic_ns()}-{number}" for number in range(math.ceil(count / _AT_ONCE))]
    for tenant in tenants:
        platform.manage("create_tenant", tenant)
    with ExitStack() as stack:
        apis = {tenant: stack.enter_context(platform.api(platform.token(tenant))) for tenant in tenants}
        paths = [(tenants[number % len(tenants)], f"other-{number}") for number in range(count)]
        made = [
            apis[tenant].post(f"tenants/{tenant}/clusters/", json={"slug": slug, "mode": "single"})
            for tenant, slug in paths
        ]
        assert all(answer.status_code == 202 for answer in made), [answer.text for answer in made]
        yield
        for (tenant, slug), answer in zip(paths, made, strict=True):
            own = replace(live, api=apis[tenant])
            own.finished(answer.json())
            deleted = own.api.delete(f"tenants/{tenant}/clusters/{slug}/")
            assert deleted.status_code == 202, deleted.text
            own.finished(deleted.json())


def _is_healthy(group: dict[str, Any]) -> bool:
    return bool(group["state"] == "healthy")


def run(platform: PlatformStack, loads: Sequence[str], rounds: int, others: int) -> list[Round]:
    """Measure each load so often, in turn, on one pair."""
    platform.manage("create_tenant", TENANT)
    found = []
    with platform.api(platform.token(TENANT)) as api:
        live = LiveGroup.create(platform, api, TENANT, "pair", mode="sync", replicas=2)
        answer = api.post(f"{live.path}topics/", json={"name": TOPIC})
        assert answer.status_code == 201, answer.text
        for _ in range(rounds):
            for load in loads:
                found.append(measure(platform, live, load, others))
                print(_row(load, found[-1].noticed_s, found[-1].answered_s, found[-1].first_write_s), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["idle", "busy"])
    parser.add_argument("--others", type=int, default=6, help="how many other clusters keep the workers busy")
    options = parser.parse_args()
    loads = [options.only] if options.only else ["idle", "busy"]
    before, *_ = os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="promotion-") as folder, running_platform(Path(folder)) as platform:
        rounds = run(platform, loads, options.rounds, options.others)
    print(f"\nload average {before:.1f} before, {os.getloadavg()[0]:.1f} after\n\n{table(rounds)}")


if __name__ == "__main__":
    main()
