"""Messages of a saved cut, sent again: paced, each at most once, and none that the group has (see consumers/paced.py).

A message keeps its id, so that consumers that remember ids know it again, and a later look finds it; its property DIVERGED_OF says
of which record it is a copy.
"""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from controlplane.accounts.actors import Actor
from controlplane.clusters.models import Cluster, Replica
from controlplane.clusters.remoting import cluster_admin, cluster_producer
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import Conflict, InvalidInput, NotFound
from controlplane.common.sentences import from_sdk, say
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
from controlplane.consumers.replay_plan import stop_reason
from controlplane.failover.diverged.cuts import (
    SavedCut,
    cut_of,
    origin_of,
    place_words,
    read_cut,
    replica_of,
)
from controlplane.failover.models import DivergedResend
from controlplane.tenants.rules import actor_require
from controlplane.topics.selectors import topic_list
from highwater import Admin, Message, Producer, ReceivedMessage
from highwater.diverged import Fate, compare, is_internal, message_again

TURN_TASK = "failover.diverged_resend_turn"
_COUNT_TRIES = 64


@dataclass(frozen=True, slots=True)
class ResendWish:
    """What to send again. `positions` is None for all messages of the cut. A limit of 0 never stops it."""

    rate_per_second: int = 10
    stop_after_failures: int = 10
    positions: tuple[int, ...] | None = None

    def check(self) -> None:
        """Raise InvalidInput for what is out of bounds."""
        rate_check(self.rate_per_second)
        if self.positions is not None and not self.positions:
            raise InvalidInput.for_field("positions", say("Select at least one message, or send all."), "required")
        if self.positions is not None and len(self.positions) > SELECTED_MAX:
            raise InvalidInput.for_field(
                "positions", say("Select at most %(most)s, or send all.", most=SELECTED_MAX), "too_many"
            )


def resend_start(*, actor: Actor, cut: SavedCut, wish: ResendWish) -> DivergedResend:
    """Begin to send messages of a cut again; workers go on with it. What the group has by then is skipped.

    Raises NotAllowed, InvalidInput, NotFound, Conflict when there is nothing to send or while another resend of the cut runs;
    LimitReached, BrokerRefused, BrokerUnreachable.
    """
    cluster = cut.cluster
    actor_require(actor, "message.send", cluster.tenant)
    wish.check()
    with cluster_admin(cluster) as admin:
        ranges, total = _wanted(admin, cut, wish)
    if not total:
        raise Conflict(say("The file holds no messages of consumers' topics."), code="nothing_to_resend")
    try:
        with transaction.atomic():
            require_room(RESENDS, cluster)
            resend = DivergedResend.objects.create(
                cluster=cluster,
                group_name=cut.group_name,
                replica_id=cut.replica_id,
                file_name=cut.name,
                rate_per_second=wish.rate_per_second,
                stop_after_failures=wish.stop_after_failures,
                ranges=ranges,
                total=total,
                made_by=str(actor)[:254],
            )
            audit_event_record(
                actor=actor,
                action="diverged.resend",
                resource=resend.path,
                tenant_id=cluster.tenant_id,
                details={"cut": cut.path, "messages": total, "rate_per_second": wish.rate_per_second},
            )
            enqueue(RESENDS, resend.pk)
    except IntegrityError:
        raise Conflict(
            say("Messages of this file are being sent already."),
            code="resend_in_progress",
            hint=say("Wait until it has ended, or cancel it."),
        ) from None
    return resend


def _wanted(admin: Admin, cut: SavedCut, wish: ResendWish) -> tuple[list[dict[str, Any]], int]:
    if wish.positions is not None:
        positions = sorted(set(wish.positions))
        for position in positions:
            found = read_cut(admin, cut.address, cut.name, position, 1)
            if not found.messages and found.next_position is not None:
                raise _not_counted()
            if not found.messages or found.messages[0][0] != position:
                raise InvalidInput.for_field(
                    "positions", say("No message begins at %(position)s.", position=position), "not_found"
                )
        return [{"next": one, "end": one + 1} for one in positions], len(positions)
    replica = replica_of(cut.cluster, cut.group_name, cut.replica_id)
    for _ in range(_COUNT_TRIES):
        if cut.is_counted:
            return [{"next": 0, "end": cut.size_bytes}], cut.messages
        cut = cut_of(admin, cut.cluster, replica, cut.name)
    raise _not_counted()


def _not_counted() -> Conflict:
    return Conflict(
        say("The replica is still counting what this file holds."),
        code="not_counted",
        hint=say("Try again in a few seconds."),
    )


def resend_cancel(*, actor: Actor, resend: DivergedResend) -> DivergedResend:
    """End a resend before its next message. Raises NotAllowed, Conflict when it has ended already."""
    actor_require(actor, "message.send", resend.cluster.tenant)
    cancel(RESENDS, actor, resend, "diverged.resend_cancel")
    return resend


def resend_continue(*, actor: Actor, resend: DivergedResend) -> DivergedResend:
    """Go on with a resend that was stopped or cancelled, where it ended. What was refused is tried again; what is unknown is not.

    Raises NotAllowed, Conflict, LimitReached.
    """
    actor_require(actor, "message.send", resend.cluster.tenant)
    try:
        found: DivergedResend = go_on(RESENDS, actor, resend, "diverged.resend_continue")
    except IntegrityError:
        raise Conflict(
            say("Messages of this file are being sent already."),
            code="resend_in_progress",
            hint=say("Wait until it has ended, or cancel it."),
        ) from None
    return found


