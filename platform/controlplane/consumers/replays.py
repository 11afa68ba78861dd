"""Paced replay of dead letters: start, one turn of a second each, cancel.

What is promised: a replay sends each dead letter at most once. One whose send was not answered, or not proven by its broker, or
whose worker died, is not sent again but reported as `unknown`: it may have been stored or not. What was not reached when the replay
ended was not sent.
"""

import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from celery import current_app
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_noop

from controlplane.accounts.actors import Actor
from controlplane.clusters.models import Cluster, ClusterState
from controlplane.clusters.remoting import cluster_admin, cluster_producer
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import ApplicationError, BrokerUnreachable, Conflict, InvalidInput, LimitReached
from controlplane.common.sentences import is_made_of, say
from controlplane.consumers.dead_letters import dead_letter_queues
from controlplane.consumers.models import DeadLetterReplay, ReplayState, ReplayTarget
from controlplane.consumers.replay_plan import Place, message_again, ranges_of, stop_reason
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_require
from controlplane.topics.gateway import may_be_stored
from controlplane.topics.selectors import topic_list
from highwater import Admin, Message, MessageQueue, NoRouteError, Producer, ReceivedMessage, SendStatus
from highwater.errors import ConnectError, HighwaterError
from mqwire.names import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX

RATE_MAX = 100
SELECTED_MAX = 500
OUTCOMES_KEPT = 500
TURN_TASK = "consumers.replay_turn"
_TURN_S = 1.0
_LEASE = timedelta(seconds=60)
_AFTER_SILENCE_S = 5.0
# A cluster that goes on not answering keeps its worker for seconds at each try: they are the other tenants', too.
_AFTER_LONG_SILENCE_S = 30.0
# Of a tenant at once: a turn takes a worker for about a second, and workers do everything else as well.
RUNNING_MAX = 3
_WAITS = gettext_noop("It waits: %(problem)s")


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
        if not 1 <= self.rate_per_second <= RATE_MAX:
            raise InvalidInput.for_field("rate_per_second", say("Use 1 to %(most)s.", most=RATE_MAX), "out_of_range")
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
            _require_room(cluster)
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
            _enqueue(replay.pk)
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
    with transaction.atomic():
        if not _end(Q(pk=replay.pk), ReplayState.CANCELLED, say("Cancelled by %(actor)s.", actor=str(actor))):
            raise Conflict(say("This replay has ended already."), code="replay_ended")
        audit_event_record(
            actor=actor, action="dead_letter.replay_cancel", resource=replay.path, tenant_id=replay.cluster.tenant_id
        )
    replay.refresh_from_db()
    return replay


def replay_continue(*, actor: Actor, replay: DeadLetterReplay) -> DeadLetterReplay:
    """Go on with a replay that was stopped or cancelled, where it ended; its limits count from zero again.

    What was refused is tried again, as it surely was not sent; what is unknown is not. Raises NotAllowed, Conflict, LimitReached.
    """
    actor_require(actor, "dead_letter.replay", replay.cluster.tenant)
    with cluster_admin(replay.cluster) as admin:
        dead_now = sum(one.max_offset for one in dead_letter_queues(admin, replay.consumer_group))
    try:
        with transaction.atomic():
            locked = DeadLetterReplay.objects.select_for_update().get(pk=replay.pk)
            if locked.state not in (ReplayState.STOPPED, ReplayState.CANCELLED):
                raise Conflict(say("Only a replay that was stopped or cancelled can go on."), code="replay_not_stopped")
            _require_room(replay.cluster)
            refused = [one for one in locked.outcomes if one["outcome"] == "failed"]
            locked.ranges = [*map(_range, refused), *locked.ranges]
            locked.outcomes = [one for one in locked.outcomes if one["outcome"] != "failed"]
            locked.failed -= len(refused)
            locked.failures_before = locked.failed + locked.unknown
            locked.dead_at_start = dead_now
            locked.state, locked.message, locked.finished_at = ReplayState.RUNNING, "", None
            locked.claim = locked.lease_until = None
            locked.save()
            audit_event_record(
                actor=actor,
                action="dead_letter.replay_continue",
                resource=locked.path,
                tenant_id=replay.cluster.tenant_id,
            )
            _enqueue(locked.pk)
    except IntegrityError:
        raise Conflict(
            say("Another replay of this group's dead letters runs."),
            code="replay_in_progress",
            hint=say("Wait until it has ended, or cancel it."),
        ) from None
    return locked


def replays_resume() -> int:
    """Enqueue running replays that no one works on: a worker died, or the queue lost a message. Returns how many."""
    idle = Q(lease_until__isnull=True, updated_at__lt=timezone.now() - timedelta(seconds=15)) | Q(
        lease_until__lt=timezone.now()
    )
    found = DeadLetterReplay.objects.filter(idle, state=ReplayState.RUNNING).values_list("pk", flat=True)
    for pk in found:
        _enqueue(pk)
    return len(found)


