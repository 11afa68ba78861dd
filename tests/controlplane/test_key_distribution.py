"""Keys reach every daemon: who has not confirmed a deletion is named, and accounts that the rows do not have do not last."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from django.utils import timezone

from controlplane.clusters import credential_services
from controlplane.clusters.account_distribution import Distribution
from controlplane.clusters.credential_services import (
    CreatedCredential,
    Permissions,
    credential_create,
    credential_delete,
    credential_reveal,
    credential_rotate,
    credentials_in_force,
)
from controlplane.clusters.models import Cluster, ClusterState, Credential, CredentialRole, CredentialState
from controlplane.common.errors import BrokerUnreachable, Conflict, NotAllowed
from controlplane.common.models import AuditEvent
from controlplane.provisioning import accounts
from controlplane.provisioning.accounts import accounts_reconcile
from controlplane.provisioning.drivers.base import ProcessState
from controlplane.provisioning.processes import cluster_daemons
from controlplane.topics.masking_rules import masking_rule_create
from mqwire.acl import accounts_version
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import World


@pytest.fixture
def driver(tmp_path: Path) -> DriverTwin:
    return DriverTwin(tmp_path)


def confirms(monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...] = ()) -> None:
    monkeypatch.setattr(credential_services, "accounts_distribute", lambda _cluster: Distribution(1, missing))


def test_a_member_reads_no_secret_of_a_key_that_may_more_than_they(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirms(monkeypatch)
    made = credential_create(actor=world.alice, cluster=world.cluster, name="mqadmin", role=CredentialRole.ADMIN)
    with pytest.raises(NotAllowed):
        credential_reveal(actor=world.bob, credential=made.credential)
    assert credential_reveal(actor=world.alice, credential=made.credential) == made.secret_key


def test_a_key_that_reads_is_revealed_to_no_one_from_whom_masking_hides(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirms(monkeypatch)
    denied = Permissions(default_topic_perm="PUB", default_group_perm="DENY")
    sending = credential_create(actor=world.alice, cluster=world.cluster, name="sends", permissions=denied)
    reading = world.cluster.credentials.get(name="default")
    credential_reveal(actor=world.bob, credential=reading)
    masking_rule_create(
        actor=world.alice, tenant=world.acme, topic="payments", part="body", pattern="$.card", visible_from="admin"
    )
    with pytest.raises(NotAllowed, match="`admin` and above"):
        credential_reveal(actor=world.bob, credential=reading)
    assert credential_reveal(actor=world.bob, credential=sending.credential) == sending.secret_key
    assert credential_reveal(actor=world.alice, credential=reading)


def test_a_leaked_key_of_a_suspended_cluster_is_deleted_before_a_daemon_starts_with_it(
    world: World, driver: DriverTwin
) -> None:
    Cluster.objects.filter(pk=world.cluster.pk).update(state=ClusterState.SUSPENDED)
    world.cluster.refresh_from_db()
    credential = world.cluster.credentials.get(is_control=False)
    credential_delete(actor=world.alice, credential=credential)
    texts = [text for daemon in cluster_daemons(world.cluster, driver) for text in daemon.files.values()]
    assert not any(credential.access_key in text for text in texts)
    assert Credential.objects.get(pk=credential.pk).state == CredentialState.DELETING


def test_a_deletion_names_the_daemon_that_may_still_let_the_key_in(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirms(monkeypatch, ("broker-a/0",))
    credential = world.cluster.credentials.get(is_control=False)
    with pytest.raises(BrokerUnreachable, match="broker-a/0"):
        credential_delete(actor=world.alice, credential=credential)
    credential.refresh_from_db()
    assert credential.state == CredentialState.DELETING
    confirms(monkeypatch)
    credential_delete(actor=world.alice, credential=credential)
    assert not Credential.objects.filter(pk=credential.pk).exists()


def test_accounts_that_the_rows_do_not_have_are_written_over_with_their_backup(
    world: World, driver: DriverTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_force: dict[str, int] = {}

    def versions(cluster: Cluster, addresses: list[str]) -> dict[str, int]:
        """Of a file with an account that someone slipped in, until ours counts."""
        return {address: in_force.get(address, 7) for address in addresses}

    monkeypatch.setattr(accounts, "accounts_versions", versions)
    daemons = cluster_daemons(world.cluster, driver)
    driver.states |= {daemon.process.name: ProcessState.RUNNING for daemon in daemons}
    gone = world.cluster.credentials.get(is_control=False)
    Credential.objects.filter(pk=gone.pk).update(state=CredentialState.DELETING)
    statuses = driver.process_statuses([daemon.process.name for daemon in daemons])
    accounts_reconcile(world.cluster, cluster_daemons(world.cluster, driver), statuses, driver)
    written = {path: text for path, text in driver.files.items() if "plain_acl.yml" in path}
    assert len(written) == 2 * len(daemons)
    for text in written.values():
        assert gone.access_key not in {account["accessKey"] for account in yaml.safe_load(text)["accounts"]}
    assert Credential.objects.filter(pk=gone.pk).exists()  # no daemon has said that this file counts
    for daemon in cluster_daemons(world.cluster, driver):
        (text,) = [text for path, text in daemon.files.items() if path.endswith("/plain_acl.yml")]
        in_force[daemon.row.address] = accounts_version(text.encode())
    accounts_reconcile(world.cluster, cluster_daemons(world.cluster, driver), statuses, driver)
    assert not Credential.objects.filter(pk=gone.pk).exists()


def rotated(world: World, monkeypatch: pytest.MonkeyPatch, hours: int = 24) -> tuple[Credential, CreatedCredential]:
    confirms(monkeypatch)
    permissions = Permissions(default_topic_perm="PUB", default_group_perm="DENY", topic_perms={"refunds": "DENY"})
    old = credential_create(actor=world.alice, cluster=world.cluster, name="shop", permissions=permissions).credential
    made = credential_rotate(actor=world.alice, credential=old, overlap_hours=hours)
    return old, made


def let_in(world: World) -> set[str]:
    return set(credentials_in_force(world.cluster).values_list("access_key", flat=True))


def test_a_replaced_key_has_a_twin_of_its_rights_and_works_beside_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, made = rotated(world, monkeypatch)
    new = made.credential
    assert made.secret_key == credential_reveal(actor=world.alice, credential=new)
    assert (new.access_key != old.access_key, new.name) == (True, "shop")
    assert (new.default_topic_perm, new.default_group_perm, new.topic_perms) == ("PUB", "DENY", {"refunds": "DENY"})
    assert {old.access_key, new.access_key} <= let_in(world)
    event = AuditEvent.objects.get(action="credential.rotate")
    assert event.details["replaced_by"] == new.access_key


def test_once_its_time_is_over_a_replaced_key_is_refused_and_deleted(
    world: World, driver: DriverTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, made = rotated(world, monkeypatch)
    Credential.objects.filter(pk=old.pk).update(ends_at=timezone.now())
    assert old.access_key not in let_in(world)
    monkeypatch.setattr(accounts, "accounts_versions", lambda _cluster, addresses: {})
    accounts_reconcile(world.cluster, [], {}, driver)
    assert not Credential.objects.filter(pk=old.pk).exists()
    assert Credential.objects.filter(pk=made.credential.pk, ends_at=None).exists()
    ended = AuditEvent.objects.get(action="credential.delete")
    assert ended.actor == "key rotation"


def test_a_leaked_key_is_replaced_without_an_overlap(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    old, made = rotated(world, monkeypatch, hours=0)
    assert not Credential.objects.filter(pk=old.pk).exists()
    assert made.credential.access_key in let_in(world)


def test_a_rotation_names_the_daemon_that_may_still_let_the_old_key_in(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirms(monkeypatch, ("broker-a/0",))
    old = world.cluster.credentials.get(is_control=False)
    made = credential_rotate(actor=world.alice, credential=old, overlap_hours=0)
    assert made.missing_daemons == ("broker-a/0",)
    assert Credential.objects.filter(pk=old.pk).exists()
    assert old.access_key not in let_in(world)


def test_a_rotation_that_no_daemon_confirms_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credential_services, "accounts_distribute", lambda _cluster: Distribution(0, ("broker-a/0",)))
    old = world.cluster.credentials.get(is_control=False)
    with pytest.raises(BrokerUnreachable):
        credential_rotate(actor=world.alice, credential=old, overlap_hours=24)
    assert list(world.cluster.credentials.filter(is_control=False, ends_at=None, replaced_by=None)) == [old]


def test_a_key_that_ends_is_not_replaced_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    old, _ = rotated(world, monkeypatch)
    with pytest.raises(Conflict, match="being replaced"):
        credential_rotate(actor=world.alice, credential=old, overlap_hours=24)


def test_a_developer_replaces_no_key(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    confirms(monkeypatch)
    with pytest.raises(NotAllowed):
        credential_rotate(actor=world.bob, credential=world.cluster.credentials.get(is_control=False), overlap_hours=24)


def test_replacing_a_key_asks_for_the_second_factor_again_where_the_tenant_wants_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirms(monkeypatch)
    asked: list[str] = []
    monkeypatch.setattr(credential_services, "factor_require", lambda _actor, act, _tenant: asked.append(act))
    credential_rotate(actor=world.alice, credential=world.cluster.credentials.get(is_control=False), overlap_hours=24)
    assert asked == ["credential.create", "credential.delete"]
