"""The keys of broker.conf that a tenant sets for a cluster, as data: type, unit, default, bounds, and whether a broker takes a
change at once. Pure; a test holds each against what brokerd itself says of the key.

What is not here is the platform's: paths, addresses, quotas, what sizes a broker's memory, and the host's disk.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from controlplane.common.sentences import say

Value = bool | int | str


class Kind(StrEnum):
    """How a value is written: JSON's true or false, a whole number, or one of some texts."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    CHOICE = "choice"


class Subject(StrEnum):
    """What keys are grouped by, in the order in which they are shown."""

    TOPICS = "topics"
    MESSAGES = "messages"
    CONSUMERS = "consumers"
    STORAGE = "storage"
    REPLICATION = "replication"
    CONNECTIONS = "connections"


SUBJECTS: dict[Subject, str] = {
    Subject.TOPICS: say("Topics and consumer groups"),
    Subject.MESSAGES: say("Sending"),
    Subject.CONSUMERS: say("Consuming"),
    Subject.STORAGE: say("Storage"),
    Subject.REPLICATION: say("Replication"),
    Subject.CONNECTIONS: say("Connections"),
}


@dataclass(frozen=True, slots=True)
class BrokerKey:
    """One key. `default` is what the platform writes, or the broker's own; `unit` stands behind numbers."""

    name: str
    subject: Subject
    kind: Kind
    default: Value
    title: str
    help: str
    affects: str
    at_once: bool
    unit: str = ""
    least: int = 0
    most: int = 0
    choices: tuple[tuple[str, str], ...] = ()
    replicated_only: bool = False
    digits: int = 0  # a number is written with so many, as in deleteWhen=04

    def value_of(self, text: str) -> Value | None:
        """Return the value of what a broker writes; None for what can't be read."""
        if self.kind == Kind.BOOLEAN:
            return {"true": True, "false": False}.get(text.lower())
        if self.kind == Kind.INTEGER:
            return int(text) if text.isascii() and text.isdigit() else None
        return text

    def text_of(self, value: Value) -> str:
        """Return the value as broker.conf has it."""
        if self.kind == Kind.BOOLEAN:
            return "true" if value else "false"
        return str(value).zfill(self.digits)

    def problem(self, value: Value) -> str | None:
        """Return what is wrong with a value, None when it is allowed."""
        if self.kind == Kind.BOOLEAN:
            return None if isinstance(value, bool) else say("Use true or false.")
        if self.kind == Kind.CHOICE:
            allowed = [choice for choice, _ in self.choices]
            return None if value in allowed else say("Use one of %(allowed)s.", allowed=", ".join(allowed))
        if isinstance(value, int) and not isinstance(value, bool) and self.least <= value <= self.most:
            return None
        return say("Use a whole number from %(least)s to %(most)s.", least=self.least, most=self.most)

    def shown(self, value: Value) -> str:
        """Return the value as people read it."""
        if self.kind == Kind.BOOLEAN:
            return say("on") if value else say("off")
        if self.kind == Kind.CHOICE:
            return dict(self.choices).get(str(value), str(value))
        return say("%(number)s %(unit)s", number=f"{value:,}", unit=self.unit) if self.unit else f"{value:,}"


_PRODUCERS = say("producers")
_CONSUMERS = say("consumers")
_CLIENTS = say("producers and consumers")
_STORED = say("stored messages")

