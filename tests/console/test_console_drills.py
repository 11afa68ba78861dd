"""Pages of failover drills: the pre-flight with its typed confirmation, the report, and the history, without daemons."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.clusters.models import Cluster, Operation, OperationState, Replica
from controlplane.console.views import drills
from controlplane.failover.models import Drill, DrillFault, DrillVerdict, DrillWindow
from controlplane.failover.sampling import cluster_sample
from controlplane.provisioning.drivers.base import ProcessState
from controlplane.provisioning.processes import replica_process_name
from tests.console.browser import LogIn, look_at
from tests.console.world import World
from tests.controlplane.world import drill_window
from tests.failover.drills import CrashingDriver, probe_by_hand, run, start
from tests.failover.replicated import make_replicated
from tests.failover.scripted_group import ScriptedGroup

PATH = "/t/acme/clusters/pair/"
NEW = f"{PATH}groups/broker-a/drill/"


@pytest.fixture
def cluster(world: World) -> Cluster:
    return make_replicated(world.tenant, "pair", "sync")


@pytest.fixture
def driver(tmp_path: Path) -> CrashingDriver:
    return CrashingDriver(tmp_path)


@pytest.fixture
def group(cluster: Cluster, driver: CrashingDriver, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedGroup]:
    probe_by_hand(monkeypatch)
    with ScriptedGroup.of(cluster).answering() as group, patch.object(drills, "get_driver", return_value=driver):
        driver.group = group
        for replica in Replica.objects.filter(group__cluster=cluster).select_related("group"):
            driver.states[replica_process_name(cluster, replica)] = ProcessState.RUNNING
        cluster_sample(cluster, driver)
        yield group


def test_the_overview_offers_a_drill_of_a_healthy_group_to_operators_only(
    world: World, cluster: Cluster, group: ScriptedGroup, driver: CrashingDriver
) -> None:
    assert "Failover drill" in world.client(world.alice).get(PATH).content.decode()
    assert "Failover drill" not in world.client(world.bob).get(PATH).content.decode()
    assert world.client(world.bob).post(NEW, {"typed": "broker-a"}).status_code == 403
    group[1].answers = False
    cluster_sample(cluster, driver)
    assert "Failover drill" not in world.client(world.alice).get(PATH).content.decode()


def test_the_drill_begins_once_the_groups_name_is_typed(world: World, group: ScriptedGroup) -> None:
    client = world.client(world.alice)
    page = client.get(NEW).content.decode()
    assert "Replica 0 suffers what you choose below." in page
    assert "Type broker-a to begin" in page
    refused = client.post(NEW, {"typed": "broker-b", "fault": "kill"})
    assert (refused.status_code, Drill.objects.exists()) == (422, False)
    assert "Nothing was stopped." in refused.content.decode()
    begun = client.post(NEW, {"typed": "broker-a", "gives_back": "on", "fault": "hang"})
    drill = Drill.objects.get()
    assert begun.headers["Location"] == f"{PATH}drills/{drill.pk}/"
    assert (drill.gives_back, drill.fault, drill.requested_by) == (True, "hang", world.alice.email)


def test_what_forbids_a_drill_is_reported_without_a_form(world: World, group: ScriptedGroup) -> None:
    group[1].end_offset -= 100
    page = world.client(world.alice).get(NEW).content.decode()
    assert "A drill needs a healthy group." in page
    assert "Type broker-a to begin" not in page


def test_the_report_shows_recovery_time_and_losses_and_the_history_keeps_them(
    world: World, cluster: Cluster, group: ScriptedGroup, driver: CrashingDriver
) -> None:
    drill = start(cluster, driver)
    assert run(drill, driver).state == OperationState.COMPLETED
    client = world.client(world.victor)
    page = client.get(f"{PATH}drills/{drill.pk}/").content.decode()
    for words in (
        "2.05 s",
        "acknowledged probe messages missing",
        "strip__pause",
        "The process of replica 0 was killed.",
    ):
        assert words in page, words
    assert "Another drill" not in page
    history = client.get(f"{PATH}drills/").content.decode()
    assert "Passed" in history
    assert "2.05 s" in history
    failovers = client.get(f"{PATH}failovers/").content.decode()
    assert "2.05 s" in failovers  # measured once, shown the same everywhere
    shown = client.get(f"{PATH}failovers/{drill.failover_id}/").content.decode()
    assert f"{PATH}drills/{drill.pk}/" in shown


def test_a_failed_drill_is_tried_again_as_another_one_with_the_same_choices(
    world: World, cluster: Cluster, group: ScriptedGroup, driver: CrashingDriver
) -> None:
    drill = start(cluster, driver, fault=DrillFault.HANG)
    group[1].answers = False
    assert run(drill, driver).state == OperationState.FAILED
    client = world.client(world.alice)
    page = client.get(f"{PATH}drills/{drill.pk}/").content.decode()
    assert "The drill ended before anything was measured." in page
    assert "Nothing was stopped." in page
    assert "and retry" not in page
    again = f"{NEW}?fault=hang"
    assert f'href="{again}"' in page
    group[1].answers = True
    assert re.search(r'value="hang"[^>]*checked', client.get(again).content.decode())
    assert "Retry" not in client.get(f"/t/acme/operations/{drill.operation_id}/").content.decode()


def test_a_drill_is_ordered_for_a_window_and_cancelled_on_the_page(world: World, group: ScriptedGroup) -> None:
    client, now = world.client(world.alice), datetime.now(UTC)
    typed = {
        "group": "broker-a",
        "opens_at": f"{now:%Y-%m-%d %H:%M}",
        "closes_at": f"{now + timedelta(hours=1):%Y-%m-%d %H:%M}",
        "fault": "cut",
        "confirm": "broker-b",
    }
    refused = client.post(f"{PATH}drills/windows/", typed)
    assert (refused.status_code, DrillWindow.objects.exists()) == (422, False)
    assert "Type the group&#x27;s name, broker-a." in refused.content.decode()
    both = client.post(f"{PATH}drills/windows/", {**typed, "closes_at": typed["opens_at"]}).content.decode()
    assert "Type the group&#x27;s name, broker-a." in both
    assert "Use a time in the future." in both
    assert 'value="broker-b"' in both, "what was typed is kept"
    ordered = client.post(f"{PATH}drills/windows/", {**typed, "confirm": "broker-a"}, follow=True).content.decode()
    window = DrillWindow.objects.get()
    assert (window.fault, window.state, window.requested_by) == ("cut", "waiting", world.alice.email)
    cancel = f"{PATH}drills/windows/{window.pk}/cancel/"
    assert cancel in ordered
    assert cancel not in world.client(world.victor).get(f"{PATH}drills/").content.decode()
    assert "Cancelled" in client.post(cancel, follow=True).content.decode()
    assert DrillWindow.objects.get().state == "cancelled"


@pytest.mark.django_db(transaction=True)
def test_the_pages_of_a_drill_look_right(
    page: Page,
    live_server: LiveServer,
    world: World,
    cluster: Cluster,
    group: ScriptedGroup,
    driver: CrashingDriver,
    log_in: LogIn,
) -> None:
    log_in(world.alice)
    page.goto(f"{live_server.url}{PATH}drills/")
    look_at(page, "drills empty")
    page.goto(live_server.url + PATH)
    page.get_by_role("link", name="Failover drill").click()
    look_at(page, "drill preflight")
    page.get_by_label("Type broker-a to begin").fill("broker-a")
    page.get_by_label("Give the leadership back").check()
    page.get_by_role("button", name="Start the drill").click()
    expect(page.locator("#drill")).to_have_attribute("data-state", "in_progress")
    drill = Drill.objects.get()
    run(drill, driver)
    expect(page.locator("#drill")).to_have_attribute("data-verdict", "passed")
    expect(page.locator("#timeline")).to_have_attribute("data-state", "completed")
    look_at(page, "drill report")
    drill_window(cluster, state="skipped", because="The window passed before the drill could begin.")
    drill_window(cluster)
    page.goto(f"{live_server.url}{PATH}drills/")
    page.get_by_text("Order a drill").click()
    look_at(page, "drills")
    Drill.objects.update(verdict=DrillVerdict.LOST, verdict_because="1 of 100 is not in the log.", probes_missing=1)
    Operation.objects.update(state=OperationState.COMPLETED)
    group[1].answers = False
    page.goto(live_server.url + NEW)
    look_at(page, "drill not possible")
