"""A topic's messages from a time on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.console.views import topic_parts
from controlplane.topics.bodies import ShownBody
from controlplane.topics.gateway import BrowsedMessage, BrowsedPage
from tests.console.browser import LogIn, look_at
from tests.console.world import World, make_topic

TOPIC = "topics/payments/"
BEGIN = datetime(2026, 11, 24, 10, 0, tzinfo=UTC)


def stored(number: int, step: timedelta = timedelta(milliseconds=1500)) -> BrowsedMessage:
    return BrowsedMessage(
        message_id=f"U{number}",
        offset_message_id=f"O{number}",
        broker_name="broker-a",
        queue_id=0,
        queue_offset=number,
        born_at=BEGIN,
        stored_at=BEGIN + number * step,
        born_host="10.0.0.7",
        tags="paid",
        keys=(f"o-{number}",),
        properties={},
        reconsume_times=0,
        body=ShownBody("utf-8", "hello", 5, 5),
    )


class Gateway:
    """Holds 50 messages, one each 1.5 s unless `step` says otherwise."""

    def __init__(self) -> None:
        self.step = timedelta(milliseconds=1500)
        self.asked: list[datetime | None] = []

    def browse(self, *, since: datetime | None, limit: int, **_: Any) -> BrowsedPage:
        self.asked.append(since)
        found = [stored(number, self.step) for number in range(50)]
        if since is None:
            return BrowsedPage(found[::-1][:limit], complete=True)
        return BrowsedPage([one for one in found if one.stored_at >= since][:limit], complete=True)


@pytest.fixture
def gateway(world: World, monkeypatch: pytest.MonkeyPatch) -> Gateway:
    make_topic(world.cluster, "payments")
    twin = Gateway()
    monkeypatch.setattr(topic_parts, "messages_browse", twin.browse)
    return twin


def page_of(world: World, query: str = "", part: str = "") -> str:
    return world.client(world.bob).get(world.cluster_path(f"{TOPIC}{part}{query}")).content.decode()


def test_without_a_time_the_newest_are_shown(world: World, gateway: Gateway) -> None:
    assert "Newest messages" in page_of(world)
    assert gateway.asked == [None]


@pytest.mark.parametrize("part", ["", "messages/"])
def test_from_a_time_on_the_oldest_come_first_and_a_link_leads_on(world: World, gateway: Gateway, part: str) -> None:
    page = page_of(world, "?from=2026-11-24+10:00", part)
    assert gateway.asked == [BEGIN]
    assert page.index("o-0") < page.index("o-19")
    assert "from=2026-11-24%2010%3A00%3A28.500" in page
    page_of(world, "?from=2026-11-24+10:00:28.500", part)
    assert gateway.asked[-1] == BEGIN + timedelta(seconds=28.5)


def test_many_of_one_moment_do_not_keep_the_reader_there(world: World, gateway: Gateway) -> None:
    gateway.step = timedelta()
    assert "from=2026-11-24%2010%3A00%3A00.001" in page_of(world, "?from=2026-11-24+10:00")


def test_what_is_no_time_is_said_at_its_field(world: World, gateway: Gateway) -> None:
    page = page_of(world, "?from=yesterday")
    assert "Use a date and time such as" in page
    assert 'value="yesterday"' in page
    assert gateway.asked == []


def test_the_curl_line_has_the_time(world: World, gateway: Gateway) -> None:
    assert "since=2026-11-24T10%3A00%3A00%2B00%3A00" in page_of(world, "?from=2026-11-24+10:00")


def test_after_the_last_message_it_is_said(world: World, gateway: Gateway) -> None:
    assert "No message was stored then or later." in page_of(world, "?from=2026-11-25")


@pytest.mark.django_db(transaction=True)
def test_browsing_from_a_time_on_looks_right(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn, gateway: Gateway
) -> None:
    log_in(world.bob)
    page.goto(live_server.url + world.cluster_path(TOPIC))
    page.locator("#messages").get_by_label("Stored from (UTC)").fill("2026-11-24 10:00")
    page.get_by_role("button", name="Show messages").click()
    expect(page.get_by_role("heading", name="Messages from a time on")).to_be_visible()
    look_at(page, "topic from a time on")
    page.get_by_role("link", name="Later messages").click()
    expect(page.locator("#messages tbody tr").first).to_contain_text("o-19")
