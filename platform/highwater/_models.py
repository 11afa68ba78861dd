"""What goes in and what comes out: plain values, frozen, compared by what they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from highwater.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key and its secret (RocketMQ's ACL). The secret signs requests and is never sent.

    `signature_version` 2 covers a request's code, time and number, so that no one can repeat it; 1 is what stock brokers
    know.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)
    signature_version: int = 2

    def __post_init__(self) -> None:
        if self.signature_version not in (1, 2):
            raise ConfigurationError("signature_version must be 1 or 2")
        if not self.access_key or not self.secret_key:
            raise ConfigurationError("credentials need both an access key and a secret key")


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic on one broker. Sorts as RocketMQ sorts: topic, broker, number."""

    topic: str
    broker_name: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class Message:
    """A message to send.

    `keys` find it again later (they must not hold blanks), `tags` is the one word that consumers filter by,
    `properties` are the program's own. `delay_time_level` 1..18 delays it by RocketMQ's levels. `sharding_key` is sent
    to consumers; `send_ordered` sets it. `wait_store_msg_ok` False lets a SYNC_MASTER or SYNC_FLUSH broker answer
    before the message is safe. `message_id` gives it the client's id (UNIQ_KEY) of a message that it takes the place of;
    the producer makes a new one otherwise.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    delay_time_level: int = 0
    sharding_key: str | None = None
    flag: int = 0
    wait_store_msg_ok: bool = True
    message_id: str | None = None

    def __post_init__(self) -> None:
        # A single key is so common that it may stand alone; a str is a sequence of characters, which no one means.
        object.__setattr__(self, "keys", (self.keys,) if isinstance(self.keys, str) else tuple(self.keys))
        if isinstance(self.body, str):
            raise ConfigurationError("a message's body is bytes; encode the text first, for instance text.encode()")


class SendStatus(Enum):
    """What the broker's answer proves. Everything but SEND_OK means: appended, not proven safe."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


@dataclass(frozen=True, slots=True)
class SendResult:
    """Where a message went.

    `message_id` is the client's own id (UNIQ_KEY) and `offset_message_id` the broker's; for a batch both are joined by
    commas and `queue_offset` is the first message's.
    """

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    region_id: str | None = None

    @property
    def message_ids(self) -> tuple[str, ...]:
        """The client's ids, one for each message of a batch."""
        return tuple(self.message_id.split(","))


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message as a consumer gets it: `body` is decompressed, `topic` is the one it was sent to, also on a retry.

    Timestamps are milliseconds since 1970. `queue` is where it lies now: for a retry, a queue of the retry topic.
    """

    topic: str
    body: bytes
    tags: str | None
    keys: tuple[str, ...]
    properties: Mapping[str, str]
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    physical_offset: int
    born_timestamp_ms: int
    store_timestamp_ms: int
    born_host: tuple[str, int]
    store_host: tuple[str, int]
    reconsume_times: int = 0
    flag: int = 0
    sys_flag: int = 0
    size_bytes: int = 0

    @property
    def sharding_key(self) -> str | None:
        """The key that `send_ordered` was given."""
        return self.properties.get("__SHARDINGKEY")


class ConsumeFrom(Enum):
    """Where a group without stored offsets starts (RocketMQ's ConsumeFromWhere)."""

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class RetryLater(Exception):
    """Raised by a handler to have the message again later, without a traceback in the log.

    `delay_time_level` 1..18 chooses the delay, 0 leaves it to the broker (it grows with each try), -1 sends the message
    to the dead-letter topic at once.
    """

    delay_time_level: int = 0  # also of a subclass that does not call this constructor

    def __init__(self, reason: str = "", *, delay_time_level: int = 0) -> None:
        super().__init__(reason)
        self.delay_time_level = delay_time_level
