"""Labels of clusters: what one may be, lists by them, and the tags of the cost export."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from django.db import connection

from controlplane.billing.exports import cost_focus_csv
from controlplane.billing.periods import Month
from controlplane.clusters.labels import LABELS_MAX, labels_check, labels_parse, labels_text
from controlplane.clusters.models import Cluster
from controlplane.clusters.services import cluster_update
from controlplane.common.errors import InvalidInput
from controlplane.common.models import AuditEvent
from tests.controlplane.billing_world import make_plan, use
from tests.controlplane.world import Json, World


def label(world: World, **labels: str) -> None:
    world.cluster.refresh_from_db()
    cluster_update(actor=world.alice, cluster=world.cluster, labels=labels)


def slugs(client: Json, world: World, query: str) -> list[str]:
    found = client.call("GET", f"{world.acme.path}clusters/?{query}").json()["results"]
    return [one["slug"] for one in found]


def test_labels_are_kept_by_their_keys_in_order() -> None:
    assert list(labels_check({"team": "checkout", "env": "prod"})) == ["env", "team"]


@pytest.mark.parametrize("key", ["", "Env", "-env", "env-", "a b", "ключ", "k" * 64, "env\n"])
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidInput, match="is no key"):
        labels_check({key: "prod"})


@pytest.mark.parametrize("value", ["-", "a b", "v" * 64, "<b>", "prod\n", "a,b"])
def test_what_is_no_value_is_refused(value: str) -> None:
    with pytest.raises(InvalidInput, match="is no value"):
        labels_check({"env": value})


def test_a_value_may_be_empty() -> None:
    assert labels_check({"shared": ""}) == {"shared": ""}


def test_too_many_are_refused() -> None:
    labels = {f"k{number}": "" for number in range(LABELS_MAX + 1)}
    with pytest.raises(InvalidInput, match="at most 20 labels"):
        labels_check(labels)


def test_lines_are_read_and_written_again() -> None:
    assert labels_text(labels_parse(" team=checkout\n\nenv=prod ")) == "env=prod\nteam=checkout"


def test_a_key_that_is_there_twice_is_refused() -> None:
    with pytest.raises(InvalidInput, match="env is there twice"):
        labels_parse("env=prod\nenv=test")


def test_the_list_has_those_with_all_labels(world: World, api: Callable[..., Json]) -> None:
    label(world, env="prod", team="checkout")
    client = api(world.bob)
    assert slugs(client, world, "label=env%3Dprod") == ["orders"]
    assert slugs(client, world, "label=env%3Dprod&label=team%3Dcheckout") == ["orders"]
    assert slugs(client, world, "label=env%3Dprod&label=team%3Dsearch") == []
    assert slugs(client, world, "label=env%3Dtest") == []
    assert slugs(client, world, "label=env") == ["orders"]
    assert slugs(client, world, "label=owner") == []


def test_they_are_given_and_taken_away_together(world: World, api: Callable[..., Json]) -> None:
    client = api(world.alice)
    assert client.call("PATCH", world.cluster.path, {"labels": {"env": "prod"}}).json()["labels"] == {"env": "prod"}
    assert client.call("PATCH", world.cluster.path, {"labels": {"team": "search"}}).json()["labels"] == {
        "team": "search"
    }
    assert client.call("PATCH", world.cluster.path, {"name": "Orders"}).json()["labels"] == {"team": "search"}
    event = AuditEvent.objects.filter(action="cluster.update").latest("created_at")
    assert event.details["labels"] == {"team": "search"}


def test_a_new_cluster_may_have_them_at_once(world: World, api: Callable[..., Json]) -> None:
    body = {"slug": "fresh", "labels": {"env": "test"}}
    assert api(world.alice).call("POST", f"{world.acme.path}clusters/", body).status_code == 202
    assert Cluster.objects.get(slug="fresh").labels == {"env": "test"}


def test_a_wrong_label_is_refused_at_its_field(world: World, api: Callable[..., Json]) -> None:
    answer = api(world.alice).call("PATCH", world.cluster.path, {"labels": {"Env": "prod"}})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "labels")


def test_the_cost_export_has_them_as_tags(world: World) -> None:
    label(world, env="prod")
    noon = datetime(2026, 10, 5, 12, tzinfo=UTC)
    month, price = Month.of(noon), make_plan().prices.get()
    use(world.cluster, noon, "1.5", price=price)
    rows = list(csv.DictReader(io.StringIO(cost_focus_csv(world.acme, month).decode())))
    assert {row["Tags"] for row in rows} == {json.dumps({"env": "prod"})}


def test_a_program_of_the_version_before_may_write_a_cluster_while_the_tables_have_labels_already(world: World) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "select column_default from information_schema.columns where table_name = %s and column_name = 'labels'",
            [Cluster._meta.db_table],
        )
        assert cursor.fetchone() == ("'{}'::jsonb",)
