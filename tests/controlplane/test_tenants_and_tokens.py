"""Tenants, members, roles and tokens."""

from __future__ import annotations

import stat
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from controlplane.accounts.actors import TokenActor
from controlplane.accounts.authentication import token_authenticate
from controlplane.accounts.models import ApiToken, User
from controlplane.accounts.tokens import token_text_parse
from controlplane.common.errors import Conflict, InvalidInput, NotAllowed
from controlplane.common.models import AuditEvent
from controlplane.tenants.invitation_services import invitation_create
from controlplane.tenants.models import Membership, Role
from controlplane.tenants.rules import PERMISSIONS, actor_can, role_allows, role_includes
from controlplane.tenants.services import (
    membership_remove,
    membership_update,
    tenant_create,
)
from controlplane.tenants.token_services import api_token_issue, api_token_revoke
from tests.controlplane.world import SYSTEM, Json, World


def test_who_creates_a_tenant_owns_it(world: World) -> None:
    tenant = tenant_create(actor=world.charlie, slug="initech", name="")
    membership = Membership.objects.get(tenant=tenant)
    assert (membership.user, membership.role, tenant.name) == (world.charlie, Role.OWNER, "initech")


@pytest.mark.parametrize("slug", ["", "a", "Acme", "1st", "a--b", "-a", "a-", "ä", "x" * 40, "new", "api", "a b"])
def test_a_bad_or_reserved_name_is_refused(world: World, slug: str) -> None:
    with pytest.raises(InvalidInput):
        tenant_create(actor=world.alice, slug=slug, name="")


def test_a_taken_name_is_a_conflict(world: World) -> None:
    with pytest.raises(Conflict):
        tenant_create(actor=world.charlie, slug="acme", name="")


def test_roles_include_those_below(world: World) -> None:
    membership = world.bob.memberships.get()
    allowed = []
    for role in (Role.VIEWER, Role.DEVELOPER, Role.OPERATOR, Role.ADMIN):
        Membership.objects.filter(pk=membership.pk).update(role=role)
        allowed.append({name for name in PERMISSIONS if actor_can(world.bob, name, world.acme)})
    assert allowed[0] < allowed[1] < allowed[2] < allowed[3] == set(PERMISSIONS)


def test_billing_sees_costs_and_sets_the_budget_and_does_nothing_else() -> None:
    allowed = {name for name in PERMISSIONS if role_allows(Role.BILLING, name)}
    assert allowed == {"tenant.view", "cluster.view", "billing.view", "budget.manage"}


@pytest.mark.parametrize(
    ("role", "gives"),
    [
        (Role.OWNER, set(Role)),
        (Role.ADMIN, set(Role) - {Role.OWNER}),
        (Role.OPERATOR, {Role.OPERATOR, Role.DEVELOPER, Role.VIEWER}),
        (Role.BILLING, {Role.BILLING}),
        (Role.VIEWER, {Role.VIEWER}),
    ],
)
def test_no_one_gives_a_role_that_may_do_more_than_their_own(role: Role, gives: set[Role]) -> None:
    assert {other for other in Role if role_includes(role, other)} == gives


def test_an_admin_neither_makes_nor_changes_nor_removes_owners(world: World) -> None:
    admin = world.bob.memberships.get()
    membership_update(actor=world.alice, membership=admin, role=Role.ADMIN)
    owner = world.alice.memberships.get()
    Membership.objects.create(tenant=world.acme, user=world.charlie, role=Role.OWNER)
    for act in (
        lambda: membership_update(actor=world.bob, membership=admin, role=Role.OWNER),
        lambda: membership_update(actor=world.bob, membership=owner, role=Role.VIEWER),
        lambda: membership_remove(actor=world.bob, membership=owner),
        lambda: invitation_create(actor=world.bob, tenant=world.acme, email="dora@example.com", role=Role.OWNER),
    ):
        with pytest.raises(NotAllowed, match="the role `owner`"):
            act()


def test_a_token_of_one_who_became_billing_does_what_both_roles_allow(world: World) -> None:
    membership = world.bob.memberships.get()
    membership_update(actor=world.alice, membership=membership, role=Role.OPERATOR)
    token = TokenActor(
        api_token_issue(actor=world.bob, tenant=world.acme, name="ci", role=Role.OPERATOR, user=world.bob).token
    )
    Membership.objects.filter(pk=membership.pk).update(role=Role.BILLING)
    allowed = {name for name in PERMISSIONS if actor_can(token, name, world.acme)}
    assert allowed == {"tenant.view", "cluster.view", "billing.view"}, "an operator sets no budget"


def test_djangos_own_permission_check_asks_the_same_rules(world: World) -> None:
    assert world.alice.has_perm("cluster.delete", world.acme)
    assert not world.bob.has_perm("cluster.delete", world.acme)
    assert not world.charlie.has_perm("cluster.view", world.acme)


def test_a_deactivated_user_has_no_role(world: World) -> None:
    world.alice.is_active = False
    assert not actor_can(world.alice, "tenant.view", world.acme)


