"""Service accounts: programs whose tokens outlast people, do no more than the account may, and end with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from controlplane.accounts.actors import TokenActor
from controlplane.accounts.authentication import token_authenticate
from controlplane.accounts.models import ApiToken
from controlplane.common.errors import Conflict, InvalidInput, LimitReached, NotAllowed
from controlplane.common.models import AuditEvent
from controlplane.tenants import service_account_services
from controlplane.tenants.models import Role, ServiceAccount
from controlplane.tenants.rules import actor_can
from controlplane.tenants.service_account_services import (
    service_account_create,
    service_account_delete,
    service_account_get,
    service_account_update,
)
from controlplane.tenants.services import membership_remove
from controlplane.tenants.token_services import IssuedToken, api_token_issue
from tests.controlplane.world import SYSTEM, Json, World


@pytest.fixture
def account(world: World) -> ServiceAccount:
    return service_account_create(actor=world.alice, tenant=world.acme, name="deploy", role=Role.OPERATOR)


def issue(world: World, account: ServiceAccount, actor: Any = None, **options: Any) -> IssuedToken:
    actor = world.alice if actor is None else actor
    return api_token_issue(actor=actor, tenant=world.acme, name="first", service_account=account, **options)


def works(issued: IssuedToken) -> bool:
    return token_authenticate(issued.text) is not None


def actor_of(issued: IssuedToken) -> TokenActor:
    token = token_authenticate(issued.text)
    assert token is not None
    return TokenActor(token)


def test_its_tokens_outlast_who_made_them(world: World, account: ServiceAccount) -> None:
    membership = world.bob.memberships.get()
    membership.role = Role.ADMIN
    membership.save()
    of_account = issue(world, account, world.bob)
    of_tenant = api_token_issue(actor=world.bob, tenant=world.acme, name="bob's")
    membership_remove(actor=world.alice, membership=membership)
    assert [works(of_account), works(of_tenant)] == [True, False]


def test_its_tokens_are_refused_while_it_is_disabled_and_end_with_it(world: World, account: ServiceAccount) -> None:
    issued = issue(world, account)
    service_account_update(actor=world.alice, account=account, disabled=True)
    assert not works(issued)
    service_account_update(actor=world.alice, account=account, disabled=False)
    assert works(issued)
    service_account_delete(actor=world.alice, account=account)
    assert not works(issued)
    assert not ApiToken.objects.filter(pk=issued.token.pk).exists()


def test_a_lower_role_of_the_account_bounds_its_tokens_at_once(world: World, account: ServiceAccount) -> None:
    issued = issue(world, account, role=Role.OPERATOR)
    assert actor_can(actor_of(issued), "cluster.create", world.acme)
    service_account_update(actor=world.alice, account=account, role=Role.VIEWER)
    assert not actor_can(actor_of(issued), "cluster.create", world.acme)
    assert actor_can(actor_of(issued), "cluster.view", world.acme)


def test_a_token_does_no_more_than_its_account(world: World) -> None:
    viewer = service_account_create(actor=world.alice, tenant=world.acme, name="graphs", role=Role.VIEWER)
    with pytest.raises(NotAllowed, match="more than its service account"):
        issue(world, viewer, role=Role.OPERATOR)


def test_what_its_token_issues_is_its_own_too(world: World, account: ServiceAccount) -> None:
    parent = issue(world, account)
    child = api_token_issue(actor=actor_of(parent), tenant=world.acme, name="next", days=1)
    assert child.token.service_account == account
    other = service_account_create(actor=world.alice, tenant=world.acme, name="other", role=Role.VIEWER)
    with pytest.raises(NotAllowed, match="for itself only"):
        issue(world, other, actor_of(parent), role=Role.VIEWER)
    service_account_delete(actor=world.alice, account=account)
    assert not works(child)


def test_a_program_manages_no_programs_and_no_members(world: World, account: ServiceAccount) -> None:
    program = actor_of(issue(world, account))
    for permission in ("service_account.manage", "member.manage", "tenant.update"):
        assert not actor_can(program, permission, world.acme)
    with pytest.raises(NotAllowed):
        service_account_create(actor=program, tenant=world.acme, name="spawn", role=Role.VIEWER)
    for role in (Role.ADMIN, Role.OWNER):
        with pytest.raises(InvalidInput):
            service_account_create(actor=world.alice, tenant=world.acme, name="root", role=role)


def test_an_operator_issues_no_token_for_it(world: World, account: ServiceAccount) -> None:
    membership = world.bob.memberships.get()
    membership.role = Role.OPERATOR
    membership.save()
    with pytest.raises(NotAllowed):
        issue(world, account, world.bob)


def test_names_are_unique_in_a_tenant_and_accounts_are_bounded(
    world: World, account: ServiceAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Conflict):
        service_account_create(actor=world.alice, tenant=world.acme, name=" deploy ", role=Role.VIEWER)
    monkeypatch.setattr(service_account_services, "ACCOUNTS_MAX", 1)
    with pytest.raises(LimitReached):
        service_account_create(actor=world.alice, tenant=world.acme, name="second", role=Role.VIEWER)


def test_the_audit_trail_names_the_account_and_what_changed(world: World, account: ServiceAccount) -> None:
    service_account_update(actor=world.alice, account=account, name="deployment", disabled=True)
    event = AuditEvent.objects.get(action="service_account.update")
    assert event.details["changes"] == {"name": ["deploy", "deployment"], "state": ["active", "disabled"]}
    service_account_update(actor=world.alice, account=account, disabled=False)
    child = api_token_issue(actor=actor_of(issue(world, account)), tenant=world.acme, name="next")
    made = AuditEvent.objects.get(action="token.issue", details__public_id=child.token.public_id)
    assert made.actor.startswith("service account deployment, token first (")


def test_the_api_makes_one_with_its_token(world: World, api: Callable[..., Json]) -> None:
    client = api(token=api_token_issue(actor=SYSTEM, tenant=world.acme, name="root", role=Role.ADMIN).text)
    made = client.call("POST", "/api/v1/tenants/acme/service-accounts/", {"name": "ci", "role": "developer"})
    assert made.status_code == 201
    body = {"name": "one", "role": "developer", "service_account_id": made.json()["id"]}
    issued = client.call("POST", "/api/v1/tenants/acme/tokens/", body)
    assert (issued.status_code, issued.json()["service_account_id"]) == (201, made.json()["id"])
    assert api(token=issued.json()["token"]).call("GET", "/api/v1/tenants/acme/").status_code == 200
    assert client.call("GET", made.headers["Location"]).json()["token_count"] == 1
    unknown = client.call("POST", "/api/v1/tenants/acme/tokens/", {**body, "service_account_id": str(world.acme.pk)})
    assert unknown.status_code == 404


def test_another_tenants_account_is_not_found(world: World, account: ServiceAccount, api: Callable[..., Json]) -> None:
    address = f"/api/v1/tenants/globex/service-accounts/{account.pk}/"
    foreign = service_account_get(world.acme, account.pk)
    assert foreign.pk == account.pk
    assert api(world.charlie).call("DELETE", address).status_code == 404
    assert ServiceAccount.objects.filter(pk=account.pk).exists()
