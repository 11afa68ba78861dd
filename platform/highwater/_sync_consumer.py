"""PushConsumer: the synchronous twin of AsyncPushConsumer, whose handlers are plain functions in threads of their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

from highwater._handler_threads import HandlerThreads
from highwater._models import ReceivedMessage
from highwater._sync_consumer_base import PushConsumerBase
from highwater.errors import ConfigurationError

Handler = Callable[[ReceivedMessage], None]
HandlerT = TypeVar("HandlerT", bound=Handler)


class PushConsumer(PushConsumerBase):
    """Consumes topics as a member of `group`. Use it in `with`, or call start() and stop().

    Handlers are plain functions and run in threads of their own, up to `consume_threads` at once. One that returns
    acknowledges its message; one that raises gets it again later (RetryLater says when), up to `max_reconsume_times`,
    after which the message goes to the topic `%DLQ%group`. A message may come more than once.

    With `orderly` each queue's messages come one after the other, and a failing one holds its queue back. `consume_from`
    (and `consume_timestamp_ms`) says where a group begins that has no offsets stored yet. The other options carry
    RocketMQ's names and defaults.
    """

    @cached_property
    def _threads(self) -> HandlerThreads:
        return HandlerThreads(f"highwater-{self.client_id}")

    def stop(self) -> None:
        """As the asynchronous twin's, and end the background threads. Harmless when done twice, or never started."""
        super().stop()
        self._threads.stop()

    def subscribe(self, topic: str, expression: str = "*", *, handler: Handler) -> None:
        """Give the messages of `topic` whose tag fits `expression` (`*`, or `tagA || tagB`) to `handler`.

        Before start(), or while running: the group's other members should subscribe to the same.
        """
        if not callable(handler):
            raise ConfigurationError("handler must be a function that takes a ReceivedMessage")

        async def in_thread(message: ReceivedMessage) -> None:
            await self._threads.run(handler, message)

        self._run_plain(self._twin.subscribe, topic, expression, handler=in_thread)

    def on(self, topic: str, *, tags: str = "*") -> Callable[[HandlerT], HandlerT]:
        """Decorator form of subscribe(): `@consumer.on("orders", tags="paid || shipped")`."""

        def decorate(handler: HandlerT) -> HandlerT:
            self.subscribe(topic, tags, handler=handler)
            return handler

        return decorate
