"""A member leaves or loses rights in the console: what outlasts them is offered, and ends in the same step."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.accounts.authentication import token_authenticate
from controlplane.clusters import credential_services
from controlplane.clusters.account_distribution import Distribution
from controlplane.clusters.credential_services import credential_reveal
from controlplane.tenants.models import Membership, Role
from controlplane.tenants.service_account_services import service_account_create
from controlplane.tenants.services import membership_remove
from controlplane.tenants.token_services import IssuedToken, api_token_issue
from tests.console.browser import LogIn, look_at
from tests.console.world import World


@pytest.fixture
def bobs(world: World, monkeypatch: pytest.MonkeyPatch) -> Membership:
    """Bob's membership, of an admin who has issued a program's token and seen a key pair."""
    monkeypatch.setattr(credential_services, "accounts_distribute", lambda _cluster: Distribution(1, ()))
    membership = world.tenant.memberships.get(user=world.bob)
    membership.role = Role.ADMIN
    membership.save()
    credential_reveal(actor=world.bob, credential=world.cluster.credentials.get(is_control=False))
    return membership


@pytest.fixture
def token(world: World, bobs: Membership) -> IssuedToken:
    account = service_account_create(actor=world.alice, tenant=world.tenant, name="deploy", role=Role.OPERATOR)
    return api_token_issue(actor=world.bob, tenant=world.tenant, name="nightly", service_account=account)


def test_who_removes_a_member_chooses_what_ends_with_them(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn, bobs: Membership, token: IssuedToken
) -> None:
    log_in(world.alice)
    page.goto(f"{live_server.url}{world.path(f'members/{bobs.pk}/remove/')}")
    look_at(page, "member removal")
    page.get_by_label("Key pair “default”").check()
    page.get_by_role("button", name="Remove member").click()
    expect(page.get_by_text("bob@example.com is no longer a member.")).to_be_visible()
    assert not world.cluster.credentials.filter(is_control=False).exists()
    assert token_authenticate(token.text) is not None
    page.goto(f"{live_server.url}{world.path('tokens/')}")
    expect(page.get_by_text("Issued by bob@example.com, who has left")).to_be_visible()


def test_a_lower_role_asks_first_about_what_it_would_not_have(
    world: World, bobs: Membership, token: IssuedToken
) -> None:
    client, address = world.client(world.alice), world.path(f"members/{bobs.pk}/")
    asked = client.post(address, {"role": "developer"}).content.decode()
    assert "Make bob@example.com developer?" in asked
    assert "API token “nightly”" in asked
    assert "Key pair" not in asked  # a developer sees those anyway
    bobs.refresh_from_db()
    assert bobs.role == Role.ADMIN
    done = client.post(address, {"role": "developer", "is_confirmed": "True", "revoke": [str(token.token.pk)]})
    assert done.status_code == 302
    bobs.refresh_from_db()
    assert (bobs.role, token_authenticate(token.text)) == (Role.DEVELOPER, None)


def test_a_role_that_leaves_nothing_behind_is_changed_at_once(world: World, bobs: Membership) -> None:
    assert world.client(world.alice).post(world.path(f"members/{bobs.pk}/"), {"role": "operator"}).status_code == 302
    bobs.refresh_from_db()
    assert bobs.role == Role.OPERATOR


def test_curl_of_a_removal_is_what_was_checked(world: World, bobs: Membership, token: IssuedToken) -> None:
    client, typed = world.client(world.alice), {"X-Wants": "curl"}
    line = client.post(world.path(f"members/{bobs.pk}/remove/"), {"revoke": [str(token.token.pk)]}, headers=typed)
    assert f"/members/{bobs.pk}/?revoke={token.token.pk}" in line.json()["curl"]
    body = {"role": "viewer", "revoke": [str(token.token.pk)]}
    line = client.post(world.path(f"members/{bobs.pk}/"), body, headers=typed)
    assert f'"revoke": ["{token.token.pk}"]' in line.json()["curl"]


def test_who_leaves_is_told_of_what_they_can_not_end(world: World, bobs: Membership) -> None:
    bobs.role = Role.DEVELOPER
    bobs.save()
    page = world.client(world.bob).get(world.path(f"members/{bobs.pk}/remove/")).content.decode()
    assert "You know 1 secret that your role can’t end: tell an admin." in page
    assert 'name="revoke"' not in page


def test_a_key_pair_says_who_left_and_knows_its_secret(world: World, bobs: Membership) -> None:
    address = world.cluster_path("credentials/")
    assert "who left" not in world.client(world.alice).get(address).content.decode()
    membership_remove(actor=world.alice, membership=bobs)
    page = world.client(world.alice).get(address).content.decode()
    assert "Its secret is known to bob@example.com, who left. Replace the key pair." in page
