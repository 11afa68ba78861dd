"""Log-ins, failed ones, log-outs and changes of what protects an account are in the audit trail, with who and from where."""

from __future__ import annotations

from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.core.cache import cache
from django.test import Client

from controlplane.accounts import account_events
from controlplane.accounts.models import User
from controlplane.accounts.operators import is_operator
from controlplane.common.models import AuditEvent
from tests.console.test_console_second_factor import code_of, is_logged_in, log_in, set_up
from tests.console.world import PASSWORD, World


def events(world: World, *actions: str) -> list[AuditEvent]:
    return list(AuditEvent.objects.filter(tenant_id=world.tenant.pk, action__in=actions).order_by("sequence"))


def try_password(email: str, password: str, address: str = "192.0.2.7") -> Client:
    client = Client(REMOTE_ADDR=address)
    client.post("/login/", {"login": email, "password": password})
    return client


def test_a_log_in_and_its_end_are_told_with_address_and_request(world: World) -> None:
    client = try_password("alice@example.com", PASSWORD)
    assert is_logged_in(client)
    client.post("/logout/")
    into, out = events(world, "session.log_in", "session.log_out")
    assert [(one.actor, one.action, one.address) for one in (into, out)] == [
        ("alice@example.com", "session.log_in", "192.0.2.7"),
        ("alice@example.com", "session.log_out", "192.0.2.7"),
    ]
    assert into.details == {"by": ["password"]}
    assert len({into.request_id, out.request_id} - {""}) == 2


def test_a_wrong_password_is_recorded_for_the_tenants_of_the_account(world: World) -> None:
    try_password(" Alice@Example.com", "guessed")
    (failed,) = events(world, "session.log_in_failed")
    assert (failed.actor, failed.resource, failed.address) == ("not logged in", "alice@example.com", "192.0.2.7")
    assert failed.details == {"wrong": "password"}
    assert not AuditEvent.objects.filter(tenant_id=world.foreign_tenant.pk).exists()


def test_a_wrong_password_for_a_second_address_is_recorded_for_the_account(world: World) -> None:
    EmailAddress.objects.create(user=world.alice, email="alice@home.example", verified=True, primary=False)
    try_password("alice@home.example", "guessed")
    assert [one.resource for one in events(world, "session.log_in_failed")] == ["alice@example.com"]


def test_what_is_typed_for_an_unknown_address_is_not_kept(world: World) -> None:
    """It may be a password in the wrong field."""
    try_password("hunter2@example.com", "x")
    assert not AuditEvent.objects.filter(action="session.log_in_failed").exists()


def test_a_wrong_code_is_recorded_and_a_right_one_says_which_factor_it_was(world: World) -> None:
    _, secret = set_up(world)
    client = log_in(world)
    client.post("/2fa/authenticate/", {"code": "000000"})
    (failed,) = events(world, "session.log_in_failed")
    assert (failed.actor, failed.details) == ("not logged in", {"wrong": "totp"})
    cache.clear()
    for _ in range(2):
        client.post("/2fa/authenticate/", {"code": code_of(secret)})
    assert events(world, "session.log_in")[-1].details == {"by": ["password", "totp"]}


def test_a_password_that_is_asked_again_is_told_of_who_is_logged_in(world: World) -> None:
    client = log_in(world)
    client.post("/reauthenticate/", {"password": "wrong"})
    assert [one.actor for one in events(world, "session.log_in_failed")] == ["alice@example.com"]


def test_changes_of_factors_and_passwords_are_told_to_the_tenant(
    world: World, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        client, _ = set_up(world)
    client.post("/2fa/totp/deactivate/", {})
    another = "another-long-enough-password"
    client.post("/password/change/", {"oldpassword": PASSWORD, "password1": another, "password2": another})
    recorded = events(world, "second_factor.add", "second_factor.remove", "password.change")
    assert [one.action for one in recorded if one.details.get("kind") != "recovery_codes"] == [
        "second_factor.add",
        "second_factor.remove",
        "password.change",
    ]


def test_a_crowd_of_guesses_does_not_fill_the_trail(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_events, "FAILED_AN_HOUR_MAX", 3)
    for _ in range(6):
        try_password("alice@example.com", "guessed")
    assert len(events(world, "session.log_in_failed")) == 3


def test_who_belongs_to_no_tenant_is_in_the_platforms_trail(world: World) -> None:
    User.objects.create_user("dora@example.com", PASSWORD)
    try_password("dora@example.com", PASSWORD)
    (into,) = AuditEvent.objects.filter(action="session.log_in")
    assert (into.tenant_id, into.resource) == (None, "dora@example.com")


def test_an_operators_log_ins_are_in_the_platforms_trail_as_well(world: World) -> None:
    User.objects.filter(pk=world.alice.pk).update(is_staff=True)
    assert is_operator(User.objects.get(pk=world.alice.pk))
    try_password("alice@example.com", PASSWORD)
    found = AuditEvent.objects.filter(action="session.log_in").values_list("tenant_id", flat=True)
    assert set(found) == {world.tenant.pk, None}
