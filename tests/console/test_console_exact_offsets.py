"""The form that takes a group to exact offsets: filled with where it is now, shown before it is done."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest
from django.utils import translation
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.console.group_forms import EXACT_MAX, OffsetResetForm
from controlplane.console.views import offset_resets
from controlplane.consumers.models import ResetTarget
from controlplane.consumers.reset_plan import QueueReset, ResetPlan
from controlplane.consumers.services import Target
from controlplane.insight.live import GroupLag, QueueLag
from controlplane.insight.outlook import GroupOutlook
from controlplane.topics.selectors import LiveState
from highwater import MessageQueue
from tests.console.browser import LogIn, look_at
from tests.console.world import World

PAGE = "clusters/orders/lag/billing/reset/"


def consumes(monkeypatch: pytest.MonkeyPatch, *topics: str) -> None:
    """The group is at 50 in both queues of each of these topics."""
    queues = tuple(QueueLag(topic, "broker-a", number, 50, 100, 0) for topic in topics for number in range(2))
    live = GroupLag("billing", LiveState.LIVE, datetime.now(UTC), queues)
    monkeypatch.setattr(offset_resets, "group_outlook", lambda _cluster, _group: GroupOutlook(live, []))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Target]]:
    """The group is at 50 in both queues of `payments`; what the page asks to preview is kept."""
    consumes(monkeypatch, "payments", "%RETRY%billing")
    found: list[tuple[str, Target]] = []

    def preview(*, topic: str, target: Target, **_where: Any) -> ResetPlan:
        found.append((topic, target))
        return ResetPlan((QueueReset(MessageQueue("payments", "broker-a", 1), 50, 20),))

    monkeypatch.setattr(offset_resets, "reset_preview", preview)
    return found


def test_the_form_begins_with_where_the_group_is(world: World, asked: list[tuple[str, Target]]) -> None:
    page = world.client(world.alice).get(world.path(PAGE)).content.decode()
    assert "broker-a:0:50\nbroker-a:1:50</textarea>" in page
    assert "At exact offsets" in page
    assert asked == []


def test_of_several_topics_no_offsets_are_filled_in(
    world: World, asked: list[tuple[str, Target]], monkeypatch: pytest.MonkeyPatch
) -> None:
    consumes(monkeypatch, "payments", "refunds")
    assert "broker-a:0:50" not in world.client(world.alice).get(world.path(PAGE)).content.decode()


def test_the_preview_is_of_the_lines_and_has_its_command(world: World, asked: list[tuple[str, Target]]) -> None:
    query = urlencode({"topic": "payments", "target": "offsets", "offsets": "broker-a:1:20\r\n  broker-a:0:51 "})
    page = world.client(world.alice).get(world.path(f"{PAGE}?{query}")).content.decode()
    assert asked == [("payments", Target(ResetTarget.OFFSETS, offsets=("broker-a:1:20", "broker-a:0:51")))]
    assert "What would change" in page
    assert "broker-a:1:20" in page


def test_more_lines_than_an_address_holds_are_refused_and_not_offered() -> None:
    lines = [f"broker-a:{number}:1" for number in range(EXACT_MAX + 1)]
    form = OffsetResetForm({"topic": "t", "target": "offsets", "offsets": "\n".join(lines)}, topics=["t"])
    with translation.override("en"):
        assert str(form.errors["offsets"][0]) == f"At most {EXACT_MAX}."
    assert OffsetResetForm(topics=["t"], offsets=lines).fields["offsets"].initial is None
    assert OffsetResetForm(topics=["t"], offsets=lines[1:]).fields["offsets"].initial == "\n".join(lines[1:])


@pytest.mark.django_db(transaction=True)
def test_the_form_and_its_preview_look_right(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn, asked: list[tuple[str, Target]]
) -> None:
    log_in(world.alice)
    page.goto(live_server.url + world.path(PAGE))
    look_at(page, "offset reset form")
    page.get_by_role("radio", name="At exact offsets").check()
    page.get_by_role("textbox", name="Offsets").fill("broker-a:1:20")
    page.get_by_role("button", name="Show what would change").click()
    expect(page.get_by_role("heading", name="What would change")).to_be_visible()
    look_at(page, "offset reset preview")
    assert asked[0][1].offsets == ("broker-a:1:20",)
