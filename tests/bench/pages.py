"""How long the server works on each page of a large tenant: 200 clusters, one of them with 1,000 topics and 2,500 consumer groups,
in a real PostgreSQL, with brokers in memory.

    PYTHONPATH=.:platform python -m tests.bench.pages [--rounds 5] [--only topics]

The pages are those of the URL patterns, as `tests/console` walks them, so that a new one is measured by being there; some of the
API's lists are measured beside them. Processor milliseconds of this process are what a busy machine leaves comparable; what the
database took is listed apart, in milliseconds of waiting. Of the rounds the quickest counts: what others take longer is what else
runs on the machine. A page that takes more than 200 ms of both together fails the run.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.servers import PostgresForTests

if TYPE_CHECKING:
    from django.test import Client

    from tests.console.world import World

CLUSTERS, TOPICS, GROUPS, QUEUES = 200, 1_000, 2_500, 8
BOUND_MS = 200
_GROUP_NAME = "billing-service-%04d"


@dataclass(frozen=True, slots=True)
class Measured:
    """The quickest of the rounds."""

    path: str
    cpu_ms: float
    database_ms: float
    queries: int
    size_kib: int

    @property
    def total_ms(self) -> float:
        return self.cpu_ms + self.database_ms


# Besides the pages as they open: what is searched for, and the API's longest answers.
ALSO = (
    "/t/large/clusters/orders/topics/?q=topic-09",
    "/t/large/clusters/orders/topics/topic-0500/",
    "/t/large/clusters/orders/lag/?q=service-09",
    "/t/large/clusters/orders/lag/billing-service-0007/",
    "/t/large/clusters/orders/curves/?span=24h",
    "/api/v1/tenants/large/clusters/?limit=200",
    "/api/v1/tenants/large/clusters/orders/topics/?limit=200",
    "/api/v1/tenants/large/clusters/orders/lag/?limit=200",
    "/api/v1/tenants/large/clusters/orders/figures/",
)
# Measured, and no page that someone waits for: Prometheus asks once a minute.
SCRAPE = "/api/v1/tenants/large/metrics/"
# A page that is not measured at all would hide here: every one of these statuses is a page's.
PAGE_STATUSES = (200, 404, 409, 422)
# Files of all there is, made to be kept: as long as their lists are, and asked for by no page.
FILES = ("/topics-csv/", "/lag-csv/", "/audit/csv/", "/export/csv/", "/pdf/")


def make_rows() -> World:
    """The tenant with its people; its owner is an operator as well."""
    from datetime import timedelta

    from django.utils import timezone

    from controlplane.insight.models import ClusterFigures, DrainState, LagWindow
    from controlplane.tenants.models import Membership, Role, Tenant
    from controlplane.topics.models import Topic, TopicState
    from tests.console.world import World, make_user
    from tests.controlplane.world import make_cluster

    alice, bob, victor, charlie = (make_user(name) for name in ("alice", "bob", "victor", "charlie"))
    alice.is_staff = True
    alice.save()
    tenant = Tenant.objects.create(slug="large", name="Large")
    for user, role in ((alice, Role.OWNER), (bob, Role.DEVELOPER), (victor, Role.VIEWER)):
        Membership.objects.create(tenant=tenant, user=user, role=role)
    clusters = [make_cluster(tenant, f"c{number:03d}" if number else "orders") for number in range(CLUSTERS)]
    topics = [
        Topic(cluster=clusters[0], name=f"topic-{number:04d}", state=TopicState.ACTIVE) for number in range(TOPICS)
    ]
    Topic.objects.bulk_create(topics)
    now = timezone.now().replace(second=0, microsecond=0)
    figures = [
        ClusterFigures(cluster=cluster, sampled_at=now - timedelta(minutes=minute), in_per_second=100.0, disk_used=0.4)
        for cluster in clusters
        for minute in range(0, 24 * 60, 1 if cluster is clusters[0] else 60)
    ]
    ClusterFigures.objects.bulk_create(figures, batch_size=5_000)
    lags: dict[str, Any] = dict.fromkeys(
        [f"lag_messages_{part}" for part in ("p50", "p95", "p99", "max", "last")], 1000
    )
    windows = [
        LagWindow(
            cluster=clusters[0],
            consumer_group=_GROUP_NAME % number,
            topic=f"topic-{number % TOPICS:04d}",
            queue_id=-1,
            window_start=now - timedelta(minutes=5 * window),
            window_seconds=300,
            samples=10,
            lag_ms_last=20_000,
            drain_state=DrainState.DRAINING,
            stuck=False,
            run_id=clusters[0].pk,
            **lags,
        )
        for number in range(GROUPS)
        for window in range(12)
    ]
    LagWindow.objects.bulk_create(windows, batch_size=5_000)
    foreign = Tenant.objects.create(slug="globex", name="Globex")
    return World(alice, bob, victor, charlie, tenant, foreign, clusters[0])


def walked(world: World) -> list[str]:
    """Every address of the console that answers the owner with a page or a part of one, with rows that there are."""
    from tests.console.test_console_access import addresses
    from tests.console.test_console_masking import QUERIES
    from tests.console.test_console_matrix import ABSENT, OPEN, OWN, address_of, operator_addresses

    outside = [address_of(pattern, ABSENT) for pattern in (*OWN, *OPEN)]
    found = [*addresses(world), *operator_addresses(world), *outside]
    with_queries = [
        address + next((query for end, query in QUERIES.items() if address.endswith(end)), "") for address in found
    ]
    return [address for address in (*with_queries, *ALSO, SCRAPE) if not any(file in address for file in FILES)]


@contextmanager
def large_cluster() -> Iterator[None]:
    """Brokers in memory that know the groups, each of which is behind on its topic."""
    from unittest.mock import patch

    from controlplane.console.views import operator_machine
    from highwater import ClusterInfo, ConsumerProgress, MessageQueue, QueueProgress
    from tests.controlplane.brokers_twin import BrokersTwin, brokers_that_answer
    from tests.controlplane.driver_twin import DriverTwin
    from tests.controlplane.secret_twin import secret_messages

    names = tuple(_GROUP_NAME % number for number in range(GROUPS))

    def progress(self: BrokersTwin, group: str, *, topic: str | None = None) -> ConsumerProgress:
        number = int(group.rpartition("-")[2]) if group != "billing" else 0
        queues = tuple(
            QueueProgress(MessageQueue(f"topic-{number % TOPICS:04d}", "broker-a", queue), 5_000, 5_000, 5_000, None)
            for queue in range(QUEUES)
        )
        return ConsumerProgress(group, queues, 10.0)

    with (
        brokers_that_answer(),
        secret_messages(),
        tempfile.TemporaryDirectory() as folder,
        patch.object(operator_machine, "get_driver", return_value=DriverTwin(Path(folder))),
        patch.object(BrokersTwin, "group_list", lambda self, *, cluster="": names),
        patch.object(BrokersTwin, "consumer_progress", progress, create=True),
        # The twin's own asks the database once for each cluster.
        patch.object(BrokersTwin, "cluster_info", lambda self: ClusterInfo({}, {})),
    ):
        yield


def measure(client: Client, path: str, rounds: int) -> Measured | int:
    """Ask once unmeasured, then `rounds` times; of what is no page, the status."""
    from django.db import connection

    spent: list[float] = []

    def timed(execute: Any, *arguments: Any) -> Any:
        begun = time.perf_counter()
        try:
            return execute(*arguments)
        finally:
            spent.append((time.perf_counter() - begun) * 1000)

    found: list[Measured] = []
    for number in range(rounds + 1):
        spent.clear()
        begun = time.process_time()
        with connection.execute_wrapper(timed):
            answer = client.get(path)
        cpu = (time.process_time() - begun) * 1000
        if answer.status_code not in PAGE_STATUSES:
            return int(answer.status_code)
        if number:
            found.append(Measured(path, cpu, sum(spent), len(spent), len(answer.getvalue()) // 1024))
    return min(found, key=lambda one: one.total_ms)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="pages whose address holds this")
    options = parser.parse_args()
    postgres = PostgresForTests()
    os.environ["DATABASE_URL"] = postgres.url
    os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings.test"
    with postgres.running():
        import django

        django.setup()
        from django.core.management import call_command

        logging.disable(logging.CRITICAL)  # a line for each request
        call_command("migrate", verbosity=0)
        world = make_rows()
        measured: list[Measured] = []
        others: Counter[int] = Counter()
        with large_cluster():
            owner, stranger = world.client(world.alice), world.client(None)  # one log-in: each is a line of a page
            for path in dict.fromkeys(one for one in walked(world) if options.only in one):
                found = measure(owner, path, options.rounds)
                if found in (301, 302):
                    found = measure(stranger, path, options.rounds)
                if isinstance(found, Measured):
                    measured.append(found)
                else:
                    others[found] += 1
                    if found not in (301, 302, 405):
                        print(f"not measured: {path}: {found}")
    print(f"{'total':>7} {'cpu':>7} {'database':>8} {'queries':>7} {'KiB':>6}  page")
    for one in sorted(measured, key=lambda one: -one.total_ms):
        print(
            f"{one.total_ms:7.1f} {one.cpu_ms:7.1f} {one.database_ms:8.1f} {one.queries:7} {one.size_kib:6}  {one.path}"
        )
    slow = [one.path for one in measured if one.total_ms > BOUND_MS and one.path != SCRAPE]
    print(
        f"{len(measured)} pages; {others[405]} addresses take forms alone, {others[301] + others[302]} lead elsewhere"
    )
    print(f"above {BOUND_MS} ms: {', '.join(slow) or 'none'}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