def test_the_last_owner_stays(world: World) -> None:
    membership = world.alice.memberships.get()
    with pytest.raises(Conflict):
        membership_remove(actor=world.alice, membership=membership)
    with pytest.raises(Conflict):
        membership_update(actor=world.alice, membership=membership, role=Role.VIEWER)


def test_an_owner_may_go_when_there_is_another(world: World) -> None:
    membership_update(actor=world.alice, membership=world.bob.memberships.get(), role=Role.OWNER)
    membership_remove(actor=world.alice, membership=world.alice.memberships.get())
    assert [member.user for member in world.acme.memberships.all()] == [world.bob]


def test_members_may_leave_and_not_remove_others(world: World) -> None:
    with pytest.raises(NotAllowed):
        membership_remove(actor=world.bob, membership=world.alice.memberships.get())
    membership_remove(actor=world.bob, membership=world.bob.memberships.get())
    assert not world.bob.memberships.exists()


def test_one_mailbox_is_one_user(db: None) -> None:
    assert User.objects.create_user("Dora@Example.com").email == "dora@example.com"
    assert User.objects.get_by_natural_key("DORA@example.com").email == "dora@example.com"


def test_a_token_has_the_documented_form_and_only_its_hash_is_stored(world: World) -> None:
    issued = api_token_issue(actor=world.alice, tenant=world.acme, name="ci")
    text = token_text_parse(issued.text)
    assert text is not None
    assert issued.text == f"hw_test_{issued.token.public_id}_{text.secret}"
    assert text.secret not in str(ApiToken.objects.values().get())


def test_a_live_token_authenticates_and_says_when_it_was_used(world: World) -> None:
    issued = api_token_issue(actor=world.alice, tenant=world.acme, name="ci")
    assert token_authenticate(issued.text) == issued.token
    issued.token.refresh_from_db()
    assert issued.token.last_used_at is not None


def test_a_token_in_use_is_written_once_a_minute(world: World, django_assert_num_queries: Any) -> None:
    issued = api_token_issue(actor=world.alice, tenant=world.acme, name="ci")
    token_authenticate(issued.text)
    with django_assert_num_queries(1):
        token_authenticate(issued.text)
    ApiToken.objects.update(last_used_at=timezone.now() - timedelta(seconds=61))
    with django_assert_num_queries(2):
        token_authenticate(issued.text)


def test_a_token_of_another_environment_is_nothing_here(world: World) -> None:
    issued = api_token_issue(actor=world.alice, tenant=world.acme, name="ci")
    assert token_authenticate(issued.text.replace("hw_test_", "hw_live_")) is None


@pytest.mark.parametrize("text", ["", "hw_", "hw_test_zz_x", "hw_test_0123456789ab_short", "Bearer", "hw_test_é_x"])
def test_what_is_no_token_is_no_token(text: str) -> None:
    assert token_text_parse(text) is None


def test_a_wrong_secret_is_refused(world: World) -> None:
    issued = api_token_issue(actor=world.alice, tenant=world.acme, name="ci")
    assert token_authenticate(issued.text[:-1] + ("A" if issued.text[-1] != "A" else "B")) is None


@pytest.mark.parametrize(("asked", "days"), [({}, 90), ({"days": 7}, 7), ({"days": None}, None)])
def test_a_token_expires_unless_it_is_asked_not_to(
    world: World, api: Callable[..., Json], asked: dict[str, object], days: int | None
) -> None:
    answer = api(world.alice).call("POST", "/api/v1/tenants/acme/tokens/", {"name": "ci", **asked}).json()
    if days is None:
        assert answer["expires_at"] is None
    else:
        left = datetime.fromisoformat(answer["expires_at"]) - timezone.now()
        assert timedelta(days=days) - timedelta(minutes=5) < left <= timedelta(days=days)


def test_an_expired_token_is_refused(world: World) -> None:
    issued = api_token_issue(actor=world.alice, tenant=world.acme, name="ci", days=1)
    assert token_authenticate(issued.text) is not None
    ApiToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert token_authenticate(issued.text) is None


def test_a_revoked_token_is_refused_at_once(world: World) -> None:
    issued = api_token_issue(actor=world.alice, tenant=world.acme, name="ci")
    api_token_revoke(actor=world.alice, token=issued.token)
    api_token_revoke(actor=world.alice, token=issued.token)  # twice is harmless
    assert token_authenticate(issued.text) is None
    assert AuditEvent.objects.filter(action="token.revoke").count() == 1


def test_no_one_hands_out_more_than_they_hold(world: World, api: Callable[..., Json]) -> None:
    Membership.objects.filter(user=world.bob).update(role=Role.OPERATOR)
    with pytest.raises(NotAllowed):
        api_token_issue(actor=world.bob, tenant=world.acme, name="up", role=Role.OWNER)
    text = api_token_issue(
        actor=world.alice, tenant=world.acme, name="narrow", role=Role.OWNER, scopes=("credentials",)
    ).text
    answer = api(token=text).call("POST", "/api/v1/tenants/acme/tokens/", {"name": "up"})
    assert answer.status_code == 403


