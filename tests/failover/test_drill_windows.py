"""Drills that are ordered for a window: when one begins, waits or is skipped, and that it begins once. The brokers are scripted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.accounts.actors import Actor, TokenActor
from controlplane.accounts.models import User
from controlplane.clusters.models import BrokerGroup, Cluster, Operation, OperationState, OperationType, Replica
from controlplane.clusters.operations import operation_start
from controlplane.common.errors import Conflict, InvalidInput
from controlplane.common.models import AuditEvent
from controlplane.failover.drill.due import Decision, Skipped, Start, Wait, Window, due
from controlplane.failover.drill.windows import drill_window_cancel, drill_window_create, drill_window_look
from controlplane.failover.errors import ConfirmationNeeded
from controlplane.failover.models import Drill, DrillFault, DrillWindow, DrillWindowState
from controlplane.failover.sampling import cluster_sample
from controlplane.failover.tasks import drill_windows_look_task
from controlplane.provisioning.drivers.base import ProcessState
from controlplane.provisioning.processes import replica_process_name
from controlplane.tenants.models import Membership
from controlplane.tenants.token_services import api_token_issue, api_token_revoke
from tests.controlplane.world import SYSTEM, World, drill_window
from tests.failover.drills import CrashingDriver
from tests.failover.replicated import make_replicated
from tests.failover.scripted_group import ScriptedGroup

NIGHT = datetime(2026, 12, 5, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)
PASSED = "The window passed before the drill could begin."


@pytest.mark.parametrize(
    ("now", "because", "problems", "decision"),
    [
        (NIGHT - timedelta(seconds=1), "", [], Wait()),
        (NIGHT, "", [], Start()),
        (NIGHT, "", ["Broken.", "Busy."], Wait("Broken. Busy.")),
        (NIGHT + HOUR - timedelta(seconds=1), "Broken.", [], Start()),
        (NIGHT + HOUR, "Broken.", [], Skipped(f"{PASSED} Broken.")),
        (NIGHT + HOUR, "", [], Skipped(f"{PASSED} Within it no worker of Highwater looked at the group.")),
    ],
)
def test_a_drill_begins_within_its_window_when_nothing_forbids_it(
    now: datetime, because: str, problems: Sequence[str], decision: Decision
) -> None:
    assert due(Window(NIGHT, NIGHT + HOUR, because), now, problems) == decision


@pytest.fixture
def cluster(world: World) -> Cluster:
    return make_replicated(world.acme, "pair", "sync")


@pytest.fixture
def driver(tmp_path: Any) -> CrashingDriver:
    return CrashingDriver(tmp_path)


@pytest.fixture
def group(cluster: Cluster, driver: CrashingDriver) -> Iterator[ScriptedGroup]:
    with ScriptedGroup.of(cluster).answering() as group:
        driver.group = group
        for replica in Replica.objects.filter(group__cluster=cluster).select_related("group"):
            driver.states[replica_process_name(cluster, replica)] = ProcessState.RUNNING
        cluster_sample(cluster, driver)
        yield group


def look(window: DrillWindow, driver: CrashingDriver, now: datetime | None = None) -> DrillWindow:
    drill_window_look(window.pk, driver, now or timezone.now())
    window.refresh_from_db()
    return window


def test_it_begins_once_as_it_was_ordered(cluster: Cluster, group: ScriptedGroup, driver: CrashingDriver) -> None:
    window = look(drill_window(cluster, fault=DrillFault.HANG, gives_back=True), driver)
    look(window, driver)
    drill = Drill.objects.get()
    assert (window.state, window.drill) == (DrillWindowState.STARTED, drill)
    assert (drill.fault, drill.gives_back, drill.requested_by) == ("hang", True, "alice@example.com (scheduled)")


def test_it_waits_for_a_healthy_group_and_says_so(
    cluster: Cluster, group: ScriptedGroup, driver: CrashingDriver
) -> None:
    group[1].end_offset -= 100
    window = look(drill_window(cluster), driver)
    assert window.state == DrillWindowState.WAITING
    assert "A drill needs a healthy group." in window.because
    group[1].end_offset += 100
    assert look(window, driver).state == DrillWindowState.STARTED


def test_it_waits_for_another_operation(cluster: Cluster, group: ScriptedGroup, driver: CrashingDriver) -> None:
    operation_start(actor=SYSTEM, cluster=cluster, operation_type=OperationType.CLUSTER_GROW)
    window = look(drill_window(cluster), driver)
    assert (window.state, Drill.objects.exists()) == (DrillWindowState.WAITING, False)
    assert "is in progress" in window.because
    Operation.objects.update(state=OperationState.COMPLETED)
    assert look(window, driver).state == DrillWindowState.STARTED


def test_one_whose_window_passed_says_what_stood_in_its_way(
    cluster: Cluster, group: ScriptedGroup, driver: CrashingDriver
) -> None:
    Cluster.objects.filter(pk=cluster.pk).update(state="failed")
    window = look(drill_window(cluster), driver)
    window = look(window, driver, window.closes_at)
    assert window.state == DrillWindowState.SKIPPED
    assert window.because == f"{PASSED} The cluster is failed, not running."
    assert AuditEvent.objects.filter(action="drill_window.skip", resource=window.path).count() == 1


def test_one_whose_orderer_was_demoted_is_skipped_at_once(
    world: World, cluster: Cluster, group: ScriptedGroup, driver: CrashingDriver
) -> None:
    window = look(drill_window(cluster, orderer=world.bob, requested_by="bob@example.com"), driver)
    assert (window.state, Drill.objects.exists()) == (DrillWindowState.SKIPPED, False)
    assert window.because == (
        "bob@example.com, who ordered this drill, may not any more."
        " This needs the role `operator` or above in tenant `acme`."
    )
    assert AuditEvent.objects.get(action="drill_window.skip").details["because"] == window.because


@pytest.mark.parametrize("lost", ["membership", "person", "token"])
def test_one_whose_orderer_is_gone_is_skipped_at_once(
    lost: str, world: World, cluster: Cluster, group: ScriptedGroup, driver: CrashingDriver
) -> None:
    token = api_token_issue(actor=SYSTEM, tenant=world.acme, name="ci", scopes=("manage",)).token
    ordered = order(cluster, timedelta(0), HOUR, actor=TokenActor(token) if lost == "token" else world.alice)
    match lost:
        case "membership":
            Membership.objects.filter(user=world.alice).delete()
        case "person":
            User.objects.filter(pk=world.alice.pk).update(is_active=False)
        case "token":
            api_token_revoke(actor=SYSTEM, token=token)
    window = look(ordered, driver)
    assert (window.state, Drill.objects.exists()) == (DrillWindowState.SKIPPED, False)
    assert "who ordered this drill" in window.because


def test_what_was_cancelled_does_not_begin(cluster: Cluster, group: ScriptedGroup, driver: CrashingDriver) -> None:
    window = drill_window(cluster)
    for _ in range(2):
        assert drill_window_cancel(actor=SYSTEM, window=window).state == DrillWindowState.CANCELLED
    assert look(window, driver).state == DrillWindowState.CANCELLED
    assert AuditEvent.objects.filter(action="drill_window.cancel").count() == 1


def test_what_has_begun_is_not_cancelled(cluster: Cluster, group: ScriptedGroup, driver: CrashingDriver) -> None:
    window = look(drill_window(cluster), driver)
    with pytest.raises(Conflict, match="has begun"):
        drill_window_cancel(actor=SYSTEM, window=window)


def test_only_open_and_passed_windows_are_looked_at(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        "controlplane.failover.tasks.drill_window_look_task.apply_async", lambda args, **options: asked.append(args[0])
    )
    now = timezone.now()
    wanted = [drill_window(cluster), drill_window(cluster, closes_at=now)]
    drill_window(cluster, opens_at=now + HOUR)
    drill_window(cluster, state=DrillWindowState.CANCELLED)
    drill_windows_look_task()
    assert sorted(asked) == sorted(str(window.pk) for window in wanted)


@pytest.mark.parametrize(
    ("opens", "closes", "field"),
    [
        (timedelta(0), timedelta(minutes=4), "closes_at"),
        (timedelta(0), timedelta(days=8), "closes_at"),
        (-2 * HOUR, -HOUR, "closes_at"),
        (timedelta(days=91), timedelta(days=91, hours=1), "opens_at"),
    ],
)
def test_a_window_is_bounded(cluster: Cluster, opens: timedelta, closes: timedelta, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        order(cluster, opens, closes)
    assert [error.field for error in refused.value.errors] == [field]


def test_an_order_needs_the_groups_name(cluster: Cluster) -> None:
    with pytest.raises(ConfirmationNeeded):
        order(cluster, timedelta(0), HOUR, confirm="")
    assert order(cluster, timedelta(0), HOUR).state == DrillWindowState.WAITING
    assert AuditEvent.objects.filter(action="drill_window.create").count() == 1


def test_a_cluster_has_twenty_orders_at_most(cluster: Cluster) -> None:
    for _ in range(20):
        drill_window(cluster)
    with pytest.raises(Conflict, match="20 drills"):
        order(cluster, timedelta(0), HOUR)


def order(
    cluster: Cluster, opens: timedelta, closes: timedelta, confirm: str = "broker-a", actor: Actor = SYSTEM
) -> DrillWindow:
    now = timezone.now()
    return drill_window_create(
        actor=actor,
        cluster=cluster,
        group=BrokerGroup.objects.get(cluster=cluster, name="broker-a"),
        opens_at=now + opens,
        closes_at=now + closes,
        confirm=confirm,
    )
