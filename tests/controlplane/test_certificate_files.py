"""Clusters are born with TLS, and their daemons' certificates are renewed in their folders."""

from __future__ import annotations

import ssl
from datetime import datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
from django.utils import timezone

from controlplane.alerts.facts import facts_now
from controlplane.alerts.kinds import KINDS
from controlplane.clusters.certificates import SignedKey, authorities, authority_ends_at
from controlplane.clusters.models import Cluster, Operation, OperationState
from controlplane.clusters.serializers import ClusterSerializer
from controlplane.clusters.tls import cluster_tls
from controlplane.insight.job_config import config_of
from controlplane.insight.models import Job, JobRun
from controlplane.provisioning import authority_steps
from controlplane.provisioning.certificate_files import authority_ensure, certificates_renew, certificates_write
from controlplane.provisioning.errors import DriverError
from controlplane.provisioning.processes import cluster_daemons, replica_daemons
from controlplane.provisioning.runner import Outcome, operation_step_run
from mqwire.tls import TlsFiles, client_context, server_context
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


def renew(cluster: Cluster, driver: DriverTwin, at: datetime) -> None:
    """Renew as the hourly task does, and finish the operation that it began; nothing is wrong with the daemons."""
    certificates_renew(driver, at)
    operation = Operation.objects.filter(cluster=cluster, state=OperationState.IN_PROGRESS).first()
    if operation is not None:
        with patch.object(authority_steps, "handshake_problem", return_value=""):
            for step in operation.steps.order_by("position"):
                assert operation_step_run(step.pk, driver) == Outcome.COMPLETED
    cluster.refresh_from_db()


NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which the module ssl does not name


def accepts(server: SignedKey, trusted: str, folder: Path) -> bool:
    """Whether a client that trusts `trusted` comes to terms with a daemon that shows `server`."""
    paths = [folder / name for name in ("tls.pem", "tls.key", "ca.pem")]
    for path, text in zip(paths, (server.cert_pem, server.key_pem, trusted), strict=True):
        path.write_text(text)
    cert, key, ca = map(str, paths)
    ends = [ssl.MemoryBIO(), ssl.MemoryBIO()]
    trusting = client_context(TlsFiles(trust_cert_path=ca))
    trusting.verify_flags |= NO_CHECK_TIME  # the steps are years apart
    client = trusting.wrap_bio(ends[0], ends[1])
    daemon = server_context(TlsFiles(cert, key)).wrap_bio(ends[1], ends[0], server_side=True)
    for _ in range(2):
        for side in (client, daemon):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError:
                return False
    return client.version() is not None


def test_an_authority_is_succeeded_without_a_moment_in_which_a_client_with_the_latest_file_is_refused(
    secured: Cluster, driver: DriverTwin, tmp_path: Path
) -> None:
    def shown() -> SignedKey:
        return SignedKey(*(sorted(files(driver, name).items())[0][1] for name in ("tls.pem", "tls.key")))

    former = before = secured.tls_ca
    ends_at = authority_ends_at(former)
    signers = []
    for days_left in (366, 364, 179, 149):
        renew(secured, driver, ends_at - timedelta(days=days_left))
        assert set(files(driver, "ca.pem").values()) == {secured.tls_ca}
        assert accepts(shown(), secured.tls_ca, tmp_path)
        assert accepts(shown(), before, tmp_path), "a file from the step before is enough"
        signers.append((accepts(shown(), former, tmp_path), len(authorities(secured.tls_ca))))
        before = secured.tls_ca
    assert signers == [(True, 1), (True, 2), (False, 2), (False, 1)]
    assert former not in secured.tls_ca
    assert cluster_tls(secured) is not None


def test_a_host_that_is_away_keeps_the_succession_from_beginning(secured: Cluster, driver: DriverTwin) -> None:
    late = authority_ends_at(secured.tls_ca) - timedelta(days=1)
    with patch.object(driver, "files_write", side_effect=DriverError("the host is away")):
        assert certificates_renew(driver, late) == 0
        operation = Operation.objects.get(cluster=secured)
        assert operation_step_run(operation.steps.order_by("position")[0].pk, driver) == Outcome.WAITING
    secured.refresh_from_db()
    assert len(authorities(secured.tls_ca)) == 1


def test_a_row_that_was_read_before_a_step_does_not_take_the_step_back(secured: Cluster, driver: DriverTwin) -> None:
    read_before = Cluster.objects.get(pk=secured.pk)
    at = authority_ends_at(secured.tls_ca) - timedelta(days=364)
    renew(secured, driver, at)
    assert len(authorities(secured.tls_ca)) == 2
    certificates_write(read_before, driver, at)
    assert set(files(driver, "ca.pem").values()) == {secured.tls_ca}


@pytest.mark.parametrize("damage", [{"tls_ca_key_encrypted": b"not a ciphertext"}, {"tls_ca": "not a certificate"}])
def test_a_cluster_whose_authority_is_damaged_leaves_the_others_their_certificates(
    secured: Cluster, driver: DriverTwin, damage: dict[str, str | bytes]
) -> None:
    others = [make_cluster(secured.tenant, f"other-{number}") for number in range(3)]
    for cluster in others:
        authority_ensure(cluster, timezone.now())
        certificates_write(cluster, driver, timezone.now())
    Cluster.objects.filter(pk=others[0].pk).update(**damage)
    assert certificates_renew(driver, timezone.now() + timedelta(days=61)) == 3


def test_the_next_authority_is_announced_with_its_date(secured: Cluster, driver: DriverTwin, world: World) -> None:
    ends_at = authority_ends_at(secured.tls_ca)
    before = ClusterSerializer(secured).data
    assert (before["tls_ca_ends_at"], before["tls_ca_changes_at"]) == (ends_at, None)
    renew(secured, driver, ends_at - timedelta(days=364))
    changes_at = ClusterSerializer(secured).data["tls_ca_changes_at"]
    assert changes_at == ends_at - timedelta(days=180)
    facts = {fact.key.kind: fact.value for fact in facts_now(changes_at - timedelta(days=30), [])}
    assert facts["ca_changes"] == pytest.approx(30)
    assert KINDS["ca_changes"].is_wrong(30, KINDS["ca_changes"].threshold)
