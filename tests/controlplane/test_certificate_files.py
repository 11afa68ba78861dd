"""Clusters are born with TLS, and their daemons' certificates are renewed in their folders."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from controlplane.clusters.models import Cluster
from controlplane.insight.job_config import config_of
from controlplane.insight.models import Job, JobRun
from controlplane.provisioning.certificate_files import authority_ensure, certificates_renew, certificates_write
from controlplane.provisioning.processes import cluster_daemons, replica_daemons
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import World, make_cluster

pytestmark = pytest.mark.django_db


@pytest.fixture
def driver(tmp_path: Path) -> DriverTwin:
    return DriverTwin(tmp_path)


@pytest.fixture
def secured(world: World, driver: DriverTwin) -> Cluster:
    """A running cluster whose daemons have their certificates."""
    now = timezone.now()
    authority_ensure(world.cluster, now)
    certificates_write(world.cluster, driver, now)
    world.cluster.refresh_from_db()
    return world.cluster


def files(driver: DriverTwin, name: str) -> dict[str, str]:
    return {path: text for path, text in driver.files.items() if path.endswith(f"/{name}")}


def test_every_daemon_gets_a_key_of_its_own(secured: Cluster, driver: DriverTwin) -> None:
    keys = files(driver, "tls.key")
    assert len(keys) == len(cluster_daemons(secured, driver)) == len(set(keys.values()))


def test_every_configuration_names_its_files(secured: Cluster, driver: DriverTwin) -> None:
    for daemon in cluster_daemons(secured, driver):
        text = next(text for path, text in daemon.files.items() if path.endswith(".conf"))
        assert f"tls.server.certPath={daemon.data_dir}/tls.pem" in text
        assert "tls.server.mode=permissive" in text


def test_brokers_speak_tls_with_name_servers_and_each_other(secured: Cluster, driver: DriverTwin) -> None:
    brokers = replica_daemons(secured, driver)
    assert brokers
    for daemon in brokers:
        text = next(text for path, text in daemon.files.items() if path.endswith("/broker.conf"))
        assert "tls.enable=true" in text
        assert f"tls.client.trustCertPath={daemon.data_dir}/ca.pem" in text


def test_a_cluster_from_before_keeps_its_configuration(world: World, driver: DriverTwin) -> None:
    certificates_write(world.cluster, driver, timezone.now())
    assert not driver.files
    for daemon in cluster_daemons(world.cluster, driver):
        assert not any("tls." in text for text in daemon.files.values())


def test_the_jobs_are_told_the_authority_and_of_a_cluster_without_one_nothing(secured: Cluster) -> None:
    plain = make_cluster(secured.tenant, "plain")
    told = {one["cluster_id"]: one["tls_ca"] for one in config_of(JobRun(job=Job.INGEST))["clusters"]}
    assert (told[str(secured.pk)], told[str(plain.pk)]) == (secured.tls_ca, "")


def test_an_authority_is_made_once(secured: Cluster) -> None:
    before = secured.tls_ca
    authority_ensure(Cluster.objects.get(pk=secured.pk), timezone.now())
    assert Cluster.objects.get(pk=secured.pk).tls_ca == before


def test_certificates_are_renewed_when_their_time_has_come_and_not_before(secured: Cluster, driver: DriverTwin) -> None:
    before = files(driver, "tls.pem")
    assert certificates_renew(driver, timezone.now()) == 0
    assert certificates_renew(driver, timezone.now() + timedelta(days=61)) == 1
    after = files(driver, "tls.pem")
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())


def test_the_authoritys_key_is_encrypted_at_rest(secured: Cluster) -> None:
    assert secured.tls_ca_key_encrypted is not None
    assert b"PRIVATE" not in bytes(secured.tls_ca_key_encrypted)
