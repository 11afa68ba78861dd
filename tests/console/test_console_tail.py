"""The page that shows a topic's messages as they come: followed, paused, filtered, bounded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.common.errors import BrokerUnreachable
from controlplane.console.views import message_tail
from controlplane.topics.gateway import BrowsedMessage
from controlplane.topics.tail import TailFilter, TailPage
from tests.console.browser import LogIn, look_at
from tests.console.test_console_message_resend import browsed
from tests.console.world import World, make_topic

PATH = "topics/payments/messages/tail/"


class Stream:
    """What the next looks find; the cursor is the number of looks."""

    def __init__(self) -> None:
        self.coming: list[BrowsedMessage] = []
        self.skipped = 0
        self.looks: list[tuple[str, TailFilter]] = []
        self.error: BrokerUnreachable | None = None

    def tail(self, *, cursor: str, wanted: TailFilter, **_: object) -> TailPage:
        self.looks.append((cursor, wanted))
        if self.error is not None:
            raise self.error
        found, self.coming = self.coming, []
        skipped, self.skipped = self.skipped, 0
        return TailPage(found, str(len(self.looks)), skipped, 0)


@pytest.fixture
def stream(world: World, monkeypatch: pytest.MonkeyPatch) -> Stream:
    make_topic(world.cluster, "payments")
    twin = Stream()
    monkeypatch.setattr(message_tail, "messages_tail", twin.tail)
    return twin


@pytest.fixture
def opened(page: Page, live_server: LiveServer, world: World, log_in: LogIn, stream: Stream) -> Callable[..., Any]:
    def go(query: str = "") -> Any:
        page.clock.install()
        log_in(world.bob)
        page.goto(live_server.url + world.cluster_path(PATH) + query)
        return page.locator("#tail")

    return go


def message(offset: int) -> BrowsedMessage:
    return replace(browsed(f"order {offset}".encode()), queue_offset=offset)


def test_what_comes_is_shown_newest_first_and_counted(page: Page, stream: Stream, opened: Callable[..., Any]) -> None:
    tail = opened()
    expect(tail).to_have_attribute("data-state", "following")
    expect(page.get_by_role("button", name="Continue")).to_be_hidden()
    stream.coming, stream.skipped = [message(1), message(2)], 7
    page.clock.run_for(2000)
    expect(tail.locator("tbody tr")).to_have_count(2)
    expect(tail.locator("tbody tr").first).to_contain_text("order 2")
    expect(tail.locator("[data-tail-came]")).to_have_text("2")
    expect(tail.locator("[data-tail-skipped]")).to_have_text("7")
    look_at(page, "live messages")


def test_each_look_goes_on_from_the_last_one(page: Page, stream: Stream, opened: Callable[..., Any]) -> None:
    tail = opened()
    for offset in (1, 2):
        stream.coming = [message(offset)]
        page.clock.run_for(2000)
        expect(tail.locator("tbody tr")).to_have_count(offset)
    assert [cursor for cursor, _ in stream.looks] == ["", "1", "2"]


def test_a_pause_by_the_keyboard_asks_nothing_and_goes_on_where_it_was(
    page: Page, stream: Stream, opened: Callable[..., Any]
) -> None:
    tail = opened()
    page.get_by_role("button", name="Pause").press("Enter")
    expect(tail).to_have_attribute("data-state", "paused")
    expect(page.get_by_role("button", name="Continue")).to_be_focused()
    looks = len(stream.looks)
    page.clock.run_for(60_000)
    assert len(stream.looks) == looks
    stream.coming = [message(1)]
    page.get_by_role("button", name="Continue").press("Enter")
    expect(page.get_by_role("button", name="Pause")).to_be_focused()
    page.clock.run_for(2000)
    expect(tail.locator("tbody tr")).to_have_count(1)
    assert stream.looks[-1][0] == str(looks)


def test_it_ends_by_itself_after_ten_minutes(page: Page, stream: Stream, opened: Callable[..., Any]) -> None:
    tail = opened()
    expect(tail).to_have_attribute("data-state", "following")
    page.clock.fast_forward(10 * 60 * 1000 + 3000)
    expect(tail).to_have_attribute("data-state", "ended")
    expect(page.get_by_role("button", name="Continue")).to_be_visible()


def test_the_newest_two_hundred_rows_stay(page: Page, stream: Stream, opened: Callable[..., Any]) -> None:
    tail = opened()
    stream.coming = [message(offset) for offset in range(250)]
    page.clock.run_for(2000)
    expect(tail.locator("[data-tail-came]")).to_have_text("250")
    expect(tail.locator("tbody tr")).to_have_count(200)
    expect(tail.locator("tbody tr").first).to_contain_text("order 249")


def test_a_failed_look_is_said_and_tried_again(page: Page, stream: Stream, opened: Callable[..., Any]) -> None:
    tail = opened()
    expect(tail).to_have_attribute("data-state", "following")
    stream.error = BrokerUnreachable("nobody answers")
    page.clock.run_for(2000)
    expect(tail).to_have_attribute("data-state", "trying")
    expect(page.get_by_text("The last look failed. Trying again.")).to_be_visible()
    stream.error = None
    page.clock.run_for(4000)
    expect(tail).to_have_attribute("data-state", "following")


def test_a_filter_is_asked_with_each_look_and_stands_in_the_curl_line(
    page: Page, stream: Stream, opened: Callable[..., Any]
) -> None:
    tail = opened("?tag=paid&text=a%26b")
    expect(tail).to_have_attribute("data-state", "following")
    stream.coming = [message(1)]
    page.clock.run_for(2000)
    expect(tail.locator("tbody tr")).to_have_count(1)
    assert {wanted for _, wanted in stream.looks} == {TailFilter(tag="paid", text="a&b")}
    assert "messages/tail/?tag=paid&amp;text=a%26b" in page.content()


def test_without_scripts_a_link_shows_what_came_since(world: World, stream: Stream) -> None:
    client = world.client(world.bob)
    assert "?tag=paid&amp;cursor=1" in client.get(world.cluster_path(PATH), {"tag": "paid"}).content.decode()
    stream.coming = [message(1)]
    answer = client.get(world.cluster_path(PATH), {"tag": "paid", "cursor": "1"}).content.decode()
    assert "order 1" in answer
    assert stream.looks[-1] == ("1", TailFilter(tag="paid"))
