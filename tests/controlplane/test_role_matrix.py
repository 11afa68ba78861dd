"""Every route below a tenant x every role, against the one table of permissions; and who runs the platform without a role."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import transaction
from django.urls import resolve

from controlplane.provisioning import apis as provisioning_apis
from controlplane.tenants.api_base import TenantApi
from controlplane.tenants.models import Role
from controlplane.tenants.rules import PERMISSIONS, role_allows
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.test_api_access import ROWS, TENANT, Row, filled, values
from tests.controlplane.world import Json, World


def routes(world: World, prefix: str | tuple[str, ...]) -> list[tuple[Row, str]]:
    """The rows of routes that begin so, each with an address. All are made at once: each pattern names the same rows."""
    rows = [row for row in ROWS if row.pattern.startswith(prefix)]
    addresses = filled("\n".join(row.pattern for row in rows), values(world)).removeprefix("/api/v1/").split("\n")
    return [(row, f"/api/v1/{address}") for row, address in zip(rows, addresses, strict=True)]


def answers(client: Json, found: list[tuple[Row, str]]) -> Iterator[tuple[Row, str, Any]]:
    """What each route answers; nothing of it stays."""
    for row, address in found:
        with transaction.atomic():
            answer = client.call(row.method, address, row.body)
            transaction.set_rollback(True)
        yield row, address, answer


def permission_of(address: str, method: str) -> str:
    view = resolve(address).func.view_class  # type: ignore[attr-defined]  # as_view() sets it
    assert issubclass(view, TenantApi)
    permission: str = view.permissions[method]
    return permission


def test_every_permission_of_the_table_is_asked_for_by_a_route_or_excused_with_a_reason(world: World) -> None:
    asked = {permission_of(address, row.method) for row, address in routes(world, TENANT)}
    # Asked for inside services, where the answer depends on what is changed.
    inside = {"operation.retry", "operation.cancel", "operation.view"}
    assert set(PERMISSIONS) - asked <= inside, "a permission that no route asks for protects nothing"


def is_tried(role: Role, permission: str) -> bool:
    """Roles above the least that may are let in by their rank: of the owner, test_api_rows.py says so for each route."""
    return role in (Role.BILLING, PERMISSIONS[permission].role) or not role_allows(role, permission)


@pytest.mark.parametrize("role", Role)
def test_each_role_may_what_the_table_says(world: World, api: Callable[..., Json], role: Role) -> None:
    membership = world.bob.memberships.get()
    membership.role = role
    membership.save()
    found = routes(world, TENANT)
    tried = [(row, address) for row, address in found if is_tried(role, permission_of(address, row.method))]
    wrong = [
        f"{row.method} {row.pattern}: {answer.status_code} {answer.content[:200]!r}"
        for row, address, answer in answers(api(world.bob), tried)
        if (answer.status_code != 403) is not role_allows(role, permission_of(address, row.method))
    ]
    assert not wrong, "\n".join(wrong)


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
