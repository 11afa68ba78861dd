"""Which queues belong to which consumer of a group. Pure: every member computes the same answer from the same lists.

Members of other languages share the group, so the arithmetic is RocketMQ's own (AllocateMessageQueueAveragely).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from highwater._models import MessageQueue


def allocate_averagely(
    client_id: str, queues: Iterable[MessageQueue], client_ids: Iterable[str]
) -> tuple[MessageQueue, ...]:
    """This client's share: a run of the sorted queues; the first clients get one more when the number doesn't divide.

    Empty when `client_id` is not among `client_ids` or there are more clients than queues.
    """
    ordered_queues: Sequence[MessageQueue] = sorted(set(queues))
    ordered_clients = sorted(set(client_ids))
    if client_id not in ordered_clients or not ordered_queues:
        return ()
    index = ordered_clients.index(client_id)
    share, remainder = divmod(len(ordered_queues), len(ordered_clients))
    start = index * share + min(index, remainder)
    return tuple(ordered_queues[start : start + share + (1 if index < remainder else 0)])


@dataclass(frozen=True, slots=True)
class QueueChange:
    """What a rebalance asks for."""

    added: tuple[MessageQueue, ...]
    removed: tuple[MessageQueue, ...]


def plan_change(held: Iterable[MessageQueue], wanted: Iterable[MessageQueue]) -> QueueChange:
    """The difference between the queues that are held and those that should be, sorted."""
    held_set, wanted_set = set(held), set(wanted)
    return QueueChange(added=tuple(sorted(wanted_set - held_set)), removed=tuple(sorted(held_set - wanted_set)))