_KEYS = (
    BrokerKey(
        "autoCreateTopicEnable",
        Subject.TOPICS,
        Kind.BOOLEAN,
        False,
        say("Create topics on the first send"),
        say("A topic made so is not listed here: the console knows those that were created here or by the API."),
        _PRODUCERS,
        at_once=True,
    ),
    BrokerKey(
        "defaultTopicQueueNums",
        Subject.TOPICS,
        Kind.INTEGER,
        8,
        say("Queues of a topic created so"),
        say("A topic gets at most as many queues when its first send creates it."),
        _PRODUCERS,
        at_once=True,
        unit=say("queues"),
        least=1,
        most=1024,
    ),
    BrokerKey(
        "autoCreateSubscriptionGroup",
        Subject.TOPICS,
        Kind.BOOLEAN,
        True,
        say("Create consumer groups on first use"),
        say("When this is off, a group that no one created with mqadmin cannot consume."),
        _CONSUMERS,
        at_once=True,
    ),
    BrokerKey(
        "traceTopicEnable",
        Subject.TOPICS,
        Kind.BOOLEAN,
        True,
        say("Message traces"),
        say("Clients with tracing write here what became of each message; Find message reads it."),
        _CLIENTS,
        at_once=False,
    ),
    BrokerKey(
        "brokerPermission",
        Subject.MESSAGES,
        Kind.CHOICE,
        "6",
        say("Brokers take"),
        say("Refuses sends or pulls on every topic at once, for example while a cluster is emptied."),
        _CLIENTS,
        at_once=True,
        choices=(
            ("6", say("Sends and pulls")),
            ("4", say("Pulls only")),
            ("2", say("Sends only")),
        ),
    ),
    BrokerKey(
        "maxMessageSize",
        Subject.MESSAGES,
        Kind.INTEGER,
        4 * 1024 * 1024,
        say("Largest message"),
        say("Larger messages are refused; clients have a limit of their own, 4 MiB by default."),
        _PRODUCERS,
        at_once=False,
        unit=say("bytes"),
        least=1024,
        most=4 * 1024 * 1024,  # a broker's memory is bounded for this size
    ),
    BrokerKey(
        "longPollingEnable",
        Subject.CONSUMERS,
        Kind.BOOLEAN,
        True,
        say("Hold pulls until a message comes"),
        say("When this is off, a pull that finds nothing is answered after the time below."),
        _CONSUMERS,
        at_once=True,
    ),
    BrokerKey(
        "shortPollingTimeMills",
        Subject.CONSUMERS,
        Kind.INTEGER,
        1_000,
        say("Hold pulls otherwise for"),
        say("Only counts while pulls are not held until a message comes."),
        _CONSUMERS,
        at_once=True,
        unit=say("milliseconds"),
        least=100,
        most=15_000,
    ),
    BrokerKey(
        "notifyConsumerIdsChangedEnable",
        Subject.CONSUMERS,
        Kind.BOOLEAN,
        True,
        say("Announce members that come and go"),
        say("When this is off, a group shares its queues out again only every 20 seconds."),
        _CONSUMERS,
        at_once=True,
    ),
    BrokerKey(
        "rejectPullConsumerEnable",
        Subject.CONSUMERS,
        Kind.BOOLEAN,
        False,
        say("Refuse pull consumers"),
        say("Only push consumers may join; groups of DefaultMQPullConsumer and DefaultLitePullConsumer are refused."),
        _CONSUMERS,
        at_once=True,
    ),
    BrokerKey(
        "slaveReadEnable",
        Subject.CONSUMERS,
        Kind.BOOLEAN,
        True,
        say("Read old messages from followers"),
        say("Consumers that are far behind are sent to a follower, so that the leader's memory serves the others."),
        _CONSUMERS,
        at_once=True,
        replicated_only=True,
    ),
    BrokerKey(
        "fileReservedTime",
        Subject.STORAGE,
        Kind.INTEGER,
        72,
        say("Keep messages for"),
        say("Older files are deleted at the hour below, consumed or not."),
        _STORED,
        at_once=False,
        unit=say("hours"),
        least=48,  # usage is read from the log: a job that is down for a day still finds it
        most=720,
    ),
    BrokerKey(
        "deleteWhen",
        Subject.STORAGE,
        Kind.INTEGER,
        4,
        say("Delete old files at"),
        say("Hour of the day on the broker's clock, from 0 to 23."),
        _STORED,
        at_once=False,
        unit=say("o’clock"),
        least=0,
        most=23,
        digits=2,
    ),
    BrokerKey(
        "slaveTimeout",
        Subject.REPLICATION,
        Kind.INTEGER,
        3_000,
        say("Wait for followers at most"),
        say("A send that too few followers confirmed by then is answered with an error or FLUSH_SLAVE_TIMEOUT."),
        _PRODUCERS,
        at_once=False,
        unit=say("milliseconds"),
        least=500,
        most=30_000,
        replicated_only=True,
    ),
    BrokerKey(
        "serverChannelMaxIdleTimeSeconds",
        Subject.CONNECTIONS,
        Kind.INTEGER,
        120,
        say("Close idle connections after"),
        say("Clients send a heartbeat every 30 seconds; one that is silent for this long is taken for gone."),
        _CLIENTS,
        at_once=False,
        unit=say("seconds"),
        least=60,
        most=3_600,
    ),
)

BROKER_KEYS: Mapping[str, BrokerKey] = {key.name: key for key in _KEYS}


def keys_of(*, replicated: bool) -> list[BrokerKey]:
    """Return the keys that mean something to a cluster."""
    return [key for key in _KEYS if replicated or not key.replicated_only]


def properties_of(values: Mapping[str, Value], *, replicated: bool) -> dict[str, str]:
    """Return what broker.conf says of these keys: what was set, as far as it means something to the cluster."""
    return {key.name: key.text_of(values[key.name]) for key in keys_of(replicated=replicated) if key.name in values}