def test_issue_token_prints_a_token_that_works(
    world: World, api: Callable[..., Json], capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("issue_token", "acme")
    text = capsys.readouterr().out.strip()
    assert api(token=text).call("GET", "/api/v1/tenants/").json()["results"][0]["slug"] == "acme"


def kept_token(capsys: pytest.CaptureFixture[str], file: Path, *options: str) -> str:
    """What `./dev token acme` prints, with these further options."""
    call_command("issue_token", "acme", "--kept", str(file), "--days", "30", *options)
    return capsys.readouterr().out.strip()


def test_a_kept_token_is_printed_again_instead_of_leaving_another(
    world: World, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first, second = (kept_token(capsys, tmp_path / "tokens" / "acme") for _ in range(2))
    assert first == second
    (token,) = world.acme.api_tokens.all()
    assert token.expires_at is not None
    assert timedelta(days=29) < token.expires_at - timezone.now() <= timedelta(days=30)
    assert stat.S_IMODE((tmp_path / "tokens" / "acme").stat().st_mode) == 0o600


@pytest.mark.parametrize("why", ["revoked", "ends soon", "of another tenant", "no token", "of other scopes"])
def test_a_kept_token_that_does_not_serve_is_replaced(
    world: World, capsys: pytest.CaptureFixture[str], tmp_path: Path, why: str
) -> None:
    file = tmp_path / "acme"
    first = kept_token(capsys, file)
    options = []
    match why:
        case "revoked":
            world.acme.api_tokens.update(revoked_at=timezone.now())
        case "ends soon":
            world.acme.api_tokens.update(expires_at=timezone.now() + timedelta(hours=1))
        case "of another tenant":
            file.write_text(api_token_issue(actor=SYSTEM, tenant=world.globex, name="other").text)
        case "no token":
            file.write_bytes(b"\xff\x00")
        case "of other scopes":
            options = ["--scope", "read"]
    second = kept_token(capsys, file, *options)
    assert second != first
    assert file.read_text() == f"{second}\n"
    if why in ("ends soon", "of other scopes"):
        assert world.acme.api_tokens.filter(revoked_at=None).count() == 1
    assert world.globex.api_tokens.filter(revoked_at=None).count() == (1 if why == "of another tenant" else 0)


def test_issue_token_for_no_tenant_says_so(world: World) -> None:
    with pytest.raises(CommandError, match="nothing"):
        call_command("issue_token", "nothing")


def test_create_tenant_twice_is_harmless(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        call_command("create_tenant", "initech", "--owner", "charlie@example.com")
    assert capsys.readouterr().out.split() == ["initech", "initech"]
    assert Membership.objects.get(tenant__slug="initech").user == world.charlie


def test_every_change_is_in_the_audit_trail_with_who_and_what(world: World, api: Callable[..., Json]) -> None:
    api(world.alice).call("POST", "/api/v1/tenants/acme/invitations/", {"email": "charlie@example.com"})
    event = AuditEvent.objects.get(action="invitation.create")
    assert (event.actor, event.tenant_id) == ("alice@example.com", world.acme.pk)
    assert event.details == {"email": "charlie@example.com", "role": "developer"}
    assert event.request_id
    assert event.address == "127.0.0.1"


def test_the_system_may_do_everything(world: World) -> None:
    assert all(actor_can(SYSTEM, permission, world.acme) for permission in PERMISSIONS)


def test_a_personal_token_is_its_persons_and_ends_with_the_membership(world: World, api: Callable[..., Json]) -> None:
    path = "/api/v1/tenants/acme/tokens/"
    made = api(world.alice).call("POST", path, {"name": "mine", "role": "viewer", "is_personal": True})
    assert made.status_code == 201, made.content
    assert ApiToken.objects.get(name="mine").user == world.alice
    by_token = api(token=made.json()["token"])
    assert by_token.call("GET", "/api/v1/tenants/acme/").status_code == 200
    world.alice.memberships.all().delete()
    assert by_token.call("GET", "/api/v1/tenants/acme/").status_code in (401, 404)


def test_a_persons_own_token_issues_a_personal_one_and_a_tenants_does_not(
    world: World, api: Callable[..., Json]
) -> None:
    path, wish = "/api/v1/tenants/acme/tokens/", {"name": "more", "role": "viewer", "is_personal": True}
    own = api_token_issue(actor=world.alice, tenant=world.acme, name="own", role="owner", user=world.alice).text
    of_tenant = api_token_issue(actor=world.alice, tenant=world.acme, name="shared", role="owner").text
    assert api(token=own).call("POST", path, wish).status_code == 201
    assert ApiToken.objects.get(name="more").user == world.alice
    answer = api(token=of_tenant).call("POST", path, wish)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "is_personal")
