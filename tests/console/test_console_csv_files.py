"""Lists as CSV: topics with their largest backlog, the groups' lag, found messages. A name is no formula in a spreadsheet."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import pytest

from controlplane.common.csv_files import csv_response
from controlplane.insight.selectors import lag_of_topics
from controlplane.topics.models import Topic
from highwater import ConsumerProgress, MessageQueue, QueueProgress
from tests.console.world import World, make_topic
from tests.controlplane.billing_world import lag_window
from tests.controlplane.brokers_twin import BrokersTwin, brokers_that_answer
from tests.controlplane.secret_twin import MESSAGE_ID, secret_messages

NOW = datetime.now(UTC)


def rows(world: World, rest: str) -> list[dict[str, str]]:
    answer = world.client(world.bob).get(world.cluster_path(rest))
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert answer.headers["Content-Disposition"].startswith("attachment; filename=")
    return list(csv.DictReader(io.StringIO(answer.content.decode())))


@pytest.fixture
def backlogs(world: World) -> World:
    """Two groups on one topic: the one that is further behind now was not a window ago. A topic that no one reads."""
    make_topic(world.cluster, "payments")
    make_topic(world.cluster, "quiet")
    for group, lags in (("billing", (900, 40)), ("audit", (10, 70))):
        for minutes, lag in zip((10, 5), lags, strict=True):
            lag_window(world.cluster, NOW - timedelta(minutes=minutes), lag=lag, consumer_group=group)
    return world


def test_the_topics_page_shows_the_largest_backlog_and_whose_it_is(backlogs: World) -> None:
    page = backlogs.client(backlogs.bob).get(backlogs.cluster_path("topics/")).content.decode()
    cells = {name: page.partition(f'data-lag="{name}"')[2].partition("</td>")[0] for name in ("payments", "quiet")}
    assert ">70<" in cells["payments"]
    assert "audit" in cells["payments"]
    assert "–" in cells["quiet"]
    assert "Backlogs of the groups as of" in page


def test_without_a_window_the_topics_page_says_why(world: World) -> None:
    make_topic(world.cluster, "payments")
    page = world.client(world.bob).get(world.cluster_path("topics/")).content.decode()
    assert "No backlogs: Jobs are switched off" in page


def test_a_window_of_long_ago_says_nothing_of_now(world: World) -> None:
    lag_window(world.cluster, NOW - timedelta(hours=2), lag=5)
    assert lag_of_topics(world.cluster, ["payments"]) == {}


def test_topics_as_csv_have_their_backlog_and_no_formula(backlogs: World) -> None:
    Topic.objects.filter(name="quiet").update(description="=HYPERLINK(1)")
    payments, quiet = rows(backlogs, "topics-csv/")
    assert (payments["topic"], payments["largest_backlog_messages"], payments["largest_backlog_group"]) == (
        *("payments", "70", "audit"),
    )
    assert quiet["description"] == "'=HYPERLINK(1)"
    assert quiet["largest_backlog_messages"] == "", "not known is not 0"
    assert [row["topic"] for row in rows(backlogs, "topics-csv/?q=QUI")] == ["quiet"]


def test_the_api_gives_the_same_files(backlogs: World) -> None:
    client = backlogs.client(backlogs.bob)
    for rest in ("topics-csv/", "topics-csv/?q=QUI"):
        page, twin = client.get(backlogs.cluster_path(rest)), client.get(f"{backlogs.cluster.path}{rest}")
        assert (twin.status_code, twin.content) == (200, page.content)
        for header in ("Content-Type", "Content-Disposition"):
            assert twin.headers[header] == page.headers[header]
    refused = client.get(f"{backlogs.cluster.path}lag-csv/", headers={"Accept": "text/csv"})
    assert (refused.status_code, refused.headers["Content-Type"]) == (503, "application/problem+json")


def test_the_lag_of_groups_as_csv_has_a_line_for_each_topic(world: World) -> None:
    def progress(self: BrokersTwin, group: str, *, topic: str | None = None) -> ConsumerProgress:
        queues = [MessageQueue(name, "broker-a", queue) for name in ("orders", "payments") for queue in range(2)]
        return ConsumerProgress(group, tuple(QueueProgress(one, 9, 5, 9, None) for one in queues), 1.0)

    with brokers_that_answer(), patch.object(BrokersTwin, "consumer_progress", progress, create=True):
        found = rows(world, "lag-csv/?q=BILL")
        twin = world.client(world.bob).get(f"{world.cluster.path}lag-csv/?q=BILL").content.decode()
    assert [row["topic"] for row in csv.DictReader(io.StringIO(twin))] == ["orders", "payments"]
    assert [(row["group"], row["topic"], row["backlog_messages"]) for row in found] == [
        ("billing", "orders", "8"),
        ("billing", "payments", "8"),
    ]


def test_groups_that_are_not_known_are_no_empty_file(world: World) -> None:
    assert world.client(world.bob).get(world.cluster_path("lag-csv/")).status_code == 503


def test_found_messages_as_csv_are_offered_where_they_are_found(world: World) -> None:
    make_topic(world.cluster, "payments")
    with secret_messages():
        search = world.cluster_path(f"topics/payments/messages/search/?key={MESSAGE_ID}")
        page = world.client(world.bob).get(search).content.decode()
        assert f"messages/search/csv/?key={MESSAGE_ID}" in page
        (row,) = rows(world, f"topics/payments/messages/search/csv/?key={MESSAGE_ID}")
    assert (row["broker_name"], row["queue_id"], row["queue_offset"]) == ("broker-a", "0", "0")
    assert row["body"]
    wrong = world.client(world.bob).get(world.cluster_path("topics/payments/messages/search/csv/?key=two+words"))
    assert wrong.status_code == 422


def test_nothing_in_a_file_is_a_formula() -> None:
    text = csv_response('a"b', ("x",), [("=1",), ("@a",), ("+1",), (-5,), (None,)]).content.decode()
    assert text.splitlines() == ["x", "'=1", "'@a", "'+1", "-5", '""']
