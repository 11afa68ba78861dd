"""REST of groups that elect their leader: making them, previews, rights, problems, idempotency."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import pytest

from controlplane.clusters.models import BrokerGroup, Cluster, Operation, Replica
from controlplane.failover.membership import apis as membership_apis
from controlplane.failover.models import Failover
from controlplane.failover.sampling import cluster_sample
from controlplane.provisioning.processes import founding_peers, replica_daemons
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import Json, World
from tests.failover.electing import all_running
from tests.failover.replicated import make_replicated
from tests.failover.scripted_quorum import ScriptedQuorum

CLUSTERS = "/api/v1/tenants/acme/clusters/"
TRIO = f"{CLUSTERS}trio/"
GROUP = f"{TRIO}groups/broker-a/"

CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("transfer/", {"target": 1}),
    ("prefer/", {"replica": 1}),
    ("replace/", {"replica": 2}),
    ("resize/", {"replicas": 5}),
]
each_change = pytest.mark.parametrize(("path", "body"), CHANGES)


@pytest.fixture
def group(world: World, driver: DriverTwin) -> Iterator[ScriptedQuorum]:
    cluster = make_replicated(world.acme, "trio", "dledger", replicas=3)
    with (
        ScriptedQuorum.of(cluster).answering() as group,
        patch.object(membership_apis, "get_driver", return_value=driver),
    ):
        all_running(cluster, driver)
        cluster_sample(cluster, driver)
        yield group


@pytest.mark.parametrize(
    ("body", "replicas", "flush", "groups"),
    [
        ({}, 3, "SYNC_FLUSH", 1),
        ({"replicas": 5, "groups": 2}, 5, "SYNC_FLUSH", 2),
        ({"flush_disk_type": "ASYNC_FLUSH"}, 3, "ASYNC_FLUSH", 1),
    ],
)
def test_a_group_of_three_or_five_is_made_and_a_majority_answers_for_disks_unless_asked_otherwise(
    world: World, api: Callable[..., Json], body: dict[str, Any], replicas: int, flush: str, groups: int
) -> None:
    answer = api(world.alice).call("POST", CLUSTERS, {"slug": "quorum", "mode": "dledger", **body})
    assert answer.status_code == 202, answer.json()
    cluster = Cluster.objects.get(slug="quorum")
    assert (cluster.flush_disk_type, cluster.broker_groups.count()) == (flush, groups)
    for row in cluster.broker_groups.all():
        assert [(one.broker_id, one.broker_role) for one in row.replicas.all()] == [(n, "") for n in range(replicas)]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"replicas": 2}, "replicas"),
        ({"replicas": 4}, "replicas"),
        ({"replicas": 7}, "replicas"),
        ({"groups": 5}, "groups"),
        ({"failover_policy": "automatic_when_lossless"}, "failover_policy"),
    ],
)
def test_what_the_mode_does_not_have_is_reported_beside_the_field(
    world: World, api: Callable[..., Json], body: dict[str, Any], field: str
) -> None:
    answer = api(world.alice).call("POST", CLUSTERS, {"slug": "quorum", "mode": "dledger", **body})
    assert answer.status_code == 400
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_the_role_map_shows_epochs_votes_voters_and_which_lag(
    world: World, api: Callable[..., Json], group: ScriptedQuorum, driver: DriverTwin
) -> None:
    group[0].end_offset += 3_000_000
    group[2].end_offset += 3_000_000
    cluster_sample(Cluster.objects.get(slug="trio"), driver)
    (found,) = api(world.bob).call("GET", f"{TRIO}groups/").json()["results"]
    assert (found["state"], found["master_id"], found["epoch"], found["candidates"]) == ("degraded", 0, "1", [])
    assert found["electorate"] == {
        "voters": [0, 1, 2],
        "observers": [],
        "preferred_leader": None,
        "change_pending": False,
        "transferring_to": None,
    }
    behind = found["replicas"][1]
    assert (behind["election_state"], behind["is_voter"], behind["voted_for"]) == ("follower", True, 0)
    assert (behind["gap_bytes"], behind["gap_messages"], behind["confirm_offset"]) == (
        "3000000",
        "30000",
        "5000000",
    )
    assert behind["last_pull_at"] is not None
    assert found["replicas"][0]["last_pull_at"] is None


def test_what_is_not_known_is_null(
    world: World, api: Callable[..., Json], group: ScriptedQuorum, driver: DriverTwin
) -> None:
    group[0].answers = group[1].answers = False
    group.leader = None
    cluster_sample(Cluster.objects.get(slug="trio"), driver)
    (found,) = api(world.bob).call("GET", f"{TRIO}groups/").json()["results"]
    assert (found["state"], found["master_id"]) == ("no_master", None)
    assert (
        found["sentences"][0] == "2 of 3 replicas are unreachable. Writes are refused; reads continue from replica 2."
    )
    silent, alive = found["replicas"][1], found["replicas"][2]
    assert [silent[name] for name in ("role", "election_state", "voted_for", "gap_bytes", "last_pull_at")] == [
        "unknown",
        None,
        None,
        None,
        None,
    ]
    assert (alive["gap_bytes"], alive["gap_messages"], alive["election_state"]) == (None, None, "unattached")


def test_a_cluster_of_another_mode_has_no_electorate(world: World, api: Callable[..., Json]) -> None:
    (found,) = api(world.alice).call("GET", f"{CLUSTERS}orders/groups/").json()["results"]
    assert (found["electorate"], found["replicas"][0]["is_voter"]) == (None, None)


@each_change
def test_a_dry_run_may_be_asked_for_in_the_body(
    world: World, api: Callable[..., Json], group: ScriptedQuorum, path: str, body: dict[str, Any]
) -> None:
    answer = api(world.alice).call("POST", f"{GROUP}{path}", {**body, "dry_run": True})
    assert (answer.status_code, group.calls) == (200, [])
    assert not Operation.objects.filter(type__startswith="group.").exists()


@each_change
def test_a_dry_run_says_what_each_step_does_and_stops_and_changes_nothing(
    world: World, api: Callable[..., Json], group: ScriptedQuorum, path: str, body: dict[str, Any]
) -> None:
    answer = api(world.alice).call("POST", f"{GROUP}{path}?dry_run=true", body)
    found = answer.json()
    assert (answer.status_code, found["possible"], found["problems"], found["leader_id"]) == (200, True, [], 0)
    assert len(found["steps"]) >= 3
    assert all(step["title"] and step["does"] and step["stops"] for step in found["steps"])
    assert not Operation.objects.filter(type__startswith="group.").exists()
    assert (group.calls, Replica.objects.filter(group__cluster__slug="trio").count()) == ([], 3)


@each_change
def test_a_change_is_answered_with_its_operation_and_the_same_key_asks_once(
    world: World, api: Callable[..., Json], group: ScriptedQuorum, path: str, body: dict[str, Any]
) -> None:
    client = api(world.alice)
    answers = [client.call("POST", f"{GROUP}{path}", body, Idempotency_Key="once") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202], answers[0].json()
    assert answers[0].json()["id"] == answers[1].json()["id"]
    assert (answers[0].json()["type"], answers[0].json()["resource"]) == (
        {"resize/": "group.grow"}.get(path, f"group.{path[:-1]}"),
        GROUP,
    )
    assert Operation.objects.filter(type__startswith="group.").count() == 1
    timeline = client.call("GET", f"{TRIO}failovers/").json()["results"]
    assert [one["kind"] for one in timeline] == (["transfer"] if path == "transfer/" else [])


@each_change
def test_only_operators_change_a_group_and_outsiders_see_nothing(
    world: World, api: Callable[..., Json], group: ScriptedQuorum, path: str, body: dict[str, Any]
) -> None:
    for who, status in {"teammate": 403, "outsider": 404, "anonymous": 401}.items():
        for query in ("", "?dry_run=true"):
            answer = api(world.people[who]).call("POST", f"{GROUP}{path}{query}", body)
            assert answer.status_code == status, (who, answer.content)
    assert (group.calls, Operation.objects.filter(type__startswith="group.").exists()) == ([], False)


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("transfer/", {"target": 0}, 422, "not_possible"),
        ("transfer/", {"target": 7}, 422, "not_possible"),
        ("transfer/", {"target": "x"}, 400, "invalid_input"),
        ("prefer/", {}, 400, "invalid_input"),
        ("prefer/", {"replica": 9}, 422, "not_possible"),
        ("replace/", {"replica": 0}, 422, "not_possible"),
        ("replace/", {"replica": 9}, 422, "not_possible"),
        ("resize/", {"replicas": 3}, 422, "not_possible"),
        ("resize/", {"replicas": 4}, 400, "invalid_input"),
        ("resize/", {"replicas": 5, "remove": ["x"]}, 400, "invalid_input"),
    ],
)
def test_what_cannot_be_done_is_a_problem(
    world: World,
    api: Callable[..., Json],
    group: ScriptedQuorum,
    path: str,
    body: dict[str, Any],
    status: int,
    code: str,
) -> None:
    answer = api(world.alice).call("POST", f"{GROUP}{path}", body)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.json()
    assert answer.headers["Content-Type"].startswith("application/problem+json")


@pytest.mark.parametrize("verb", ["promote/", "switchover/"])
def test_no_one_promotes_in_such_a_group(
    world: World, api: Callable[..., Json], group: ScriptedQuorum, verb: str
) -> None:
    answer = api(world.alice).call("POST", f"{GROUP}{verb}", {})
    assert (answer.status_code, answer.json()["code"]) == (422, "not_promotable")
    assert "transfer the leadership" in answer.json()["detail"]
    assert not Failover.objects.exists()


def test_the_policy_cannot_be_changed_where_the_group_decides(
    world: World, api: Callable[..., Json], group: ScriptedQuorum
) -> None:
    answer = api(world.alice).call("PATCH", TRIO, {"failover_policy": "automatic_when_lossless"})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "failover_policy")
    assert api(world.alice).call("PATCH", TRIO, {"name": "Trio"}).status_code == 200


def test_the_cluster_grows_by_a_group_like_the_others_but_not_by_a_replica(
    world: World, api: Callable[..., Json], group: ScriptedQuorum
) -> None:
    client = api(world.alice)
    refused = client.call("POST", f"{TRIO}grow/", {"by": "replica"})
    assert (refused.status_code, "groups/{group}/resize/" in refused.json()["errors"][0]["message"]) == (400, True)
    assert client.call("POST", f"{TRIO}grow/", {"by": "group"}).status_code == 202
    added = BrokerGroup.objects.get(cluster__slug="trio", name="broker-b")
    assert [replica.broker_id for replica in added.replicas.all()] == [0, 1, 2]


def test_until_a_group_is_founded_its_peers_restart_it_and_never_again(world: World, driver: DriverTwin) -> None:
    cluster = make_replicated(world.acme, "founding", "dledger", replicas=3)
    row = BrokerGroup.objects.get(cluster=cluster)

    def configuration() -> dict[str, str]:
        return {one.process.name: one.process.configuration for one in replica_daemons(cluster, driver)}

    before = configuration()
    peers = founding_peers(list(Replica.objects.filter(group=row).order_by("broker_id")))
    BrokerGroup.objects.filter(pk=row.pk).update(founding_peers=peers)
    founded = configuration()
    assert all(founded[name] != text for name, text in before.items())
    Replica.objects.create(group=row, broker_id=3, broker_role="", host="127.0.0.1", port=99)
    grown = {name: text for name, text in configuration().items() if name in founded}
    assert grown == founded
