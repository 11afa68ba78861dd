"""Passkeys, with a browser's virtual authenticator: added, asked for after the password, alone, and once more; removed."""

from __future__ import annotations

from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.conf import settings as django_settings
from django.test import Client
from playwright.sync_api import CDPSession, Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.accounts.passkeys import PasskeyPlace, passkey_place
from controlplane.common.models import AuditEvent
from tests.console.browser import look_at
from tests.console.world import PASSWORD, World


@pytest.fixture
def keeper(page: Page) -> CDPSession:
    """A phone or computer that can keep passkeys and unlocks them at once."""
    session = page.context.new_cdp_session(page)
    session.send("WebAuthn.enable")
    session.send("WebAuthn.addVirtualAuthenticator", {"options": _OPTIONS})
    return session


_OPTIONS: dict[str, Any] = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


def type_password(page: Page, world: World) -> None:
    page.get_by_label("Email").fill(world.alice.email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in", exact=True).click()


def add_passkey(page: Page, origin: str, world: World, *, alone: bool = True) -> None:
    """Alice logs in by her password and adds a passkey; her browser has no session afterwards."""
    page.goto(f"{origin}/login/?next=/2fa/webauthn/add/")
    type_password(page, world)
    if "/reauthenticate/" in page.url:
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Confirm").click()
    page.get_by_label("Name").fill("Laptop")
    page.get_by_label("Log in with it alone").set_checked(alone)
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_role("heading", name="Recovery codes")).to_be_visible()


def log_out(page: Page) -> None:
    page.context.clear_cookies()


@pytest.mark.django_db(transaction=True)
def test_a_passkey_opens_the_account_alone(
    page: Page, keeper: CDPSession, live_server: LiveServer, world: World
) -> None:
    add_passkey(page, live_server.url, world)
    log_out(page)
    page.goto(f"{live_server.url}/login/?next=/2fa/")
    page.get_by_role("button", name="Log in with a passkey").click()
    expect(page.get_by_role("heading", name="Second factor")).to_be_visible()
    expect(page.get_by_text("1 passkey.")).to_be_visible()


@pytest.mark.django_db(transaction=True)
def test_a_passkey_is_asked_for_after_the_password(
    page: Page, keeper: CDPSession, live_server: LiveServer, world: World
) -> None:
    add_passkey(page, live_server.url, world, alone=False)
    log_out(page)
    page.goto(f"{live_server.url}/login/?next=/2fa/")
    type_password(page, world)
    expect(page.get_by_role("heading", name="Your second factor")).to_be_visible()
    page.goto(f"{live_server.url}/2fa/")
    expect(page.get_by_role("heading", name="Your second factor")).to_be_visible()
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_text("1 passkey.")).to_be_visible()


@pytest.mark.django_db(transaction=True)
def test_a_passkey_confirms_that_it_is_you(
    page: Page, keeper: CDPSession, live_server: LiveServer, world: World, settings: Any
) -> None:
    add_passkey(page, live_server.url, world)
    settings.ACCOUNT_REAUTHENTICATION_TIMEOUT = 0
    page.goto(f"{live_server.url}/2fa/webauthn/reauthenticate/?next=/2fa/")
    page.get_by_role("button", name="Use a passkey").click()
    expect(page).to_have_url(f"{live_server.url}/2fa/")
    assert Authenticator.objects.get(type="webauthn").last_used_at is not None


@pytest.mark.django_db(transaction=True)
def test_a_removed_passkey_opens_nothing(page: Page, keeper: CDPSession, live_server: LiveServer, world: World) -> None:
    add_passkey(page, live_server.url, world)
    page.goto(f"{live_server.url}/2fa/webauthn/")
    page.get_by_role("link", name="Remove Laptop").click()
    page.get_by_role("button", name="Remove").click()
    expect(page.get_by_text("You have no passkey yet.")).to_be_visible()
    assert not Authenticator.objects.exists(), "recovery codes of no factor are left"
    actions = AuditEvent.objects.filter(actor=world.alice.email).values_list("action", flat=True)
    assert {"second_factor.add", "second_factor.remove"} <= set(actions)
    log_out(page)
    page.goto(f"{live_server.url}/login/")
    page.get_by_role("button", name="Log in with a passkey").click()
    expect(page.get_by_text("That code or passkey does not work.")).to_be_visible()
    page.goto(f"{live_server.url}/tenants/")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()


