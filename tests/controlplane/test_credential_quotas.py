"""A credential's own quotas: who gives them, how much they may be, and how they get to the daemons."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from brokerd.acl_file import parse
from brokerd.quotas import CREDENTIAL_QUOTAS as ACCOUNT_QUOTAS
from brokerd.quotas import CredentialQuota
from controlplane.clusters import credential_quotas, credential_services, limits
from controlplane.clusters.account_distribution import Distribution
from controlplane.clusters.credential_quotas import QUOTA_MEMBERS, credential_update, credential_uses
from controlplane.clusters.credential_services import credential_rotate
from controlplane.clusters.models import Cluster, ClusterState, Credential, CredentialState
from controlplane.clusters.replica_remoting import BrokerQuota
from controlplane.clusters.selectors import credential_get
from controlplane.common.errors import BrokerUnreachable, Conflict, InvalidInput, NotAllowed, NotFound
from controlplane.common.models import AuditEvent
from controlplane.provisioning.accounts import accounts_reconcile
from controlplane.provisioning.processes import cluster_daemons
from controlplane.tenants.models import Membership, Role, Tenant
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import Json, World

pytestmark = pytest.mark.django_db


@pytest.fixture
def driver(tmp_path: Path) -> DriverTwin:
    return DriverTwin(tmp_path)


@pytest.fixture
def credential(world: World) -> Credential:
    return world.cluster.credentials.select_related("cluster__tenant").get(is_control=False)


@pytest.fixture
def path(world: World, credential: Credential) -> str:
    return f"/api/v1{world.cluster.path.removeprefix('/api/v1')}credentials/{credential.access_key}/"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Cluster]:
    """The clusters whose daemons were told of their accounts; all confirm them."""
    clusters: list[Cluster] = []

    def distribute(cluster: Cluster) -> Distribution:
        clusters.append(cluster)
        return Distribution(2, ())

    monkeypatch.setattr(credential_quotas, "accounts_distribute", distribute)
    monkeypatch.setattr(credential_services, "accounts_distribute", distribute)
    return clusters


def accounts_of(world: World, driver: DriverTwin) -> dict[str, CredentialQuota]:
    """What the first broker would read, by access key."""
    daemon = next(daemon for daemon in cluster_daemons(world.cluster, driver) if "broker" in daemon.process.name)
    text = next(text for name, text in daemon.files.items() if name.endswith("plain_acl.yml"))
    return {key: account.quota for key, account in parse(text.encode()).accounts.items()}


# --- from the row to the daemons ---


def test_brokers_call_each_quota_as_the_control_plane_does() -> None:
    assert tuple(QUOTA_MEMBERS.values()) == ACCOUNT_QUOTAS


def test_quotas_reach_the_accounts_of_every_daemon(
    world: World, credential: Credential, driver: DriverTwin, told: list[Cluster]
) -> None:
    quotas = {"quota_messages_per_second": 500, "quota_bytes_per_second": 1024, "quota_connections": 3}
    credential_update(actor=world.alice, credential=credential, quotas={**quotas, "quota_held_pulls": 4})
    assert told == [world.cluster]
    assert accounts_of(world, driver)[credential.access_key] == CredentialQuota(500, 1024, 3, 4)


def test_a_credential_without_quotas_has_the_account_that_it_had_before_there_were_any(
    world: World, credential: Credential, driver: DriverTwin
) -> None:
    assert set(accounts_of(world, driver).values()) == {CredentialQuota()}
    texts = [text for daemon in cluster_daemons(world.cluster, driver) for text in daemon.files.values()]
    assert not any(
        "quotaHeldPulls" in text.replace("quotaTopicHeldPulls", "").replace("quotaCredentialHeldPulls", "")
        for text in texts
    )


def test_what_is_left_out_stays_and_null_takes_a_quota_away(
    world: World, credential: Credential, told: list[Cluster]
) -> None:
    credential_update(actor=world.alice, credential=credential, quotas={"quota_connections": 3, "quota_held_pulls": 4})
    credential_update(actor=world.alice, credential=credential, quotas={"quota_connections": None})
    credential.refresh_from_db()
    assert (credential.quota_connections, credential.quota_held_pulls) == (None, 4)


def test_daemons_that_missed_a_change_get_it_with_the_next_look(
    world: World, credential: Credential, driver: DriverTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    Credential.objects.filter(pk=credential.pk).update(quota_connections=3)
    monkeypatch.setattr(
        "controlplane.provisioning.accounts.accounts_versions",
        lambda _cluster, addresses: dict.fromkeys(addresses, 1),
    )
    daemons = cluster_daemons(world.cluster, driver)
    accounts_reconcile(world.cluster, daemons, {}, driver)
    written = [text for name, text in driver.files.items() if name.endswith("plain_acl.yml")]
    assert len(written) == len(daemons)
    assert all("quotaConnections: 3" in text for text in written)


def test_a_cluster_that_cannot_be_told_keeps_the_quotas_and_says_so(
    world: World, credential: Credential, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_cluster: Cluster) -> Distribution:
        raise BrokerUnreachable("The machine does not answer.")

    monkeypatch.setattr(credential_quotas, "accounts_distribute", away)
    with pytest.raises(BrokerUnreachable, match="The quotas are kept, but the cluster could not be told"):
        credential_update(actor=world.alice, credential=credential, quotas={"quota_connections": 3})
    credential.refresh_from_db()
    assert credential.quota_connections == 3


def test_a_suspended_cluster_starts_with_the_quotas(
    world: World, credential: Credential, driver: DriverTwin, told: list[Cluster]
) -> None:
    Cluster.objects.filter(pk=world.cluster.pk).update(state=ClusterState.SUSPENDED)
    credential.cluster.refresh_from_db()
    credential_update(actor=world.alice, credential=credential, quotas={"quota_connections": 3})
    assert told == []
    assert accounts_of(world, driver)[credential.access_key].connections == 3


def test_a_key_pair_that_is_being_deleted_gets_no_quotas(
    world: World, credential: Credential, told: list[Cluster]
) -> None:
    Credential.objects.filter(pk=credential.pk).update(state=CredentialState.DELETING)
    with pytest.raises(Conflict):
        credential_update(actor=world.alice, credential=credential, quotas={"quota_connections": 3})


def test_a_key_pair_that_was_deleted_meanwhile_is_not_found(
    world: World, credential: Credential, told: list[Cluster]
) -> None:
    Credential.objects.filter(pk=credential.pk).delete()
    with pytest.raises(NotFound):
        credential_update(actor=world.alice, credential=credential, quotas={"quota_connections": 3})


def test_a_key_pair_that_replaces_another_has_its_quotas(
    world: World, credential: Credential, driver: DriverTwin, told: list[Cluster]
) -> None:
    credential_update(actor=world.alice, credential=credential, quotas={"quota_connections": 3})
    made = credential_rotate(actor=world.alice, credential=credential, overlap_hours=24)
    assert made.credential.quota_connections == 3
    assert accounts_of(world, driver)[made.credential.access_key].connections == 3


# --- how much, and who ---


@pytest.mark.parametrize("limit", ["messages_per_second", "bytes_per_second", "connections", "held_pulls"])
def test_no_quota_is_above_the_tenants_limit(
    world: World, credential: Credential, told: list[Cluster], limit: str
) -> None:
    Tenant.objects.filter(pk=world.acme.pk).update(limits={limit: 7})
    credential.refresh_from_db()
    field = f"quota_{limit}"
    credential_update(actor=world.alice, credential=credential, quotas={field: 7})
    for value in (8, 0, -1):
        with pytest.raises(InvalidInput) as refused:
            credential_update(actor=world.alice, credential=credential, quotas={field: value})
        assert [(error.field, error.message) for error in refused.value.errors] == [
            (field, "Use a number from 1 to 7: the tenant's limits allow no more.")
        ]
    credential.refresh_from_db()
    assert getattr(credential, field) == 7


def test_a_limit_lowered_below_a_quota_leaves_it_and_lets_the_others_change(
    world: World, credential: Credential, told: list[Cluster]
) -> None:
    credential_update(actor=world.alice, credential=credential, quotas={"quota_connections": 50})
    Tenant.objects.filter(pk=world.acme.pk).update(limits={"connections": 7})
    credential = credential_get(world.cluster, credential.access_key)
    credential_update(actor=world.alice, credential=credential, quotas={"quota_connections": 50, "quota_held_pulls": 2})
    credential.refresh_from_db()
    assert (credential.quota_connections, credential.quota_held_pulls) == (50, 2)


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.DEVELOPER, Role.BILLING, Role.VIEWER])
def test_quotas_are_given_by_admins_and_owners(
    world: World, credential: Credential, told: list[Cluster], role: Role
) -> None:
    Membership.objects.filter(user=world.bob).update(role=role)
    with pytest.raises(NotAllowed):
        credential_update(actor=world.bob, credential=credential, quotas={"quota_connections": 3})
    Membership.objects.filter(user=world.bob).update(role=Role.ADMIN)
    credential_update(actor=world.bob, credential=credential, quotas={"quota_connections": 3})


def test_a_change_is_in_the_audit_trail_with_what_was_before(
    world: World, credential: Credential, told: list[Cluster]
) -> None:
    for value in (3, 5):
        credential_update(actor=world.alice, credential=credential, quotas={"quota_connections": value})
    event = AuditEvent.objects.filter(action="credential.update").latest("created_at")
    assert event.resource.endswith(f"credentials/{credential.access_key}/")
    assert event.details["changes"] == {"quota_connections": [3, 5]}


# --- use ---

USES = (
    BrokerQuota("quotaMessagesPerSecond", "{} (send)", 3, 500),
    BrokerQuota("quotaCredentialConnections", "{}", 2, 5000),
    BrokerQuota("quotaCredentialConnections", "another", 9, 5000),
    BrokerQuota("quotaTopicHeldPulls", "{}", 1, 20000),
    BrokerQuota("quotaStoredBytes", "", 1, 20000),
)


@pytest.fixture
def used(credential: Credential, monkeypatch: pytest.MonkeyPatch) -> None:
    reported = tuple(
        BrokerQuota(use.quota, use.name.format(credential.access_key), use.used, use.limit) for use in USES
    )
    monkeypatch.setattr(limits, "broker_quotas", lambda brokers: [reported for _ in brokers])


def test_the_use_of_a_credential_is_what_brokers_say_of_it_alone(credential: Credential, used: None) -> None:
    (use,) = credential_uses(credential)
    assert use.quotas is not None
    assert [one.quota for one in use.quotas] == ["quotaMessagesPerSecond", "quotaCredentialConnections"]


def test_a_broker_that_does_not_answer_is_unknown(credential: Credential, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "broker_quotas", lambda brokers: [None for _ in brokers])
    assert [use.quotas for use in credential_uses(credential)] == [None]


# --- the API ---


def test_the_api_sets_shows_and_takes_away_quotas(
    world: World, path: str, told: list[Cluster], api: Callable[..., Json]
) -> None:
    client = api(world.alice)
    changed = client.call("PATCH", path, {"quota_messages_per_second": 500, "quota_held_pulls": 9})
    assert changed.status_code == 200, changed.content
    assert (changed.json()["quota_messages_per_second"], changed.json()["missing_daemons"]) == (500, [])
    assert "secret_key" not in changed.json()
    client.call("PATCH", path, {"quota_messages_per_second": None})
    found = client.call("GET", path).json()
    assert (found["quota_messages_per_second"], found["quota_held_pulls"]) == (None, 9)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"quota_connections": 5_001}, "quota_connections"),
        ({"quota_connections": 0}, "quota_connections"),
        ({"quota_connections": "many"}, "quota_connections"),
        ({"quota_connections": True}, "quota_connections"),
        ({"quota_stored_bytes": 5}, "quota_stored_bytes"),
        ({"name": "another"}, "name"),
    ],
)
def test_the_api_refuses_what_is_no_quota_at_its_field(
    world: World, path: str, told: list[Cluster], api: Callable[..., Json], body: dict[str, object], field: str
) -> None:
    answer = api(world.alice).call("PATCH", path, body)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, field)
    assert told == []


def test_the_api_refuses_a_change_of_nothing(world: World, path: str, api: Callable[..., Json]) -> None:
    assert api(world.alice).call("PATCH", path, {}).status_code == 400


def test_the_control_planes_own_key_gets_no_quotas(world: World, path: str, api: Callable[..., Json]) -> None:
    control = world.cluster.credentials.get(is_control=True)
    there = path.replace(world.cluster.credentials.get(is_control=False).access_key, control.access_key)
    assert api(world.alice).call("PATCH", there, {"quota_connections": 1}).status_code == 404


def test_the_api_shows_the_use_at_each_broker(world: World, path: str, used: None, api: Callable[..., Json]) -> None:
    (broker,) = api(world.bob).call("GET", f"{path}quotas/").json()["brokers"]
    assert broker["cluster"] == world.cluster.slug
    assert [(quota["quota"], quota["used"], quota["limit"]) for quota in broker["quotas"]] == [
        ("quotaMessagesPerSecond", 3, 500),
        ("quotaCredentialConnections", 2, 5000),
    ]