def replay_turn(
    replay_id: uuid.UUID, *, sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic
) -> str:
    """Send about a second's worth, and enqueue the next turn; returns the state, or why there was no turn.

    Of two workers one has the turn; each message is noted before it is sent, so that no worker sends another's.
    """
    now = timezone.now()
    free = Q(lease_until__isnull=True) | Q(lease_until__lt=now)
    claim = uuid.uuid4()
    won = DeadLetterReplay.objects.filter(free, pk=replay_id, state=ReplayState.RUNNING).update(
        claim=claim, lease_until=now + _LEASE, updated_at=now
    )
    if won != 1:
        return "not_claimed"
    turn = _Turn(DeadLetterReplay.objects.select_related("cluster__tenant").get(pk=replay_id), claim)
    delay_s = _TURN_S
    try:
        turn.run(sleep, clock)
    except (
        ApplicationError
    ) as error:  # the cluster doesn't answer, or isn't running: nothing was sent since the last note
        delay_s = _AFTER_LONG_SILENCE_S if is_made_of(turn.replay.message, _WAITS) else _AFTER_SILENCE_S
        turn.replay.message = say(_WAITS, problem=error.message)
    return turn.end(delay_s)


@dataclass(slots=True)
class _Turn:
    """One worker's turn. `replay` is its copy of the row, written at each note."""

    replay: DeadLetterReplay
    claim: uuid.UUID
    is_lost: bool = False
    ended: tuple[ReplayState, str] | None = None
    buffer: list[ReceivedMessage] = field(default_factory=list)
    topics: frozenset[str] = frozenset()

    def run(self, sleep: Callable[[float], None], clock: Callable[[], float]) -> None:
        """Send up to a second's worth, evenly. Raises ApplicationError when the cluster doesn't answer."""
        replay = self.replay
        if replay.cluster.state in (ClusterState.DELETING, ClusterState.DELETED):
            self.ended = ReplayState.STOPPED, say("The cluster was deleted.")
            return
        if replay.in_flight is not None:  # its worker died, or lost the database
            self.report(replay.in_flight, "unknown", say("The worker that sent it was interrupted: stored or not."))
            replay.in_flight = None
        with cluster_admin(replay.cluster) as admin, cluster_producer(replay.cluster, retries=0) as producer:
            queues = dead_letter_queues(admin, replay.consumer_group)
            self.topics = frozenset(topic_list(replay.cluster).values_list("name", flat=True))
            new_dead = sum(one.max_offset for one in queues) - replay.dead_at_start if queues else None
            begin = clock()
            for number in range(replay.rate_per_second):
                reason = stop_reason(
                    failures=replay.failed + replay.unknown - replay.failures_before,
                    stop_after_failures=replay.stop_after_failures,
                    new_dead=new_dead,
                    stop_after_new_dead=replay.stop_after_new_dead,
                )
                if reason is not None:
                    self.ended = ReplayState.STOPPED, reason
                    return
                sleep(max(0.0, begin + number * _TURN_S / replay.rate_per_second - clock()))
                if not self.send_next(admin, producer):
                    return
                if clock() - begin > 5 * _TURN_S:  # a slow cluster: the rate is a maximum
                    return

    def send_next(self, admin: Admin, producer: Producer) -> bool:
        """Send the next message. False: there is none, or the claim was lost."""
        replay = self.replay
        message = self.next_message(admin)
        if message is None:
            if all(one["next"] >= one["end"] for one in replay.ranges):
                self.ended = ReplayState.COMPLETED, ""
            return False
        place = {
            "broker_name": message.queue.broker_name,
            "queue_id": message.queue.queue_id,
            "offset": message.queue_offset,
        }
        again = message_again(message, ReplayTarget(replay.target), replay.consumer_group, self.topics)
        if isinstance(again, str):
            self.report(place, "skipped", again)
            return True
        replay.in_flight = place
        if not self.note():
            self.put_back(place)
            return False
        try:
            outcome = _send(producer, again)
        except ConnectError as error:  # it never left: its turn comes again
            self.put_back(place)
            raise BrokerUnreachable(say("The cluster does not answer: %(error)s", error=str(error))) from error
        replay.in_flight = None
        if outcome[0] == "sent":
            replay.sent += 1
            replay.message = ""
        else:
            self.report(place, *outcome)
        return True

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

    def put_back(self, place: dict[str, Any]) -> None:
        """Have a message that was not sent come next."""
        self.replay.in_flight = None
        self.replay.ranges.insert(0, _range(place))

    def report(self, place: dict[str, Any], outcome: str, reason: str) -> None:
        """Count a message that was not surely sent, and keep why."""
        replay = self.replay
        setattr(replay, outcome, getattr(replay, outcome) + 1)
        if len(replay.outcomes) < OUTCOMES_KEPT:
            replay.outcomes.append({**place, "outcome": outcome, "reason": reason})

    def note(self) -> bool:
        """Write the row if the claim still holds. False: cancelled, or another worker took over."""
        replay, now = self.replay, timezone.now()
        values = {name: getattr(replay, name) for name in _NOTED}
        won = DeadLetterReplay.objects.filter(pk=replay.pk, state=ReplayState.RUNNING, claim=self.claim).update(
            **values, lease_until=now + _LEASE, updated_at=now
        )
        self.is_lost = won != 1
        return won == 1

    def end(self, delay_s: float) -> str:
        """Write what the turn did, and give the claim back; returns the state."""
        with transaction.atomic():
            if self.is_lost or not self.note():
                # Cancelled in the middle of a turn: what was done until then is kept. Another worker's claim is another's.
                values = {name: getattr(self.replay, name) for name in _NOTED if name != "message"}
                DeadLetterReplay.objects.filter(pk=self.replay.pk, claim=self.claim).update(**values)
                return "lost"
            if self.ended is not None:
                _end(Q(pk=self.replay.pk, claim=self.claim), *self.ended)
                return self.ended[0]
            # Until its next turn comes no one enqueues another.
            rests_until = timezone.now() + timedelta(seconds=delay_s) if delay_s > _AFTER_SILENCE_S else None
            DeadLetterReplay.objects.filter(pk=self.replay.pk, claim=self.claim).update(lease_until=rests_until)
            _enqueue(self.replay.pk, delay_s=delay_s if rests_until is None else delay_s + 1)
        return ReplayState.RUNNING


