"""REST of roles: shapes, dry runs, rights, problems; and clusters of each mode as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from django.utils import timezone

from controlplane.clusters.models import BrokerGroup, Cluster, NameServer, Operation, Replica
from controlplane.failover.models import Failover, ReplicaSample
from controlplane.failover.promotion import apis
from controlplane.failover.sampling import cluster_sample
from controlplane.provisioning.processes import replica_daemons
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import Json, World
from tests.failover.replicated import make_replicated
from tests.failover.scripted_group import ScriptedGroup

CLUSTERS = "/api/v1/tenants/acme/clusters/"
PAIR = f"{CLUSTERS}pair/"
GROUP = f"{PAIR}groups/broker-a/"


@pytest.fixture
def group(world: World, driver: DriverTwin) -> Iterator[ScriptedGroup]:
    cluster = make_replicated(world.acme, "pair", "async")
    with ScriptedGroup.of(cluster).answering() as group, patch.object(apis, "get_driver", return_value=driver):
        group[0].end_offset += 200
        cluster_sample(cluster, driver)
        yield group


def lose_master(group: ScriptedGroup, driver: DriverTwin) -> None:
    cluster = Cluster.objects.select_related("tenant").get(slug="pair")
    group[0].answers = False
    cluster_sample(cluster, driver)
    ReplicaSample.objects.filter(replica__group__cluster=cluster, replica__broker_id=0).update(
        unreachable_since=timezone.now() - timedelta(seconds=9)
    )


def test_the_role_map_has_offsets_as_strings_and_gaps(world: World, api: Callable[..., Json], group: object) -> None:
    (found,) = api(world.bob).call("GET", f"{PAIR}groups/").json()["results"]
    assert (found["name"], found["state"], found["master_id"], found["epoch"]) == ("broker-a", "degraded", 0, "1")
    slave = found["replicas"][1]
    assert (slave["role"], slave["end_offset"], slave["gap_bytes"], slave["gap_messages"]) == (
        "slave",
        "1000",
        "200",
        "2",
    )


def test_what_is_not_known_is_null(
    world: World, api: Callable[..., Json], group: ScriptedGroup, driver: DriverTwin
) -> None:
    lose_master(group, driver)
    (found,) = api(world.bob).call("GET", f"{PAIR}groups/").json()["results"]
    master, slave = found["replicas"]
    assert (found["state"], found["master_id"]) == ("no_master", None)
    assert (master["role"], master["in_sync"], master["gap_bytes"]) == ("unknown", None, None)
    assert (slave["gap_bytes"], slave["in_sync"]) == (None, None)


def test_a_cluster_that_was_never_sampled_knows_nothing(world: World, api: Callable[..., Json]) -> None:
    (found,) = api(world.alice).call("GET", f"{CLUSTERS}orders/groups/").json()["results"]
    assert (found["state"], found["epoch"], found["sampled_at"]) == ("unknown", None, None)
    assert found["replicas"][0]["role"] == "unknown"


def test_a_dry_run_says_what_would_be_lost_and_changes_nothing(
    world: World, api: Callable[..., Json], group: ScriptedGroup, driver: DriverTwin
) -> None:
    lose_master(group, driver)
    answer = api(world.alice).call("POST", f"{GROUP}promote/?dry_run=true", {})
    found = answer.json()
    assert (answer.status_code, found["possible"], found["clean"], found["confirmation_needed"]) == (
        200,
        True,
        False,
        True,
    )
    assert (found["candidate"]["replica_id"], found["bytes_at_risk"], found["messages_at_risk"]) == (1, "200", "2")
    assert "its process is stopped" in found["fence"]
    assert not Failover.objects.exists()
    assert group.calls == []


def test_an_unclean_promotion_without_the_typed_name_is_a_problem_that_says_so(
    world: World, api: Callable[..., Json], group: ScriptedGroup, driver: DriverTwin
) -> None:
    lose_master(group, driver)
    answer = api(world.alice).call("POST", f"{GROUP}promote/", {})
    assert (answer.status_code, answer.json()["code"]) == (409, "confirmation_needed")
    assert answer.headers["Content-Type"].startswith("application/problem+json")
    assert answer.json()["bytes_at_risk"] == "200"


def test_a_promotion_is_answered_with_its_operation_and_the_same_key_asks_once(
    world: World, api: Callable[..., Json], group: ScriptedGroup, driver: DriverTwin
) -> None:
    lose_master(group, driver)
    client = api(world.alice)
    answers = [
        client.call("POST", f"{GROUP}promote/", {"confirm": "broker-a"}, Idempotency_Key="once") for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    assert (answers[0].json()["type"], answers[0].json()["resource"]) == ("group.promote", GROUP)
    failover = client.call("GET", f"{PAIR}failovers/").json()["results"][0]
    assert (failover["operation_id"], failover["confirmed_loss"]) == (answers[0].json()["id"], True)
    assert [line["name"] for line in failover["timeline"]] == ["detected", "requested"]
    assert client.call("GET", failover["path"]).json()["id"] == failover["id"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"candidate": 7}, 422, "not_promotable"),
        ({"candidate": 0}, 422, "not_promotable"),
        ({"candidate": "x"}, 400, "invalid_input"),
        ({"candidate": 1, "confirm": "broker-b"}, 400, "invalid_input"),
    ],
)
def test_what_cannot_be_promoted_is_a_problem(
    world: World, api: Callable[..., Json], group: ScriptedGroup, body: dict[str, Any], status: int, code: str
) -> None:
    answer = api(world.alice).call("POST", f"{GROUP}promote/", body)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.json()


@pytest.mark.parametrize("path", ["promote/", "switchover/"])
def test_only_operators_change_roles_and_outsiders_see_nothing(
    world: World, api: Callable[..., Json], group: ScriptedGroup, path: str
) -> None:
    wanted = {"teammate": 403, "outsider": 404, "anonymous": 401}
    for who, status in wanted.items():
        for query in ("", "?dry_run=true"):
            answer = api(world.people[who]).call("POST", f"{GROUP}{path}{query}", {})
            assert answer.status_code == status, (who, answer.content)
    assert group.calls == []


def test_another_tenants_failover_looks_absent(
    world: World, api: Callable[..., Json], group: ScriptedGroup, driver: DriverTwin
) -> None:
    lose_master(group, driver)
    api(world.alice).call("POST", f"{GROUP}promote/", {"confirm": "broker-a"})
    failover = Failover.objects.get()
    answers = [
        api(world.charlie).call("GET", path).status_code
        for path in (f"{PAIR}failovers/{failover.pk}/", f"{PAIR}failovers/", f"{PAIR}groups/")
    ]
    assert answers == [404, 404, 404]


def test_the_policy_is_changed_with_the_cluster(world: World, api: Callable[..., Json], group: object) -> None:
    client = api(world.alice)
    answer = client.call("PATCH", PAIR, {"failover_policy": "automatic_when_lossless"})
    assert (answer.status_code, answer.json()["failover_policy"]) == (200, "automatic_when_lossless")
    assert answer.json()["name"] == "pair"
    assert client.call("PATCH", PAIR, {"failover_policy": "always"}).status_code == 400
    assert client.call("PATCH", PAIR, {}).status_code == 400


@pytest.mark.parametrize(
    ("body", "groups", "roles", "name_servers"),
    [
        ({"mode": "single"}, 1, ["ASYNC_MASTER"], 1),
        ({"mode": "multi"}, 2, ["ASYNC_MASTER"], 2),
        ({"mode": "multi", "groups": 3}, 3, ["ASYNC_MASTER"], 2),
        ({"mode": "async"}, 1, ["ASYNC_MASTER", "SLAVE"], 2),
        ({"mode": "sync", "groups": 2, "replicas": 3}, 2, ["SYNC_MASTER", "SLAVE", "SLAVE"], 2),
    ],
)
def test_a_mode_has_its_groups_replicas_and_roles(
    world: World, api: Callable[..., Json], body: dict[str, Any], groups: int, roles: list[str], name_servers: int
) -> None:
    answer = api(world.alice).call("POST", CLUSTERS, {"slug": "shaped", **body})
    assert answer.status_code == 202, answer.json()
    cluster = Cluster.objects.get(slug="shaped")
    rows = BrokerGroup.objects.filter(cluster=cluster)
    assert [row.name for row in rows] == [f"broker-{letter}" for letter in "abc"[:groups]]
    for row in rows:
        found = Replica.objects.filter(group=row).order_by("broker_id")
        assert [(replica.broker_id, replica.broker_role) for replica in found] == list(enumerate(roles))
    assert NameServer.objects.filter(cluster=cluster).count() == name_servers


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"mode": "single", "groups": 2}, "groups"),
        ({"mode": "single", "replicas": 2}, "replicas"),
        ({"mode": "multi", "groups": 1}, "groups"),
        ({"mode": "multi", "groups": 5}, "groups"),
        ({"mode": "multi", "replicas": 2}, "replicas"),
        ({"mode": "sync", "replicas": 1}, "replicas"),
        ({"mode": "async", "replicas": 4}, "replicas"),
        ({"mode": "sync", "failover_policy": "maybe"}, "failover_policy"),
    ],
)
def test_what_a_mode_does_not_have_is_reported_beside_the_field(
    world: World, api: Callable[..., Json], body: dict[str, Any], field: str
) -> None:
    answer = api(world.alice).call("POST", CLUSTERS, {"slug": "shaped", **body})
    assert answer.status_code == 400
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_growing_adds_a_group_like_the_others(world: World, api: Callable[..., Json], group: object) -> None:
    answer = api(world.alice).call("POST", f"{PAIR}grow/")
    assert (answer.status_code, answer.json()["type"]) == (202, "cluster.grow")
    added = BrokerGroup.objects.get(cluster__slug="pair", name="broker-b")
    assert [replica.broker_role for replica in added.replicas.all()] == ["ASYNC_MASTER", "SLAVE"]
    assert Operation.objects.get(pk=answer.json()["id"]).metadata == {"group": "broker-b"}


def test_growing_by_a_replica_adds_a_slave_to_every_group(
    world: World, api: Callable[..., Json], group: object
) -> None:
    answer = api(world.alice).call("POST", f"{PAIR}grow/", {"by": "replica"})
    assert (answer.status_code, answer.json()["metadata"]) == (202, {"replica": 2})
    replicas = Replica.objects.filter(group__cluster__slug="pair").order_by("broker_id")
    assert [(replica.broker_id, replica.broker_role) for replica in replicas] == [
        (0, "ASYNC_MASTER"),
        (1, "SLAVE"),
        (2, "SLAVE"),
    ]


def test_growing_beyond_the_most_is_a_conflict(world: World, api: Callable[..., Json]) -> None:
    make_replicated(world.acme, "full", "sync", replicas=3)
    answer = api(world.alice).call("POST", f"{CLUSTERS}full/grow/", {"by": "replica"})
    assert (answer.status_code, answer.json()["code"]) == (409, "too_many")


@pytest.mark.parametrize(("mode", "by"), [("single", "group"), ("multi", "replica"), ("async", "everything")])
def test_what_a_cluster_cannot_grow_by_is_reported_beside_the_field(
    world: World, api: Callable[..., Json], mode: str, by: str
) -> None:
    client = api(world.alice)
    client.call("POST", CLUSTERS, {"slug": "odd", "mode": mode})
    Operation.objects.filter(cluster__slug="odd").update(state="completed")
    Cluster.objects.filter(slug="odd").update(state="running")
    answer = client.call("POST", f"{CLUSTERS}odd/grow/", {"by": by})
    assert (answer.status_code, [error["field"] for error in answer.json()["errors"]]) == (400, ["by"]), answer.json()
    assert Replica.objects.filter(group__cluster__slug="odd").count() == (1 if mode == "single" else 2)


@pytest.mark.parametrize(("who", "status"), [("teammate", 403), ("outsider", 404), ("anonymous", 401)])
def test_only_operators_grow_a_cluster(
    world: World, api: Callable[..., Json], group: object, who: str, status: int
) -> None:
    assert api(world.people[who]).call("POST", f"{PAIR}grow/", {"by": "replica"}).status_code == status
    assert Replica.objects.filter(group__cluster__slug="pair").count() == 2


def test_a_group_that_grows_by_a_replica_is_not_restarted(world: World, driver: DriverTwin) -> None:
    cluster = make_replicated(world.acme, "grows", "sync")
    before = {daemon.process.name: daemon.process for daemon in replica_daemons(cluster, driver)}
    Replica.objects.create(
        group=BrokerGroup.objects.get(cluster=cluster), broker_id=2, broker_role="SLAVE", host="127.0.0.1", port=99
    )
    after = {daemon.process.name: daemon for daemon in replica_daemons(cluster, driver)}
    assert len(after) == 3
    assert {name: after[name].process for name in before} == before
    for daemon in after.values():
        assert any("totalReplicas=3" in text for text in daemon.files.values())
