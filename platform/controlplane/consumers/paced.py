"""Stored messages, sent again at a rate: turns of about a second each, of the worker that holds the claim.

What is promised: each message is sent at most once. One whose send was not answered, or not proven by its broker, or whose
worker died, is not sent again but reported as `unknown`: it may have been stored or not. What was not reached when the sending
ended was not sent.
"""

import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from celery import current_app
from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_noop

from controlplane.accounts.actors import Actor
from controlplane.clusters.models import Cluster, ClusterState
from controlplane.clusters.remarks import error_words
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import ApplicationError, BrokerUnreachable, Conflict, InvalidInput, LimitReached
from controlplane.common.sentences import bounded, is_made_of, say
from controlplane.consumers.models import PacedSending, ReplayState
from controlplane.tenants.models import Tenant
from controlplane.topics.gateway import may_be_stored
from highwater import Admin, Message, Producer, SendStatus
from highwater.errors import ConnectError, HighwaterError, TimeSpentError

RATE_MAX = 100
SELECTED_MAX = 500
OUTCOMES_KEPT = 500
# Of those that were not surely sent.
OUTCOMES = ["skipped", "failed", "unknown"]
# Of a tenant at once, of each kind: a turn takes a worker for about a second, and workers do everything else as well.
RUNNING_MAX = 3
_TURN_S = 1.0
_LEASE = timedelta(seconds=60)
_AFTER_SILENCE_S = 5.0
# A cluster that goes on not answering keeps its worker for seconds at each try: they are the other tenants', too.
_AFTER_LONG_SILENCE_S = 30.0
_WAITS = gettext_noop("It waits: %(problem)s")


class Source(Protocol):
    """Where a sending's messages come from. It is made again for each turn."""

    def open(self, admin: Admin) -> None:
        """Ask what the turn needs to know. Raises ApplicationError."""

    def stop_reason(self) -> str | None:
        """Return why the sending must stop, None while it may go on."""

    def take(self, admin: Admin) -> tuple[dict[str, Any], Message | str] | None:
        """Take the next message off the row's ranges: its place, and what to send or why it is skipped. None: none is left now."""

    def range_of(self, place: dict[str, Any]) -> dict[str, Any]:
        """Return the range of this place alone."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of sending: its rows, its task, and how to reach a cluster. `connect` yields an Admin and a Producer."""

    model: type[PacedSending]
    task: str
    source: Callable[[Any], Source]
    connect: Callable[[Cluster], AbstractContextManager[tuple[Admin, Producer]]]


def rate_check(rate_per_second: int) -> None:
    """Raise InvalidInput for a rate that is out of bounds."""
    if not 1 <= rate_per_second <= RATE_MAX:
        raise InvalidInput.for_field("rate_per_second", say("Use 1 to %(most)s.", most=RATE_MAX), "out_of_range")


def resume_all(kind: Kind) -> int:
    """Enqueue running sendings that no one works on: a worker died, or the queue lost a message. Returns how many."""
    idle = Q(lease_until__isnull=True, updated_at__lt=timezone.now() - timedelta(seconds=15)) | Q(
        lease_until__lt=timezone.now()
    )
    found = _rows(kind).filter(idle, state=ReplayState.RUNNING).values_list("pk", flat=True)
    for pk in found:
        enqueue(kind, pk)
    return len(found)


