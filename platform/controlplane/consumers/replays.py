"""Paced replay of dead letters: start, one turn of a second each, cancel. What is promised stands in paced.py."""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.db import IntegrityError, transaction

from controlplane.accounts.actors import Actor
from controlplane.clusters.models import Cluster
from controlplane.clusters.remoting import cluster_admin, cluster_producer
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import Conflict, InvalidInput
from controlplane.common.sentences import say
from controlplane.consumers.dead_letters import dead_letter_queues
from controlplane.consumers.models import DeadLetterReplay, ReplayTarget
from controlplane.consumers.paced import (
    SELECTED_MAX,
    Kind,
    cancel,
    enqueue,
    go_on,
    rate_check,
    require_room,
    resume_all,
    take_turn,
)
from controlplane.consumers.replay_plan import Place, message_again, ranges_of, stop_reason
from controlplane.tenants.rules import actor_require
from controlplane.topics.selectors import topic_list
from highwater import Admin, Message, MessageQueue, NoRouteError, Producer, ReceivedMessage
from mqwire.names import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX

TURN_TASK = "consumers.replay_turn"


@dataclass(frozen=True, slots=True)
class ReplayWish:
    """What to replay. `places` is None for all dead letters that are stored now. A limit of 0 never stops it."""

    target: ReplayTarget = ReplayTarget.RETRY_TOPIC
    rate_per_second: int = 10
    stop_after_failures: int = 10
    stop_after_new_dead: int = 100
    places: tuple[Place, ...] | None = None

    def check(self) -> None:
        """Raise InvalidInput for what is out of bounds."""
        rate_check(self.rate_per_second)
        if self.places is not None and not self.places:
            raise InvalidInput.for_field("places", say("Select at least one dead letter, or replay all."), "required")
        if self.places is not None and len(self.places) > SELECTED_MAX:
            raise InvalidInput.for_field(
                "places", say("Select at most %(most)s, or replay all.", most=SELECTED_MAX), "too_many"
            )


def replay_start(*, actor: Actor, cluster: Cluster, group: str, wish: ReplayWish) -> DeadLetterReplay:
    """Begin a replay; workers go on with it. Dead letters that come later are not part of it.

    Raises NotAllowed, InvalidInput, Conflict when there is nothing to replay, when the group has no retry topic, or while another
    replay of the group runs; LimitReached, BrokerUnreachable.
    """
    actor_require(actor, "dead_letter.replay", cluster.tenant)
    wish.check()
    with cluster_admin(cluster) as admin:
        queues = dead_letter_queues(admin, group)
        if wish.target == ReplayTarget.RETRY_TOPIC and queues:
            try:
                admin.topic_route(RETRY_GROUP_TOPIC_PREFIX + group)
            except NoRouteError:
                raise Conflict(
                    say("The group has no retry topic: no member has connected yet."),
                    code="no_retry_topic",
                    hint=say("Start a consumer of the group first, or replay to the original topic."),
                ) from None
    if wish.places is None:
        ranges: list[dict[str, Any]] = [
            {
                "broker_name": one.queue.broker_name,
                "queue_id": one.queue.queue_id,
                "next": one.min_offset,
                "end": one.max_offset,
            }
            for one in queues
            if one.message_count
        ]
    else:
        stored = {(one.queue.broker_name, one.queue.queue_id): one for one in queues}
        for place in wish.places:
            queue = stored.get((place.broker_name, place.queue_id))
            if queue is None or not 0 <= place.offset < queue.max_offset:
                raise InvalidInput.for_field(
                    "places",
                    say(
                        "%(broker_name)s:%(queue_id)s:%(offset)s is no dead letter.",
                        broker_name=place.broker_name,
                        queue_id=place.queue_id,
                        offset=place.offset,
                    ),
                    "not_found",
                )
        ranges = ranges_of(wish.places)
    if not ranges:
        raise Conflict(say("The group has no dead letters."), code="nothing_to_replay")
    try:
        with transaction.atomic():
            require_room(REPLAYS, cluster)
            replay = DeadLetterReplay.objects.create(
                cluster=cluster,
                consumer_group=group,
                target=wish.target,
                rate_per_second=wish.rate_per_second,
                stop_after_failures=wish.stop_after_failures,
                stop_after_new_dead=wish.stop_after_new_dead,
                dead_at_start=sum(one.max_offset for one in queues),
                ranges=ranges,
                total=sum(one["end"] - one["next"] for one in ranges),
                made_by=str(actor)[:254],
            )
            audit_event_record(
                actor=actor,
                action="dead_letter.replay",
                resource=replay.path,
                tenant_id=cluster.tenant_id,
                details={
                    "group": group,
                    "target": wish.target,
                    "messages": replay.total,
                    "rate_per_second": wish.rate_per_second,
                },
            )
            enqueue(REPLAYS, replay.pk)
    except IntegrityError:
        raise Conflict(
            say("Another replay of this group's dead letters runs."),
            code="replay_in_progress",
            hint=say("Wait until it has ended, or cancel it."),
        ) from None
    return replay


def replay_cancel(*, actor: Actor, replay: DeadLetterReplay) -> DeadLetterReplay:
    """End a replay before its next message. Raises NotAllowed, Conflict when it has ended already."""
    actor_require(actor, "dead_letter.replay", replay.cluster.tenant)
    cancel(REPLAYS, actor, replay, "dead_letter.replay_cancel")
    return replay


