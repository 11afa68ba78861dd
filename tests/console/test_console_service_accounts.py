"""Service accounts in the console: made, given a token, disabled and deleted."""

from __future__ import annotations

from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.accounts.authentication import token_authenticate
from controlplane.tenants.models import ServiceAccount
from tests.console.browser import LogIn
from tests.console.world import World


def test_a_program_gets_a_token_and_loses_it(page: Page, live_server: LiveServer, world: World, log_in: LogIn) -> None:
    log_in(world.alice)
    page.goto(f"{live_server.url}/t/acme/tokens/")
    page.get_by_role("link", name="service accounts").click()
    page.get_by_label("Name").fill("deployment")
    page.get_by_label("Role").select_option("operator")
    page.get_by_role("button", name="Create service account").click()
    form = page.locator("form", has=page.get_by_role("button", name="Create token"))
    form.get_by_label("Name").fill("first")
    form.get_by_role("button", name="Create token").click()
    token = page.locator("#new-token").inner_text()
    assert token_authenticate(token) is not None
    page.get_by_role("button", name="Disable").click()
    expect(page.get_by_text("Its tokens are refused now.")).to_be_visible()
    assert token_authenticate(token) is None
    page.get_by_role("button", name="Enable").click()
    page.get_by_role("link", name="Delete").click()
    page.get_by_role("button", name="Delete service account").click()
    expect(page.get_by_text("The service account deployment is deleted.")).to_be_visible()
    assert not ServiceAccount.objects.exists()


def test_an_operator_sees_them_and_changes_nothing(world: World) -> None:
    membership = world.tenant.memberships.get(user=world.bob)
    membership.role = "operator"
    membership.save()
    client = world.client(world.bob)
    assert "New service account" not in client.get(world.path("service-accounts/")).content.decode()
    answer = client.post(world.path("service-accounts/"), {"name": "mine", "role": "viewer"})
    assert answer.status_code == 403
    assert not ServiceAccount.objects.exists()
