"""The program `demo` under supervisord: real messages, a few per second, to and from the demo cluster, by the SDK.

    python -m deploy.local.demo_load --url http://127.0.0.1:8000

Two groups read them: `shipping` keeps up; `reports` falls behind for some minutes, then catches up, and so on. So the pages of
usage, cost and lag show what they show for any tenant. `./dev demo --stop` ends it.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

import httpx

from deploy.local.demo import LOAD_TOPIC, Console, DemoCluster, describe_cluster
from deploy.local.layout import Layout
from deploy.local.secrets_file import load_secrets
from deploy.local.terminal import DevError
from highwater import Credentials, HighwaterError, Message, Producer, PushConsumer, ReceivedMessage

MESSAGES_PER_S = 4.0
# Orders come a few at a time: a batch is one request and one answer to each group, so what is to be seen costs little.
BATCH = 8
KEEPS_UP, FALLS_BEHIND = "shipping", "reports"
# Of the rate at which messages come: how fast the group that falls behind reads while it does, and while it catches up.
SLOW, FAST = 0.6, 4.0
# As old is the message that it reads when it changes its pace.
BEHIND_S_MAX, CAUGHT_UP_S = 300.0, 5.0
RETRY_S = 30.0
TAGS = ("paid", "shipped", "cancelled", "returned")
TAG_WEIGHTS = (70, 24, 4, 2)


def next_pace(pace: float, age_s: float) -> float:
    """The pace for the next message, after one of this age was read."""
    if age_s > BEHIND_S_MAX:
        return FAST
    return SLOW if age_s < CAUGHT_UP_S else pace


def rate_at(second: float) -> float:
    """Messages per second: a wave of ten minutes around MESSAGES_PER_S."""
    return MESSAGES_PER_S * (1 + 0.5 * math.sin(second / 600 * 2 * math.pi))


def order(number: int, dice: random.Random) -> Message:
    """An order as a shop would send it."""
    items = [
        {"sku": f"SKU-{dice.randrange(1, 400):04}", "quantity": dice.randrange(1, 4)}
        for _ in range(dice.randrange(1, 7))
    ]
    body = {"order": number, "customer": f"customer-{dice.randrange(1, 900)}", "currency": "USD", "items": items}
    body["total"] = f"{dice.randrange(500, 40_000) / 100:.2f}"
    tag = dice.choices(TAGS, TAG_WEIGHTS)[0]
    return Message(LOAD_TOPIC, json.dumps(body).encode(), tags=tag, keys=[f"order-{number}"])


class SlowReader:
    """The handler of the group that falls behind. `pause` sleeps; `now` is the time in seconds since 1970."""

    def __init__(self, pause: Callable[[float], object], now: Callable[[], float] = time.time) -> None:
        self._pause = pause
        self._now = now
        self.pace = SLOW

    def __call__(self, message: ReceivedMessage) -> None:
        self._pause(1 / (MESSAGES_PER_S * self.pace))
        self.pace = next_pace(self.pace, self._now() - message.store_timestamp_ms / 1000)


def run(cluster: DemoCluster, stopping: threading.Event) -> None:
    """Sends and reads until `stopping` is set. Raises HighwaterError when the cluster takes nothing any more."""
    credentials = Credentials(cluster.access_key, cluster.secret_key)
    dice = random.Random()
    number = int(time.time())

    def consumer(group: str, threads: int, handler: Callable[[ReceivedMessage], None]) -> PushConsumer:
        made = PushConsumer(
            cluster.namesrv_addr, group, credentials=credentials, consume_threads=threads, drain_timeout_ms=1000
        )
        made.subscribe(LOAD_TOPIC, handler=handler)
        return made

    with (
        Producer(cluster.namesrv_addr, "demo-shop", credentials=credentials) as producer,
        consumer(KEEPS_UP, 2, lambda message: None),
        consumer(FALLS_BEHIND, 1, SlowReader(stopping.wait)),
    ):
        while not stopping.wait(BATCH / rate_at(time.time())):
            producer.send_batch([order(number + one, dice) for one in range(1, BATCH + 1)], timeout_ms=20_000)
            number += BATCH


def main(arguments: list[str]) -> int:
    """Runs until SIGTERM; what fails is said once, and tried again."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    url = parser.parse_args(arguments).url
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    while not stopping.is_set():
        try:
            console = Console(url, load_secrets(Layout.from_environment().secrets_file)["demo"])
            console.enter()
            cluster = describe_cluster(console)
            print(f"Sending {MESSAGES_PER_S:g} messages/s to {LOAD_TOPIC} at {cluster.namesrv_addr}.", flush=True)
            run(cluster, stopping)
        except (DevError, HighwaterError, httpx.TransportError) as exc:
            print(f"{exc}\nNext try in {RETRY_S:g} s.", flush=True)
            stopping.wait(RETRY_S)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