def take_turn(
    kind: Kind,
    sending_id: uuid.UUID,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Send about a second's worth, and enqueue the next turn; returns the state, or why there was no turn.

    Of two workers one has the turn; each message is noted before it is sent, so that no worker sends another's.
    """
    now = timezone.now()
    free = Q(lease_until__isnull=True) | Q(lease_until__lt=now)
    claim = uuid.uuid4()
    won = (
        _rows(kind)
        .filter(free, pk=sending_id, state=ReplayState.RUNNING)
        .update(claim=claim, lease_until=now + _LEASE, updated_at=now)
    )
    if won != 1:
        return "not_claimed"
    row = _rows(kind).select_related("cluster__tenant").get(pk=sending_id)
    turn = _Turn(kind, row, claim, kind.source(row))
    delay_s = _TURN_S
    try:
        turn.run(sleep, clock)
    except (
        ApplicationError
    ) as error:  # the cluster doesn't answer, or isn't running: nothing was sent since the last note
        delay_s = _AFTER_LONG_SILENCE_S if is_made_of(turn.row.message, _WAITS) else _AFTER_SILENCE_S
        turn.row.message = say(_WAITS, problem=error.message)
    return turn.end(delay_s)


@dataclass(slots=True)
class _Turn:
    """One worker's turn. `row` is its copy of the row, written at each note."""

    kind: Kind
    row: Any
    claim: uuid.UUID
    source: Source
    is_lost: bool = False
    ended: tuple[ReplayState, str] | None = None

    def run(self, sleep: Callable[[float], None], clock: Callable[[], float]) -> None:
        """Send up to a second's worth, evenly. Raises ApplicationError when the cluster doesn't answer."""
        row = self.row
        if row.cluster.state in (ClusterState.DELETING, ClusterState.DELETED):
            self.ended = ReplayState.STOPPED, say("The cluster was deleted.")
            return
        if row.in_flight is not None:  # its worker died, or lost the database
            self.report(row.in_flight, "unknown", say("The worker that sent it was interrupted: stored or not."))
            row.in_flight = None
        with self.kind.connect(row.cluster) as (admin, producer):
            self.source.open(admin)
            begin = clock()
            for number in range(row.rate_per_second):
                reason = self.source.stop_reason()
                if reason is not None:
                    self.ended = ReplayState.STOPPED, reason
                    return
                sleep(max(0.0, begin + number * _TURN_S / row.rate_per_second - clock()))
                if not self.send_next(admin, producer):
                    return
                if clock() - begin > 5 * _TURN_S:  # a slow cluster: the rate is a maximum
                    return

    def send_next(self, admin: Admin, producer: Producer) -> bool:
        """Send the next message. False: there is none, or the claim was lost."""
        row = self.row
        taken = self.source.take(admin)
        if taken is None:
            if all(one["next"] >= one["end"] for one in row.ranges):
                self.ended = ReplayState.COMPLETED, ""
            return False
        place, again = taken
        if isinstance(again, str):
            self.report(place, "skipped", again)
            return True
        row.in_flight = place
        if not self.note():
            self.put_back(place)
            return False
        try:
            outcome = _send(producer, again)
        except (ConnectError, TimeSpentError) as error:  # it never left: its turn comes again
            self.put_back(place)
            raise BrokerUnreachable(say("The cluster does not answer: %(error)s", error=error_words(error))) from error
        row.in_flight = None
        if outcome[0] == "sent":
            row.sent += 1
            row.message = ""
        else:
            self.report(place, *outcome)
        return True

    def put_back(self, place: dict[str, Any]) -> None:
        """Have a message that was not sent come next."""
        self.row.in_flight = None
        self.row.ranges.insert(0, self.source.range_of(place))

    def report(self, place: dict[str, Any], outcome: str, reason: str) -> None:
        """Count a message that was not surely sent, and keep why."""
        row = self.row
        setattr(row, outcome, getattr(row, outcome) + 1)
        if len(row.outcomes) < OUTCOMES_KEPT:
            row.outcomes.append({**place, "outcome": outcome, "reason": reason})

    def note(self) -> bool:
        """Write the row if the claim still holds. False: cancelled, or another worker took over."""
        row, now = self.row, timezone.now()
        values = {name: getattr(row, name) for name in _NOTED}
        won: int = (
            _rows(self.kind)
            .filter(pk=row.pk, state=ReplayState.RUNNING, claim=self.claim)
            .update(**values, lease_until=now + _LEASE, updated_at=now)
        )
        self.is_lost = won != 1
        return won == 1

    def end(self, delay_s: float) -> str:
        """Write what the turn did, and give the claim back; returns the state."""
        rows = _rows(self.kind)
        with transaction.atomic():
            if self.is_lost or not self.note():
                # Cancelled in the middle of a turn: what was done until then is kept. Another worker's claim is another's.
                values = {name: getattr(self.row, name) for name in _NOTED if name != "message"}
                rows.filter(pk=self.row.pk, claim=self.claim).update(**values)
                return "lost"
            if self.ended is not None:
                end_where(self.kind, Q(pk=self.row.pk, claim=self.claim), *self.ended)
                return self.ended[0]
            # Until its next turn comes no one enqueues another.
            rests_until = timezone.now() + timedelta(seconds=delay_s) if delay_s > _AFTER_SILENCE_S else None
            rows.filter(pk=self.row.pk, claim=self.claim).update(lease_until=rests_until)
            enqueue(self.kind, self.row.pk, delay_s=delay_s if rests_until is None else delay_s + 1)
        return ReplayState.RUNNING


_NOTED = ("ranges", "in_flight", "sent", "skipped", "failed", "unknown", "gone", "outcomes", "message")


def _send(producer: Producer, message: Message) -> tuple[str, str]:
    try:
        result = producer.send(message)
    except (ConnectError, TimeSpentError):
        raise
    except HighwaterError as error:
        return "unknown" if may_be_stored(error) else "failed", bounded(error_words(error), 300)
    if result.status is not SendStatus.SEND_OK:
        return "unknown", say("Stored, but not proven safe: %(status)s.", status=result.status.value)
    return "sent", ""


def cancel(kind: Kind, actor: Actor, sending: PacedSending, action: str) -> None:
    """End a sending before its next message. Raises Conflict when it has ended already."""
    with transaction.atomic():
        if not end_where(
            kind, Q(pk=sending.pk), ReplayState.CANCELLED, say("Cancelled by %(actor)s.", actor=str(actor))
        ):
            raise Conflict(say("This replay has ended already."), code="replay_ended")
        audit_event_record(actor=actor, action=action, resource=sending.path, tenant_id=sending.cluster.tenant_id)
    sending.refresh_from_db()


def go_on(kind: Kind, actor: Actor, sending: PacedSending, action: str, **changes: Any) -> Any:
    """Go on with a sending that was stopped or cancelled; what was refused is tried again. Returns its row, with `changes`.

    Raises Conflict, LimitReached; IntegrityError where another one runs.
    """
    with transaction.atomic():
        locked = _rows(kind).select_for_update(of=("self",)).select_related("cluster__tenant").get(pk=sending.pk)
        if locked.state not in (ReplayState.STOPPED, ReplayState.CANCELLED):
            raise Conflict(say("Only a replay that was stopped or cancelled can go on."), code="replay_not_stopped")
        require_room(kind, locked.cluster)
        range_of = kind.source(locked).range_of
        refused = [one for one in locked.outcomes if one["outcome"] == "failed"]
        locked.ranges = [*map(range_of, refused), *locked.ranges]
        locked.outcomes = [one for one in locked.outcomes if one["outcome"] != "failed"]
        locked.failed -= len(refused)
        locked.failures_before = locked.failed + locked.unknown
        locked.state, locked.message, locked.finished_at = ReplayState.RUNNING, "", None
        locked.claim = locked.lease_until = None
        for name, value in changes.items():
            setattr(locked, name, value)
        locked.save()
        audit_event_record(actor=actor, action=action, resource=locked.path, tenant_id=locked.cluster.tenant_id)
        enqueue(kind, locked.pk)
    return locked


def require_room(kind: Kind, cluster: Cluster) -> None:
    """Raise LimitReached when as many sendings of the tenant run as may; of two that begin at once one sees the other."""
    Tenant.objects.select_for_update().get(pk=cluster.tenant_id)
    if _rows(kind).filter(cluster__tenant=cluster.tenant_id, state=ReplayState.RUNNING).count() >= RUNNING_MAX:
        raise LimitReached(
            say("%(most)s replays of this tenant run already, which is as many as may at once.", most=RUNNING_MAX),
            code="too_many_replays",
            hint=say("Wait until one has ended, or cancel one."),
        )


def end_where(kind: Kind, which: Q, state: ReplayState, message: str) -> bool:
    """End a running sending; False when none was found."""
    now = timezone.now()
    won: int = (
        _rows(kind)
        .filter(which, state=ReplayState.RUNNING)
        .update(state=state, message=message, lease_until=None, finished_at=now, updated_at=now)
    )
    return won == 1


def enqueue(kind: Kind, sending_id: uuid.UUID, *, delay_s: float = 0) -> None:
    """Have a worker take the next turn, once the transaction is over."""

    def send() -> None:
        current_app.send_task(kind.task, args=[str(sending_id)], countdown=delay_s or None)

    transaction.on_commit(send, robust=True)


def _rows(kind: Kind) -> Any:
    return kind.model._default_manager
