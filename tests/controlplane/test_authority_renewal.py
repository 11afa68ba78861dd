"""A cluster's CA is renewed by operations, a step each, by themselves or by hand; each daemon shows in a handshake what it uses."""

from __future__ import annotations

import os
import ssl
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from django.utils import timezone

from controlplane.clusters.certificates import (
    SignedKey,
    Succession,
    authorities,
    authority_ends_at,
    certificate_issue,
    succession,
)
from controlplane.clusters.models import (
    Cluster,
    ClusterState,
    NameServer,
    Operation,
    OperationState,
    OperationStep,
    OperationType,
    Replica,
    StepState,
)
from controlplane.clusters.operations import operation_interrupt, operations_resume, step_claim
from controlplane.clusters.secrets import secret_decrypt
from controlplane.clusters.selectors import operation_view
from controlplane.clusters.tls import authority_proofs
from controlplane.common.errors import Conflict
from controlplane.common.models import AuditEvent
from controlplane.provisioning import authority_steps
from controlplane.provisioning.authority import authority_renew
from controlplane.provisioning.certificate_files import authority_ensure, certificates_renew, certificates_write
from controlplane.provisioning.probe import handshake_problem
from controlplane.provisioning.runner import Outcome, operation_step_run
from controlplane.provisioning.steps import StepContext
from controlplane.tenants.models import Membership, Role
from highwater import Message, Producer
from mqwire.tls import TlsFiles, client_context
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import Json, World
from tests.daemons import BrokerDaemon, NameServerDaemon
from tests.interop.stock import run_java, start_java
from tests.processes import wait_until

pytestmark = pytest.mark.django_db

# A connection of its own for each message, so a handshake.
STOCK_SENDER = """
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

public class Handshakes {
    public static void main(String[] arguments) throws Exception {
        System.setProperty("tls.test.mode.enable", "false");
        System.setProperty("tls.client.authServer", "true");
        System.setProperty("tls.client.trustCertPath", arguments[1]);
        int count = Integer.parseInt(arguments[2]);
        for (int number = 0; number < count; number++) {
            DefaultMQProducer producer = new DefaultMQProducer("handshakes");
            producer.setNamesrvAddr(arguments[0]);
            producer.setInstanceName("handshake-" + number);
            producer.setUseTLS(true);
            producer.setRetryTimesWhenSendFailed(0);
            // On a busy machine a JVM's first handshakes take seconds. A refusal comes at once.
            producer.setSendMsgTimeout(30_000);
            producer.setMqClientApiTimeout(30_000);
            producer.start();
            try {
                byte[] body = "paid".getBytes(StandardCharsets.UTF_8);
                System.out.println(producer.send(new Message("orders", body)).getSendStatus() + " " + number);
            } catch (Exception failure) {
                System.out.println("FAILED " + failure);
            } finally {
                producer.shutdown();
            }
            Thread.sleep(100);
        }
    }
}
"""


class FileDriver(DriverTwin):
    """One whose files are on the disk, for real daemons; but for those below `unwritten`."""

    unwritten = "none/"

    def files_write(self, cluster_id: uuid.UUID, files: Mapping[str, str]) -> None:
        super().files_write(cluster_id, files)
        for path, text in files.items():
            if path.startswith(self.unwritten):
                continue
            target = self.cluster_dir(cluster_id) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh = target.with_suffix(".new")
            fresh.write_text(text)
            os.replace(fresh, target)


@pytest.fixture
def driver(tmp_path: Path) -> DriverTwin:
    return DriverTwin(tmp_path)


@pytest.fixture
def cluster(world: World, driver: DriverTwin) -> Cluster:
    """A running cluster whose daemons have their certificates; nothing listens at its ports."""
    return secure(world.cluster, driver)


def secure(cluster: Cluster, driver: DriverTwin) -> Cluster:
    now = timezone.now()
    authority_ensure(cluster, now)
    certificates_write(cluster, driver, now)
    cluster.refresh_from_db()
    return cluster


@pytest.fixture
def problems() -> Iterator[list[str]]:
    """What the handshakes with daemons end with: nothing is wrong while it is empty."""
    found: list[str] = []
    with patch.object(authority_steps, "handshake_problem", lambda *_: found[0] if found else ""):
        yield found


def run(operation: Operation, driver: DriverTwin, *, most: int = 10) -> Outcome | None:
    """Run steps as a worker would, until one does not complete."""
    outcome = None
    for step in operation.steps.exclude(state=StepState.COMPLETED).order_by("position")[:most]:
        outcome = operation_step_run(step.pk, driver)
        if outcome != Outcome.COMPLETED:
            break
    operation.refresh_from_db()
    operation.cluster.refresh_from_db()
    return outcome


