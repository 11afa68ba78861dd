"""Pages with which a cluster of one broker gets replicas and is rid of them again. No daemon is involved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.clusters.models import Cluster, Operation, OperationState
from controlplane.console.views import mode as mode_view
from tests.console.browser import LogIn, look_at
from tests.console.world import World
from tests.controlplane.driver_twin import DriverTwin
from tests.failover.electing import run_all
from tests.failover.replicated import make_replicated
from tests.failover.scripted_modes import ScriptedModes

SOLO = "/t/acme/clusters/solo/"
MODE = f"{SOLO}settings/mode/"


@pytest.fixture
def driver(tmp_path: Path) -> DriverTwin:
    return DriverTwin(tmp_path)


@pytest.fixture
def solo(world: World, driver: DriverTwin) -> Iterator[ScriptedModes]:
    """A cluster of one broker."""
    cluster = make_replicated(world.tenant, "solo", "single", replicas=1)
    with (
        ScriptedModes.of(cluster, "single").answering(driver) as modes,
        patch.object(mode_view, "get_driver", return_value=driver),
    ):
        yield modes


def test_the_settings_of_a_single_broker_lead_to_replicas(world: World, solo: ScriptedModes) -> None:
    client = world.client(world.alice)
    settings = client.get(f"{SOLO}settings/").content.decode()
    assert "its disk is the only one that has them" in settings
    assert "Add replicas" in settings
    chosen = client.get(MODE).content.decode()
    assert [f'value="{mode}"' in chosen for mode in ("single", "multi", "async", "sync", "dledger")] == [
        *(False, False, True, True, True),
    ]


def test_the_preview_says_who_comes_and_what_stays(world: World, solo: ScriptedModes) -> None:
    page = world.client(world.alice).get(f"{MODE}?mode=sync&replicas=3").content.decode()
    for words in ("Start the new replicas", "replicas 1 and 2 of broker-a", "Address for clients", "1 now, 3 then"):
        assert words in page
    assert "Fewer copies" not in page
    assert "&quot;replicas&quot;: 3" in page  # as code


def test_a_number_that_the_mode_does_not_have_is_a_problem_with_its_numbers(world: World, solo: ScriptedModes) -> None:
    page = world.client(world.alice).get(f"{MODE}?mode=sync&replicas=5").content.decode()
    assert "A group of mode sync has 2 or 3 replicas, not 5." in page
    assert "Choose again" in page


def test_while_it_grows_its_page_says_so_and_shows_the_roles(
    world: World, solo: ScriptedModes, driver: DriverTwin
) -> None:
    client = world.client(world.alice)
    assert client.post(f"{MODE}?mode=sync&replicas=").status_code == 302
    operation = run_all(Operation.objects.get(type="cluster.mode"), driver)
    page = client.get(SOLO).content.decode()
    assert "The mode of this cluster is being changed." in page
    assert 'data-group="broker-a"' in page
    solo.group.catch_up()
    assert run_all(operation, driver).state == OperationState.COMPLETED
    page = client.get(SOLO).content.decode()
    assert "The mode of this cluster is being changed." not in page
    assert "Sync" in page


def test_the_way_back_says_what_it_costs(world: World, driver: DriverTwin) -> None:
    cluster = make_replicated(world.tenant, "solo", "sync", replicas=3)
    with (
        ScriptedModes.of(cluster, "sync").answering(driver),
        patch.object(mode_view, "get_driver", return_value=driver),
    ):
        page = world.client(world.alice).get(f"{MODE}?mode=single").content.decode()
    for words in ("Fewer copies", "Remove replicas", "what is on its disk is lost with its disk", "3 now, 1 then"):
        assert words in page


@pytest.mark.django_db(transaction=True)
def test_the_pages_of_a_cluster_that_grows_look_right(
    page: Page, live_server: LiveServer, world: World, solo: ScriptedModes, driver: DriverTwin, log_in: LogIn
) -> None:
    log_in(world.alice)
    page.goto(f"{live_server.url}{SOLO}settings/")
    look_at(page, "modes settings of a single broker")
    page.get_by_role("link", name="Add replicas").click()
    page.locator("input[name=mode][value=sync]").check()
    look_at(page, "modes choose")
    page.get_by_label("Replicas of each group").select_option("3")
    page.get_by_role("button", name="Show what would happen").click()
    expect(page.get_by_role("button", name="Change the mode")).to_be_visible()
    look_at(page, "modes preview of growing")
    page.get_by_role("button", name="Change the mode").click()
    expect(page.locator("#progress")).to_be_visible()
    operation = run_all(Operation.objects.get(type="cluster.mode"), driver)
    page.reload()
    look_at(page, "modes progress")
    page.goto(live_server.url + SOLO)
    look_at(page, "modes overview while it grows")
    solo.group.catch_up()
    assert run_all(operation, driver).state == OperationState.COMPLETED
    page.goto(live_server.url + SOLO)
    look_at(page, "modes overview in sync")
    page.goto(f"{live_server.url}{MODE}?mode=single")
    expect(page.get_by_text("Fewer copies")).to_be_visible()
    look_at(page, "modes preview of the way back")
    assert Cluster.objects.get(slug="solo").mode == "sync"
    page.goto(f"{live_server.url}{MODE}?mode=dledger&replicas=2")
    look_at(page, "modes not possible")
