"""Where a person is logged in: listed, ended one by one or all others, by a change of the password, and by themselves."""

from __future__ import annotations

from datetime import timedelta

import pytest
from allauth.mfa.totp.internal.auth import TOTP
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.sessions.models import Session
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone
from playwright.sync_api import Page
from pytest_django.live_server_helper import LiveServer

from controlplane.accounts.browsers import browser_name
from controlplane.accounts.models import User
from controlplane.accounts.session_rows import sessions_expire
from controlplane.common.models import AuditEvent
from tests.console.browser import LogIn, look_at
from tests.console.test_console_second_factor import code_of
from tests.console.world import PASSWORD, World

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
CHROME = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36"


def logged_in(user: User, user_agent: str, address: str, *, stay: bool = False) -> Client:
    """A browser that went through the form."""
    client = Client(headers={"User-Agent": user_agent}, REMOTE_ADDR=address)
    answer = client.post("/login/", {"login": user.email, "password": PASSWORD} | ({"remember": "on"} if stay else {}))
    assert answer.status_code == 302, answer.content
    return client


def confirm(client: Client) -> None:
    """Give the password again, as the page asks for it."""
    assert client.post("/reauthenticate/", {"password": PASSWORD}).status_code == 302


def is_logged_in(client: Client) -> bool:
    return client.get("/tenants/").status_code == 200


def session_of(client: Client) -> UserSession:
    found: UserSession = UserSession.objects.get(session_key=client.session.session_key)
    return found


@pytest.mark.parametrize(
    ("user_agent", "name"),
    [
        (FIREFOX, "Firefox on Linux"),
        (CHROME, "Chrome on Windows"),
        (f"{CHROME} Edg/140.0", "Edge on Windows"),
        ("curl/8.1", "curl"),
        ("A robot", "A robot"),
        ("", "Unknown browser"),
    ],
)
def test_a_browser_has_a_name_that_its_user_knows(user_agent: str, name: str) -> None:
    assert browser_name(user_agent) == name


def test_a_session_is_ended_from_another_browser_and_only_by_its_user(world: World) -> None:
    desk, laptop = logged_in(world.alice, FIREFOX, "192.0.2.1"), logged_in(world.alice, CHROME, "192.0.2.2")
    page = desk.get("/sessions/").content.decode()
    for words in ("Firefox on Linux", "192.0.2.1", "This browser", "Chrome on Windows", "192.0.2.2"):
        assert words in page
    end = f"/sessions/{session_of(laptop).pk}/end/"
    bob = world.client(world.bob)
    assert bob.post(end).status_code == 404
    assert "192.0.2.2" not in bob.get("/sessions/").content.decode()
    assert is_logged_in(laptop)
    opened = desk.get(end)
    assert (opened.status_code, "only takes a form" in opened.content.decode()) == (405, True)
    confirm(desk)
    assert desk.post(end).status_code == 302
    assert (is_logged_in(desk), is_logged_in(laptop)) == (True, False)
    event = AuditEvent.objects.get(action="session.end")
    assert (event.actor, event.details["address"]) == ("alice@example.com", "192.0.2.2")
    assert Client().get("/sessions/").headers["Location"].startswith("/login/")


@pytest.mark.parametrize("act", ["end all others", "change the password"])
def test_all_other_sessions_end(world: World, act: str) -> None:
    desk, laptop, bob = (logged_in(user, FIREFOX, "192.0.2.1") for user in (world.alice, world.alice, world.bob))
    if act == "end all others":
        confirm(desk)
        desk.post("/sessions/end-others/")
    else:
        new = {"oldpassword": PASSWORD, "password1": "another-long-password", "password2": "another-long-password"}
        assert desk.post("/password/change/", new).status_code == 302
    assert [is_logged_in(one) for one in (desk, laptop, bob)] == [True, False, True]
    assert desk.get("/sessions/").content.decode().count("192.0.2.1") == 1