def latest(cluster: Cluster) -> Operation:
    return Operation.objects.filter(cluster=cluster, type=OperationType.CLUSTER_CA).latest("created_at")


def path_of(cluster: Cluster) -> str:
    return f"{cluster.path}certificate-authority/renew/"


@pytest.mark.usefixtures("problems")
def test_by_hand_three_operations_lead_from_one_authority_to_the_next(
    world: World, cluster: Cluster, driver: DriverTwin
) -> None:
    former = cluster.tls_ca
    known = []
    for step in Succession:
        operation = authority_renew(actor=world.alice, cluster=cluster, step=step, confirm="orders")
        assert run(operation, driver) == Outcome.COMPLETED
        cluster.refresh_from_db()
        known.append([former == one for one in authorities(cluster.tls_ca)])
    assert known == [[True, False], [False, True], [False]]
    assert succession(cluster.tls_ca)[0] is Succession.TRUST_NEXT
    assert cluster.tls_ca_step_at is None


@pytest.mark.usefixtures("problems")
def test_after_the_overlap_the_next_steps_begin_by_themselves(
    world: World, cluster: Cluster, driver: DriverTwin
) -> None:
    run(authority_renew(actor=world.alice, cluster=cluster, step="trust_next", overlap_days=7), driver)
    now = timezone.now()
    certificates_renew(driver, now + timedelta(days=6))
    assert latest(cluster).metadata["step"] == "trust_next"
    certificates_renew(driver, now + timedelta(days=8))
    assert run(latest(cluster), driver) == Outcome.COMPLETED
    certificates_renew(driver, now + timedelta(days=29))
    assert latest(cluster).metadata["step"] == "sign_by_next"
    certificates_renew(driver, now + timedelta(days=31))
    assert run(latest(cluster), driver) == Outcome.COMPLETED
    assert latest(cluster).metadata["step"] == "drop_former"
    cluster.refresh_from_db()
    assert len(authorities(cluster.tls_ca)) == 1


def test_a_daemon_that_is_down_keeps_the_next_step_from_being_taken_and_is_named(
    world: World, cluster: Cluster, driver: DriverTwin
) -> None:
    operation = authority_renew(actor=world.alice, cluster=cluster, step="trust_next")
    assert run(operation, driver) == Outcome.WAITING
    step = operation.steps.get(name="ca_look")
    assert step.message.startswith("Name server 1 does not use its certificate yet: it does not answer")
    assert len(authorities(operation.cluster.tls_ca)) == 1


def test_past_its_time_it_fails_with_the_daemon_and_each_hour_it_is_retried(
    world: World, cluster: Cluster, driver: DriverTwin, problems: list[str]
) -> None:
    problems.append("it does not answer (refused).")
    operation = authority_renew(actor=world.alice, cluster=cluster, step="trust_next")
    run(operation, driver)
    OperationStep.objects.filter(operation=operation, name="ca_look").update(
        started_at=timezone.now() - timedelta(minutes=11), not_before=None
    )
    assert run(operation, driver) == Outcome.FAILED
    assert "Name server 1" in (operation.error or {})["cause"]
    problems.clear()
    certificates_renew(driver, timezone.now())
    operation.refresh_from_db()
    assert operation.state == OperationState.IN_PROGRESS
    assert run(operation, driver) == Outcome.COMPLETED
    assert len(authorities(operation.cluster.tls_ca)) == 2


