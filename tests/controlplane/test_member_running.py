"""How one member of a group is doing, by the API: who may ask, and what of its answer is shown."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest

from controlplane.consumers import running
from controlplane.tenants.models import Membership, Role
from highwater import BrokerError, HighwaterError, ProtocolError, RequestTimeoutError
from tests.controlplane.members_twin import CLIENT, MembersTwin, queue_info, running_info
from tests.controlplane.world import Json, World


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> MembersTwin:
    twin = MembersTwin()
    monkeypatch.setattr(running, "cluster_admin", twin.cluster_admin)
    return twin


def ask(world: World, *, group: str = "billing", client: Json | None = None, **query: str) -> Any:
    path = f"{world.cluster.path}consumer-groups/{group}/members/running/"
    return (client or Json(world.bob)).get(f"{path}?{urlencode({'client_id': CLIENT, **query})}")


def test_a_member_is_shown_queue_by_queue(world: World, member: MembersTwin) -> None:
    answer = ask(world)
    assert answer.status_code == 200, answer.content
    shown = answer.json()
    assert shown["client_id"] == CLIENT
    assert shown["settings"] == [{"name": "PROP_CONSUMEORDERLY", "value": "true"}]
    assert shown["subscriptions"] == [{"topic": "payments", "expression": "paid"}]
    (queue,) = shown["queues"]
    assert (queue["commit_offset"], queue["fetched"], queue["locked"]) == (str(2**40), 3, True)
    assert (queue["last_pull_at"], queue["last_consume_at"]) == ("2023-11-14T22:13:20Z", None)
    assert (shown["fetched"], shown["stack"], shown["stack_complete"]) == ("3", None, True)


def test_the_stack_is_asked_for_only_on_request(world: World, member: MembersTwin) -> None:
    member.info = running_info(stack="thread main")
    ask(world)
    assert ask(world, stack="true").json()["stack"] == "thread main"
    assert member.asked_for_stack == [False, True]


def test_a_viewer_may_not_ask(world: World, member: MembersTwin) -> None:
    Membership.objects.filter(user=world.bob).update(role=Role.VIEWER)
    assert ask(world).status_code == 403
    assert member.asked_for_stack == []


def test_a_member_that_is_not_connected_is_not_found(world: World, member: MembersTwin) -> None:
    assert ask(world, client_id="nobody@1").status_code == 404


def test_a_group_that_is_not_there_is_not_found(world: World, member: MembersTwin) -> None:
    assert ask(world, group="unknown").status_code == 404
    assert member.asked_for_stack == []


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (RequestTimeoutError("no answer"), 503, "member_silent"),
        (BrokerError(207, "consumer <billing> Timeout", "broker-a"), 503, "member_silent"),
        (ProtocolError("no JSON"), 502, "member_unreadable"),
        (BrokerError(2, "it has yet to answer 8 requests", "broker-a"), 502, "broker_refused"),
    ],
)
def test_a_member_that_does_not_answer_is_distinguished_from_a_cluster_that_does_not(
    world: World, member: MembersTwin, error: HighwaterError, status: int, code: str
) -> None:
    member.error = error
    answer = ask(world)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_what_a_member_reports_has_its_bounds(world: World, member: MembersTwin) -> None:
    member.info = running_info(
        properties={f"p{number}": "v" * 5000 for number in range(running.SETTINGS_MAX + 5)},
        queues=tuple(queue_info(number) for number in range(running.QUEUES_MAX + 3)),
        stack="s" * (running.STACK_MAX_CHARACTERS + 1),
    )
    shown = ask(world, stack="true").json()
    assert len(shown["settings"]) == running.SETTINGS_MAX
    assert len(shown["settings"][0]["value"]) == running.SETTING_MAX_CHARACTERS
    assert (len(shown["queues"]), shown["queues_left_out"]) == (running.QUEUES_MAX, 3)
    assert (len(shown["stack"]), shown["stack_complete"]) == (running.STACK_MAX_CHARACTERS, False)


def test_a_time_that_no_calendar_has_is_null(world: World, member: MembersTwin) -> None:
    member.info = running_info(queues=(queue_info(last_pull_timestamp_ms=2**62),))
    assert ask(world).json()["queues"][0]["last_pull_at"] is None
