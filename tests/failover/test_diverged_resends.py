"""A resend of a saved cut whose replica has not looked through the file yet: it waits, and ends when all was sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from controlplane.common.errors import Conflict
from controlplane.consumers.models import ReplayState
from controlplane.failover.diverged import resends
from controlplane.failover.diverged.cuts import SavedCut
from controlplane.failover.diverged.resends import ResendWish, resend_start, resend_turn
from controlplane.failover.models import DivergedResend
from controlplane.topics.models import Topic, TopicState
from highwater import DivergedMessages, Message, MessageQueue, ReceivedMessage, SendResult, SendStatus
from highwater.diverged import Comparison, Fate
from tests.controlplane.world import World, diverged_resend

SIZE_BYTES = 4096


def cut_message(number: int) -> ReceivedMessage:
    return ReceivedMessage(
        topic="payments",
        body=f"lost {number}".encode(),
        tags=None,
        keys=(),
        properties={"UNIQ_KEY": f"U{number}"},
        message_id=f"U{number}",
        offset_message_id=f"O{number}",
        queue=MessageQueue("payments", "broker-a", 0),
        queue_offset=number,
        physical_offset=number,
        born_timestamp_ms=1,
        store_timestamp_ms=2,
        born_host=("10.0.0.1", 1),
        store_host=("10.0.0.1", 1),
    )


class ReplicaTwin:
    """A replica that keeps one file, with messages at these positions, and has looked through it as far as `looked_to`."""

    def __init__(self, *positions: int) -> None:
        self.messages = {position: cut_message(position) for position in positions}
        self.looked_to = SIZE_BYTES
        self.sent: list[bytes] = []

    def diverged_read(self, address: str, name: str, *, position: int, max_messages: int) -> DivergedMessages:
        found = [one for one in sorted(self.messages) if position <= one < self.looked_to][:max_messages]
        following = max(position, self.looked_to)
        return DivergedMessages(
            tuple(self.messages[one] for one in found), tuple(found), following if following < SIZE_BYTES else None
        )

    def send(self, message: Message) -> SendResult:
        self.sent.append(message.body)
        return SendResult(SendStatus.SEND_OK, "U", "O", MessageQueue(message.topic, "broker-a", 0), 0)


@pytest.fixture
def replica(world: World, monkeypatch: pytest.MonkeyPatch) -> ReplicaTwin:
    """It keeps two messages that the group lacks."""
    Topic.objects.create(cluster=world.cluster, name="payments", state=TopicState.ACTIVE)
    twin = ReplicaTwin(2048, 3072)

    @contextmanager
    def stand_in(*_: object, **__: object) -> Iterator[Any]:
        yield twin

    monkeypatch.setattr(resends, "cluster_admin", stand_in)
    monkeypatch.setattr(resends, "cluster_producer", stand_in)
    monkeypatch.setattr(resends, "compare", lambda *_: Comparison(Fate.MISSING))
    return twin


def saved_cut(world: World) -> SavedCut:
    return SavedCut(
        cluster=world.cluster,
        group_name="broker-a",
        replica_id=0,
        address="127.0.0.2:3",
        name="cut-00000000000000004096",
        reason="diverged",
        epoch=2,
        cut_at=None,
        begin_offset=0,
        size_bytes=SIZE_BYTES,
        left_out_bytes=0,
        is_counted=False,
        messages=0,
        own_records=0,
        topics=[],
        first_stored_at=None,
        last_stored_at=None,
        done=None,
    )


def turn(resend: DivergedResend) -> str:
    DivergedResend.objects.filter(pk=resend.pk).update(lease_until=None)
    return resend_turn(resend.pk, sleep=lambda _: None, clock=lambda: 0.0)


def test_a_replica_that_has_not_looked_so_far_yet_is_asked_again_until_all_is_sent(
    world: World, replica: ReplicaTwin
) -> None:
    resend = diverged_resend(world.cluster)
    replica.looked_to = 1024
    assert turn(resend) == ReplayState.RUNNING
    replica.looked_to = 3072
    assert turn(resend) == ReplayState.RUNNING
    assert replica.sent == [b"lost 2048"]
    replica.looked_to = SIZE_BYTES
    assert turn(resend) == ReplayState.COMPLETED
    assert replica.sent == [b"lost 2048", b"lost 3072"]


def test_a_resend_of_some_ends_where_its_last_one_was_though_the_rest_of_the_file_is_not_known(
    world: World, replica: ReplicaTwin
) -> None:
    resend = diverged_resend(world.cluster, ranges=[{"next": 2048, "end": 2049}])
    replica.looked_to = 3000
    assert turn(resend) == ReplayState.COMPLETED
    assert replica.sent == [b"lost 2048"]


def test_a_selection_that_the_replica_can_not_check_yet_is_refused_for_now(world: World, replica: ReplicaTwin) -> None:
    replica.looked_to = 1024
    cut = saved_cut(world)
    with pytest.raises(Conflict) as refused:
        resend_start(actor=world.alice, cut=cut, wish=ResendWish(positions=(3072,)))
    assert refused.value.code == "not_counted"
