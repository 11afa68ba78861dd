"""The settings of a cluster: who promotes, and growing by a group or a replica. No daemon is involved."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.clusters.models import Cluster, Operation, OperationStep, StepState
from tests.console.browser import LogIn, look_at
from tests.console.world import World
from tests.failover.replicated import make_replicated

PATH = "/t/acme/clusters/pair/"


@pytest.fixture
def cluster(world: World) -> Cluster:
    return make_replicated(world.tenant, "pair", "sync")


def test_the_policy_is_shown_and_changed(world: World, cluster: Cluster) -> None:
    client = world.client(world.alice)
    page = client.get(f"{PATH}settings/").content.decode()
    assert "Who promotes a slave?" in page
    response = client.post(f"{PATH}settings/policy/", {"failover_policy": "automatic_when_lossless"}, follow=True)
    assert "Saved: promoted by itself when nothing is lost." in response.content.decode()
    cluster.refresh_from_db()
    assert cluster.failover_policy == "automatic_when_lossless"


def test_a_cluster_gets_another_name_and_keeps_its_address(world: World, cluster: Cluster) -> None:
    client = world.client(world.alice)
    response = client.post(f"{PATH}settings/name/", {"name": "Payments, EU"}, follow=True)
    assert "It is called Payments, EU now." in response.content.decode()
    cluster.refresh_from_db()
    assert (cluster.name, cluster.slug) == ("Payments, EU", "pair")


def test_a_cluster_without_a_name_is_refused_beside_the_field(world: World, cluster: Cluster) -> None:
    response = world.client(world.alice).post(f"{PATH}settings/name/", {"name": " "})
    assert response.status_code == 422
    cluster.refresh_from_db()
    assert cluster.name != ""


def test_a_policy_that_does_not_exist_is_refused_beside_the_field(world: World, cluster: Cluster) -> None:
    response = world.client(world.alice).post(f"{PATH}settings/policy/", {"failover_policy": "always"})
    assert response.status_code == 422
    assert "Select a valid choice" in response.content.decode()
    cluster.refresh_from_db()
    assert cluster.failover_policy == "manual"


def test_growing_goes_on_to_its_progress(world: World, cluster: Cluster) -> None:
    client = world.client(world.alice)
    response = client.post(f"{PATH}settings/grow/", {"by": "group"})
    operation = Operation.objects.get(cluster=cluster, type="cluster.grow")
    assert response.headers["Location"] == f"/t/acme/operations/{operation.pk}/"
    assert [group.replicas.count() for group in cluster.broker_groups.order_by("name")] == [2, 2]
    assert "This cluster is growing." in client.get(PATH).content.decode()


def test_while_it_grows_it_does_not_grow_again(world: World, cluster: Cluster) -> None:
    client = world.client(world.alice)
    client.post(f"{PATH}settings/grow/", {"by": "group"})
    response = client.post(f"{PATH}settings/grow/", {"by": "group"})
    assert response.status_code == 422
    assert "Another operation on this cluster is in progress: “Growing the cluster”" in response.content.decode()
    assert f"/t/acme/operations/{Operation.objects.get(state='in_progress').pk}/" in response.content.decode()
    assert cluster.broker_groups.count() == 2


def test_replicas_are_not_added_where_groups_are(world: World, cluster: Cluster) -> None:
    page = world.client(world.alice).get(f"{PATH}settings/").content.decode()
    assert ("Add a broker group" in page, page.count("Change mode or replicas")) == (True, 1)
    response = world.client(world.alice).post(f"{PATH}settings/grow/", {"by": "replica"})
    assert response.status_code == 422


def test_the_replicas_of_a_group_that_elects_are_counted_in_the_settings_alone(world: World) -> None:
    make_replicated(world.tenant, "trio", "dledger", replicas=3)
    client = world.client(world.alice)
    assert "/groups/broker-a/resize/" in client.get("/t/acme/clusters/trio/settings/").content.decode()
    assert "/groups/broker-a/resize/" not in client.get("/t/acme/clusters/trio/").content.decode()


def test_a_single_master_neither_grows_nor_promotes(world: World) -> None:
    page = world.client(world.alice).get("/t/acme/clusters/orders/settings/").content.decode()
    assert "Grow this cluster" not in page
    assert "Who promotes a slave?" not in page


@pytest.mark.parametrize(("who", "status"), [("bob", 403), ("victor", 403), ("charlie", 404)])
def test_only_operators_change_settings(world: World, cluster: Cluster, who: str, status: int) -> None:
    client = world.client(getattr(world, who))
    answers = [
        client.post(f"{PATH}settings/policy/", {"failover_policy": "automatic_when_lossless"}),
        client.post(f"{PATH}settings/grow/", {"by": "group"}),
        client.post(f"{PATH}settings/name/", {"name": "Mine"}),
    ]
    assert [answer.status_code for answer in answers] == [status, status, status]
    cluster.refresh_from_db()
    assert (cluster.failover_policy, cluster.broker_groups.count()) == ("manual", 1)


@pytest.mark.django_db(transaction=True)
def test_the_settings_and_the_progress_of_growing_look_right(
    page: Page, live_server: LiveServer, world: World, cluster: Cluster, log_in: LogIn
) -> None:
    log_in(world.alice)
    page.goto(f"{live_server.url}{PATH}settings/")
    look_at(page, "cluster settings replicated")
    page.get_by_role("button", name="Add a broker group").click()
    expect(page.locator("#progress")).to_have_attribute("data-state", "in_progress")
    operation = Operation.objects.get(cluster=cluster, type="cluster.grow")
    steps = OperationStep.objects.filter(operation=operation)
    steps.filter(position__lt=4).update(state=StepState.COMPLETED)
    steps.filter(name="wait_for_replication").update(
        state=StepState.RUNNING,
        message="Replica 2 of broker-a is not in sync with its master yet: 73400320 bytes behind.",
    )
    page.reload()
    look_at(page, "growing by a group")
