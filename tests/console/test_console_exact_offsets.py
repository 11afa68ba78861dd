"""The form that takes a group to exact offsets: filled with where it is now, shown before it is done."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest
from django.utils import translation

from controlplane.console.group_forms import EXACT_MAX, OffsetResetForm
from controlplane.console.views import offset_resets
from controlplane.consumers.models import ResetTarget
from controlplane.consumers.reset_plan import QueueReset, ResetPlan
from controlplane.consumers.services import Target
from controlplane.insight.live import GroupLag, QueueLag
from controlplane.insight.outlook import GroupOutlook
from controlplane.topics.selectors import LiveState
from highwater import MessageQueue
from tests.console.world import World

PAGE = "clusters/orders/lag/billing/reset/"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Target]]:
    """The group is at 50 in both queues of `payments`; what the page asks to preview is kept."""
    queues = tuple(QueueLag("payments", "broker-a", number, 50, 100, 0) for number in range(2))
    live = GroupLag("billing", LiveState.LIVE, datetime.now(UTC), queues)
    monkeypatch.setattr(offset_resets, "group_outlook", lambda _cluster, _group: GroupOutlook(live, []))
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
