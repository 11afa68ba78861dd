"""An owner asks in the own tenant for another's rows by their ids: tokens, operations, drills, replays, deliveries and the rest."""

from __future__ import annotations

import re
import uuid

import pytest

from controlplane.topics.models import Topic, TopicState
from tests.controlplane.test_api_access import ROWS, Row, filled, values
from tests.controlplane.world import Json, World, make_cluster

pytestmark = pytest.mark.django_db

WITH_IDS = [row for row in ROWS if "tenant>" in row.pattern and "<uuid:" in row.pattern]
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")


def test_there_are_many_ids_to_try() -> None:
    assert len({name for row in WITH_IDS for name in re.findall(r"<uuid:(\w+)>", row.pattern)}) >= 14


def test_what_belongs_to_another_tenant_looks_as_if_it_were_not_there(world: World) -> None:
    """Clusters, topics and groups of the same names are there, so that nothing but the id is foreign."""
    known = values(world)
    own = make_cluster(world.globex, world.cluster.slug)
    for topic in Topic.objects.filter(cluster=world.cluster):
        Topic.objects.create(cluster=own, name=topic.name, state=TopicState.ACTIVE)
    charlie = Json(world.charlie)
    wrong = []
    for row in WITH_IDS:
        foreign = filled(row.pattern, known).replace("/tenants/acme/", "/tenants/globex/")
        answers = [asked(charlie, row, path) for path in (foreign, _UUID.sub(str(uuid.uuid4()), foreign))]
        if answers[0] != answers[1] or answers[0][0] != 404:
            wrong.append(f"{row.method} {foreign}: {answers}")
    assert wrong == []
    assert values_are_untouched(world, known)


def asked(client: Json, row: Row, path: str) -> tuple[int, str]:
    answer = client.call(row.method, path, row.body)
    return answer.status_code, answer.json().get("code", "") if answer.content else ""


def values_are_untouched(world: World, known: dict[str, str]) -> bool:
    """What a DELETE or POST above would have ended is there for its owner."""
    alice = Json(world.alice)
    read = [row for row in WITH_IDS if row.method == "GET" and row.owner == 200]
    return bool(read) and all(alice.call("GET", filled(row.pattern, known)).status_code == 200 for row in read)
