"""Quotas: what one credential and one topic may take of this broker. Pure: the clock and the sizes are passed in.

A rate is kept by a bucket that holds one second's worth. What one wake-up brings is taken first and may overdraw it; then
the bucket refuses until that is paid back. So a batch passes whole, and the rate holds over time. Sends and pulls are counted
apart. A limit of 0 is none. The infrastructure itself is not limited. Each refusal names its quota.

A topic may have quotas of its own, as attributes: of its sends, of what it stores, and of the pulls that wait for its messages.
So may a credential, in the file of accounts: of its sends, its pulls, its connections and its held pulls. Of these and the broker's
the lower holds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from brokerd.store import StoreError
from brokerd.topic_validator import invalid_topic

if TYPE_CHECKING:
    from brokerd.client_channel import Peer
    from brokerd.config import BrokerConfig

# Past quotaStoredBytes messages are refused, and so is what makes consumers stop: not before another eighth is used, half of it
# by changes of any kind. Otherwise a full broker could not be emptied.
_RESERVE_SHARE: Final = 8
# Buckets of credentials and topics that are gone are forgotten when there are more than these.
_BUCKETS_MAX: Final = 10_000


QUOTA_MESSAGES: Final = "quota.messages.per.second"
QUOTA_BYTES: Final = "quota.bytes.per.second"
QUOTA_STORED_BYTES: Final = "quota.stored.bytes"
QUOTA_HELD_PULLS: Final = "quota.held.pulls"
TOPIC_QUOTAS: Final = (QUOTA_MESSAGES, QUOTA_BYTES, QUOTA_STORED_BYTES, QUOTA_HELD_PULLS)
# An account's own, as the file of accounts calls them.
CREDENTIAL_QUOTAS: Final = ("quotaMessagesPerSecond", "quotaBytesPerSecond", "quotaConnections", "quotaHeldPulls")
OWN_QUOTA_MAX: Final = 2**59


class TopicQuota(NamedTuple):
    """What a topic's attributes allow it on this broker; 0: they don't say."""

    messages_per_second: int = 0
    bytes_per_second: int = 0
    stored_bytes: int = 0
    held_pulls: int = 0


class CredentialQuota(NamedTuple):
    """What an account's own quotas allow it on this broker, in the order of CREDENTIAL_QUOTAS; 0: it has none."""

    messages_per_second: int = 0
    bytes_per_second: int = 0
    connections: int = 0
    held_pulls: int = 0


_NO_TOPIC_QUOTA: Final = TopicQuota()
_NO_CREDENTIAL_QUOTA: Final = CredentialQuota()


def topic_quota_of(attributes: Mapping[str, str]) -> TopicQuota | None:
    """The quotas that a topic has of its own; None without any."""
    own = TopicQuota(*(_limit_of(attributes.get(name, "")) for name in TOPIC_QUOTAS))
    return own if any(own) else None


def invalid_topic_quota(name: str) -> Callable[[str], str | None]:
    """What says why a text can't be a topic's quota `name`, as a remark; None when it can."""

    def invalid(text: str) -> str | None:
        if text == "-1" or 0 < _limit_of(text) <= OWN_QUOTA_MAX:
            return None
        return f"{name} cannot be {text[:80]!a}: give a whole number, 1 to {OWN_QUOTA_MAX}, or -1 for no limit"

    return invalid