@pytest.mark.parametrize("act", ["end one", "end all others"])
def test_another_session_ends_once_the_password_was_given_again(world: World, act: str) -> None:
    desk, laptop = logged_in(world.alice, FIREFOX, "192.0.2.1"), logged_in(world.alice, CHROME, "192.0.2.2")
    path = f"/sessions/{session_of(laptop).pk}/end/" if act == "end one" else "/sessions/end-others/"
    asked = desk.post(path)
    assert asked.headers["Location"].startswith("/reauthenticate/")
    assert is_logged_in(laptop)
    assert desk.post(asked.headers["Location"], {"password": "wrong"}).status_code != 302
    assert is_logged_in(laptop)
    done = desk.post(asked.headers["Location"], {"password": PASSWORD})
    assert (done.status_code, done.headers["Location"]) == (302, "/sessions/")
    assert (is_logged_in(desk), is_logged_in(laptop)) == (True, False)


def test_the_present_session_ends_as_by_logging_out(world: World) -> None:
    desk = logged_in(world.alice, FIREFOX, "192.0.2.1")
    desk.post(f"/sessions/{session_of(desk).pk}/end/")
    assert not is_logged_in(desk)


def test_a_session_from_before_the_list_is_listed_by_its_next_use(world: World) -> None:
    client = world.client(world.alice)
    UserSession.objects.all().delete()
    assert "This browser" in client.get("/sessions/").content.decode()


def test_the_last_use_is_written_once_a_minute(world: World) -> None:
    desk = logged_in(world.alice, FIREFOX, "192.0.2.1")
    desk.get("/tenants/")
    before = session_of(desk).last_seen_at
    desk.get("/tenants/")
    assert session_of(desk).last_seen_at == before
    UserSession.objects.update(last_seen_at=timezone.now() - timedelta(hours=2))
    desk.get("/tenants/", REMOTE_ADDR="192.0.2.9")
    assert session_of(desk).last_seen_at > before
    assert session_of(desk).ip == "192.0.2.9"


def test_the_list_looks_right(page: Page, live_server: LiveServer, world: World, log_in: LogIn) -> None:
    logged_in(world.alice, FIREFOX, "192.0.2.1")
    log_in(world.alice)
    page.goto(f"{live_server.url}/sessions/")
    look_at(page, "sessions")


def pass_time(client: Client, seconds: float) -> None:
    """The session's past moves away by so much."""
    session = client.session
    session["begun_at"] -= seconds
    session["used_at"] -= seconds
    session.save()


@pytest.mark.parametrize(
    ("chose_to_stay", "unused_s", "is_open"),
    [(False, 59 * 60, True), (False, 60 * 60, False), (True, 13 * 86400, True), (True, 14 * 86400, False)],
)
def test_a_session_ends_without_use(world: World, chose_to_stay: bool, unused_s: int, is_open: bool) -> None:
    desk = logged_in(world.alice, FIREFOX, "192.0.2.1", stay=chose_to_stay)
    pass_time(desk, unused_s)
    assert is_logged_in(desk) is is_open
    if not is_open:
        assert "Your session has ended" in desk.get("/login/").content.decode()


@pytest.mark.parametrize(("chose_to_stay", "step_s", "uses"), [(False, 30 * 60, 24), (True, 10 * 86400, 3)])
def test_a_session_ends_by_its_age_though_it_is_used(world: World, chose_to_stay: bool, step_s: int, uses: int) -> None:
    desk = logged_in(world.alice, FIREFOX, "192.0.2.1", stay=chose_to_stay)
    for _ in range(uses - 1):
        pass_time(desk, step_s)
        assert is_logged_in(desk)
    pass_time(desk, step_s)
    assert not is_logged_in(desk)


