"""The second factor: set up, asked for at the log-in, recovery codes, turned off, and taken off by whoever runs the platform."""

from __future__ import annotations

import html
import re
import time
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.test import Client
from playwright.sync_api import Page
from pytest_django.live_server_helper import LiveServer

from controlplane.common.models import AuditEvent
from tests.console.browser import look_at
from tests.console.world import PASSWORD, World


def code_of(secret: str, steps: int = 0) -> str:
    """What an app shows now, or `steps` half minutes later."""
    return str(format_hotp_value(hotp_value(secret, int(time.time()) // 30 + steps)))


def log_in(world: World) -> Client:
    client = Client()
    answer = client.post("/login/", {"login": world.alice.email, "password": PASSWORD})
    assert answer.status_code == 302
    return client


def confirm_password(client: Client) -> None:
    client.post("/reauthenticate/", {"password": PASSWORD})


def set_up(world: World) -> tuple[Client, str]:
    """Alice turns the second factor on."""
    client = log_in(world)
    confirm_password(client)
    page = client.get("/2fa/totp/activate/").content.decode()
    assert "data:image/svg+xml" in page
    secret = client.session["mfa.totp.secret"]
    assert secret in page
    for _ in range(2):  # a code is made for half a minute: once more, where it ended between here and there
        if client.post("/2fa/totp/activate/", {"code": code_of(secret)}).status_code == 302:
            return client, secret
    raise AssertionError("the code was refused twice")


def recovery_codes(client: Client) -> list[str]:
    page = html.unescape(client.get("/2fa/recovery-codes/").content.decode())
    return sorted(set(re.findall(r"\b\d{8}\b", page)))


def is_logged_in(client: Client) -> bool:
    return client.get("/tenants/").status_code == 200


def test_a_wrong_code_turns_nothing_on(world: World) -> None:
    client = log_in(world)
    confirm_password(client)
    client.get("/2fa/totp/activate/")
    answer = client.post("/2fa/totp/activate/", {"code": "000000"})
    assert answer.status_code == 200
    assert "Try the next one" in answer.content.decode()
    assert not Authenticator.objects.exists()


def test_setting_up_asks_for_the_password_again(world: World) -> None:
    answer = world.client(world.alice).get("/2fa/totp/activate/")
    assert answer.headers["Location"].startswith("/reauthenticate/")


def test_the_password_alone_opens_nothing_any_more(world: World) -> None:
    _, secret = set_up(world)
    client = log_in(world)
    assert not is_logged_in(client)
    client.post("/2fa/authenticate/", {"code": "000000"})
    assert not is_logged_in(client)
    # The code that set it up is used up, and an app shows another half a minute later: that is not waited for.
    cache.clear()
    for _ in range(2):
        client.post("/2fa/authenticate/", {"code": code_of(secret)})
        if is_logged_in(client):
            break
    assert is_logged_in(client)


def test_a_recovery_code_works_once(world: World) -> None:
    client, _ = set_up(world)
    codes = recovery_codes(client)
    assert len(codes) == 10
    assert client.get("/2fa/recovery-codes/download/").content.decode().split() != []
    first, second = log_in(world), log_in(world)
    first.post("/2fa/authenticate/", {"code": codes[0]})
    second.post("/2fa/authenticate/", {"code": codes[0]})
    assert (is_logged_in(first), is_logged_in(second)) == (True, False)


def test_new_recovery_codes_end_the_old_ones(world: World) -> None:
    client, _ = set_up(world)
    old = recovery_codes(client)
    assert client.post("/2fa/recovery-codes/generate/").status_code == 302
    assert not set(old) & set(recovery_codes(client))


def test_secrets_are_stored_encrypted(world: World) -> None:
    _, secret = set_up(world)
    assert secret not in str(list(Authenticator.objects.values_list("data", flat=True)))


def test_turned_off_it_is_not_asked_for(world: World, django_capture_on_commit_callbacks: Any) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        client, _ = set_up(world)
    assert client.post("/2fa/totp/deactivate/", {}).status_code == 302
    assert not Authenticator.objects.exists()
    assert is_logged_in(log_in(world))
    actions = AuditEvent.objects.filter(actor="alice@example.com").values_list("action", flat=True)
    assert {"second_factor.add", "second_factor.remove"} <= set(actions)


def test_whoever_runs_the_platform_takes_it_off(world: World) -> None:
    set_up(world)
    call_command("remove_second_factor", "Alice@example.com")
    assert is_logged_in(log_in(world))
    assert AuditEvent.objects.filter(action="second_factor.remove", actor="command line").count() == 1
    with pytest.raises(CommandError, match="has no second factor"):
        call_command("remove_second_factor", "alice@example.com")


@pytest.mark.django_db(transaction=True)
def test_its_pages_look_right(page: Page, live_server: LiveServer, world: World) -> None:
    page.goto(f"{live_server.url}/login/?next=/2fa/totp/activate/")
    page.get_by_label("Email").fill(world.alice.email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in", exact=True).click()
    if "/reauthenticate/" in page.url:
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Confirm").click()
    look_at(page, "second factor set up")
    page.reload()  # a look in another language made another secret
    secret = page.locator("#totp-secret").inner_text().strip()
    for _ in range(2):
        if "/activate/" in page.url:
            page.get_by_label("code").fill(code_of(secret))
            page.get_by_role("button", name="Turn on").click()
    look_at(page, "recovery codes")
    page.goto(f"{live_server.url}/2fa/")
    look_at(page, "second factor")
    page.context.clear_cookies()
    page.goto(f"{live_server.url}/login/")
    page.get_by_label("Email").fill(world.alice.email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in", exact=True).click()
    look_at(page, "second factor challenge")


def test_an_unconfirmed_address_is_said_before_the_set_up_with_the_way_to_confirm_it(world: World) -> None:
    address = EmailAddress.objects.create(user=world.alice, email=world.alice.email, primary=True, verified=False)
    client = log_in(world)
    confirm_password(client)
    page = client.get("/2fa/totp/activate/", follow=True).content.decode()
    assert '<a href="/email/">confirm your e-mail address</a>' in page
    address.verified = True
    address.save()
    assert "confirm your e-mail address" not in client.get("/2fa/").content.decode()