@pytest.mark.usefixtures("problems")
@pytest.mark.parametrize("done", range(5))
def test_a_worker_that_is_killed_at_any_step_is_made_up_for_by_another_one(
    world: World, cluster: Cluster, driver: DriverTwin, done: int
) -> None:
    operation = authority_renew(actor=world.alice, cluster=cluster, step="trust_next")
    run(operation, driver, most=done)
    step = operation.steps.order_by("position")[done]
    assert step_claim(step.pk) is not None
    if step.name == "ca_make":  # and it had made it already
        authority_steps.ca_make(StepContext.of(step, driver))
    OperationStep.objects.filter(pk=step.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    assert operations_resume() == 1
    assert run(operation, driver) == Outcome.COMPLETED
    assert len(authorities(operation.cluster.tls_ca)) == 2
    assert {text for path, text in driver.files.items() if path.endswith("/ca.pem")} == {operation.cluster.tls_ca}


@pytest.mark.usefixtures("problems")
def test_a_retry_of_one_whose_step_was_taken_takes_no_other(world: World, cluster: Cluster, driver: DriverTwin) -> None:
    operation = authority_renew(actor=world.alice, cluster=cluster, step="trust_next")
    run(operation, driver, most=4)
    assert operation_interrupt(cluster, "a promotion goes first") is not None
    taken = Cluster.objects.get(pk=cluster.pk).tls_ca
    certificates_renew(driver, timezone.now())
    assert run(operation, driver) == Outcome.COMPLETED
    assert operation.cluster.tls_ca == taken


def test_a_second_one_at_once_is_refused_as_a_problem(cluster: Cluster, world: World, api: Callable[..., Json]) -> None:
    client = api(world.alice)
    first = client.call("POST", path_of(cluster), {"step": "trust_next"})
    assert (first.status_code, first.json()["type"]) == (202, "cluster.ca")
    second = client.call("POST", path_of(cluster), {"step": "trust_next"})
    assert (second.status_code, second.json()["code"]) == (409, "operation_in_progress")
    assert "Renewing the cluster's CA" in second.json()["detail"]


def test_by_itself_it_waits_while_another_operation_goes_on(cluster: Cluster, world: World, driver: DriverTwin) -> None:
    authority_renew(actor=world.alice, cluster=cluster, step="trust_next")
    certificates_renew(driver, authority_ends_at(cluster.tls_ca))
    assert Operation.objects.filter(cluster=cluster).count() == 1


@pytest.mark.parametrize("step", ["sign_by_next", "drop_former"])
def test_a_step_that_is_not_next_is_refused(
    cluster: Cluster, world: World, api: Callable[..., Json], step: str
) -> None:
    answer = api(world.alice).call("POST", path_of(cluster), {"step": step, "confirm": "orders"})
    assert (answer.status_code, answer.json()["code"]) == (409, "ca_step_not_next")


@pytest.mark.usefixtures("problems")
def test_signing_before_its_day_wants_the_clusters_name(
    cluster: Cluster, world: World, driver: DriverTwin, api: Callable[..., Json]
) -> None:
    run(authority_renew(actor=world.alice, cluster=cluster, step="trust_next"), driver)
    answer = api(world.alice).call("POST", path_of(cluster), {"step": "sign_by_next"})
    assert (answer.status_code, answer.json()["code"]) == (409, "confirmation_needed")
    shown = api(world.alice).call("GET", cluster.path).json()
    assert shown["tls_ca_next_step"] == "sign_by_next"
    assert shown["tls_ca_next_step_at"] == shown["tls_ca_changes_at"]


def test_a_cluster_that_has_no_authority_or_does_not_run_is_refused(world: World, cluster: Cluster) -> None:
    Cluster.objects.filter(pk=cluster.pk).update(tls_ca="")
    cluster.refresh_from_db()
    with pytest.raises(Conflict, match="made before TLS"):
        authority_renew(actor=world.alice, cluster=cluster, step="trust_next")
    Cluster.objects.filter(pk=cluster.pk).update(state=ClusterState.FAILED)
    cluster.refresh_from_db()
    with pytest.raises(Conflict, match="failed"):
        authority_renew(actor=world.alice, cluster=cluster, step="trust_next")


@pytest.mark.parametrize(("role", "status"), [(Role.OWNER, 202), (Role.OPERATOR, 202), (Role.DEVELOPER, 403)])
def test_operators_may_and_developers_may_not(
    cluster: Cluster, world: World, api: Callable[..., Json], role: Role, status: int
) -> None:
    Membership.objects.filter(user=world.bob).update(role=role)
    assert api(world.bob).call("POST", path_of(cluster), {"step": "trust_next"}).status_code == status


def test_it_is_in_the_audit_trail_and_its_steps_have_titles(world: World, cluster: Cluster) -> None:
    operation = authority_renew(actor=world.alice, cluster=cluster, step="trust_next", overlap_days=9)
    event = AuditEvent.objects.get(action="cluster.ca")
    assert event.details == {"step": "trust_next", "overlap_days": 9, "operation": str(operation.pk)}
    assert [step.title for step in operation_view(operation).steps] == [
        "Give every daemon a fresh certificate of the CA that signs",
        "Check by a TLS handshake what every daemon shows and trusts",
        "Make the next CA",
        "Give every daemon its new files",
        "Check by a TLS handshake that every daemon uses them",
    ]


@dataclass
class Live:
    """A cluster of real daemons whose files the workflow writes."""

    cluster: Cluster
    driver: FileDriver
    names: NameServerDaemon
    broker: BrokerDaemon

    def finish(self, operation: Operation) -> None:
        """Run it to its end; a step that waits is looked at again at once."""
        for _ in range(200):
            OperationStep.objects.filter(operation=operation).update(not_before=None)
            if run(operation, self.driver) == Outcome.COMPLETED:
                return
            assert operation.state == OperationState.IN_PROGRESS, operation.error
        raise AssertionError(list(operation.steps.values_list("name", "message")))

    def problems_of(self, signer: SignedKey, trusted: str) -> list[str]:
        """What keeps a client that shows a certificate of this CA, and trusts this text, from a handshake with each daemon."""
        context = client_context_of(trusted, signer)
        ports = (self.names.port, self.broker.port)
        return [handshake_problem("127.0.0.1", port, [context]) for port in ports]

    def sends(self, trusted: str, folder: Path) -> bool:
        """Whether a client that trusts this text, as a stock one does its ca.pem, can send."""
        ca = folder / "client.pem"
        ca.write_text(trusted)
        context = client_context(TlsFiles(trust_cert_path=str(ca)))
        for daemon in (self.names, self.broker):
            host, port = daemon.address.split(":")
            try:
                ssl.get_server_certificate((host, int(port)), ca_certs=str(ca), timeout=10)
            except ssl.SSLCertVerificationError:
                return False
        with Producer(self.names.address, use_tls=context) as producer:
            return producer.send(Message("orders", b"paid")).status.name == "SEND_OK"


def client_context_of(trusted: str, signer: SignedKey) -> ssl.SSLContext:
    """A context of TLS 1.2, whose handshake ends only after the daemon has judged the certificate."""
    issued = certificate_issue(signer, "control-plane", [], timezone.now())
    with TemporaryDirectory() as folder:
        cert, key, ca = (Path(folder, name) for name in ("tls.pem", "tls.key", "ca.pem"))
        for path, text in ((cert, issued.cert_pem), (key, issued.key_pem), (ca, trusted)):
            path.write_text(text)
        context = client_context(TlsFiles(str(cert), str(key), str(ca)))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


@pytest.fixture
def live(world: World, tmp_path: Path) -> Iterator[Live]:
    driver = FileDriver(tmp_path / "clusters")
    cluster = secure(world.cluster, driver)
    folder = driver.cluster_dir(cluster.pk)

    def tls(side: str, name: str) -> dict[str, str]:
        files = {"certPath": "tls.pem", "keyPath": "tls.key", "trustCertPath": "ca.pem"}
        return {f"tls.{side}.{key}": str(folder / name / file) for key, file in files.items()}

    asking = {"tls.server.need.client.auth": "optional"}
    names = NameServerDaemon(tmp_path / "names", {**tls("server", "namesrv-0"), **asking}).start()
    both = {**tls("server", "broker-a-0"), **tls("client", "broker-a-0")}
    more = {"tls.enable": "true", "autoCreateTopicEnable": "true"}
    broker = BrokerDaemon(tmp_path / "broker", names.address, {**both, **asking, **more})
    try:
        broker.start()
        NameServer.objects.filter(cluster=cluster).update(host="127.0.0.1", port=names.port)
        Replica.objects.filter(group__cluster=cluster).update(host="127.0.0.1", port=broker.port)
        certificates_write(cluster, driver, timezone.now())
        yield Live(cluster, driver, names, broker)
    finally:
        broker.kill()
        names.kill()


def test_real_daemons_change_their_authority_without_a_restart_and_clients_with_the_file_of_both_never_notice(
    world: World, live: Live, tmp_path: Path
) -> None:
    pids = (live.names.pid, live.broker.pid)
    former = live.cluster.tls_ca
    assert live.cluster.tls_ca_key_encrypted is not None
    former_signer = SignedKey(former, secret_decrypt(bytes(live.cluster.tls_ca_key_encrypted)))
    assert live.sends(former, tmp_path)
    live.finish(authority_renew(actor=world.alice, cluster=live.cluster, step="trust_next"))
    live.cluster.refresh_from_db()
    both = live.cluster.tls_ca
    assert [live.sends(trusted, tmp_path) for trusted in (former, both)] == [True, True], "the overlap"
    live.finish(authority_renew(actor=world.alice, cluster=live.cluster, step="sign_by_next", confirm="orders"))
    assert [live.sends(trusted, tmp_path) for trusted in (former, both)] == [False, True]
    live.cluster.refresh_from_db()
    assert live.problems_of(former_signer, both) == ["", ""], "what the former CA signed counts until it is dropped"
    live.finish(authority_renew(actor=world.alice, cluster=live.cluster, step="drop_former"))
    live.cluster.refresh_from_db()
    trusted = (former, both, live.cluster.tls_ca)
    assert [live.sends(text, tmp_path) for text in trusted] == [False, True, True]

    def is_refused_everywhere() -> bool:
        refused = "it does not take a certificate of the CA"
        return all(problem.startswith(refused) for problem in live.problems_of(former_signer, live.cluster.tls_ca))

    wait_until(is_refused_everywhere, timeout_s=30, what="the daemons to refuse what the former CA signed")
    shown = live.problems_of(former_signer, former)
    assert all(problem.startswith("its certificate is of another CA") for problem in shown), shown
    assert (live.names.pid, live.broker.pid) == pids


def test_the_former_authority_is_not_called_dropped_while_a_real_daemon_has_not_read_its_new_files(
    world: World, live: Live
) -> None:
    for step in (Succession.TRUST_NEXT, Succession.SIGN_BY_NEXT):
        live.finish(authority_renew(actor=world.alice, cluster=live.cluster, step=step, confirm="orders"))
        live.cluster.refresh_from_db()
    operation = authority_renew(actor=world.alice, cluster=live.cluster, step="drop_former")
    assert run(operation, live.driver, most=3) == Outcome.COMPLETED
    live.driver.unwritten = "broker-a-0/"
    assert run(operation, live.driver) == Outcome.WAITING
    message = operation.steps.get(name="ca_verify").message
    assert "it has not read its new files yet." in message
    live.driver.unwritten = "none/"
    certificates_write(live.cluster, live.driver, timezone.now() + timedelta(seconds=1))
    live.finish(operation)


def test_a_stock_java_client_that_trusts_the_file_of_both_gets_through_every_handshake_of_a_renewal(
    world: World, live: Live, tmp_path: Path
) -> None:
    former = live.cluster.tls_ca
    live.finish(authority_renew(actor=world.alice, cluster=live.cluster, step="trust_next"))
    live.cluster.refresh_from_db()
    files = {"former": former, "both": live.cluster.tls_ca}
    for name, text in files.items():
        (tmp_path / f"{name}.pem").write_text(text)
    with start_java(
        STOCK_SENDER, tmp_path / "java", [live.names.address, str(tmp_path / "both.pem"), "1000"]
    ) as sender:

        def sends_on(count: int = 3) -> None:
            reached = sender.output().count("SEND_OK") + count
            wait_until(
                lambda: sender.output().count("SEND_OK") >= reached or "FAILED" in sender.output(),
                timeout_s=60,
                what="some more sends",
            )

        sends_on()
        live.finish(authority_renew(actor=world.alice, cluster=live.cluster, step="sign_by_next", confirm="orders"))
        live.cluster.refresh_from_db()
        sends_on()
        live.finish(authority_renew(actor=world.alice, cluster=live.cluster, step="drop_former"))
        sends_on()
        assert "FAILED" not in sender.output()
    refused = run_java(STOCK_SENDER, tmp_path / "late", [live.names.address, str(tmp_path / "former.pem"), "1"])
    assert "FAILED" in refused, "it checks what it trusts"


def test_the_next_authority_does_not_sign_while_a_real_daemon_has_not_read_that_it_is_trusted(
    world: World, live: Live
) -> None:
    live.finish(authority_renew(actor=world.alice, cluster=live.cluster, step="trust_next"))
    live.cluster.refresh_from_db()
    both = live.cluster.tls_ca
    trusted = live.driver.cluster_dir(live.cluster.pk) / "broker-a-0" / "ca.pem"
    operation = authority_renew(actor=world.alice, cluster=live.cluster, step="sign_by_next", confirm="orders")
    run(operation, live.driver, most=1)
    trusted.write_text(authorities(both)[0])
    host, _, port = live.broker.address.partition(":")
    proofs = authority_proofs(live.cluster)
    wait_until(lambda: handshake_problem(host, int(port), proofs) != "", timeout_s=30, what="the broker to read it")
    assert run(operation, live.driver) == Outcome.WAITING
    message = operation.steps.get(name="ca_look").message
    assert message.startswith("The broker broker-a does not use its certificate yet: it does not take a certificate")
    live.cluster.refresh_from_db()
    assert live.cluster.tls_ca == both
    trusted.write_text(both)
    live.finish(operation)
    live.cluster.refresh_from_db()
    assert authorities(live.cluster.tls_ca) == authorities(both)[::-1]
