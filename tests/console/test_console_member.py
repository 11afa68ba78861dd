"""The page of one member of a group."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.console.views import group_members as members_view
from controlplane.consumers import running
from controlplane.consumers.selectors import GroupMembers, Member, OwnSubscription
from controlplane.consumers.subscriptions import Subscribed, compare
from highwater import RequestTimeoutError
from tests.console.browser import LogIn, look_at
from tests.console.world import World
from tests.controlplane.members_twin import CLIENT, MembersTwin, running_info

MEMBER = "clusters/orders/lag/billing/member/"


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> MembersTwin:
    twin = MembersTwin()
    monkeypatch.setattr(running, "cluster_admin", twin.cluster_admin)
    monkeypatch.setattr(
        members_view,
        "group_members",
        lambda _cluster, _group: GroupMembers(
            (Member(CLIENT, "10.0.0.7:5000", "JAVA", 477),), (("payments", "paid"),), "", "", compare({}), 0
        ),
    )
    return twin


def page_of(world: World, **query: str) -> str:
    address = f"{world.path(MEMBER)}?{urlencode({'client': CLIENT, **query})}"
    return world.client(world.bob).get(address).content.decode()


def test_a_members_queues_are_shown(world: World, member: MembersTwin) -> None:
    page = page_of(world)
    assert "payments: <code>broker-a</code> / 0" in page
    assert "locked for consumption in order" in page
    assert "3 messages fetched and not finished" in page
    assert member.asked_for_stack == [False]


def test_stacks_are_shown_on_request_as_text(world: World, member: MembersTwin) -> None:
    member.info = running_info(stack="<script>alert(1)</script>")
    page = page_of(world, stack="true")
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page


def test_a_member_that_does_not_answer_is_said_to_be_silent(world: World, member: MembersTwin) -> None:
    member.error = RequestTimeoutError("no answer")
    page = page_of(world)
    assert "is not known" in page
    assert "has not answered within 3 s" in page


def test_without_a_member_the_group_is_shown(world: World, member: MembersTwin) -> None:
    answer = world.client(world.bob).get(world.path(MEMBER))
    assert answer.headers["Location"] == world.path("clusters/orders/lag/billing/")


def test_the_groups_page_leads_there_for_those_who_may_ask(world: World, member: MembersTwin) -> None:
    group = world.path("clusters/orders/lag/billing/")
    link = f"{world.path(MEMBER)}?client=10.0.0.7%404711%23billing"
    assert link in world.client(world.bob).get(group).content.decode()
    viewers = world.client(world.victor).get(group).content.decode()
    assert CLIENT in viewers
    assert MEMBER not in viewers
    assert world.client(world.victor).get(link).status_code == 403


def group_of(world: World, monkeypatch: pytest.MonkeyPatch, reported: dict[str, str], not_compared: int = 0) -> str:
    """The page of a group whose members subscribe so to the topic payments."""
    comparison = compare({client: {"payments": Subscribed(expression)} for client, expression in reported.items()})
    members = tuple(
        Member(client, "10.0.0.7:5000", "JAVA", 477, (OwnSubscription("payments", expression, "TAG"),))
        for client, expression in reported.items()
    ) + tuple(Member(f"unheard-{number}", "10.0.0.8:5000", "JAVA", 477) for number in range(not_compared))
    found = GroupMembers(members, (("payments", "paid"),), "", "", comparison, not_compared)
    monkeypatch.setattr(members_view, "group_members", lambda _cluster, _group: found)
    return world.client(world.bob).get(world.path("clusters/orders/lag/billing/")).content.decode()


def own_of(page: str, client_id: str) -> str:
    """The cell of a member's own subscriptions."""
    return page.partition(f'data-subscriptions="{client_id}"')[2].partition("</td>")[0]


def test_a_member_that_subscribes_otherwise_than_most_is_named_with_the_difference(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = group_of(world, monkeypatch, {"a": "paid", "b": "paid", "odd-one": "<refunded>"})
    assert "The members don’t all subscribe alike" in page
    assert "Give these the subscription that most have" in page
    notice = page[page.index("subscribe alike") : page.index("Members that are connected")]
    assert "odd-one" in notice
    assert "with TAG <code>&lt;refunded&gt;</code> instead of TAG <code>paid</code>" in notice
    assert "<code>paid</code>" in own_of(page, "a")
    assert "differs from most" not in own_of(page, "b")
    assert "<code>&lt;refunded&gt;</code>" in own_of(page, "odd-one")
    assert "differs from most" in own_of(page, "odd-one")


def test_without_a_majority_it_is_said_with_whom_the_others_are_compared(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = group_of(world, monkeypatch, {"a": "paid", "b": "refunded"})
    assert "No way to subscribe is the most common one. Compared with a, these differ" in page
    assert "differs from a" in own_of(page, "b")


def test_members_that_subscribe_alike_get_no_notice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    page = group_of(world, monkeypatch, {"a": "paid || due", "b": "due||paid"}, not_compared=2)
    assert "subscribe alike" not in page
    assert "Whether 2 of them subscribe like the others is not known" in page
    assert "<code>paid || due</code>" in own_of(page, "a")
    assert "–" in own_of(page, "unheard-0")


@pytest.mark.django_db(transaction=True)
def test_the_page_of_a_member_looks_right(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn, member: MembersTwin
) -> None:
    member.info = running_info(stack='"main" TID: 1 RUNNABLE\n    at billing.Handler.consume(Handler.java:42)\n' * 30)
    log_in(world.alice)
    page.goto(f"{live_server.url}{world.path('clusters/orders/lag/billing/')}")
    page.get_by_role("link", name=CLIENT).click()
    page.get_by_role("link", name="Show stacks").click()
    expect(page.locator("#member-stack")).to_contain_text("Handler.java:42")
    look_at(page, "member")
    member.error = RequestTimeoutError("no answer")
    page.reload()
    look_at(page, "member silent")
