"""How long the server works on each page of a large tenant: 200 clusters, one of them with 1,000 topics and 2,500 consumer groups,
in a real PostgreSQL, with brokers in memory.

    PYTHONPATH=.:platform python -m tests.bench.pages [--rounds 5] [--only topics]

Processor milliseconds of this process are what a busy machine leaves comparable; what the database took is listed apart, in
milliseconds of waiting. No page should take 200 ms of both together.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.support.servers import PostgresForTests

if TYPE_CHECKING:
    from django.test import Client

CLUSTERS, TOPICS, GROUPS, QUEUES = 200, 1_000, 2_500, 8
BOUND_MS = 200
_GROUP_NAME = "billing-service-%04d"


@dataclass(frozen=True, slots=True)
class Measured:
    """Medians of the rounds."""

    path: str
    cpu_ms: float
    database_ms: float
    queries: int
    size_kib: int

    @property
    def total_ms(self) -> float:
        return self.cpu_ms + self.database_ms


PAGES = (
    "/t/large/",
    "/t/large/clusters/c000/",
    "/t/large/clusters/c000/health/",
    "/t/large/clusters/c000/figures/",
    "/t/large/clusters/c000/connect/",
    "/t/large/clusters/c000/topics/",
    "/t/large/clusters/c000/topics/?q=topic-09",
    "/t/large/clusters/c000/topics/topic-0500/",
    "/t/large/clusters/c000/lag/",
    "/t/large/clusters/c000/lag/?q=service-09",
    "/t/large/clusters/c000/lag/billing-service-0007/",
    "/t/large/clusters/c000/message-trace/",
    "/t/large/clusters/c000/message-trace/?q=o-1",
    "/t/large/clusters/c000/topics/topic-0500/messages/search/?key=o-1",
    "/t/large/masking/",
    "/t/large/clusters/c000/credentials/",
    "/t/large/clusters/c000/alerts/",
    "/t/large/clusters/c000/failovers/",
    "/t/large/clusters/c000/drills/",
    "/t/large/clusters/c000/settings/",
    "/t/large/alerts/",
    "/t/large/usage/",
    "/t/large/invoices/",
    "/t/large/limits/",
    "/t/large/members/",
    "/t/large/tokens/",
    "/t/large/audit/",
    "/t/large/settings/",
    "/operator/",
    "/operator/jobs/",
    "/operator/machine/",
    "/api/v1/tenants/large/clusters/?limit=200",
    "/api/v1/tenants/large/clusters/c000/topics/?limit=200",
    "/api/v1/tenants/large/clusters/c000/lag/?limit=200",
    "/api/v1/tenants/large/clusters/c000/figures/",
    "/api/v1/tenants/large/metrics/",
    "/api/v1/tenants/large/metrics/?cluster=c000",
)


def make_rows() -> Client:
    """The tenant, and its owner's browser; the owner is an operator as well."""
    from datetime import timedelta

    from django.test import Client
    from django.utils import timezone

    from controlplane.accounts.models import User
    from controlplane.insight.models import ClusterFigures, DrainState, LagWindow
    from controlplane.tenants.models import Membership, Role, Tenant
    from controlplane.topics.models import Topic, TopicState
    from tests.controlplane.world import make_cluster

    owner = User.objects.create_user("owner@example.com", is_staff=True)
    tenant = Tenant.objects.create(slug="large", name="Large")
    Membership.objects.create(tenant=tenant, user=owner, role=Role.OWNER)
    clusters = [make_cluster(tenant, f"c{number:03d}") for number in range(CLUSTERS)]
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
    client = Client()
    client.force_login(owner, backend="django.contrib.auth.backends.ModelBackend")
    return client


@contextmanager
def large_cluster() -> Iterator[None]:
    """Brokers in memory that know the groups, each of which is behind on its topic."""
    from unittest.mock import patch

    from highwater import ClusterInfo, ConsumerProgress, MessageQueue, QueryResult, QueueProgress, TopicStats
    from tests.controlplane.brokers_twin import BrokersTwin, brokers_that_answer
    from tests.controlplane.secret_twin import MESSAGE

    names = tuple(_GROUP_NAME % number for number in range(GROUPS))

    def progress(self: BrokersTwin, group: str, *, topic: str | None = None) -> ConsumerProgress:
        number = int(group.rpartition("-")[2])
        queues = tuple(
            QueueProgress(MessageQueue(f"topic-{number % TOPICS:04d}", "broker-a", queue), 5_000, 5_000, 5_000, None)
            for queue in range(QUEUES)
        )
        return ConsumerProgress(group, queues, 10.0)

    def query(self: BrokersTwin, topic: str, key: str, **_: object) -> QueryResult:
        return QueryResult((MESSAGE,) if topic == "topic-0500" else ())

    with (
        brokers_that_answer(),
        patch.object(BrokersTwin, "group_list", lambda self, *, cluster="": names),
        patch.object(BrokersTwin, "consumer_progress", progress, create=True),
        # The twin's own asks the database once for each cluster.
        patch.object(BrokersTwin, "cluster_info", lambda self: ClusterInfo({}, {})),
        patch.object(BrokersTwin, "query_messages", query, create=True),
        patch.object(BrokersTwin, "topic_stats", lambda self, topic: TopicStats(topic, ()), create=True),
    ):
        yield


def measure(client: Client, path: str, rounds: int) -> Measured:
    """Ask once unmeasured, then `rounds` times; raises AssertionError for anything but 200."""
    from django.db import connection

    spent: list[float] = []

    def timed(execute: Any, *arguments: Any) -> Any:
        begun = time.perf_counter()
        try:
            return execute(*arguments)
        finally:
            spent.append((time.perf_counter() - begun) * 1000)

    cpus, databases, size = [], [], 0
    for number in range(rounds + 1):
        spent.clear()
        begun = time.process_time()
        with connection.execute_wrapper(timed):
            answer = client.get(path)
        cpu = (time.process_time() - begun) * 1000
        assert answer.status_code == 200, f"{path}: {answer.status_code}"
        if number:
            cpus.append(cpu)
            databases.append(sum(spent))
        size = len(answer.content) // 1024
    return Measured(path, statistics.median(cpus), statistics.median(databases), len(spent), size)


def main() -> None:
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

        call_command("migrate", verbosity=0)
        client = make_rows()
        print(f"{'total':>7} {'cpu':>7} {'database':>8} {'queries':>7} {'KiB':>6}  page")
        with large_cluster():
            pages = [path for path in PAGES if options.only in path]
            found = sorted((measure(client, path, options.rounds) for path in pages), key=lambda one: -one.total_ms)
        for one in found:
            print(
                f"{one.total_ms:7.1f} {one.cpu_ms:7.1f} {one.database_ms:8.1f} {one.queries:7} {one.size_kib:6}  {one.path}"
            )
        slow = [one.path for one in found if one.total_ms > BOUND_MS]
        print(f"above {BOUND_MS} ms: {', '.join(slow) or 'none'}")


if __name__ == "__main__":
    main()