def resend_list(cluster: Cluster) -> QuerySet[DivergedResend]:
    """Return the cluster's resends, newest first."""
    return DivergedResend.objects.filter(cluster=cluster).select_related("cluster__tenant")


def resends_of(cut: SavedCut) -> QuerySet[DivergedResend]:
    """Return the resends of one cut, newest first."""
    return resend_list(cut.cluster).filter(group_name=cut.group_name, replica_id=cut.replica_id, file_name=cut.name)


def resend_get(cluster: Cluster, resend_id: uuid.UUID) -> DivergedResend:
    """Return one resend; raises NotFound."""
    found = resend_list(cluster).filter(pk=resend_id).first()
    if found is None:
        raise NotFound(say("There is no such resend."))
    return found


def resends_resume() -> int:
    """Enqueue running resends that no one works on. Returns how many."""
    return resume_all(RESENDS)


def resend_turn(
    resend_id: uuid.UUID, *, sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic
) -> str:
    """Send about a second's worth, and enqueue the next turn; returns the state, or why there was no turn."""
    return take_turn(RESENDS, resend_id, sleep=sleep, clock=clock)


@dataclass(slots=True)
class _CutMessages:
    """The messages of a cut that a resend has still to send."""

    resend: DivergedResend
    replica: Replica | None = None
    topics: frozenset[str] = frozenset()
    buffer: list[tuple[int, ReceivedMessage]] = field(default_factory=list)

    def open(self, admin: Admin) -> None:
        """Find the replica and the topics."""
        self.topics = frozenset(topic_list(self.resend.cluster).values_list("name", flat=True))
        try:
            self.replica = replica_of(self.resend.cluster, self.resend.group_name, self.resend.replica_id)
        except NotFound:
            self.lose_the_rest()

    def stop_reason(self) -> str | None:
        """Return why the resend must stop, None while it may go on."""
        resend = self.resend
        return stop_reason(
            failures=resend.failed + resend.unknown - resend.failures_before,
            stop_after_failures=resend.stop_after_failures,
            new_dead=None,
            stop_after_new_dead=0,
        )

    def take(self, admin: Admin) -> tuple[dict[str, Any], Message | str] | None:
        """Take the next message; what the group has is skipped."""
        for one in self.resend.ranges:
            while one["next"] < one["end"]:
                found = self.next_in(admin, one)
                if found is None:
                    if one["next"] < one["end"]:
                        return None  # the replica has not looked through its file so far yet: a later turn asks again
                    break
                position, message = found
                if is_internal(message):
                    one["next"] = position + 1
                    continue
                again = self.again(admin, position, message)  # before it counts as taken: no one may answer
                one["next"] = position + 1
                place = {
                    "position": position,
                    "topic": message.queue.topic,
                    "queue_id": message.queue.queue_id,
                    "offset": message.queue_offset,
                }
                return place, again
        return None

    def next_in(self, admin: Admin, one: dict[str, Any]) -> tuple[int, ReceivedMessage] | None:
        """Return the first message of what is left of a range. None: not known yet, or the range has none and is ended."""
        begin, end = one["next"], one["end"]
        while self.buffer and self.buffer[0][0] < begin:
            self.buffer.pop(0)
        if not self.buffer and self.replica is not None:
            try:
                read = read_cut(admin, self.replica.address, self.resend.file_name, begin, min(32, end - begin))
            except NotFound:
                self.lose_the_rest()
                return None
            self.buffer = read.messages
            if not read.messages and read.next_position is not None and read.next_position < end:
                return None
        if self.buffer and self.buffer[0][0] < end:
            return self.buffer[0]
        one["next"] = end
        return None

    def again(self, admin: Admin, position: int, message: ReceivedMessage) -> Message | str:
        """Return the message to send, or why there is none."""
        resend = self.resend
        comparison = compare(admin, resend.group_name, message)
        if comparison.fate in (Fate.PRESENT, Fate.MOVED) and comparison.found is not None:
            return say("The cluster has it at %(place)s.", place=place_words(comparison.found))
        origin = origin_of(resend.group_name, resend.replica_id, resend.file_name, position)
        again = message_again(message, origin, self.topics)
        return from_sdk(again) if isinstance(again, str) else again

    def range_of(self, place: dict[str, Any]) -> dict[str, Any]:
        """Return the range of one message."""
        return {"next": place["position"], "end": place["position"] + 1}

    def lose_the_rest(self) -> None:
        """Count what is left as gone: the file, or its replica, was deleted."""
        self.resend.gone += max(0, self.resend.total - self.resend.done)
        for one in self.resend.ranges:
            one["next"] = one["end"]


@contextmanager
def _connect(cluster: Cluster) -> Iterator[tuple[Admin, Producer]]:
    with cluster_admin(cluster) as admin, cluster_producer(cluster, retries=0) as producer:
        yield admin, producer


RESENDS = Kind(DivergedResend, TURN_TASK, _CutMessages, _connect)