def replay_continue(*, actor: Actor, replay: DeadLetterReplay) -> DeadLetterReplay:
    """Go on with a replay that was stopped or cancelled, where it ended; its limits count from zero again.

    What was refused is tried again, as it surely was not sent; what is unknown is not. Raises NotAllowed, Conflict, LimitReached.
    """
    actor_require(actor, "dead_letter.replay", replay.cluster.tenant)
    with cluster_admin(replay.cluster) as admin:
        dead_now = sum(one.max_offset for one in dead_letter_queues(admin, replay.consumer_group))
    try:
        found: DeadLetterReplay = go_on(REPLAYS, actor, replay, "dead_letter.replay_continue", dead_at_start=dead_now)
    except IntegrityError:
        raise Conflict(
            say("Another replay of this group's dead letters runs."),
            code="replay_in_progress",
            hint=say("Wait until it has ended, or cancel it."),
        ) from None
    return found


def replays_resume() -> int:
    """Enqueue running replays that no one works on: a worker died, or the queue lost a message. Returns how many."""
    return resume_all(REPLAYS)


def replay_turn(
    replay_id: uuid.UUID, *, sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic
) -> str:
    """Send about a second's worth, and enqueue the next turn; returns the state, or why there was no turn."""
    return take_turn(REPLAYS, replay_id, sleep=sleep, clock=clock)


@dataclass(slots=True)
class _DeadLetters:
    """The dead letters that a replay has still to send."""

    replay: DeadLetterReplay
    new_dead: int | None = None
    buffer: list[ReceivedMessage] = field(default_factory=list)
    topics: frozenset[str] = frozenset()

    def open(self, admin: Admin) -> None:
        """Ask for the dead letters that came since it began, and which topics there are."""
        queues = dead_letter_queues(admin, self.replay.consumer_group)
        self.topics = frozenset(topic_list(self.replay.cluster).values_list("name", flat=True))
        self.new_dead = sum(one.max_offset for one in queues) - self.replay.dead_at_start if queues else None

    def stop_reason(self) -> str | None:
        """Return why the replay must stop, None while it may go on."""
        replay = self.replay
        return stop_reason(
            failures=replay.failed + replay.unknown - replay.failures_before,
            stop_after_failures=replay.stop_after_failures,
            new_dead=self.new_dead,
            stop_after_new_dead=replay.stop_after_new_dead,
        )

    def take(self, admin: Admin) -> tuple[dict[str, Any], Message | str] | None:
        """Take the next dead letter."""
        message = self.next_message(admin)
        if message is None:
            return None
        place = {
            "broker_name": message.queue.broker_name,
            "queue_id": message.queue.queue_id,
            "offset": message.queue_offset,
        }
        replay = self.replay
        return place, message_again(message, ReplayTarget(replay.target), replay.consumer_group, self.topics)

    def next_message(self, admin: Admin) -> ReceivedMessage | None:
        """Take the next dead letter, counting those that retention has deleted meanwhile."""
        replay = self.replay
        for one in replay.ranges:
            while one["next"] < one["end"]:
                queue = MessageQueue(
                    DLQ_GROUP_TOPIC_PREFIX + replay.consumer_group, one["broker_name"], one["queue_id"]
                )
                if not self.buffer or self.buffer[0].queue != queue or self.buffer[0].queue_offset < one["next"]:
                    self.buffer = admin.pull(queue, one["next"], min(32, one["end"] - one["next"]))
                first = self.buffer[0].queue_offset if self.buffer else one["end"]
                if first > one["next"]:
                    replay.gone += min(first, one["end"]) - one["next"]
                    one["next"] = min(first, one["end"])
                if one["next"] < one["end"]:
                    one["next"] += 1
                    return self.buffer.pop(0)
        return None

    def range_of(self, place: dict[str, Any]) -> dict[str, Any]:
        """Return the range of one dead letter."""
        return {
            "broker_name": place["broker_name"],
            "queue_id": place["queue_id"],
            "next": place["offset"],
            "end": place["offset"] + 1,
        }


@contextmanager
def _connect(cluster: Cluster) -> Iterator[tuple[Admin, Producer]]:
    with cluster_admin(cluster) as admin, cluster_producer(cluster, retries=0) as producer:
        yield admin, producer


REPLAYS = Kind(DeadLetterReplay, TURN_TASK, _DeadLetters, _connect)


def places_of(texts: Iterable[str], *, field: str = "places") -> tuple[Place, ...]:
    """Return places written as broker:queue:offset; raises InvalidInput for one that isn't."""
    found = []
    for text in texts:
        broker_name, _, rest = text.partition(":")
        queue_id, _, offset = rest.partition(":")
        if not (broker_name and queue_id.isascii() and queue_id.isdigit() and offset.isascii() and offset.isdigit()):
            raise InvalidInput.for_field(
                field, say("%(text)s is not broker:queue:offset.", text=f"{text[:80]!r}"), "invalid"
            )
        if len(queue_id) > 9 or len(offset) > 18:
            raise InvalidInput.for_field(
                field, say("%(text)s is not broker:queue:offset.", text=f"{text[:80]!r}"), "invalid"
            )
        found.append(Place(broker_name, int(queue_id), int(offset)))
    return tuple(found)
