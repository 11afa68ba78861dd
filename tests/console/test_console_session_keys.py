"""A session's key changes when its user shows the password or a factor again, and no answer to the old key logs the user out."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from allauth.mfa.totp.internal.auth import TOTP
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.sessions.exceptions import SessionInterrupted
from django.contrib.sessions.models import Session
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from playwright.sync_api import BrowserContext, CDPSession, Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.accounts.models import User
from controlplane.accounts.session_middleware import SessionCookieMiddleware
from controlplane.accounts.session_store import SessionStore
from tests.console.browser import LogIn
from tests.console.test_console_passkeys import _OPTIONS as PASSKEYS
from tests.console.test_console_passkeys import add_passkey
from tests.console.test_console_second_factor import code_of
from tests.console.world import PASSWORD, World

COOKIE = settings.SESSION_COOKIE_NAME
SECRET = "JBSWY3DPEHPK3PXP"


def logged_in(user: User) -> Client:
    client = Client()
    assert client.post("/login/", {"login": user.email, "password": PASSWORD}).status_code == 302
    return client


def key_of(client: Client) -> str:
    return client.cookies[COOKIE].value


def with_key(key: str) -> Client:
    """A browser whose cookie has this key."""
    client = Client()
    client.cookies[COOKIE] = key
    return client


def is_logged_in(client: Client) -> bool:
    return client.get("/tenants/").status_code == 200


def test_the_password_shown_again_changes_the_key_of_the_session_and_of_its_line_in_the_list(world: World) -> None:
    desk = logged_in(world.alice)
    old_key, listed = key_of(desk), UserSession.objects.get(user=world.alice)
    assert desk.post("/reauthenticate/", {"password": PASSWORD}).status_code == 302
    assert key_of(desk) != old_key
    assert is_logged_in(desk)
    assert not Session.objects.filter(session_key=old_key).exists()
    now = UserSession.objects.get(user=world.alice)
    assert (now.pk, now.created_at, now.session_key) == (listed.pk, listed.created_at, key_of(desk))
    assert "This browser" in desk.get("/sessions/").content.decode()


def test_a_wrong_password_changes_no_key(world: World) -> None:
    desk = logged_in(world.alice)
    old_key = key_of(desk)
    desk.post("/reauthenticate/", {"password": "wrong"})
    assert key_of(desk) == old_key
    assert is_logged_in(desk)


def test_a_code_shown_again_changes_the_key(world: World) -> None:
    desk = logged_in(world.alice)
    TOTP.activate(world.alice, SECRET)
    old_key = key_of(desk)
    for _ in range(2):  # a code is made for half a minute: once more, where it ended between here and there
        if desk.post("/2fa/reauthenticate/", {"code": code_of(SECRET)}).status_code == 302:
            break
    assert key_of(desk) != old_key
    assert is_logged_in(desk)
    assert not is_logged_in(with_key(old_key))


@pytest.mark.django_db(transaction=True)
def test_a_passkey_shown_again_changes_the_key(page: Page, live_server: LiveServer, world: World) -> None:
    keeper: CDPSession = page.context.new_cdp_session(page)
    keeper.send("WebAuthn.enable")
    keeper.send("WebAuthn.addVirtualAuthenticator", {"options": PASSKEYS})
    add_passkey(page, live_server.url, world)
    old_key = _key_in(page.context)
    page.goto(f"{live_server.url}/2fa/webauthn/reauthenticate/?next=/2fa/")
    page.get_by_role("button", name="Use a passkey").click()
    expect(page).to_have_url(f"{live_server.url}/2fa/")
    assert _key_in(page.context) != old_key
    assert not is_logged_in(with_key(old_key))


def test_what_was_asked_before_the_password_is_done_and_the_key_changes(world: World) -> None:
    desk, laptop = logged_in(world.alice), logged_in(world.alice)
    old_key = key_of(desk)
    asked = desk.post("/sessions/end-others/")
    desk.post(asked.headers["Location"], {"password": PASSWORD})
    assert (is_logged_in(desk), is_logged_in(laptop), is_logged_in(with_key(old_key))) == (True, False, False)
    assert UserSession.objects.get(user=world.alice).session_key == key_of(desk)


def test_a_session_stays_remembered_under_its_new_key(world: World) -> None:
    desk = Client()
    desk.post("/login/", {"login": world.alice.email, "password": PASSWORD, "remember": "on"})
    desk.post("/reauthenticate/", {"password": PASSWORD})
    assert desk.cookies[COOKIE]["max-age"] == 30 * 86400


def test_the_old_key_opens_nothing_and_its_answer_leaves_the_cookie_alone(world: World) -> None:
    desk = logged_in(world.alice)
    old_key = key_of(desk)
    desk.post("/reauthenticate/", {"password": PASSWORD})
    for headers in ({}, {"HX-Request": "true"}):
        answer = with_key(old_key).get(world.cluster_path("health/"), headers=headers)
        where = answer.headers.get("HX-Redirect") or answer.headers["Location"]
        assert where.startswith("/login/?next=")
        assert COOKIE not in answer.cookies
    assert with_key(old_key).get("/api/v1/tenants/").status_code == 401
    assert with_key(old_key).post("/sessions/end-others/").headers["Location"].startswith("/login/")


def test_a_log_out_still_takes_the_cookie_away(world: World) -> None:
    desk = logged_in(world.alice)
    assert desk.post("/logout/").cookies[COOKIE].value == ""


def test_two_clicks_leave_no_session_that_the_list_does_not_have(world: World, monkeypatch: Any) -> None:
    """The second one's request had the old key, and was looked up before the first one's changed it."""
    desk, second = logged_in(world.alice), Client()
    second.cookies[COOKIE] = key_of(desk)
    check = User.check_password
    clicked_once: list[bool] = []

    def check_slowly(user: User, password: str) -> bool:
        if not clicked_once:
            clicked_once.append(True)
            desk.post("/reauthenticate/", {"password": PASSWORD})
        return check(user, password)

    monkeypatch.setattr(User, "check_password", check_slowly)
    assert second.post("/reauthenticate/", {"password": PASSWORD}).status_code == 302
    assert key_of(second) != key_of(desk)
    listed = set(UserSession.objects.values_list("session_key", flat=True))
    assert listed == {key_of(desk), key_of(second)} == set(Session.objects.values_list("session_key", flat=True))


@pytest.mark.parametrize(("method", "is_answered"), [("GET", True), ("POST", False)])
def test_a_page_that_was_made_while_the_key_changed_is_shown_and_a_form_is_not_taken_for_done(
    world: World, method: str, is_answered: bool
) -> None:
    request = RequestFactory().generic(method, "/tenants/")
    request.session = SessionStore(key_of(logged_in(world.alice)))
    request.session["used_at"] = 1
    Session.objects.all().delete()
    middleware = SessionCookieMiddleware(lambda request: HttpResponse("page"))
    if is_answered:
        assert COOKIE not in middleware.process_response(request, HttpResponse("page")).cookies
    else:
        with pytest.raises(SessionInterrupted):
            middleware.process_response(request, HttpResponse("page"))


@pytest.mark.django_db(transaction=True)
def test_a_tab_that_asks_with_the_old_key_at_that_very_moment_stays_logged_in(
    page: Page, context: BrowserContext, live_server: LiveServer, world: World, log_in: LogIn, monkeypatch: Any
) -> None:
    asked, changed = threading.Event(), threading.Event()
    look_up = SessionCookieMiddleware.process_request

    def look_up_late(middleware: SessionCookieMiddleware, request: HttpRequest) -> None:
        """The tab's question arrives with the old key, and is looked at once the session has its new one."""
        if request.path.endswith("/health/") and not asked.is_set():
            asked.set()
            assert changed.wait(20)
        look_up(middleware, request)

    monkeypatch.setattr(SessionCookieMiddleware, "process_request", look_up_late)
    log_in(world.alice)
    old_key = _key_in(context)
    watched = f"{live_server.url}{world.cluster_path()}"
    page.goto(watched)
    with page.expect_request("**/health/"):
        pass
    assert asked.wait(20)
    other = context.new_page()
    other.goto(f"{live_server.url}/reauthenticate/?next=/sessions/")
    other.get_by_label("Password").fill(PASSWORD)
    other.get_by_role("button", name="Confirm").click()
    expect(other).to_have_url(f"{live_server.url}/sessions/")
    new_key = _key_in(context)
    assert new_key != old_key
    # By the log-in, which knows the new key, and back: the page as it was, and it asks on.
    with page.expect_navigation(url=watched):
        changed.set()
    with page.expect_response("**/health/") as again:
        pass
    assert again.value.status == 200
    assert "hx-redirect" not in again.value.headers
    assert _key_in(context) == new_key


def _key_in(context: BrowserContext) -> str:
    return next(one["value"] for one in context.cookies() if one["name"] == COOKIE)
