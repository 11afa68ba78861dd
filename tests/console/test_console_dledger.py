"""Pages of a group that elects its leader: the role map, each change with its preview, elections in the history. No daemon is
involved.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.clusters.models import Cluster, Operation
from controlplane.failover.elections import elections_measure
from controlplane.failover.models import Failover, GroupLeadership
from controlplane.failover.sampling import cluster_sample
from tests.console.browser import LogIn, look_at
from tests.console.world import World
from tests.controlplane.driver_twin import DriverTwin
from tests.failover.replicated import make_replicated
from tests.failover.scripted_quorum import ScriptedQuorum, lose_majority

PATH = "/t/acme/clusters/trio/"
GROUP = f"{PATH}groups/broker-a/"


@pytest.fixture
def driver(tmp_path: Path) -> DriverTwin:
    return DriverTwin(tmp_path)


@pytest.fixture
def cluster(world: World) -> Cluster:
    return make_replicated(world.tenant, "trio", "dledger", replicas=3)


@pytest.fixture
def group(cluster: Cluster, driver: DriverTwin) -> Iterator[ScriptedQuorum]:
    with ScriptedQuorum.of(cluster).answering() as group:
        cluster_sample(cluster, driver)
        yield group


def _elect(cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin) -> Failover:
    """Replica 0 dies and 1 is elected, under load."""
    died = timezone.now() - timedelta(seconds=4)
    GroupLeadership.objects.filter(group__cluster=cluster).update(led_at=died)
    group[0].answers = False
    died_ms = round(died.timestamp() * 1000)
    group.elect(1, stored_at_ms=died_ms + 1100)
    group.store(group[1].end_offset, "payments", died_ms + 1400)
    group[1].end_offset += 100
    group[2].end_offset += 100
    cluster_sample(cluster, driver)
    elections_measure(cluster, driver)
    return Failover.objects.get(cluster=cluster, kind="election")


def test_the_form_creates_a_group_that_elects_its_leader(world: World) -> None:
    client = world.client(world.alice)
    form = {"slug": "quorum", "mode": "dledger", "flush_disk_type": ""}
    refused = client.post("/t/acme/new-cluster/", {**form, "replicas": "4"})
    assert (refused.status_code, "has 3 or 5 replicas per group" in refused.content.decode()) == (422, True)
    assert client.post("/t/acme/new-cluster/", {**form, "replicas": "5"}).status_code == 302
    created = world.tenant.clusters.get(slug="quorum")
    assert (created.flush_disk_type, created.broker_groups.get().replicas.count()) == ("SYNC_FLUSH", 5)


def test_without_a_choice_other_modes_flush_as_before(world: World) -> None:
    world.client(world.alice).post("/t/acme/new-cluster/", {"slug": "plain", "mode": "single"})
    assert world.tenant.clusters.get(slug="plain").flush_disk_type == "ASYNC_FLUSH"


def test_the_overview_shows_leader_votes_and_changes_in_place_of_a_promotion(
    world: World, group: ScriptedQuorum
) -> None:
    page = world.client(world.alice).get(PATH).content.decode()
    for words in (
        "broker-a: replica 0 is the leader (epoch 1). Both followers are in sync.",
        "Transfer leadership",
        "Preferred leader",
        "Replace a replica",
        "Elected by each group",
    ):
        assert words in page
    for words in ("Promote a replica", "Planned switchover"):
        assert words not in page
    assert "Who promotes a slave?" not in world.client(world.alice).get(f"{PATH}settings/").content.decode()


def test_a_minority_partition_is_said_in_words(
    world: World, cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    group[1].answers = group[2].answers = False
    cluster_sample(cluster, driver)
    page = world.client(world.alice).get(PATH).content.decode()
    assert page.count("2 of 3 replicas are unreachable. Writes are refused; reads continue from replica 0.") == 2
    assert "Writes refused" in page


def test_whoever_may_only_look_sees_no_buttons_and_is_refused(world: World, group: ScriptedQuorum) -> None:
    for client, status in ((world.client(world.bob), 403), (world.client(world.charlie), 404)):
        for verb in ("transfer", "prefer", "replace", "resize", "recover"):
            assert client.get(f"{GROUP}{verb}/?replica=1").status_code == status
            assert client.post(f"{GROUP}{verb}/?replica=1").status_code == status
    assert "Transfer leadership" not in world.client(world.bob).get(PATH).content.decode()
    assert group.calls == []


def test_a_transfer_is_chosen_previewed_and_watched(world: World, group: ScriptedQuorum) -> None:
    client = world.client(world.alice)
    page = client.get(f"{GROUP}transfer/").content.decode()
    assert ('value="1"' in page, 'value="2"' in page, 'value="0"' in page) == (True, True, False)
    preview = client.get(f"{GROUP}transfer/?replica=2").content.decode()
    assert "Sends, meanwhile" in preview
    assert not Operation.objects.filter(type="group.transfer").exists()
    response = client.post(f"{GROUP}transfer/?replica=2")
    transfer = Failover.objects.get()
    assert (transfer.kind, transfer.candidate_id) == ("transfer", 2)
    assert response.headers["Location"] == f"{PATH}failovers/{transfer.pk}/"
    assert "The leadership is being transferred: watch it" in client.get(PATH).content.decode()


def test_what_cannot_be_done_has_no_button(
    world: World, cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    group[2].answers = False
    page = world.client(world.alice).get(f"{GROUP}transfer/?replica=2").content.decode()
    assert "Replica 2 does not answer." in page
    assert 'type="submit">Transfer leadership' not in page


@pytest.mark.parametrize(
    ("verb", "query", "kind"),
    [
        ("prefer", "replica=2", "group.prefer"),
        ("prefer", "replica=none", "group.prefer"),
        ("replace", "replica=2", "group.replace"),
        ("resize", "replicas=5", "group.grow"),
    ],
)
def test_other_changes_go_on_to_their_progress(
    world: World, group: ScriptedQuorum, verb: str, query: str, kind: str
) -> None:
    client = world.client(world.alice)
    assert "What would happen" in client.get(f"{GROUP}{verb}/?{query}").content.decode()
    response = client.post(f"{GROUP}{verb}/?{query}")
    operation = Operation.objects.get(type=kind)
    assert response.headers["Location"] == f"/t/acme/operations/{operation.pk}/"
    assert client.get(response.headers["Location"]).status_code == 200
    assert "Its replicas are being changed: watch it" in client.get(PATH).content.decode()


def test_lost_disks_are_given_up_with_the_loss_stated_and_the_name_typed(
    world: World, cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    client = world.client(world.alice)
    assert "Recover from lost disks" not in client.get(PATH).content.decode()
    assert "takes sends. There is nothing to recover" in client.get(f"{GROUP}recover/?replica=1").content.decode()
    lose_majority(group)
    cluster_sample(cluster, driver)
    assert "Recover from lost disks" in client.get(PATH).content.decode()
    preview = client.get(f"{GROUP}recover/?replica=1").content.decode()
    assert "Replicas 0 and 2 of 3 voters are given up for good." in preview
    assert client.post(f"{GROUP}recover/?replica=1").status_code == 422
    assert client.post(f"{GROUP}recover/?replica=1", {"typed": "broker-b"}).status_code == 422
    assert not Operation.objects.filter(type="group.recover").exists()
    response = client.post(f"{GROUP}recover/?replica=1", {"typed": "broker-a"})
    operation = Operation.objects.get(type="group.recover")
    assert response.headers["Location"] == f"/t/acme/operations/{operation.pk}/"
    assert client.get(response.headers["Location"]).status_code == 200


def test_a_second_change_at_the_same_time_is_refused_on_the_page(world: World, group: ScriptedQuorum) -> None:
    client = world.client(world.alice)
    client.post(f"{GROUP}prefer/?replica=1")
    response = client.post(f"{GROUP}transfer/?replica=2")
    assert response.status_code == 422
    assert "Another operation on this cluster is in progress: “Preferring a leader”" in response.content.decode()


def test_an_election_is_in_the_history_with_how_it_was_measured(
    world: World, cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    election = _elect(cluster, group, driver)
    client = world.client(world.victor)
    history = client.get(f"{PATH}failovers/").content.decode()
    assert "broker-a itself" in history
    assert "1.40 s" in history
    page = client.get(f"{PATH}failovers/{election.pk}/").content.decode()
    for words in ("replica 1 is elected", "Leader lost", "Election detected", "Elected by the group", "measured from"):
        assert words in page


def test_the_mode_is_chosen_previewed_and_changed(world: World, group: ScriptedQuorum) -> None:
    client = world.client(world.alice)
    assert "Change the mode" in client.get(f"{PATH}settings/").content.decode()
    chosen = client.get(f"{PATH}settings/mode/").content.decode()
    assert ('value="async"' in chosen, 'value="sync"' in chosen, 'value="dledger"' in chosen) == (True, True, False)
    preview = client.get(f"{PATH}settings/mode/?mode=async").content.decode()
    assert "Change from dledger to sync" in preview
    assert "until an operator promotes a slave" in preview
    response = client.post(f"{PATH}settings/mode/?mode=async")
    operation = Operation.objects.get(type="cluster.mode")
    assert (response.headers["Location"], operation.metadata) == (
        f"/t/acme/operations/{operation.pk}/",
        {"from": "dledger", "to": "async", "replicas": 3, "adding": {}, "removing": {}},
    )
    assert client.get(response.headers["Location"]).status_code == 200
    for other, status in ((world.bob, 403), (world.charlie, 404)):
        assert world.client(other).post(f"{PATH}settings/mode/?mode=async").status_code == status


@pytest.mark.django_db(transaction=True)
def test_the_pages_of_an_electing_group_look_right(
    page: Page,
    live_server: LiveServer,
    world: World,
    cluster: Cluster,
    group: ScriptedQuorum,
    driver: DriverTwin,
    log_in: LogIn,
) -> None:
    log_in(world.alice)
    election = _elect(cluster, group, driver)
    page.goto(live_server.url + PATH)
    expect(page.get_by_role("link", name="Transfer leadership")).to_be_visible()
    look_at(page, "dledger roles one away")
    page.get_by_role("link", name="Replace a replica").click()
    page.get_by_label("Replica 0").check()
    look_at(page, "dledger replace choose")
    page.get_by_role("button", name="Show what would happen").click()
    expect(page.get_by_role("button", name="Replace replica")).to_be_visible()
    look_at(page, "dledger replace preview")
    page.goto(f"{live_server.url}{PATH}settings/mode/")
    look_at(page, "dledger mode choose")
    group[0].answers = True
    group.catch_up()
    page.goto(f"{live_server.url}{PATH}settings/mode/?mode=async")
    expect(page.get_by_role("button", name="Change the mode")).to_be_visible()
    look_at(page, "dledger mode preview")
    page.goto(f"{live_server.url}{PATH}failovers/{election.pk}/")
    look_at(page, "dledger election timeline")
