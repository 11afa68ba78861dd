"""A group goes to exact offsets, queue by queue: what is looked at first, done, undone and refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from controlplane.common.errors import InvalidInput
from controlplane.consumers import services
from controlplane.consumers.models import OffsetReset, ResetTarget
from controlplane.consumers.services import Target, reset_make, reset_preview, reset_undo
from highwater import MessageQueue
from tests.controlplane.world import Json, World

GROUP, TOPIC = "billing", "payments"
QUEUES = [MessageQueue(TOPIC, "broker-a", number) for number in range(3)]


@dataclass
class Brokers:
    """Three queues that hold 10 to 99, the group at 50 in each."""

    offsets: dict[MessageQueue, int] = field(default_factory=lambda: dict.fromkeys(QUEUES, 50))

    def group_list(self, **_where: Any) -> list[str]:
        return [GROUP]

    def consumer_progress(self, _group: str, **_where: Any) -> Any:
        queues = [SimpleNamespace(queue=queue, consumer_offset=offset) for queue, offset in self.offsets.items()]
        return SimpleNamespace(queues=queues)

    def topic_stats(self, _topic: str) -> Any:
        return SimpleNamespace(queues=[SimpleNamespace(queue=one, min_offset=10, max_offset=100) for one in QUEUES])

    def reset_offset(self, _group: str, queue: MessageQueue, offset: int) -> None:
        self.offsets[queue] = offset


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    found = Brokers()

    @contextmanager
    def admin(_cluster: object) -> Iterator[Brokers]:
        yield found

    monkeypatch.setattr(services, "cluster_admin", admin)
    return found


def to(*offsets: str) -> Target:
    return Target(ResetTarget.OFFSETS, offsets=offsets)


def at(brokers: Brokers) -> list[int]:
    return [brokers.offsets[queue] for queue in QUEUES]


def test_only_the_queues_that_are_named_move_and_undo_takes_them_back(world: World, brokers: Brokers) -> None:
    target = to("broker-a:0:10", "broker-a:2:73")
    plan = reset_preview(cluster=world.cluster, group=GROUP, topic=TOPIC, target=target)
    assert (plan.again, plan.skipped, at(brokers)) == (40, 23, [50, 50, 50])
    made = reset_make(actor=world.alice, cluster=world.cluster, group=GROUP, topic=TOPIC, target=target)
    assert at(brokers) == [10, 50, 73]
    assert made.details == {"offsets": ["broker-a:0:10", "broker-a:2:73"]}
    reset_undo(actor=world.alice, reset=made)
    assert at(brokers) == [50, 50, 50]


@pytest.mark.parametrize(
    ("offsets", "problem"),
    [
        ((), "Give broker:queue:offset"),
        (("broker-a:0",), "is not broker:queue:offset"),
        (("broker-a:0:9",), "can go to 10 to 100, not to 9"),
        (("broker-a:0:101",), "can go to 10 to 100, not to 101"),
        (("broker-a:3:50",), "has no queue 3 on broker-a"),
        (("broker-b:0:50",), "has no queue 0 on broker-b"),
        (("broker-a:0:20", "broker-a:0:30"), "Queue 0 of broker-a is named twice"),
        (tuple(f"broker-a:{number}:1" for number in range(1001)), "At most 1000"),
    ],
)
def test_what_cannot_be_is_refused_at_the_field_and_nothing_moves(
    world: World, brokers: Brokers, offsets: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        reset_make(actor=world.alice, cluster=world.cluster, group=GROUP, topic=TOPIC, target=to(*offsets))
    (error,) = refused.value.errors
    assert error.field == "offsets"
    assert problem in str(error.message)
    assert at(brokers) == [50, 50, 50]
    assert not OffsetReset.objects.exists()


def test_the_api_previews_makes_and_shows_it(world: World, brokers: Brokers) -> None:
    path = f"/api/v1/tenants/acme/clusters/orders/consumer-groups/{GROUP}/offset-resets/"
    client = Json(world.alice)
    body = {"topic": TOPIC, "target": "offsets", "offsets": ["broker-a:1:99"]}
    preview = client.call("POST", path, {**body, "dry_run": True})
    assert (preview.status_code, preview.json()["skipped"], at(brokers)) == (200, "49", [50, 50, 50])
    made = client.call("POST", path, body)
    assert (made.status_code, made.json()["details"], at(brokers)) == (
        201,
        {"offsets": ["broker-a:1:99"]},
        [50, 99, 50],
    )