@pytest.mark.django_db(transaction=True)
def test_a_browser_without_a_passkey_says_so(
    page: Page, keeper: CDPSession, live_server: LiveServer, world: World
) -> None:
    page.goto(f"{live_server.url}/login/")
    page.get_by_role("button", name="Log in with a passkey").click()
    expect(page.get_by_role("alert")).to_contain_text("The browser got no passkey")
    look_at(page, "log in without a passkey")


@pytest.mark.django_db(transaction=True)
def test_its_pages_look_right(page: Page, keeper: CDPSession, live_server: LiveServer, world: World) -> None:
    add_passkey(page, live_server.url, world)
    for path, name in (
        ("/2fa/", "second factor with a passkey"),
        ("/2fa/webauthn/", "passkeys"),
        ("/2fa/webauthn/add/", "passkey added"),
        ("/2fa/webauthn/reauthenticate/?next=/2fa/", "passkey confirms"),
    ):
        page.goto(f"{live_server.url}{path}")
        look_at(page, name)
    page.goto(f"{live_server.url}/2fa/webauthn/")
    page.get_by_role("link", name="Rename Laptop").click()
    look_at(page, "passkey renamed")
    page.get_by_label("Name").fill("Phone")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("link", name="Remove Phone").click()
    look_at(page, "passkey removed")
    log_out(page)
    page.goto(f"{live_server.url}/login/")
    type_password(page, world)
    look_at(page, "passkey challenge")


def test_a_name_longer_than_the_list_has_room_for_is_refused(world: World) -> None:
    client = Client(headers={"host": "localhost"})
    client.post("/login/", {"login": world.alice.email, "password": PASSWORD})
    client.post("/reauthenticate/", {"password": PASSWORD})
    answer = client.post("/2fa/webauthn/add/", {"name": "x" * 61, "credential": "{}"})
    assert "at most 60 characters" in answer.content.decode()


def test_where_passkeys_can_not_work_a_page_says_where_they_do(world: World) -> None:
    page = world.client(world.alice).get("/2fa/webauthn/").content.decode()
    assert "Passkeys work at http://localhost:8000 only" in page
    assert '<a href="http://localhost:8000/2fa/webauthn/">' in page
    assert "Add a passkey" not in page


def test_the_log_in_offers_no_passkey_where_none_can_work() -> None:
    assert "with a passkey" not in Client().get("/login/", headers={"host": "127.0.0.1"}).content.decode()


def test_passkeys_belong_to_the_public_address_whatever_the_host_says(world: World) -> None:
    client = Client(headers={"host": "127.0.0.1:4711"})
    options = client.get("/2fa/webauthn/login/", headers={"accept": "application/json"}).json()["request_options"]
    assert options["publicKey"]["rpId"] == passkey_place(django_settings.HIGHWATER_PUBLIC_URL).host == "localhost"


@pytest.mark.parametrize(
    ("public_url", "place"),
    [
        ("https://mq.example.com", PasskeyPlace("mq.example.com", "https://mq.example.com", True)),
        ("https://mq.example.com:8443/", PasskeyPlace("mq.example.com", "https://mq.example.com:8443", True)),
        ("http://127.0.0.1:8000", PasskeyPlace("localhost", "http://localhost:8000", True)),
        ("http://[::1]:8000", PasskeyPlace("localhost", "http://localhost:8000", True)),
        ("http://mq.example.com", PasskeyPlace("mq.example.com", "http://mq.example.com", False)),
        ("https://10.0.0.7", PasskeyPlace("10.0.0.7", "https://10.0.0.7", False)),
        ("https://[fd00::7]:8443", PasskeyPlace("fd00::7", "https://[fd00::7]:8443", False)),
    ],
)
def test_passkeys_need_a_host_name_and_a_secure_page(public_url: str, place: PasskeyPlace) -> None:
    assert passkey_place(public_url) == place