@pytest.mark.parametrize("headers", [{"HX-Request": "true"}, {"Sec-Fetch-Mode": "cors"}])
def test_a_page_that_updates_itself_keeps_no_session_alive(world: World, headers: dict[str, str]) -> None:
    desk = logged_in(world.alice, FIREFOX, "192.0.2.1")
    for _ in range(2):
        pass_time(desk, 31 * 60)
        answer = desk.get(world.cluster_path("health/"), headers=headers)
    assert not is_logged_in(desk)
    if "HX-Request" in headers:
        assert answer.headers["HX-Redirect"].startswith("/login/?next=")


def test_an_api_request_of_an_ended_session_is_refused(world: World) -> None:
    desk = logged_in(world.alice, FIREFOX, "192.0.2.1")
    pass_time(desk, 3600)
    assert desk.get("/api/v1/tenants/").status_code == 401


def test_the_cookie_ends_with_the_browser_unless_its_user_stays(world: World) -> None:
    cookie = settings.SESSION_COOKIE_NAME
    assert logged_in(world.alice, FIREFOX, "192.0.2.1").cookies[cookie]["max-age"] == ""
    assert logged_in(world.alice, FIREFOX, "192.0.2.1", stay=True).cookies[cookie]["max-age"] == 30 * 86400


def test_who_stays_logged_in_does_so_after_the_second_factor(world: World) -> None:
    secret = "JBSWY3DPEHPK3PXP"
    TOTP.activate(world.alice, secret)
    desk = logged_in(world.alice, FIREFOX, "192.0.2.1", stay=True)
    for _ in range(2):  # a code is made for half a minute: once more, where it ended between here and there
        answer = desk.post("/2fa/authenticate/", {"code": code_of(secret)})
        if answer.status_code == 302:
            break
    assert answer.cookies[settings.SESSION_COOKIE_NAME]["max-age"] == 30 * 86400


def test_the_list_says_when_sessions_end_and_leaves_out_those_that_have(world: World) -> None:
    desk, laptop = (logged_in(world.alice, FIREFOX, f"192.0.2.{host}", stay=True) for host in (1, 2))
    page = desk.get("/sessions/").content.decode()
    assert page.count("Stays logged in.") == 2
    assert "after 60 minutes without use, 12 hours after the log-in" in page
    pass_time(laptop, 15 * 86400)
    assert "192.0.2.2" not in desk.get("/sessions/").content.decode()


@pytest.mark.django_db
def test_the_operator_ends_all_sessions_of_an_account_and_no_others(world: World) -> None:
    desk, phone, bobs = Client(), Client(), Client()
    for client, user in ((desk, world.alice), (phone, world.alice), (bobs, world.bob)):
        client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
        assert client.get("/sessions/").status_code == 200
    call_command("end_sessions", "Alice@example.com")
    assert [client.get("/sessions/").status_code for client in (desk, phone, bobs)] == [302, 302, 200]
    event = AuditEvent.objects.get(action="session.end_all")
    assert (event.actor, event.details["sessions"]) == ("command line", 2)
    with pytest.raises(CommandError, match="No one has signed up"):
        call_command("end_sessions", "dora@example.com")


def test_sessions_that_are_over_are_deleted_with_their_rows(world: World) -> None:
    over, open_still = (logged_in(world.alice, FIREFOX, "203.0.113.7") for _ in range(2))
    long_ago = timezone.now() - timedelta(days=2)
    Session.objects.filter(session_key=over.session.session_key).update(expire_date=long_ago)
    UserSession.objects.update(last_seen_at=long_ago)
    assert sessions_expire() == 1
    assert [row.session_key for row in UserSession.objects.all()] == [open_still.session.session_key]
    assert is_logged_in(open_still)
    assert sessions_expire() == 0


def test_the_row_of_a_session_that_is_just_begun_stays(world: World) -> None:
    UserSession.objects.create(user=world.alice, session_key="not-written-yet", ip="203.0.113.7")
    assert sessions_expire() == 0
    assert UserSession.objects.exists()
