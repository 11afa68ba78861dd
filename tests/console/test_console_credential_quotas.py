"""A key pair's own quotas are changed on a page of theirs, which shows how much of them each broker has used."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import HttpResponse

from controlplane.clusters import credential_quotas, limits
from controlplane.clusters.account_distribution import Distribution
from controlplane.clusters.models import Cluster, Credential
from controlplane.clusters.replica_remoting import BrokerQuota
from controlplane.tenants.models import Membership, Role
from tests.console.test_console_forms import _error_of
from tests.console.world import World


@pytest.fixture
def credential(world: World, monkeypatch: pytest.MonkeyPatch) -> Credential:
    monkeypatch.setattr(credential_quotas, "accounts_distribute", lambda _cluster: Distribution(2, ()))
    found: Credential = world.cluster.credentials.get(is_control=False)
    return found


def page_of(world: World, credential: Credential) -> str:
    return world.cluster_path(f"credentials/{credential.access_key}/quotas/")


def send(world: World, credential: Credential, **typed: str) -> HttpResponse:
    answer: HttpResponse = world.client(world.alice).post(page_of(world, credential), typed)  # type: ignore[assignment]  # Django's own answer, with more on it
    return answer


def broker_says(monkeypatch: pytest.MonkeyPatch, *quotas: BrokerQuota) -> None:
    monkeypatch.setattr(limits, "broker_quotas", lambda brokers: [quotas for _ in brokers])


def test_what_is_typed_is_kept_and_what_is_empty_is_taken_away(world: World, credential: Credential) -> None:
    Credential.objects.filter(pk=credential.pk).update(quota_held_pulls=7)
    answer = send(world, credential, quota_messages_per_second="500", quota_bytes_per_second="1 MiB")
    assert (answer.status_code, answer.headers["Location"]) == (302, page_of(world, credential))
    credential.refresh_from_db()
    assert list(credential.own_quotas.values()) == [500, 1024 * 1024, None, None]


def test_a_quota_above_the_tenants_limit_is_said_at_its_field_and_what_was_typed_stays(
    world: World, credential: Credential
) -> None:
    answer = send(world, credential, quota_connections="5001", quota_held_pulls="7")
    page = answer.content.decode()
    assert answer.status_code == 422
    assert (
        _error_of(page, "quota_connections") == "Use a number from 1 to 5000: the tenant&#x27;s limits allow no more."
    )
    assert 'value="5001"' in page
    credential.refresh_from_db()
    assert credential.quota_held_pulls is None


def test_what_is_no_number_is_said_at_its_field(world: World, credential: Credential) -> None:
    page = send(world, credential, quota_connections="many", quota_bytes_per_second="a lot").content.decode()
    assert _error_of(page, "quota_connections") == "Enter a whole number."
    assert _error_of(page, "quota_bytes_per_second") == "Write a size, such as 500 MiB or 10 GiB."


def test_quotas_are_shown_with_their_use_and_the_limit_of_the_tenant(
    world: World, credential: Credential, monkeypatch: pytest.MonkeyPatch
) -> None:
    Credential.objects.filter(pk=credential.pk).update(quota_bytes_per_second=2 * 1024 * 1024)
    broker_says(
        monkeypatch,
        BrokerQuota("quotaBytesPerSecond", f"{credential.access_key} (pull)", 1024 * 1024, 2 * 1024 * 1024),
        BrokerQuota("quotaConnections", "another", 77, 99),
    )
    page = world.client(world.alice).get(page_of(world, credential)).content.decode()
    assert "Bytes per second, the access key’s own: Pulls" in page
    assert "1.0 MiB" in page
    assert 'value="2 MiB"' in page
    assert "the tenant’s limit: 5\u202f000." in page
    assert "99" not in page.split("Its own quotas")[0].split("<table")[1]


def test_a_broker_that_does_not_answer_is_not_drawn_as_idle(world: World, credential: Credential) -> None:
    page = world.client(world.alice).get(page_of(world, credential)).content.decode()
    assert "This broker does not answer, so its use is not known." in page


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.DEVELOPER, Role.VIEWER])
def test_other_roles_see_the_use_and_change_nothing(world: World, credential: Credential, role: Role) -> None:
    Membership.objects.filter(user=world.bob).update(role=role)
    client: Any = world.client(world.bob)
    page = client.get(page_of(world, credential)).content.decode()
    assert "Change quotas" not in page
    assert client.post(page_of(world, credential), {"quota_connections": "1"}).status_code == 403
    credential.refresh_from_db()
    assert credential.quota_connections is None


def test_daemons_that_did_not_confirm_are_named(
    world: World, credential: Credential, monkeypatch: pytest.MonkeyPatch
) -> None:
    def distribute(_cluster: Cluster) -> Distribution:
        return Distribution(1, ("broker-a replica 0",))

    monkeypatch.setattr(credential_quotas, "accounts_distribute", distribute)
    client: Any = world.client(world.alice)
    page = client.post(page_of(world, credential), {"quota_connections": "1"}, follow=True).content.decode()
    assert "These did not confirm it yet: broker-a replica 0." in page


def test_the_list_of_key_pairs_leads_there(world: World, credential: Credential) -> None:
    page = world.client(world.bob).get(world.cluster_path("credentials/")).content.decode()
    assert page_of(world, credential) in page
