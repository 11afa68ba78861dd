"""Every route below a tenant x every role, against the one table of permissions; and who runs the platform without a role."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from django.db import transaction
from django.urls import resolve

from controlplane.provisioning import apis as provisioning_apis
from controlplane.tenants.api_base import TenantApi
from controlplane.tenants.models import Role
from controlplane.tenants.rules import PERMISSIONS, role_allows
from controlplane.tenants.service_account_services import service_account_create
from controlplane.tenants.token_services import ALL_SCOPES, api_token_issue
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.test_api_access import ROWS, TENANT, Row, filled, values
from tests.controlplane.world import SYSTEM, Json, World


def routes(world: World, prefix: str | tuple[str, ...]) -> list[tuple[Row, str]]:
    """The rows of routes that begin so, each with an address."""
    made = values(world)
    return [(row, filled(row.pattern, made)) for row in ROWS if row.pattern.startswith(prefix)]


def answers(client: Json, found: list[tuple[Row, str]]) -> Iterator[tuple[Row, str, Any]]:
    """What each route answers; nothing of it stays."""
    for row, address in found:
        with transaction.atomic():
            answer = client.call(row.method, address, row.body)
            transaction.set_rollback(True)
        yield row, address, answer


# Operations are found by their ids alone: their tenant is known once they are, so services ask for the right, not the view.
OPERATION = "operations/"


def test_every_view_below_a_tenant_asks_for_the_right_that_stands_in_its_row(world: World) -> None:
    wrong = []
    for row, address in routes(world, TENANT):
        view = resolve(address).func.view_class  # type: ignore[attr-defined]  # as_view() sets it
        assert issubclass(view, TenantApi)
        if view.permissions[row.method] != row.needs:
            wrong.append(f"{row.method} {row.pattern}: {view.permissions[row.method]}, not {row.needs}")
    assert not wrong, "\n".join(wrong)


def test_each_route_of_a_tenants_things_needs_a_right_of_the_table_and_no_other_does() -> None:
    needing = {(row.method, row.pattern) for row in ROWS if row.needs}
    assert needing == {(row.method, row.pattern) for row in ROWS if row.pattern.startswith((TENANT, OPERATION))}
    assert {row.needs for row in ROWS if row.needs} == set(PERMISSIONS), "what no route needs protects nothing"


# By hand, so that no change of the rules goes unseen: the least role for each permission, and what the role `billing` may.
LEAST = {
    Role.VIEWER: {
        "alert.view", "billing.view", "cluster.view", "credential.view", "failover.view", "lag.view", "masking.view",
        "member.view", "operation.view", "tenant.view", "topic.view",
    },
    Role.DEVELOPER: {
        "consumer.inspect", "credential.reveal", "dead_letter.replay", "message.browse", "message.consume", "message.send",
        "topic.create", "topic.update",
    },
    Role.OPERATOR: {
        "alert.manage", "audit.view", "cluster.create", "cluster.delete", "cluster.grow", "cluster.renew_ca",
        "cluster.restart", "cluster.resume", "cluster.suspend", "cluster.update", "credential.create",
        "credential.delete", "diverged.manage", "group.promote", "offset.reset", "operation.cancel", "operation.retry",
        "service_account.view", "token.manage", "token.view", "topic.delete",
    },
    Role.ADMIN: {
        "budget.manage", "credential.update", "masking.manage", "member.manage", "service_account.manage", "tenant.update",
    },
}  # fmt: skip
OF_BILLING = {"billing.view", "budget.manage", "cluster.view", "tenant.view"}


def test_the_table_of_permissions_is_the_one_that_stands_here() -> None:
    assert {
        role: {name for name, needs in PERMISSIONS.items() if needs.role == role} for role in (*LEAST, Role.OWNER)
    } == {**LEAST, Role.OWNER: set()}
    assert {name for name, needs in PERMISSIONS.items() if needs.for_billing} == OF_BILLING


MEMBER = f"{TENANT}members/<uuid:membership_id>/"
# It is Bob's own membership: what any role may, a service account may not.
BOBS_OWN = {("DELETE", MEMBER): "member.manage", ("GET", f"{MEMBER}secrets/"): "member.manage"}


def is_tried(role: Role, row: Row, permission: str) -> bool:
    """Reading, roles above the least that may are let in by their rank: of the owner, test_api_rows.py says so for each route."""
    return (
        row.method != "GET" or role in (Role.BILLING, PERMISSIONS[permission].role) or not role_allows(role, permission)
    )


def wrong_answers(
    client: Json, world: World, role: Role, others: Mapping[tuple[str, str], str] = MappingProxyType({})
) -> list[str]:
    """Where the answer is another one than the owner's, where the role may, and than 403, where it may not."""
    wrong = []
    found = routes(world, (TENANT, OPERATION))
    needs = {(row.method, row.pattern): others.get((row.method, row.pattern)) or row.needs for row, _ in found}
    tried = [(row, address) for row, address in found if is_tried(role, row, needs[row.method, row.pattern])]
    for row, _, answer in answers(client, tried):
        expected = row.owner if role_allows(role, needs[row.method, row.pattern]) else 403
        if answer.status_code != expected:
            wrong.append(f"{row.method} {row.pattern}: {answer.status_code}, not {expected} {answer.content[:200]!r}")
    return wrong