def _limit_of(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0


class QuotaReached(StoreError):
    """A change of topics, groups or offsets is more than a quota allows; the text names it, and nothing has changed."""


@dataclass(frozen=True, slots=True)
class Usage:
    """One quota: its key in broker.conf, whose it is, how much is used, and the limit."""

    quota: str
    name: str
    used: int
    limit: int


class HeldPulls(Protocol):
    """How many pulls wait: by access key, and by topic."""

    @property
    def by_credential(self) -> Mapping[str, int]: ...

    @property
    def by_topic(self) -> Mapping[str, int]: ...


class Bucket:
    """A rate per second, with one second's worth at once."""

    __slots__ = ("_at_s", "_before", "_now", "_second", "balance", "rate")

    def __init__(self, rate: int, now_s: float) -> None:
        self.rate = rate
        self.balance = float(rate)
        self._at_s = now_s
        self._second, self._now, self._before = int(now_s), 0, 0

    def at_rate(self, rate: int, now_s: float) -> Bucket:
        """A bucket with another rate, and what was taken of this one: a changed quota forgives no one what is to be paid back.

        Since it was last looked at, that was paid back at the higher rate: it is not known when the change came, and who has a
        small quota lifted shall not be refused by the large one.
        """
        changed = Bucket(rate, now_s)
        if self.rate:
            paid_back = max(0.0, now_s - self._at_s) * max(rate, self.rate)
            changed.balance = min(changed.balance, self.balance + paid_back)
        changed._second, changed._now, changed._before = self._second, self._now, self._before
        return changed

    def is_empty(self, now_s: float) -> bool:
        """Whether nothing may be taken now."""
        if now_s > self._at_s:
            self.balance = min(float(self.rate), self.balance + (now_s - self._at_s) * self.rate)
            self._at_s = now_s
        return self.balance <= 0

    def is_full(self, now_s: float) -> bool:
        """Whether a new bucket would allow the same; one without a limit is always full."""
        return not self.rate or (not self.is_empty(now_s) and self.balance >= self.rate)

    def take(self, amount: int, now_s: float) -> None:
        """Count what was served."""
        self.balance -= amount
        self._roll(now_s)
        self._now += amount

    def last_second(self, now_s: float) -> int:
        """How much was taken in the last whole second."""
        self._roll(now_s)
        return self._before

    def _roll(self, now_s: float) -> None:
        second = int(now_s)
        if second != self._second:
            self._before = self._now if second == self._second + 1 else 0
            self._now, self._second = 0, second


@dataclass(frozen=True, slots=True)
class _Rate:
    """The buckets of one credential's or topic's sends or pulls, of messages and of bytes."""

    what: str
    keys: tuple[str, str]
    messages: Bucket
    size: Bucket

    def refusal(self, now_s: float) -> str | None:
        for bucket, key, unit in ((self.messages, self.keys[0], "messages"), (self.size, self.keys[1], "bytes")):
            if bucket.rate and bucket.is_empty(now_s):
                return (
                    f"{self.what} is over its quota {key}: {bucket.rate} {unit} in a second. Slow down, or ask for more"
                )
        return None


_KEYS: Final = {
    "credential": ("quotaCredentialMessagesPerSecond", "quotaCredentialBytesPerSecond"),
    "topic": ("quotaTopicMessagesPerSecond", "quotaTopicBytesPerSecond"),
}


class Quotas:
    """What is used of the limits in `config`. `stored_bytes` is what the log and its index take, `stored_by_topic` what each topic
    has of the log.

    `topic_quotas` are the topics' own, `credential_quotas` the accounts', by access key: the mapping that changes with them.
    `is_exempt` says of an access key whether it is the infrastructure's.
    """

    def __init__(
        self,
        config: BrokerConfig,
        monotonic: Callable[[], float],
        *,
        stored_bytes: Callable[[], int],
        stored_by_topic: Callable[[], Mapping[str, int]],
        topic_quotas: Callable[[], Mapping[str, TopicQuota]],
        credential_quotas: Mapping[str, CredentialQuota],
        is_exempt: Callable[[str], bool],
        programs_max: int = sys.maxsize,
    ) -> None:
        self._config = config
        self._monotonic = monotonic
        self._stored_bytes = stored_bytes
        self._stored_by_topic = stored_by_topic
        self._topic_quotas = topic_quotas
        self._credential_quotas = credential_quotas
        self._is_exempt = is_exempt
        self._programs_max = programs_max
        self._programs = 0  # connections that showed an account and are not the platform's
        self._rates: dict[tuple[str, str, str], _Rate] = {}
        self._rates_max = _BUCKETS_MAX
        self._connected: dict[str, set[Peer]] = {}

    @property
    def are_set(self) -> bool:
        """Whether any rate or size is limited: without, sends and pulls are not counted here."""
        config = self._config
        return bool(
            any(self._limits())
            or config.quota_stored_bytes
            or config.quota_topic_stored_bytes
            or self._credential_quotas
            or self._topic_quotas()
        )

    @property
    def topics_limit_stored_bytes(self) -> bool:
        """Whether any topic limits by itself what it stores."""
        return any(own.stored_bytes for own in self._topic_quotas().values())

    def send_refusal(self, credential: str, topic: str) -> str | None:
        """Why this send is not taken now, None when it is."""
        if self._is_exempt(credential):
            return None
        config = self._config
        limit = config.quota_stored_bytes
        if limit and self._stored_bytes() >= limit:
            return (
                f"the broker stores {self._stored_bytes()} bytes, its quota quotaStoredBytes is {limit}."
                " Messages are deleted as fileReservedTime ends; or ask for more"
            )
        limit, key = self._stored_limit(topic)
        if limit and (stored := self._stored_by_topic().get(topic, 0)) >= limit:
            return (
                f"topic {topic} stores {stored} bytes, its quota {key} is {limit}."
                " Messages are deleted as the topic's reserve.time or fileReservedTime ends; or ask for more"
            )
        return self._rate_refusal("send", credential, topic)

    def record_refusal(self, *, frees: bool) -> str | None:
        """Why no record of topics, groups and offsets is written now, None when it may be. `frees`: it deletes, or lets consumers
        go on, and gets the last of what is kept for such records.
        """
        limit = self._config.quota_stored_bytes
        if not limit:
            return None
        stored = self._stored_bytes()
        reserve = limit // _RESERVE_SHARE
        if stored < limit + (reserve if frees else reserve // 2):
            return None
        return (
            f"the broker stores {stored} bytes, its quota quotaStoredBytes is {limit}, and what is kept beyond it for topics,"
            " groups and offsets is used up. Messages are deleted as fileReservedTime ends; or ask for more"
        )

    def pull_refusal(self, credential: str, topic: str) -> str | None:
        """Why this pull is not served now, None when it is."""
        return None if self._is_exempt(credential) else self._rate_refusal("pull", credential, topic)

    def sent(self, credential: str, topic: str, messages: int, size_bytes: int) -> None:
        """Messages were taken."""
        self._count("send", credential, topic, messages, size_bytes)

    def pulled(self, credential: str, topic: str, messages: int, size_bytes: int) -> None:
        """Messages were handed out."""
        self._count("pull", credential, topic, messages, size_bytes)

    def connect(self, credential: str, peer: Peer) -> str | None:
        """A connection shows its first account; why it is not served, None when it is. Harmless when done twice."""
        limit, key = self._connections_limit(credential)
        connected = self._connected.get(credential, ())
        if limit and len(connected) >= limit and peer not in connected and not self._is_exempt(credential):
            return f"{credential} has {len(connected)} connections, its quota {key} is {limit}. Close some, or ask for more"
        if not peer.is_platform and peer not in connected:
            if self._programs >= self._programs_max:
                return (
                    f"this broker serves {self._programs} connections of programs, as many as it has descriptors for: close some,"
                    " or spread topics over more brokers"
                )
            self._programs += 1
        self._connected.setdefault(credential, set()).add(peer)
        return None

    def connected(self, credentials: Set[str]) -> list[Peer]:
        """The connections that have shown one of these accounts."""
        return [peer for credential in credentials for peer in self._connected.get(credential, ())]

    def disconnect(self, peer: Peer) -> None:
        """A connection ended."""
        for credential in [name for name, peers in self._connected.items() if peer in peers]:
            peers = self._connected[credential]
            peers.discard(peer)
            self._programs -= not peer.is_platform
            if not peers:
                del self._connected[credential]

    def hold_refusal(self, credential: str, topic: str, held: HeldPulls) -> str | None:
        """Why one more pull of this credential, that waits for this topic, is not held beside those `held`; None when it is."""
        config = self._config
        if not (
            config.quota_credential_held_pulls
            or config.quota_topic_held_pulls
            or self._credential_quotas
            or self._topic_quotas()
        ):
            return None
        for kind, name, count, (limit, key) in (
            ("credential", credential, held.by_credential.get(credential, 0), self._held_limit(credential)),
            ("topic", topic, held.by_topic.get(topic, 0), self._topic_held_limit(topic)),
        ):
            if limit and count >= limit and not self._is_exempt(credential):
                return (
                    f"{kind} {name} has {count} pulls that wait for messages, its quota {key} is {limit}."
                    " Run fewer consumers, or ask for more"
                )
        return None

    def usage(self, held: HeldPulls) -> Iterator[Usage]:
        """Every quota that has a limit, with its use; of rates the last whole second's. `held` are the pulls that wait. An
        account's own quotas are there before it uses anything.
        """
        config, now_s = self._config, self._monotonic()
        if config.quota_stored_bytes:
            yield Usage("quotaStoredBytes", "", self._stored_bytes(), config.quota_stored_bytes)
        rated = {(direction, "credential", name) for name in self._credential_quotas for direction in ("send", "pull")}
        for direction, kind, name in sorted(rated.union(self._rates)):
            rate = self._rate(direction, kind, name, now_s)
            for bucket, key in zip((rate.messages, rate.size), rate.keys, strict=True):
                if bucket.rate:
                    yield Usage(key, f"{name} ({direction})", bucket.last_second(now_s), bucket.rate)
        is_limited = config.quota_topic_stored_bytes or self.topics_limit_stored_bytes
        for topic, stored in sorted(self._stored_by_topic().items()) if is_limited else ():
            limit, key = self._stored_limit(topic)
            if limit:
                yield Usage(key, topic, stored, limit)
        connected = {credential: len(peers) for credential, peers in self._connected.items()}
        for used, limit_of in ((connected, self._connections_limit), (held.by_credential, self._held_limit)):
            for credential in sorted(used.keys() | self._credential_quotas.keys()):
                limit, key = limit_of(credential)
                if limit and not self._is_exempt(credential):
                    yield Usage(key, credential, used.get(credential, 0), limit)
        for topic in sorted(held.by_topic.keys() | self._topic_quotas().keys()):
            limit, key = self._topic_held_limit(topic)
            if limit:
                yield Usage(key, topic, held.by_topic.get(topic, 0), limit)

    def _limits(self) -> tuple[int, int, int, int]:
        config = self._config
        return (
            config.quota_credential_messages_per_second,
            config.quota_credential_bytes_per_second,
            config.quota_topic_messages_per_second,
            config.quota_topic_bytes_per_second,
        )

    def _rate_refusal(self, direction: str, credential: str, topic: str) -> str | None:
        now_s = self._monotonic()
        for kind, name in (("credential", credential), ("topic", topic)):
            refusal = self._rate(direction, kind, name, now_s).refusal(now_s)
            if refusal is not None:
                return refusal
        return None

    def _count(self, direction: str, credential: str, topic: str, messages: int, size_bytes: int) -> None:
        is_counted = any(self._limits()) or self._credential_quotas or self._topic_quotas()
        if not is_counted or self._is_exempt(credential):
            return
        now_s = self._monotonic()
        for kind, name in (("credential", credential), ("topic", topic)):
            rate = self._rate(direction, kind, name, now_s)
            rate.messages.take(messages, now_s)
            rate.size.take(size_bytes, now_s)

    def _rate(self, direction: str, kind: str, name: str, now_s: float) -> _Rate:
        key = (direction, kind, name)
        rate = self._rates.get(key)
        limits, keys = self._limits()[:2], _KEYS[kind]
        if kind == "topic":
            limits = self._limits()[2:]
            own_topic = self._topic_quotas().get(name) if direction == "send" else None
            if own_topic is not None:
                limits, keys = _lower_rates(limits, keys, own_topic[:2], (QUOTA_MESSAGES, QUOTA_BYTES))
        elif self._credential_quotas and (own := self._credential_quotas.get(name)) is not None:
            limits, keys = _lower_rates(limits, keys, own[:2], CREDENTIAL_QUOTAS[:2])
        if rate is None:
            rate = _Rate(f"{kind} {name}", keys, *(Bucket(limit, now_s) for limit in limits))
            if kind == "topic" and invalid_topic(name) is not None:
                return rate  # a search may name anything, of any length: no topic of that name has messages to count
            if len(self._rates) >= self._rates_max:
                self._forget_idle(now_s)
            self._rates[key] = rate
        elif (rate.messages.rate, rate.size.rate) != limits or rate.keys != keys:
            messages, size = limits
            rate = _Rate(rate.what, keys, rate.messages.at_rate(messages, now_s), rate.size.at_rate(size, now_s))
            self._rates[key] = rate
        return rate

    def _stored_limit(self, topic: str) -> tuple[int, str]:
        """What a topic may store, 0 for any amount, and the quota that says so."""
        own = self._topic_quotas().get(topic)
        limit = self._config.quota_topic_stored_bytes
        return _lower(limit, "quotaTopicStoredBytes", 0 if own is None else own.stored_bytes, QUOTA_STORED_BYTES)

    def _connections_limit(self, credential: str) -> tuple[int, str]:
        """How many connections an account may have, 0 for any number, and the quota that says so."""
        own = self._credential_quotas.get(credential, _NO_CREDENTIAL_QUOTA)
        limit = self._config.quota_credential_connections
        return _lower(limit, "quotaCredentialConnections", own.connections, CREDENTIAL_QUOTAS[2])

    def _held_limit(self, credential: str) -> tuple[int, str]:
        """How many pulls of an account may wait, 0 for any number, and the quota that says so."""
        own = self._credential_quotas.get(credential, _NO_CREDENTIAL_QUOTA)
        limit = self._config.quota_credential_held_pulls
        return _lower(limit, "quotaCredentialHeldPulls", own.held_pulls, CREDENTIAL_QUOTAS[3])

    def _topic_held_limit(self, topic: str) -> tuple[int, str]:
        """How many pulls may wait for a topic's messages, 0 for any number, and the quota that says so."""
        own = self._topic_quotas().get(topic, _NO_TOPIC_QUOTA)
        return _lower(self._config.quota_topic_held_pulls, "quotaTopicHeldPulls", own.held_pulls, QUOTA_HELD_PULLS)

    def _forget_idle(self, now_s: float) -> None:
        """Drop those that hold a whole second's worth: they would be made again as they are."""
        for key, rate in list(self._rates.items()):
            if rate.messages.is_full(now_s) and rate.size.is_full(now_s):
                del self._rates[key]
        # Where many are in use, not each new one looks through all of them.
        self._rates_max = max(_BUCKETS_MAX, 2 * len(self._rates))


def _lower(limit: int, key: str, own: int, own_key: str) -> tuple[int, str]:
    """The limit that holds, of a broker's and a topic's own, where 0 is none; with its key."""
    return (own, own_key) if own and (not limit or own < limit) else (limit, key)


def _lower_rates(
    limits: tuple[int, int], keys: tuple[str, str], own: tuple[int, int], own_keys: tuple[str, str]
) -> tuple[tuple[int, int], tuple[str, str]]:
    """The rates of messages and of bytes that hold, as `_lower`, with their keys."""
    (messages, of_messages), (size, of_size) = (
        _lower(limit, key, its_own, own_key)
        for limit, key, its_own, own_key in zip(limits, keys, own, own_keys, strict=True)
    )
    return (messages, size), (of_messages, of_size)
