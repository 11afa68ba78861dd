"""Fixtures of the console's tests. Django's models are imported late: pytest loads this file before Django is set up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import BrowserContext, ConsoleMessage, Page

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

    from controlplane.accounts.models import User
    from tests.console.browser import LogIn
    from tests.console.world import World


@pytest.fixture
def world(db: None) -> World:
    """Four people, two tenants, and a cluster without daemons."""
    from tests.console.world import make_world

    return make_world()


@pytest.fixture
def page(page: Page) -> Iterator[Page]:
    """A page on which anything that the browser complains about fails the test: a blocked inline style, a missing file."""
    complaints: list[str] = []

    def listen(message: ConsoleMessage) -> None:
        is_the_page_itself = message.location["url"] == page.url  # the page for 404 is answered with 404
        if message.type in ("error", "warning") and not is_the_page_itself:
            complaints.append(f"{message.text} at {message.location}")

    page.on("console", listen)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    assert not complaints, complaints


@pytest.fixture
def log_in(context: BrowserContext, live_server: LiveServer, world: World) -> LogIn:
    """Call it with a user to be logged in without going through the form."""
    from django.conf import settings

    def log_in(user: User) -> None:
        session = world.client(user).cookies[settings.SESSION_COOKIE_NAME]
        context.add_cookies([{"name": session.key, "value": session.value, "url": live_server.url}])

    return log_in