@pytest.mark.parametrize("role", Role)
def test_each_role_is_answered_what_the_table_says(world: World, api: Callable[..., Json], role: Role) -> None:
    membership = world.bob.memberships.get()
    membership.role = role
    membership.save()
    wrong = wrong_answers(api(world.bob), world, role)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("role", [Role.VIEWER, Role.BILLING, Role.DEVELOPER, Role.OPERATOR])
def test_each_service_account_is_answered_what_its_role_is(world: World, api: Callable[..., Json], role: Role) -> None:
    account = service_account_create(actor=SYSTEM, tenant=world.acme, name="builds", role=role)
    text = api_token_issue(
        actor=SYSTEM, tenant=world.acme, name="builds", role=role, scopes=ALL_SCOPES, service_account=account
    ).text
    wrong = wrong_answers(api(token=text), world, role, BOBS_OWN)
    assert not wrong, "\n".join(wrong)


# What operators' routes answer who runs the platform. 400: the row's body lacks what is needed; 409: there is nothing to be done.
OF_OPERATORS = {
    ("POST", "operator/plans/"): 201,
    ("PATCH", "operator/plans/<slug:plan>/"): 200,
    ("POST", "operator/plans/<slug:plan>/prices/"): 400,
    ("PUT", "operator/plans/<slug:plan>/prices/<uuid:price_id>/"): 400,
    ("DELETE", "operator/plans/<slug:plan>/prices/<uuid:price_id>/"): 409,
    ("POST", "operator/invoices/<slug:invoice>/reproductions/"): 404,  # no invoice of that number was issued
    ("PUT", "operator/tenants/<slug:tenant>/limits/<str:limit>/"): 400,
    ("POST", "operator/subscriptions/"): 400,
    ("POST", "operator/incidents/"): 400,
    ("POST", "operator/incidents/<uuid:incident_id>/updates/"): 400,
    ("POST", "operator/maintenance/"): 400,
    ("DELETE", "operator/maintenance/<uuid:maintenance_id>/"): 204,
    ("POST", "operator/leftovers/"): 200,
    ("POST", "operator/operations/<uuid:operation_id>/requeue/"): 409,
    ("POST", "operator/operations/<uuid:operation_id>/fail/"): 409,
    ("POST", "operator/job-runs/"): 202,
    ("POST", "operator/job-runs/<uuid:run_id>/retry/"): 202,
    ("POST", "operator/job-runs/<uuid:run_id>/acknowledge/"): 200,
    ("POST", "operator/job-runs/<uuid:run_id>/replay/"): 409,
    ("POST", "operator/clusters/<uuid:cluster_id>/metering/"): 200,
}


def test_who_runs_the_platform_is_answered_what_stands_here(
    world: World, api: Callable[..., Json], driver: DriverTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provisioning_apis, "get_driver", lambda: driver)
    world.charlie.is_staff = True
    world.charlie.save()
    writes = [route for route in routes(world, "operator/") if route[0].method != "GET"]
    found = {(row.method, row.pattern): answer.status_code for row, _, answer in answers(api(world.charlie), writes)}
    assert found == OF_OPERATORS


def test_who_runs_the_platform_has_no_role_in_any_tenant_by_that(
    world: World, api: Callable[..., Json], driver: DriverTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provisioning_apis, "get_driver", lambda: driver)  # a machine to look for leftovers on
    world.charlie.is_staff = True
    world.charlie.save()
    client = api(world.charlie)
    found = routes(world, (TENANT, "operator/"))
    below_tenants = [route for route in found if route[0].pattern.startswith(TENANT)]
    assert {answer.status_code for _, _, answer in answers(client, below_tenants)} == {404}
    reads = [route for route in found if route not in below_tenants and route[0].method == "GET"]
    for row, _, answer in answers(client, reads):
        # No invoice of that number was issued, so there is no list of its reproductions.
        assert answer.status_code == (404 if "<slug:invoice>" in row.pattern else 200), row.pattern
