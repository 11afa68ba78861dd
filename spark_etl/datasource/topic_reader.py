"""Reading a topic's queues by offsets, through restarts and failovers of its brokers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar

from highwater import (
    Admin,
    Credentials,
    HighwaterError,
    MessageQueue,
    NoRouteError,
    PermissionDeniedError,
    ReceivedMessage,
    TopicNotFoundError,
)
from spark_etl.datasource.offsets import Offsets, QueueRange, key_of, ordered
from spark_etl.datasource.options import Options, Position
from spark_etl.errors import EtlError, LostMessagesError, OptionError
from spark_etl.tls import tls_of

logger = logging.getLogger("spark_etl")

T = TypeVar("T")

# Brokers hand out no more at once.
PULL_BATCH: Final = 32
PAUSE_S: Final = 0.5


class TopicReader:
    """A connection to the cluster for one topic; use it in a with-block."""

    def __init__(self, options: Options) -> None:
        self._options = options
        credentials = Credentials(options.access_key, options.secret_key) if options.access_key else None
        tls = tls_of(options.use_tls, options.tls_ca, "Option tlsCa")
        self._admin = Admin(options.namesrv, credentials, timeout_ms=options.request_timeout_ms, use_tls=tls)

    def __enter__(self) -> Self:
        self._admin.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._admin.stop()

    def queues(self) -> tuple[MessageQueue, ...]:
        """The topic's readable queues, asked now."""
        return self._persist(lambda: self._admin.topic_route(self._options.topic).subscribe_queues)

    def first_offsets(self) -> Offsets:
        """Each queue's oldest message."""
        return self._of_queues(self._admin.min_offset)

    def next_offsets(self) -> Offsets:
        """The offset that each queue's next message will have."""
        return self._of_queues(self._admin.max_offset)

    def offsets_at(self, position: Position) -> Offsets:
        """Each queue's offset at a position. Raises OptionError for offsets of queues that the topic does not have."""
        if position.kind == "earliest":
            return self.first_offsets()
        if position.kind == "latest":
            return self.next_offsets()
        if position.kind == "time":
            return self._of_queues(lambda queue: self._admin.search_offset(queue, position.timestamp_ms))
        first = self.first_offsets()
        unknown = sorted(position.offsets.keys() - first.keys())
        if unknown:
            raise OptionError(
                f"Topic {self._options.topic} has no queue {', '.join(unknown)}.", f"its queues are {', '.join(first)}."
            )
        return ordered({**first, **position.offsets})

    def read(self, wanted: QueueRange) -> Iterator[ReceivedMessage]:
        """The messages of a range, in order, each once.

        Raises LostMessagesError when some are no longer there (with failOnDataLoss; else goes on after them), EtlError when the
        broker does not answer in time.
        """
        position = wanted.begin
        while position < wanted.end:
            messages = self._pull(wanted, position)
            if not messages:
                position = self._behind_loss(wanted, position)
                continue
            if messages[0].queue_offset > position:
                self._report_loss(wanted, position, messages[0].queue_offset)
            yield from messages
            position = messages[-1].queue_offset + 1

    def _pull(self, wanted: QueueRange, position: int) -> list[ReceivedMessage]:
        """Messages at `position` or after it, but not beyond the range."""
        count = min(PULL_BATCH, wanted.end - position)
        found = self._persist(lambda: self._admin.pull(wanted.queue, position, count, group=self._options.group))
        return [message for message in found if position <= message.queue_offset < wanted.end]

    def _behind_loss(self, wanted: QueueRange, position: int) -> int:
        """Nothing is at `position`: either retention took it, or the broker that answers is behind and will catch up."""
        deadline_s = time.monotonic() + self._options.retry_timeout_ms / 1000
        while True:
            first = self._persist(lambda: self._admin.min_offset(wanted.queue))
            if first > position:
                resumed_at = min(first, wanted.end)
                self._report_loss(wanted, position, resumed_at)
                return resumed_at
            if self._pull(wanted, position):
                return position
            if time.monotonic() > deadline_s:
                self._report_loss(wanted, position, wanted.end)
                return wanted.end
            self._refresh()

    def _report_loss(self, wanted: QueueRange, begin: int, end: int) -> None:
        begin = max(begin, wanted.expected_from)
        if begin >= end:
            return
        queue = wanted.queue
        cause = (
            f"Messages {begin} to {end - 1} of {queue.topic}, queue {key_of(queue)}, are gone: deleted by retention, or lost by an"
            " unclean promotion."
        )
        if self._options.fail_on_data_loss:
            raise LostMessagesError(cause, "read without them by failOnDataLoss=false, or begin after them.")
        logger.warning("%s Reading goes on after them.", cause)

    def _of_queues(self, ask: Callable[[MessageQueue], int]) -> Offsets:
        return ordered({key_of(queue): self._persist(partial(ask, queue)) for queue in self.queues()})

    def _persist(self, call: Callable[[], T]) -> T:
        """The call's result, tried again while its failure may pass; raises EtlError."""
        deadline_s = time.monotonic() + self._options.retry_timeout_ms / 1000
        while True:
            try:
                return call()
            except HighwaterError as error:
                if not error.retryable or time.monotonic() > deadline_s:
                    raise self._explained(error) from error
                logger.info("topic %s: %s; trying again", self._options.topic, error)
            self._refresh()

    def _refresh(self) -> None:
        """Wait a moment, and ask where the brokers are now: the master may be another one."""
        time.sleep(PAUSE_S)
        try:
            self._admin.topic_route(self._options.topic)
        except HighwaterError as error:
            logger.info("topic %s has no new route: %s", self._options.topic, error)

    def _explained(self, error: HighwaterError) -> EtlError:
        options = self._options
        cause = f"Topic {options.topic} can't be read from {options.namesrv}: {str(error).rstrip('.')}."
        if isinstance(error, PermissionDeniedError):
            return EtlError(
                cause,
                "give accessKey and secretKey of an account that may subscribe to the topic, and with the option group a group"
                " that it may use.",
            )
        if isinstance(error, NoRouteError | TopicNotFoundError):
            return EtlError(cause, "check the options namesrv and topic.")
        return EtlError(
            cause, f"check the brokers; reading waits {options.retry_timeout_ms} ms (retryTimeoutMs) for them."
        )
