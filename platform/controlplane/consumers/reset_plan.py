"""What an offset reset would do to each queue. Pure: the brokers' answers come in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controlplane.common.errors import InvalidInput
from controlplane.common.sentences import say
from controlplane.consumers.replay_plan import Place
from highwater import MessageQueue


@dataclass(frozen=True, slots=True)
class QueueNow:
    """A queue and where the group is in it: `offset` is None where it has never committed."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    offset: int | None


@dataclass(frozen=True, slots=True)
class QueueReset:
    """One queue's part: from `before` (None: no offset yet) to `after`."""

    queue: MessageQueue
    before: int | None
    after: int

    @property
    def again(self) -> int:
        """Messages that the group gets again; 0 where it had no offset."""
        return 0 if self.before is None else max(0, self.before - self.after)

    @property
    def skipped(self) -> int:
        """Messages that the group never gets; 0 where it had no offset."""
        return 0 if self.before is None else max(0, self.after - self.before)


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """All queues that would change. `left_out` says of each other queue why it stays where it is."""

    queues: tuple[QueueReset, ...]
    left_out: tuple[tuple[MessageQueue, str], ...] = ()

    @property
    def again(self) -> int:
        return sum(one.again for one in self.queues)

    @property
    def skipped(self) -> int:
        return sum(one.skipped for one in self.queues)


def plan_to(now: Sequence[QueueNow], wanted: Mapping[MessageQueue, int | None]) -> ResetPlan:
    """Return the plan that takes each queue to its wanted offset, within what the queue holds.

    A queue whose wanted offset is None or missing is left out, and so is one that is there already.
    """
    queues, left_out = [], []
    for one in now:
        offset = wanted.get(one.queue)
        if offset is None:
            left_out.append((one.queue, say("no offset is known that it could go to")))
            continue
        after = min(max(offset, one.min_offset), one.max_offset)
        if after == one.offset:
            left_out.append((one.queue, say("it is there already")))
        else:
            queues.append(QueueReset(one.queue, one.offset, after))
    return ResetPlan(tuple(queues), tuple(left_out))


def exact_offsets(now: Sequence[QueueNow], places: Sequence[Place]) -> dict[MessageQueue, int | None]:
    """Return the offsets as they were asked for. Raises InvalidInput for a queue that is not there, or does not hold its offset."""
    known = {(one.queue.broker_name, one.queue.queue_id): one for one in now}
    wanted: dict[MessageQueue, int | None] = {}
    for place in places:
        one = known.get((place.broker_name, place.queue_id))
        if one is None:
            raise InvalidInput.for_field(
                "offsets",
                say(
                    "The topic has no queue %(queue)s on %(broker)s.",
                    queue=place.queue_id,
                    broker=place.broker_name[:80],
                ),
                "not_found",
            )
        if not one.min_offset <= place.offset <= one.max_offset:
            raise InvalidInput.for_field(
                "offsets",
                say(
                    "Queue %(queue)s of %(broker)s can go to %(first)s to %(end)s, not to %(offset)s.",
                    queue=place.queue_id,
                    broker=place.broker_name,
                    first=one.min_offset,
                    end=one.max_offset,
                    offset=place.offset,
                ),
                "out_of_range",
            )
        wanted[one.queue] = place.offset
    return wanted


def shifted(now: Sequence[QueueNow], shift: int) -> dict[MessageQueue, int | None]:
    """Return the offsets `shift` messages on (below 0: back) from where the group is; None where it has none."""
    return {one.queue: None if one.offset is None else one.offset + shift for one in now}
