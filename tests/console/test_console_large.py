"""Pages of tenants with much of everything: they show a part and find the rest, and ask the database a bounded number of times."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from controlplane.console.forms import TraceForm
from controlplane.console.views import clusters, operator_hosts, operator_machine
from controlplane.console.views.topics import TOPICS_SHOWN_MAX
from controlplane.topics.models import Topic, TopicState
from tests.console.world import World
from tests.controlplane.brokers_twin import brokers_that_answer
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import make_cluster

TOPICS = "/t/acme/clusters/orders/topics/"


def _topics(world: World, number: int) -> None:
    rows = [Topic(cluster=world.cluster, name=f"topic-{one:04d}", state=TopicState.ACTIVE) for one in range(number)]
    Topic.objects.bulk_create(rows)


def test_the_topics_page_shows_the_first_and_says_how_many_more_there_are(world: World) -> None:
    _topics(world, TOPICS_SHOWN_MAX + 3)
    page = world.client(world.alice).get(TOPICS).content.decode()
    assert f"topic-{TOPICS_SHOWN_MAX - 1:04d}" in page
    assert f"topic-{TOPICS_SHOWN_MAX:04d}" not in page
    assert "3 more topics. Search for part of the name." in page


def test_a_search_finds_topics_by_part_of_their_name(world: World) -> None:
    _topics(world, TOPICS_SHOWN_MAX + 3)
    page = world.client(world.alice).get(f"{TOPICS}?q=0102").content.decode()
    assert "topic-0102" in page
    assert "topic-0001" not in page
    assert "more topic" not in page


def test_a_search_that_finds_nothing_says_so(world: World) -> None:
    assert "No topic matches" in world.client(world.alice).get(f"{TOPICS}?q=nothing").content.decode()


def test_the_limits_page_asks_the_database_as_often_for_many_clusters_as_for_one(world: World) -> None:
    client = world.client(world.alice)
    client.get("/t/acme/limits/")

    def queries() -> int:
        with (
            brokers_that_answer(),
            CaptureQueriesContext(
                connection,
            ) as asked,
        ):
            assert client.get("/t/acme/limits/").status_code == 200
        return len(asked)

    one = queries()
    for number in range(5):
        make_cluster(world.tenant, f"c{number}")
    assert queries() == one


def test_a_choice_of_many_topics_is_the_same_element_as_a_short_one() -> None:
    form = TraceForm({"q": "k", "topic": 'a"b'}, topics=["payments", 'a"b'])
    element = str(form["topic"])
    assert '<option value="a&quot;b" selected>a&quot;b</option>' in element
    assert '<option value="payments">payments</option>' in element
    assert 'name="topic"' in element
    assert 'id="id_topic"' in element


def test_the_list_of_clusters_shows_the_first_and_finds_the_rest(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "CLUSTERS_SHOWN_MAX", 3)
    for number in range(4):
        make_cluster(world.tenant, f"c{number}")
    client = world.client(world.alice)
    page = client.get("/t/acme/").content.decode()
    assert "clusters/c2/" in page
    assert "clusters/c3/" not in page
    assert "2 more clusters. Search for part of the name." in page
    found = client.get("/t/acme/?q=C3").content.decode()
    assert "clusters/c3/" in found
    assert "clusters/c2/" not in found
    assert "No cluster matches" in client.get("/t/acme/?q=nothing").content.decode()


def test_the_operators_pages_ask_the_database_as_often_for_many_clusters_as_for_one(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator_hosts, "BUSIEST_MAX", 1)  # each has a chart of its own
    world.alice.is_staff = True
    world.alice.save()
    client = world.client(world.alice)

    def queries(path: str) -> int:
        driver = DriverTwin(tmp_path)
        with (
            patch.object(operator_machine, "get_driver", return_value=driver),
            CaptureQueriesContext(connection) as asked,
        ):
            assert client.get(path).status_code == 200
        return len(asked)

    paths = ("/operator/hosts/", "/operator/machine/")
    for path in paths:
        queries(path)
    one = [queries(path) for path in paths]
    for number in range(4):
        make_cluster(world.tenant, f"c{number}")
    assert [queries(path) for path in paths] == one
