"""Daemons that answer each request just in time: all that a web request or a task waits for a cluster's is bounded, and said so."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from celery import shared_task
from django.test import Client, override_settings
from django.urls import reverse

from controlplane.celery import app
from controlplane.clusters.remoting import cluster_admin, cluster_producer
from controlplane.clusters.replica_remoting import replica_statuses
from controlplane.clusters.waiting import wait_budget, waits_bounded, waits_unbounded
from controlplane.common.errors import ClusterSlow, InvalidInput
from controlplane.consumers import services
from controlplane.consumers.models import OffsetReset, ReplayState, ResetTarget
from controlplane.consumers.services import Target, reset_preview, undo_preview
from controlplane.provisioning.runner import Outcome, operation_step_run
from controlplane.provisioning.steps import STEPS
from highwater import Message, TimeSpentError
from mqwire.codes import RequestCode
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.late_daemon import LateDaemon, late_daemon
from tests.controlplane.test_dead_letter_replay import Brokers, brokers, turn
from tests.controlplane.world import Json, World, dead_letter_replay, make_operation, offset_reset

__all__ = ["brokers"]

pytestmark = pytest.mark.django_db

GROUPS = [f"group-{number}" for number in range(12)]
LAG = "/api/v1/tenants/acme/clusters/orders/lag/"
# Three answers, of which each takes 0.3 s, and a part of the fourth.
SHORT_MS = 1000
# Goodbyes of clients to a broker are not counted: they wait for nothing once the time is spent.
ANSWERS_MAX = 4


@pytest.fixture
def late(world: World) -> Iterator[LateDaemon]:
    with late_daemon(world.cluster, GROUPS) as daemon:
        yield daemon


def ask_ten_times(world: World, late: LateDaemon) -> None:
    with cluster_admin(world.cluster) as admin:
        for _ in range(10):
            admin.broker_config(late.address)


def test_all_clients_of_a_request_wait_no_longer_together_than_one_may(world: World, late: LateDaemon) -> None:
    errors = []
    began_s = time.monotonic()
    with waits_bounded(SHORT_MS):
        for _ in range(10):
            with pytest.raises(ClusterSlow) as raised:
                ask_ten_times(world, late)
            errors.append(raised.value)
    assert late.requests.count(RequestCode.GET_BROKER_CONFIG) <= ANSWERS_MAX
    assert time.monotonic() - began_s < 15
    assert "orders" in errors[-1].message
    assert (errors[-1].status, errors[-1].extra) == (503, {"cluster": "orders"})


def test_a_producer_takes_from_the_same_time(world: World, late: LateDaemon) -> None:
    with waits_bounded(SHORT_MS):
        with pytest.raises(ClusterSlow):
            ask_ten_times(world, late)
        asked = len(late.requests)
        with pytest.raises(ClusterSlow), cluster_producer(world.cluster) as producer:
            producer.send(Message("payments", b"one"))
        assert len(late.requests) == asked


def test_replicas_are_asked_within_the_same_time(world: World, late: LateDaemon) -> None:
    with waits_bounded(SHORT_MS):
        for _ in range(ANSWERS_MAX):
            replica_statuses(world.cluster, [late.address])
        asked = len(late.requests)
        with pytest.raises(ClusterSlow):
            replica_statuses(world.cluster, [late.address])
        assert len(late.requests) == asked


def test_each_cluster_has_a_time_of_its_own_and_each_request_another(world: World, late: LateDaemon) -> None:
    with waits_bounded(SHORT_MS):
        budget = wait_budget(world.cluster.pk)
        assert budget is not None
        with budget.waiting("a", 5_000):
            time.sleep(SHORT_MS / 1000)
        assert budget.is_spent
        other = wait_budget(world.acme.pk)
        assert other is not None
        assert not other.is_spent
        with waits_bounded(60_000), cluster_admin(world.cluster) as admin:
            admin.broker_config(late.address)
        with waits_unbounded(), cluster_admin(world.cluster) as admin:
            admin.broker_config(late.address)
    assert wait_budget(world.cluster.pk) is None


@override_settings(HIGHWATER_REMOTING_TOTAL_MS=400)
def test_the_api_says_which_cluster_was_slow(world: World, late: LateDaemon, api: Callable[..., Json]) -> None:
    answer = api(world.bob).call("GET", LAG)
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["cluster"]) == (503, "cluster_slow", "orders")
    assert "orders answers too slowly" in problem["detail"]
    assert len(late.requests) <= 2


@override_settings(HIGHWATER_REMOTING_TOTAL_MS=2000)
def test_a_page_shows_what_came_in_time_and_all_else_as_unknown(world: World, late: LateDaemon) -> None:
    client = Client()
    client.force_login(world.bob, backend="django.contrib.auth.backends.ModelBackend")
    page = client.get(reverse("console:lag", args=["acme", "orders"]))
    assert page.status_code == 200
    outlooks = page.context["groups"]
    known = [one.live.lag_messages is not None for one in outlooks]
    assert known.index(False) > 0
    assert not any(known[known.index(False) :])
    text = page.content.decode()
    assert "The cluster orders answers too slowly" in text
    assert late.requests.count(RequestCode.GET_CONSUME_STATS) < len(GROUPS)


@pytest.mark.parametrize("options", [{}, {"soft_time_limit": 20}])
def test_a_task_has_a_part_of_its_time_limit_for_a_cluster(world: World, options: dict[str, Any]) -> None:
    left_ms: list[float] = []

    @shared_task(name="tests.slow_daemons", **options)
    def look() -> None:
        budget = wait_budget(world.cluster.pk)
        assert budget is not None
        left_ms.append(budget.total_ms)

    try:
        look.apply(throw=True)
        look()
    finally:
        app.tasks.unregister(look.name)
    assert left_ms == [0.8 * 1000 * options.get("soft_time_limit", app.conf.task_soft_time_limit)] * 2
    assert wait_budget(world.cluster.pk) is None


def test_steps_of_operations_have_the_time_that_they_need(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = make_operation(world.acme, "made")
    step = operation.steps.order_by("position")[0]
    seen: list[Any] = []
    monkeypatch.setitem(STEPS, step.name, lambda context: seen.append(wait_budget(world.cluster.pk)))
    with waits_bounded(SHORT_MS):
        assert operation_step_run(step.pk, DriverTwin(tmp_path)) == Outcome.COMPLETED
    assert seen == [None]


def test_a_replay_sends_what_was_not_sent_for_lack_of_time_later(world: World, brokers: Brokers) -> None:
    def spent(body: bytes) -> None:
        raise TimeSpentError("broker-a was not asked")

    replay = dead_letter_replay(world.cluster)
    brokers.react = spent
    assert turn(replay) == ReplayState.RUNNING
    assert (replay.sent, replay.unknown, replay.failed) == (2, 0, 0)
    assert replay.ranges[0]["next"] == 2
    assert "was not asked" in replay.message


def test_a_reset_has_more_time_than_other_requests(world: World, late: LateDaemon) -> None:
    with waits_bounded(100), pytest.raises(InvalidInput, match="know no topic"):
        reset_preview(cluster=world.cluster, group="group-1", topic="payments", target=Target(ResetTarget.LATEST))
    assert len(late.requests) > 1


def test_the_preview_of_a_resets_undoing_has_as_much_time_as_the_reset(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []

    def plan(_admin: object, reset: OffsetReset) -> None:
        budget = wait_budget(reset.cluster_id)
        assert budget is not None
        seen.append(budget.total_ms)

    monkeypatch.setattr(services, "_undo_plan", plan)
    with waits_bounded(SHORT_MS):
        undo_preview(offset_reset(world.cluster))
    assert seen == [services._RESET_TOTAL_MS]


def test_a_queue_that_was_not_asked_for_lack_of_time_was_surely_not_reset(world: World) -> None:
    admin = Mock()
    admin.reset_offset.side_effect = [None, TimeSpentError("broker-a was not asked"), AssertionError]
    reset = offset_reset(world.cluster)
    services._apply(admin, reset)
    assert [one["outcome"] for one in reset.queues] == ["done", "failed"]
