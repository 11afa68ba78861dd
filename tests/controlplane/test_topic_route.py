"""A topic's route: which broker has which queues, who reads them, and what is said where something is amiss."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.clusters.models import BrokerGroup, Replica
from controlplane.consumers import route_map
from controlplane.topics.models import Topic, TopicState
from highwater import ConnectError, TopicConfig
from highwater.errors import TopicNotFoundError
from tests.controlplane.route_twin import RouteTwin
from tests.controlplane.world import Json, World

PATH = "/api/v1/tenants/acme/clusters/orders/topics/payments/route/"


@pytest.fixture
def brokers(world: World, monkeypatch: pytest.MonkeyPatch) -> RouteTwin:
    group = BrokerGroup.objects.create(cluster=world.cluster, name="broker-b")
    Replica.objects.create(group=group, host="127.0.0.9", port=3)
    Topic.objects.create(cluster=world.cluster, name="payments", state=TopicState.ACTIVE)
    twin = RouteTwin()
    monkeypatch.setattr(route_map, "cluster_admin", twin.cluster_admin)
    return twin


def route(world: World, group: str = "") -> dict[str, Any]:
    answer = Json(world.alice).call("GET", f"{PATH}?group={group}" if group else PATH)
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


def problem_of(world: World, broker: str) -> str:
    (found,) = (one for one in route(world)["brokers"] if one["broker_name"] == broker)
    return str(found["problem"])


def readers(world: World) -> dict[tuple[str, int], tuple[list[str], str]]:
    found = route(world, "billing")["queues"]
    return {(one["broker_name"], one["queue_id"]): (one["client_ids"], one["problem"]) for one in found}


def test_each_broker_group_is_shown_with_its_replicas_and_queues(world: World, brokers: RouteTwin) -> None:
    found = route(world)
    assert found["brokers"][0] == {
        "broker_name": "broker-a",
        "has_master": True,
        "replicas": [{"broker_id": 0, "address": "10.0.0.1:10911"}, {"broker_id": 1, "address": "10.0.0.2:10911"}],
        "perm": 6,
        "read_queue_nums": 2,
        "write_queue_nums": 2,
        "problem": "",
    }
    assert (found["groups"], found["queues"]) == (["billing"], None)


def test_a_group_without_a_master_says_what_that_means(world: World, brokers: RouteTwin) -> None:
    del brokers.addresses["broker-a"][0]
    found = route(world)["brokers"][0]
    assert (found["has_master"], found["read_queue_nums"]) == (False, 2)
    assert found["problem"].startswith("It has no master: sends go to other broker groups")


def test_a_group_that_no_name_server_knows_is_shown_as_unreachable(world: World, brokers: RouteTwin) -> None:
    del brokers.addresses["broker-b"]
    assert problem_of(world, "broker-b").startswith("No replica is registered")


def test_a_broker_that_lacks_the_topic_says_so(world: World, brokers: RouteTwin) -> None:
    brokers.configs["10.0.0.3:10911"] = TopicNotFoundError(17, "no such topic", "10.0.0.3:10911")
    assert problem_of(world, "broker-b").startswith("It does not have the topic.")


def test_a_broker_that_does_not_answer_hides_no_other(world: World, brokers: RouteTwin) -> None:
    brokers.configs["10.0.0.3:10911"] = ConnectError("refused")
    assert (problem_of(world, "broker-b"), problem_of(world, "broker-a")) == ("It does not answer.", "")


@pytest.mark.parametrize(
    ("perm", "problem"),
    [
        (4, "Its queues take no messages: they are read until they are empty."),
        (2, "Its queues can’t be read: messages wait there."),
        (0, "Its queues can be neither read nor written."),
    ],
)
def test_a_closed_broker_says_how(world: World, brokers: RouteTwin, perm: int, problem: str) -> None:
    brokers.configs["10.0.0.3:10911"] = TopicConfig("payments", 1, 1, perm)
    assert problem_of(world, "broker-b") == problem


def test_each_queue_is_shown_with_the_member_that_has_it(world: World, brokers: RouteTwin) -> None:
    assert readers(world) == {
        ("broker-a", 0): (["one@1"], ""),
        ("broker-a", 1): (["two@2"], ""),
        ("broker-b", 0): (["one@1"], ""),
    }


def test_a_queue_that_no_member_has_taken_says_what_to_look_at(world: World, brokers: RouteTwin) -> None:
    brokers.members["two@2"] = []
    clients, problem = readers(world)["broker-a", 1]
    assert (clients, problem[:27]) == ([], "No member has taken it. Cli")


def test_without_members_each_queue_says_so(world: World, brokers: RouteTwin) -> None:
    brokers.members = {}
    assert set(map(str, (problem for _, problem in readers(world).values()))) == {
        "No member of the group is connected."
    }


def test_members_that_subscribe_to_other_topics_are_told_from_none(world: World, brokers: RouteTwin) -> None:
    brokers.members, brokers.subscriptions = {"one@1": []}, {"refunds": "*"}
    assert {problem for _, problem in readers(world).values()} == {"No member subscribes to this topic."}


def test_a_member_that_does_not_answer_is_named_and_may_be_the_reader(world: World, brokers: RouteTwin) -> None:
    brokers.members["two@2"] = None
    assert route(world, "billing")["silent"] == ["two@2"]
    assert readers(world)["broker-a", 1][1] == "None of those that answered. A member that did not answer may have it."


def test_a_queue_that_two_members_have_is_pointed_out(world: World, brokers: RouteTwin) -> None:
    brokers.members["two@2"] = [("broker-a", 0), ("broker-a", 1)]
    clients, problem = readers(world)["broker-a", 0]
    assert (clients, problem[:24]) == (["one@1", "two@2"], "Several members have it.")


def test_in_a_broadcasting_group_every_member_has_every_queue(world: World, brokers: RouteTwin) -> None:
    brokers.message_model = "BROADCASTING"
    brokers.members["two@2"] = [("broker-a", 0)]
    assert readers(world)["broker-a", 0] == (["one@1", "two@2"], "")


def test_members_past_the_bound_are_not_asked(
    world: World, brokers: RouteTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route_map, "MEMBERS_ASKED_MAX", 1)
    assert route(world, "billing")["silent"] == ["two@2"]


def test_who_may_not_inspect_consumers_sees_the_brokers_alone(world: World, brokers: RouteTwin) -> None:
    world.bob.memberships.update(role="viewer")
    viewer = Json(world.bob)
    assert viewer.call("GET", PATH).status_code == 200
    assert viewer.call("GET", f"{PATH}?group=billing").status_code == 403
