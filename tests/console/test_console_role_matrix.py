"""Every page below a tenant x every role, against the one table of permissions."""

from __future__ import annotations

import pytest
from django.urls import resolve

from controlplane.tenants.models import Role
from controlplane.tenants.rules import PERMISSIONS, role_allows
from tests.console.test_console_access import addresses
from tests.console.world import World

# What a page asks for after the right to see what it is about.
ASKED_INSIDE = {
    "operation-retry": "operation.retry",
    "operation-cancel": "operation.cancel",
    "topic-delete": "topic.delete",
    "message-send": "message.send",
}


def permission_of(address: str) -> str:
    match = resolve(address)
    if match.url_name in ASKED_INSIDE:
        return ASKED_INSIDE[match.url_name]
    permission: str = match.func.permission  # type: ignore[attr-defined]  # `tenant_page` sets it
    return permission


@pytest.mark.parametrize("role", Role)
def test_each_role_opens_the_pages_that_the_table_says(world: World, role: Role) -> None:
    found = addresses(world)
    membership = world.tenant.memberships.get(user=world.bob)
    membership.role = role
    membership.save()
    client = world.client(world.bob)
    wrong = []
    for address in found:
        permission = permission_of(address)
        allowed = role_allows(role, permission)
        if allowed and PERMISSIONS[permission].role != role:
            continue  # opened by the least role that may
        answer = client.get(address)
        if answer.status_code == 405:
            answer = client.post(address)
        if (answer.status_code != 403) is not allowed:
            wrong.append(f"{address} ({permission}): {answer.status_code}")
    assert not wrong, "\n".join(wrong)
