"""Looks at the pages that no other test shows on its way: reached by their addresses, in one window of one browser."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest
from allauth.account.internal.flows import reauthentication
from allauth.core.internal import ratelimit
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.conf import settings
from django.core.exceptions import SuspiciousOperation
from django.urls import resolve
from playwright.sync_api import Page
from pytest_django.live_server_helper import LiveServer

from controlplane.console.views import front, operator_machine
from tests.console.browser import LogIn, look_at
from tests.console.looks import LOOKED_AT
from tests.console.test_console_access import addresses
from tests.console.test_console_masking import QUERIES
from tests.console.test_console_matrix import operator_addresses
from tests.console.world import PASSWORD, World
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.secret_twin import secret_messages

OF_TENANTS = (
    *("invitation revoke", "masking delete", "service account delete", "topic schema delete", "token revoke"),
    *("switchover preflight", "group transfer", "group prefer", "group recover", "group resize", "message search"),
)
OF_OPERATORS = (
    *("operator plans", "operator price", "operator subscriptions", "operator invoices", "operator metering"),
)
OF_STRANGERS = (
    ("account inactive", "/inactive/"),
    ("verification sent", "/confirm-email/"),
    ("confirm e-mail", "/confirm-email/wrong/"),
    ("reset password done", "/password/reset/done/"),
    ("reset password from key", "/password/reset/key/1-wrong/"),
    ("reset password from key done", "/password/reset/key/done/"),
    ("identity cancelled", "/3rdparty/login/cancelled/"),
    ("identity error", "/3rdparty/login/error/"),
)
OF_ONES_OWN = (
    ("log out", "/logout/"),
    ("confirm by password", "/reauthenticate/?next=/2fa/"),
    ("confirm by code", "/2fa/reauthenticate/?next=/2fa/"),
    ("second factor off", "/2fa/totp/deactivate/"),
    ("recovery codes again", "/2fa/recovery-codes/generate/"),
)


@pytest.mark.django_db(transaction=True)
def test_what_no_other_test_shows_of_tenants_and_of_the_platform_looks_right(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn, tmp_path: Path
) -> None:
    world.alice.is_staff = True
    world.alice.save()
    found = [*addresses(world), *operator_addresses(world)]
    by_name = {LOOKED_AT.get(str(resolve(address).url_name)): address for address in found}
    log_in(world.alice)
    with secret_messages(), patch.object(operator_machine, "get_driver", return_value=DriverTwin(tmp_path)):
        for name in (*OF_TENANTS, *OF_OPERATORS):
            address = by_name[name]
            query = next((query for end, query in QUERIES.items() if address.endswith(end)), "")
            page.goto(live_server.url + address + query)
            look_at(page, name)


@pytest.mark.django_db(transaction=True)
def test_what_no_other_test_shows_of_accounts_looks_right(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, path in OF_STRANGERS:
        page.goto(live_server.url + path)
        look_at(page, name)
    # Alice confirmed a moment ago that it is her.
    monkeypatch.setattr(reauthentication, "did_recently_reauthenticate", lambda request: True)
    log_in(world.alice)
    TOTP.activate(world.alice, generate_totp_secret())
    RecoveryCodes.activate(world.alice)
    for name, path in OF_ONES_OWN:
        page.goto(live_server.url + path)
        look_at(page, name)


@pytest.mark.django_db(transaction=True)
def test_the_page_of_a_first_password_looks_right(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.alice.set_unusable_password()
    world.alice.save()
    monkeypatch.setattr(reauthentication, "did_recently_reauthenticate", lambda request: True)
    log_in(world.alice)
    page.goto(f"{live_server.url}/password/set/")
    look_at(page, "set password")


@pytest.mark.django_db(transaction=True)
def test_the_pages_of_errors_look_right(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send_out_of_date(page: Page) -> None:
        page.goto(f"{live_server.url}/login/")
        page.context.clear_cookies(name=settings.CSRF_COOKIE_NAME)
        page.locator("[name=login]").fill(world.alice.email)
        page.locator("[name=password]").fill(PASSWORD)
        with page.expect_navigation():
            page.locator("[name=password]").press("Enter")

    send_out_of_date(page)
    look_at(page, "form out of date", send_out_of_date)

    monkeypatch.setattr(ratelimit, "consume", lambda request, **_: None)
    page.goto(f"{live_server.url}/login/")
    look_at(page, "too many requests")

    log_in(world.victor)
    page.goto(live_server.url + world.path("new-cluster/"))
    look_at(page, "not allowed")
    page.goto(f"{live_server.url}/theme/")
    look_at(page, "not a page")
    for name, error in (("our fault", RuntimeError("a planned failure")), ("request refused", SuspiciousOperation())):

        def fail(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        monkeypatch.setattr(front, "render", fail)
        page.goto(f"{live_server.url}/tenants/")
        look_at(page, name)
