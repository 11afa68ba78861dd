"""Where a person is logged in: listed, ended one by one or all others, and by a change of the password."""

from __future__ import annotations

from datetime import timedelta

import pytest
from allauth.usersessions.models import UserSession
from django.test import Client
from django.utils import timezone
from playwright.sync_api import Page
from pytest_django.live_server_helper import LiveServer

from controlplane.accounts.browsers import browser_name
from controlplane.accounts.models import User
from controlplane.common.models import AuditEvent
from tests.console.browser import LogIn, look_at
from tests.console.world import PASSWORD, World

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
CHROME = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36"


def logged_in(user: User, user_agent: str, address: str) -> Client:
    """A browser that went through the form."""
    client = Client(headers={"User-Agent": user_agent}, REMOTE_ADDR=address)
    answer = client.post("/login/", {"login": user.email, "password": PASSWORD})
    assert answer.status_code == 302, answer.content
    return client


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
    assert desk.get(end).status_code == 405
    assert desk.post(end).status_code == 302
    assert (is_logged_in(desk), is_logged_in(laptop)) == (True, False)
    event = AuditEvent.objects.get(action="session.end")
    assert (event.actor, event.details["address"]) == ("alice@example.com", "192.0.2.2")
    assert Client().get("/sessions/").headers["Location"].startswith("/login/")


@pytest.mark.parametrize("act", ["end all others", "change the password"])
def test_all_other_sessions_end(world: World, act: str) -> None:
    desk, laptop, bob = (logged_in(user, FIREFOX, "192.0.2.1") for user in (world.alice, world.alice, world.bob))
    if act == "end all others":
        desk.post("/sessions/end-others/")
    else:
        new = {"oldpassword": PASSWORD, "password1": "another-long-password", "password2": "another-long-password"}
        assert desk.post("/password/change/", new).status_code == 302
    assert [is_logged_in(one) for one in (desk, laptop, bob)] == [True, False, True]
    assert desk.get("/sessions/").content.decode().count("192.0.2.1") == 1


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
