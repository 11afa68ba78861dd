"""A tenant that demands a second factor at the log-in shows itself in sessions with one only."""

from __future__ import annotations

import pytest
from allauth.mfa.models import Authenticator
from django.core.cache import cache
from django.test import Client

from controlplane.accounts.fresh_factor import FACTOR_BY_PROVIDER
from controlplane.accounts.models import User
from controlplane.clusters.models import OperationState
from controlplane.tenants.models import Role, Tenant
from controlplane.tenants.token_services import api_token_issue
from tests.console.test_console_fresh_factor import given
from tests.console.test_console_second_factor import code_of, is_logged_in, log_in, set_up
from tests.console.world import World, make_operation
from tests.controlplane.world import SYSTEM, Json


@pytest.fixture
def demanding(world: World) -> World:
    """A tenant that demands it, and Alice with an authenticator app."""
    Tenant.objects.filter(pk=world.tenant.pk).update(requires_second_factor=True)
    Authenticator.objects.create(user=world.alice, type=Authenticator.Type.TOTP, data={"secret": ""})
    return world


def session_with(client: Client, **values: str) -> Client:
    session = client.session
    session.update(values)
    session.save()
    return client


def test_who_has_no_factor_sees_nothing_and_is_told_where_to_set_one_up(demanding: World) -> None:
    client = demanding.client(demanding.bob)
    for path in ("", "members/", "clusters/orders/", "audit/"):
        answer = client.get(demanding.path(path))
        assert answer.status_code == 403
        assert "/2fa/" in answer.content.decode()
        assert "alice@example.com" not in answer.content.decode()


def test_a_session_without_one_is_asked_and_led_back_to_the_page(demanding: World) -> None:
    answer = demanding.client(demanding.alice).get(
        demanding.path("members/?x=1"), headers={"referer": "http://testserver/tenants/"}
    )
    assert answer.status_code == 302
    assert answer.headers["Location"] == "/2fa/reauthenticate/?next=%2Ft%2Facme%2Fmembers%2F%3Fx%3D1"


def test_a_factor_of_the_log_in_counts_for_the_session(demanding: World) -> None:
    client = given(demanding.client(demanding.alice), demanding.alice, 11 * 3600)
    assert client.get(demanding.path("members/")).status_code == 200


def test_a_log_in_with_the_code_opens_the_tenant(world: World) -> None:
    _, secret = set_up(world)
    Tenant.objects.update(requires_second_factor=True)
    client = log_in(world)
    cache.clear()
    for _ in range(2):
        client.post("/2fa/authenticate/", {"code": code_of(secret)})
    assert is_logged_in(client)
    assert client.get(world.path("members/")).status_code == 200


def test_other_tenants_of_the_person_ask_for_nothing(demanding: World) -> None:
    demanding.foreign_tenant.memberships.create(user=demanding.bob, role=Role.VIEWER)
    assert demanding.client(demanding.bob).get("/t/globex/members/").status_code == 200


def test_a_trusted_providers_word_counts_for_the_person_it_was_given_for(demanding: World) -> None:
    def seen_with(user: User) -> int:
        client = session_with(demanding.client(demanding.bob), **{FACTOR_BY_PROVIDER: str(user.pk)})
        return client.get(demanding.path("members/")).status_code

    assert [seen_with(demanding.bob), seen_with(demanding.alice)] == [200, 403]


def test_the_api_asks_sessions_and_not_tokens(demanding: World) -> None:
    operation = make_operation(demanding.cluster, OperationState.COMPLETED, 1)
    token = api_token_issue(actor=SYSTEM, tenant=demanding.tenant, name="ci", role=Role.OPERATOR)
    for path in ("/api/v1/tenants/acme/", f"/api/v1/operations/{operation.pk}/"):
        refused = [demanding.client(user).get(path) for user in (demanding.alice, demanding.bob)]
        assert [(one.status_code, one.json()["code"]) for one in refused] == [
            (403, "factor_needed"),
            (403, "factor_missing"),
        ]
        assert Json(token=token.text).call("GET", path).status_code == 200


def test_an_admin_turns_it_on_with_a_factor_of_their_own_and_off_with_a_fresh_one(world: World) -> None:
    address, form = world.path("settings/"), {"name": "Acme", "time_zone": "UTC"}
    without = world.client(world.alice).post(address, form | {"requires_second_factor": "on"})
    assert "Set up a second factor of your own first" in without.content.decode()
    Authenticator.objects.create(user=world.alice, type=Authenticator.Type.TOTP, data={"secret": ""})
    assert world.client(world.alice).post(address, form | {"requires_second_factor": "on"}).status_code == 302
    world.tenant.refresh_from_db()
    assert world.tenant.requires_second_factor
    stale = given(world.client(world.alice), world.alice, 3600)
    assert stale.post(address, form | {"requires_second_factor": "on", "name": "Acme 2"}).status_code == 302
    asked = stale.post(address, form)
    assert asked.headers["Location"].startswith("/2fa/reauthenticate/")
    fresh = given(world.client(world.alice), world.alice, 60)
    assert fresh.post(address, form).headers["Location"] == address
    world.tenant.refresh_from_db()
    assert not world.tenant.requires_second_factor