_NOTED = ("ranges", "in_flight", "sent", "skipped", "failed", "unknown", "gone", "outcomes", "message")


def _range(place: dict[str, Any]) -> dict[str, Any]:
    return {
        "broker_name": place["broker_name"],
        "queue_id": place["queue_id"],
        "next": place["offset"],
        "end": place["offset"] + 1,
    }


def _send(producer: Producer, message: Message) -> tuple[str, str]:
    try:
        result = producer.send(message)
    except ConnectError:
        raise
    except HighwaterError as error:
        return "unknown" if may_be_stored(error) else "failed", str(error)[:300]
    if result.status is not SendStatus.SEND_OK:
        return "unknown", say("Stored, but not proven safe: %(status)s.", status=result.status.value)
    return "sent", ""


def _require_room(cluster: Cluster) -> None:
    """Raise LimitReached when as many replays of the tenant run as may; of two that begin at once one sees the other."""
    Tenant.objects.select_for_update().get(pk=cluster.tenant_id)
    running = DeadLetterReplay.objects.filter(cluster__tenant=cluster.tenant_id, state=ReplayState.RUNNING)
    if running.count() >= RUNNING_MAX:
        raise LimitReached(
            say("%(most)s replays of this tenant run already, which is as many as may at once.", most=RUNNING_MAX),
            code="too_many_replays",
            hint=say("Wait until one has ended, or cancel one."),
        )


def _end(which: Q, state: ReplayState, message: str) -> bool:
    now = timezone.now()
    won = DeadLetterReplay.objects.filter(which, state=ReplayState.RUNNING).update(
        state=state, message=message, lease_until=None, finished_at=now, updated_at=now
    )
    return won == 1


def _enqueue(replay_id: uuid.UUID, *, delay_s: float = 0) -> None:
    def send() -> None:
        current_app.send_task(TURN_TASK, args=[str(replay_id)], countdown=delay_s or None)

    transaction.on_commit(send, robust=True)


def places_of(texts: Iterable[str]) -> tuple[Place, ...]:
    """Return places written as broker:queue:offset; raises InvalidInput for one that isn't."""
    found = []
    for text in texts:
        broker_name, _, rest = text.partition(":")
        queue_id, _, offset = rest.partition(":")
        if not (broker_name and queue_id.isascii() and queue_id.isdigit() and offset.isascii() and offset.isdigit()):
            raise InvalidInput.for_field(
                "places", say("%(text)s is not broker:queue:offset.", text=f"{text[:80]!r}"), "invalid"
            )
        if len(queue_id) > 9 or len(offset) > 18:
            raise InvalidInput.for_field(
                "places", say("%(text)s is not broker:queue:offset.", text=f"{text[:80]!r}"), "invalid"
            )
        found.append(Place(broker_name, int(queue_id), int(offset)))
    return tuple(found)
