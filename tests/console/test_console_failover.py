"""Pages of roles: the role map, the pre-flight of a promotion, its timeline and the history, without daemons."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.clusters.models import (
    BrokerGroup,
    Cluster,
    Health,
    Operation,
    OperationState,
    OperationStep,
    Replica,
    StepState,
)
from controlplane.failover.models import Failover, FailoverKind, GroupLeadership, ReplicaSample
from controlplane.failover.promotion.services import automatic_failover, failover_start
from controlplane.failover.sampling import cluster_sample
from controlplane.provisioning.drivers.base import ProcessState
from controlplane.provisioning.processes import replica_process_name
from controlplane.provisioning.runner import operation_step_run
from tests.console.browser import LogIn, look_at
from tests.console.world import World
from tests.controlplane.driver_twin import DriverTwin
from tests.failover.promotions import operation_of
from tests.failover.replicated import make_replicated
from tests.failover.scripted_group import ScriptedGroup
from tests.failover.test_promotion_safety import hanging

PATH = "/t/acme/clusters/pair/"


@pytest.fixture
def driver(tmp_path: Path) -> DriverTwin:
    return DriverTwin(tmp_path)


@pytest.fixture
def cluster(world: World) -> Cluster:
    return make_replicated(world.tenant, "pair", "async")


@pytest.fixture
def group(cluster: Cluster, driver: DriverTwin) -> Iterator[ScriptedGroup]:
    with ScriptedGroup.of(cluster).answering() as group:
        cluster_sample(cluster, driver)
        yield group


def _lose_master(cluster: Cluster, group: ScriptedGroup, driver: DriverTwin) -> None:
    group[0].end_offset += 400
    cluster_sample(cluster, driver)
    group[0].answers = False
    cluster_sample(cluster, driver)
    some_seconds_ago = timezone.now() - timedelta(seconds=8)
    ReplicaSample.objects.filter(replica__group__cluster=cluster, replica__broker_id=0).update(
        unreachable_since=some_seconds_ago
    )


def _promote(world: World, cluster: Cluster, driver: DriverTwin) -> Failover:
    failover = failover_start(
        actor=world.alice,
        cluster=cluster,
        group=BrokerGroup.objects.get(cluster=cluster),
        kind=FailoverKind.PROMOTE,
        driver=driver,
        confirm="broker-a",
    )
    for step in operation_of(failover).steps.order_by("position"):
        operation_step_run(step.pk, driver)
    return failover


def test_the_overview_shows_roles_and_offers_a_switchover(world: World, group: ScriptedGroup) -> None:
    page = world.client(world.alice).get(PATH).content.decode()
    assert "replica 0 leads, and 1 slave is in sync" in page
    assert "Planned switchover" in page
    assert "Promote a replica" not in page


@pytest.mark.parametrize("part", ["", "roles/"])
def test_a_group_is_drawn_and_drawn_anew_once_its_master_is_dead(
    world: World, cluster: Cluster, group: ScriptedGroup, driver: DriverTwin, part: str
) -> None:
    client = world.client(world.alice)
    assert 'data-box="0" data-look="leads"' in client.get(PATH + part).content.decode()
    _lose_master(cluster, group, driver)
    page = client.get(PATH + part).content.decode()
    assert ('data-box="0" data-look="silent"' in page, 'data-look="missing"' in page) == (True, True)


@pytest.mark.parametrize("part", ["", "health/"])
def test_a_cluster_of_one_broker_is_drawn_beside_its_health(world: World, part: str) -> None:
    page = world.client(world.alice).get(world.cluster_path(part)).content.decode()
    assert page.count('data-picture="broker-a"') == 1
    assert ('data-box="0" data-look="leads"' in page, 'data-look="missing"' in page) == (True, False)


def test_a_broker_alone_that_is_down_is_drawn_as_silent(world: World) -> None:
    broker = world.cluster.broker_groups.get().replicas.get()
    broker.health, broker.health_message = Health.DOWN, "It does not answer."
    broker.save()
    page = world.client(world.alice).get(world.cluster_path("health/")).content.decode()
    assert ('data-box="0" data-look="silent"' in page, "Sends fail" in page) == (True, True)


def test_a_dead_master_is_reported_in_the_health_sentence_with_the_button(
    world: World, cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    _lose_master(cluster, group, driver)
    page = world.client(world.alice).get(PATH).content.decode()
    assert "replica 0 is down" in page
    assert "Reads continue from replica 1." in page
    assert "Promote a replica" in page


def test_a_dead_master_is_the_state_of_the_cluster_on_each_page(
    world: World, cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    client = world.client(world.alice)
    assert "No master" not in client.get(PATH).content.decode()
    _lose_master(cluster, group, driver)
    for path in (PATH, f"{PATH}topics/", "/t/acme/"):
        page = client.get(path).content.decode()
        heading, _, _ = page.partition("<table") if path != "/t/acme/" else (page, "", "")
        assert "No master" in heading, path
    daemons = client.get(PATH).content.decode().partition("daemons-title")[2]
    assert "Down" in daemons


def test_whoever_may_not_promote_sees_no_button_and_is_refused(
    world: World, cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    _lose_master(cluster, group, driver)
    client = world.client(world.bob)
    assert "Promote a replica" not in client.get(PATH).content.decode()
    assert client.get(f"{PATH}groups/broker-a/promote/").status_code == 403
    assert client.post(f"{PATH}groups/broker-a/promote/", {"typed": "broker-a"}).status_code == 403
    assert world.client(world.charlie).get(f"{PATH}groups/broker-a/promote/").status_code == 404
    assert not Failover.objects.exists()


def test_an_unclean_promotion_wants_the_groups_name(
    world: World, cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    _lose_master(cluster, group, driver)
    client = world.client(world.alice)
    page = client.get(f"{PATH}groups/broker-a/promote/").content.decode()
    assert "400 B, 4 messages" in page
    assert "Type broker-a to accept the loss" in page
    response = client.post(f"{PATH}groups/broker-a/promote/", {"typed": "broker-b"})
    assert (response.status_code, Failover.objects.exists()) == (422, False)
    response = client.post(f"{PATH}groups/broker-a/promote/", {"typed": "broker-a"})
    failover = Failover.objects.get()
    assert response.headers["Location"] == f"{PATH}failovers/{failover.pk}/"
    assert failover.confirmed_loss


def test_of_an_old_master_with_a_new_disk_the_gap_is_unknown_and_not_zero(
    world: World, cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    _lose_master(cluster, group, driver)
    group[1].incomplete = True
    group.back(0)
    group[0].disk, group[0].end_offset = "a new one", 0
    cluster_sample(cluster, driver)
    page = world.client(world.alice).get(f"{PATH}groups/broker-a/promote/").content.decode()
    assert "The disk of replica 0 is new: the one before may hold more" in page
    assert "unknown: its disk is new" in page
    assert "0 B" not in page


def test_the_timeline_shows_what_happened_and_how_long_no_send_was_taken(
    world: World, cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    _lose_master(cluster, group, driver)
    failover = _promote(world, cluster, driver)
    page = world.client(world.victor).get(f"{PATH}failovers/{failover.pk}/").content.decode()
    for words in ("Fenced: no other replica leads", "Candidate promoted", "First write", "No send was taken for"):
        assert words in page
    assert "Possible" in world.client(world.victor).get(f"{PATH}failovers/").content.decode()


def test_the_form_creates_a_replicated_cluster_and_puts_errors_beside_the_field(world: World) -> None:
    client = world.client(world.alice)
    form = {"slug": "twins", "mode": "sync", "replicas": "1", "flush_disk_type": "ASYNC_FLUSH"}
    refused = client.post("/t/acme/new-cluster/", form)
    assert refused.status_code == 422
    assert "2 to 3 replica per groups" not in refused.content.decode()
    assert "Mode `sync` has 2 to 3 replicas per group." in refused.content.decode()
    assert client.post("/t/acme/new-cluster/", {**form, "replicas": ""}).status_code == 302
    created = world.tenant.clusters.get(slug="twins")
    assert [replica.broker_role for replica in created.broker_groups.get().replicas.all()] == ["SYNC_MASTER", "SLAVE"]


def test_what_was_typed_for_another_mode_is_forgotten(world: World) -> None:
    form = {"slug": "alone", "mode": "single", "groups": "many", "replicas": "3", "flush_disk_type": ""}
    form["failover_policy"] = "automatic_when_lossless"
    assert world.client(world.alice).post("/t/acme/new-cluster/", form).status_code == 302
    created = world.tenant.clusters.get(slug="alone")
    assert (created.failover_policy, created.broker_groups.get().replicas.count()) == ("manual", 1)


def _restart_master_without_slave(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin, *, in_doubt: bool
) -> None:
    """The slave is dead, since before the master was last seen leading or, `in_doubt`, since after."""
    group[1].answers = False
    slave = Replica.objects.get(group__cluster=cluster, broker_id=1)
    driver.states[replica_process_name(cluster, slave)] = ProcessState.FATAL
    cluster_sample(cluster, driver)
    died = timezone.now() - timedelta(seconds=10 if in_doubt else 60)
    ReplicaSample.objects.filter(replica__group__cluster=cluster, replica__broker_id=1).update(
        unreachable_since=died, process_ended_at=died
    )
    GroupLeadership.objects.update(led_at=timezone.now() - timedelta(seconds=20))
    group.restart(0)
    cluster_sample(cluster, driver)


def test_a_restarted_master_that_leads_again_by_itself_is_announced(
    world: World, cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    _restart_master_without_slave(cluster, group, driver, in_doubt=False)
    page = world.client(world.alice).get(PATH).content.decode()
    assert "was restarted and does not lead yet. Sends fail" in page
    assert "Replica 0 is asked to lead again within seconds" in page


def test_what_blocks_a_restarted_master_is_reported_with_the_button_and_the_unknown_loss(
    world: World, cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    _restart_master_without_slave(cluster, group, driver, in_doubt=True)
    client = world.client(world.alice)
    page = client.get(PATH).content.decode()
    assert "some do not answer: replica 1 since" in page
    assert "Waits to lead" in page
    assert "Promote a replica" in page
    page = client.get(f"{PATH}groups/broker-a/promote/").content.decode()
    assert "what replica 1 took as master" in page
    assert "Type broker-a to accept the loss" in page
    assert "0 B" not in page  # no one knows how much


def test_a_failed_failover_shows_at_which_step(
    world: World, cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    _lose_master(cluster, group, driver)
    failover = _promote(world, cluster, driver)
    claim = operation_of(failover).steps.get(name="failover_rejoin")
    OperationStep.objects.filter(pk=claim.pk).update(state=StepState.FAILED)
    Operation.objects.filter(pk=operation_of(failover).pk).update(
        state=OperationState.FAILED, error={"cause": "The group went on to epoch 9.", "hint": "Ask again."}
    )
    page = world.client(world.victor).get(f"{PATH}failovers/{failover.pk}/").content.decode()
    assert 'data-step="failover_rejoin" data-state="failed"' in page
    assert "The group went on to epoch 9." in page


@pytest.mark.django_db(transaction=True)
def test_the_pages_of_a_blocked_claim_and_the_history_look_right(
    page: Page,
    live_server: LiveServer,
    world: World,
    cluster: Cluster,
    group: ScriptedGroup,
    driver: DriverTwin,
    log_in: LogIn,
) -> None:
    log_in(world.alice)
    _restart_master_without_slave(cluster, group, driver, in_doubt=True)
    page.goto(live_server.url + PATH)
    look_at(page, "claim blocked")
    page.get_by_role("link", name="Promote a replica").click()
    look_at(page, "claim blocked preflight")
    _promote(world, cluster, driver)
    GroupLeadership.objects.update(led_at=timezone.now())
    group.back(1)
    _restart_master_without_slave(cluster, group, driver, in_doubt=False)
    view = cluster_sample(cluster, driver)[0]
    repeat = automatic_failover(cluster, view, driver)
    assert repeat is not None
    for step in operation_of(repeat).steps.order_by("position"):
        operation_step_run(step.pk, driver)
    page.goto(f"{live_server.url}{PATH}failovers/{repeat.pk}/")
    expect(page.locator("#timeline")).to_have_attribute("data-state", "completed")
    look_at(page, "repeated promotion timeline")
    group.back(1)
    group[1].leads = group[1].claims = False
    cluster_sample(cluster, driver)
    page.goto(f"{live_server.url}{PATH}failovers/")
    look_at(page, "failover history")


@pytest.mark.django_db(transaction=True)
def test_the_pages_of_roles_look_right(
    page: Page,
    live_server: LiveServer,
    world: World,
    cluster: Cluster,
    group: ScriptedGroup,
    driver: DriverTwin,
    log_in: LogIn,
) -> None:
    log_in(world.alice)
    _lose_master(cluster, group, driver)
    page.goto(live_server.url + PATH)
    expect(page.get_by_role("link", name="Promote a replica")).to_be_visible()
    look_at(page, "roles no master")
    page.get_by_role("link", name="Promote a replica").click()
    look_at(page, "promote preflight unclean")
    failover = _promote(world, cluster, driver)
    assert operation_of(failover).state != OperationState.FAILED
    page.goto(f"{live_server.url}{PATH}failovers/{failover.pk}/")
    look_at(page, "failover timeline")


def test_machines_that_are_gone_for_good_can_be_given_up_where_a_change_into_dledger_hangs(
    world: World, driver: DriverTwin
) -> None:
    cluster, path = make_replicated(world.tenant, "trio", "sync", replicas=3), "/t/acme/clusters/trio/"
    client = world.client(world.alice)
    with ScriptedGroup.of(cluster).answering() as group:
        cluster_sample(cluster, driver)
        cluster = hanging(cluster, "sync", "dledger")
        group[0].answers = group[1].answers = False
        cluster_sample(cluster, driver)
        some_seconds_ago = timezone.now() - timedelta(seconds=8)
        lost = ReplicaSample.objects.filter(replica__group__cluster=cluster, replica__broker_id__in=[0, 1])
        lost.update(unreachable_since=some_seconds_ago)
        page = client.get(path).content.decode()
        assert "Promote a replica" not in page
        assert f"{path}groups/broker-a/recover/" in page
        preview = client.get(f"{path}groups/broker-a/recover/?replica=2").content.decode()
    assert "Replicas 0 and 1 of 3 voters are given up for good." in preview
    assert "Ask for a mode with several replicas afterwards." in preview
