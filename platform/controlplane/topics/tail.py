"""Following a topic: what was stored since the last look. It consumes nothing: no group, no offsets of consumers.

Each look is a request of its own, bounded in messages, bytes and time; what is too much for one is skipped, newest first kept, and
counted. Looks are bounded for each person or token and for each tenant, so that open pages can't take a cluster's time.
"""

import time
from dataclasses import dataclass

from controlplane.accounts.actors import Actor
from controlplane.clusters.remoting import cluster_admin
from controlplane.common.errors import TooOften
from controlplane.common.sentences import say
from controlplane.tenants.rules import actor_require
from controlplane.topics.bodies import Masking
from controlplane.topics.browse import newest_messages
from controlplane.topics.gateway import BrowsedMessage, ReadMessage
from controlplane.topics.looks import looks_too_often
from controlplane.topics.masking_rules import sight_of
from controlplane.topics.models import Topic
from controlplane.topics.tail_cursor import Places, cursor_of, places_of_cursor
from highwater import MessageQueue

LIMIT_MAX = 100
FILTER_MAX_CHARACTERS = 255
_SECONDS_MAX = 3.0
_BYTES_MAX = 8 * 1024 * 1024
# A page looks each 2 s: two of a person's pages, and thirty of a tenant's, may be open at once.
_WINDOW_S = 10
LOOKS_OF_ONE = 12
LOOKS_OF_TENANT = 150


@dataclass(frozen=True, slots=True)
class TailFilter:
    """Which messages are wanted: of a tag, with a key, with a text in what is shown of the body. Empty ones want all."""

    tag: str = ""
    key: str = ""
    text: str = ""

    def wants(self, message: BrowsedMessage) -> bool:
        """Whether a message is wanted. Only what its reader may see is looked at: a filter reveals nothing that is masked."""
        return (
            (not self.tag or message.tags == self.tag)
            and (not self.key or self.key in message.keys)
            and (
                not self.text
                or (
                    message.body.masking is not Masking.WITHHELD
                    and self.text.casefold() in message.body.text.casefold()
                )
            )
        )


@dataclass(frozen=True, slots=True)
class TailPage:
    """What was stored since the last look, oldest first, and where the next one goes on.

    `skipped` messages were not looked at, as more came than one look reads; `unwanted` ones were, and the filter left them out.
    """

    messages: list[BrowsedMessage]
    cursor: str
    skipped: int
    unwanted: int


def messages_tail(
    *,
    actor: Actor,
    topic: Topic,
    cursor: str = "",
    wanted: TailFilter | None = None,
    limit: int = 50,
    body_limit_bytes: int = 4096,
) -> TailPage:
    """Return the newest messages that were stored since `cursor`, at most `limit` (<= 100); without one, none and a cursor.

    A look takes at most 3 s and 8 MiB. Raises NotAllowed, TooOften, InvalidInput, Conflict when the cluster isn't running,
    BrokerRefused, BrokerUnreachable.
    """
    tenant = topic.cluster.tenant
    actor_require(actor, "message.browse", tenant)
    seen = places_of_cursor(cursor) if cursor else None
    if looks_too_often("tail", actor, tenant, of_one=LOOKS_OF_ONE, of_tenant=LOOKS_OF_TENANT, window_s=_WINDOW_S):
        raise TooOften(
            say("Messages of this tenant are followed by too many pages or programs at the moment."),
            hint=say("Close some of them, or look each 2 seconds at most."),
            retry_after_s=_WINDOW_S,
        )
    sight = sight_of(actor, topic.cluster)
    with cluster_admin(topic.cluster) as admin:
        stats = admin.topic_stats(topic.name).queues
        ends: dict[tuple[str, int], int] = {
            (one.queue.broker_name, one.queue.queue_id): one.max_offset for one in stats
        }
        if seen is None:
            return TailPage([], cursor_of(ends), 0, 0)
        after = {**seen, **ends}  # a broker that does not answer now goes on where it was
        queues = [(one.queue, _begin(seen, one.queue, one.min_offset, one.max_offset), one.max_offset) for one in stats]
        new = sum(high - low for _, low, high in queues)

        def pull(queue: MessageQueue, offset: int, count: int) -> list[ReadMessage]:
            return [ReadMessage.of(message, sight, body_limit_bytes) for message in admin.pull(queue, offset, count)]

        read = newest_messages(
            queues,
            pull,
            limit=max(1, min(limit, LIMIT_MAX)),
            budget_bytes=_BYTES_MAX,
            deadline=time.monotonic() + _SECONDS_MAX,
        ).messages
    wanted = wanted or TailFilter()
    shown = [one.shown for one in reversed(read) if wanted.wants(one.shown)]
    return TailPage(shown, cursor_of(after), new - len(read), len(read) - len(shown))


def _begin(seen: Places, queue: MessageQueue, low: int, high: int) -> int:
    """Where a queue goes on. One that is new is followed from its begin; one that was made again, from its new begin."""
    begin = seen.get((queue.broker_name, queue.queue_id), low)
    return max(low, begin) if begin <= high else low
