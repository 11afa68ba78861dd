"""The page that has a member handle one stored message."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.common.errors import ApplicationError, NotFound
from controlplane.console.views import message_consume as view
from controlplane.consumers.direct import Handled
from controlplane.consumers.selectors import GroupMembers, Member
from controlplane.consumers.subscriptions import compare
from tests.console.browser import LogIn, look_at
from tests.console.world import World, make_topic
from tests.controlplane.members_twin import CLIENT

PAGE = "topics/payments/messages/broker-a/1/7/consume/"


class Relay:
    """The topic is consumed by two groups; `billing` has one member, who answers `handled` unless `error` is set."""

    def __init__(self) -> None:
        self.handled = Handled("CR_SUCCESS", "", 12, orderly=False)
        self.error: ApplicationError | None = None
        self.asked: list[tuple[object, object]] = []

    def consume(self, *, group: str, client_id: str, **_: object) -> Handled:
        self.asked.append((group, client_id))
        if self.error is not None:
            raise self.error
        return self.handled


@pytest.fixture
def relay(world: World, monkeypatch: pytest.MonkeyPatch) -> Relay:
    make_topic(world.cluster, "payments")
    members = (Member(CLIENT, "10.0.0.7:5000", "JAVA", 477),)
    twin = Relay()
    monkeypatch.setattr(view, "message_groups", lambda **_: ("billing", "shipping"))
    monkeypatch.setattr(
        view,
        "group_members",
        lambda _cluster, group: GroupMembers(members if group == "billing" else (), (), "", "", compare({}), 0),
    )
    monkeypatch.setattr(view, "message_consume", twin.consume)
    return twin


def test_a_group_is_picked_then_one_of_its_members(world: World, relay: Relay) -> None:
    client = world.client(world.bob)
    first = client.get(world.cluster_path(PAGE)).content.decode()
    assert "shipping" in first
    assert CLIENT not in first
    assert CLIENT in client.get(world.cluster_path(f"{PAGE}?group=billing")).content.decode()
    assert relay.asked == []


def test_what_the_member_says_is_shown_as_text(world: World, relay: Relay) -> None:
    relay.handled = Handled("CR_THROW_EXCEPTION", "<b>out of stock</b>", 1234, orderly=False)
    answer = world.client(world.bob).post(world.cluster_path(PAGE), {"group": "billing", "client_id": CLIENT})
    page = answer.content.decode()
    assert 'data-result="CR_THROW_EXCEPTION"' in page
    assert "&lt;b&gt;out of stock" in page
    assert "would be tried again" in page
    assert relay.asked == [("billing", CLIENT)]


def test_only_a_member_of_the_group_is_asked(world: World, relay: Relay) -> None:
    answer = world.client(world.bob).post(world.cluster_path(PAGE), {"group": "shipping", "client_id": CLIENT})
    assert answer.status_code == 422
    assert relay.asked == []


def test_a_member_that_went_is_said_above_the_form(world: World, relay: Relay) -> None:
    relay.error = NotFound("No member of this id is connected to broker-a.", code="member_offline")
    answer = world.client(world.bob).post(world.cluster_path(PAGE), {"group": "billing", "client_id": CLIENT})
    assert answer.status_code == 422
    assert "No member of this id is connected" in answer.content.decode()


@pytest.mark.django_db(transaction=True)
def test_the_page_looks_right(page: Page, live_server: LiveServer, world: World, log_in: LogIn, relay: Relay) -> None:
    relay.handled = Handled("CR_LATER", "ValueError: out of stock\n  at billing/handler.py:42", 1234, orderly=False)
    log_in(world.bob)
    page.goto(live_server.url + world.cluster_path(PAGE))
    page.get_by_role("button", name="Show its members").click()
    page.get_by_label(CLIENT).check()
    look_at(page, "message consume")
    page.get_by_role("button", name="Handle it now").click()
    expect(page.locator("[data-result]")).to_contain_text("CR_LATER")
    look_at(page, "message consumed")
