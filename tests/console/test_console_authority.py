"""The page that renews a cluster's CA: the step that is next, and a form that takes it now."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.utils import timezone

from controlplane.clusters.certificates import Succession
from controlplane.clusters.models import Cluster, Operation, OperationState
from controlplane.provisioning.certificate_files import authority_ensure, authority_step, certificates_write
from tests.console.world import World
from tests.controlplane.driver_twin import DriverTwin


@pytest.fixture
def cluster(world: World, tmp_path: Path) -> Cluster:
    authority_ensure(world.cluster, timezone.now())
    certificates_write(world.cluster, DriverTwin(tmp_path), timezone.now())
    world.cluster.refresh_from_db()
    return world.cluster


def test_the_settings_lead_to_it(world: World, cluster: Cluster) -> None:
    page = world.client(world.alice).get(world.cluster_path("settings/")).content.decode()
    assert f'href="{world.cluster_path("settings/certificate-authority/")}"' in page


def test_the_first_step_is_started_with_its_overlap_and_followed(world: World, cluster: Cluster) -> None:
    path = world.cluster_path("settings/certificate-authority/")
    page = world.client(world.alice).get(path).content.decode()
    assert 'name="step" value="trust_next"' in page
    assert 'name="overlap_days"' in page
    answer = world.client(world.alice).post(path, {"step": "trust_next", "overlap_days": "5"})
    operation = Operation.objects.get(cluster=cluster, type="cluster.ca")
    assert answer["Location"].endswith(f"/operations/{operation.pk}/")
    assert operation.metadata == {"step": "trust_next", "overlap_days": 5}
    followed = world.client(world.alice).get(answer["Location"]).content.decode()
    assert "Renewing the CA of" in followed
    assert "Make the next CA" in followed
    assert (
        "The certificate authority of this cluster is being renewed."
        in world.client(world.alice).get(world.cluster_path("")).content.decode()
    )


def test_a_form_that_was_shown_before_the_step_was_taken_takes_no_other(world: World, cluster: Cluster) -> None:
    authority_step(cluster, Succession.TRUST_NEXT, None, timezone.now())
    answer = world.client(world.alice).post(
        world.cluster_path("settings/certificate-authority/"),
        {"step": "trust_next", "overlap_days": "5", "confirm": "orders"},
    )
    assert answer.status_code == 422
    assert "is `sign_by_next`, not `trust_next`" in answer.content.decode()
    assert not Operation.objects.filter(cluster=cluster, state=OperationState.IN_PROGRESS).exists()


def test_the_step_that_refuses_programs_wants_the_name_typed(world: World, cluster: Cluster) -> None:
    authority_step(cluster, Succession.TRUST_NEXT, None, timezone.now())
    path = world.cluster_path("settings/certificate-authority/")
    assert "those without it are refused from now on" in world.client(world.alice).get(path).content.decode()
    assert world.client(world.alice).post(path, {"step": "sign_by_next", "confirm": "other"}).status_code == 422
    assert world.client(world.alice).post(path, {"step": "sign_by_next", "confirm": "orders"}).status_code == 302
