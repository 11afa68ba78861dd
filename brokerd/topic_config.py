"""TopicConfigManager: which topics this broker has, with how many queues and which permission.

Every change raises the DataVersion, so that name servers see it; the one that changes a table asks the broker to
register again (`broker.register_soon()`).
Sources: TopicConfigManager, TopicAttributes, AttributeUtil.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from brokerd.config import BrokerConfig
from brokerd.logged_table import LoggedTable
from brokerd.metadata import MetadataFile
from brokerd.metadata_record import MetadataRecord
from brokerd.quotas import TOPIC_QUOTAS, QuotaReached, TopicQuota, Usage, invalid_topic_quota, topic_quota_of
from brokerd.store import Disk
from brokerd.topic_retention import RESERVE_BYTES, RESERVE_TIME, invalid_reserve_bytes, invalid_reserve_time
from brokerd.topic_validator import invalid_topic, is_system_topic
from mqwire import names
from mqwire.bodies import (
    DataVersion,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigSerializeWrapper,
)
from mqwire.codes import PermName

logger = logging.getLogger("brokerd.topic_config")

READ_WRITE = PermName.READ | PermName.WRITE
_SCHEDULE_TOPIC_QUEUE_NUMS = 18
_BENCHMARK_TOPIC_QUEUE_NUMS = 1024
_CLUSTER_TOPIC_QUEUE_NUMS = 16
_REVIVE_QUEUE_NUMS = 8
_OF_GROUPS = (names.RETRY_GROUP_TOPIC_PREFIX, names.DLQ_GROUP_TOPIC_PREFIX)
_ATTRIBUTE_MAX_CHARACTERS = 64
# A broker registers all its topics in one frame, of which a name server, and a stock client that lists them, take 16 MiB. Where
# they are more it is in no route any more.
REGISTERED_BYTES_MAX: Final = 14 * 1024 * 1024


def _one_of(name: str, *allowed: str) -> Callable[[str], str | None]:
    def invalid(value: str) -> str | None:
        return None if value in allowed else f"{name} cannot be {value[:80]!a} here: allowed is {' or '.join(allowed)}"

    return invalid


_invalid_type: Final = _one_of("message.type", "DELAY", "FIFO", "MIXED", "NORMAL", "UNSPECIFIED")


def _invalid_message_type(value: str) -> str | None:
    """As in RocketMQ, a type is a word for clients and its gRPC proxy; a broker takes messages of every type that it serves."""
    if value == "TRANSACTION":
        return (
            "message.type cannot be TRANSACTION here: this broker does not serve transactions yet; make the topic NORMAL, and"
            " send once your own transaction has committed"
        )
    return _invalid_type(value)


# Attributes that a topic may have, and why this broker cannot honour a value of theirs.
_ATTRIBUTES: Mapping[str, Callable[[str], str | None]] = MappingProxyType(
    {
        "queue.type": _one_of("queue.type", "SimpleCQ"),
        "cleanup.policy": _one_of("cleanup.policy", "DELETE"),
        "message.type": _invalid_message_type,
        RESERVE_TIME: invalid_reserve_time,
        RESERVE_BYTES: invalid_reserve_bytes,
        **{name: invalid_topic_quota(name) for name in TOPIC_QUOTAS},
    }
)


class TopicsFile(TopicConfigSerializeWrapper, frozen=True, kw_only=True):
    """topics.json. What RocketMQ or an operator has written lacks the mark, and counts more than the log then."""

    in_log: bool = False


class TopicConfigManager(LoggedTable[TopicConfig]):
    """The table of topics, in topics.json."""

    def __init__(
        self,
        config: BrokerConfig,
        clock_ms: Callable[[], int],
        disk: Disk,
        write: Callable[[MetadataRecord], None] | None = None,
        wants_file: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(MetadataFile(disk, config.config_folder, "topics.json"), clock_ms, write, wants_file)
        self._config = config
        self._own_system_topics: frozenset[str] = frozenset()
        self._quotas: dict[str, TopicQuota] = {}
        self._quotas_of: DataVersion | None = None
        self._registered_bytes = 0
        self._registered_bytes_of: DataVersion | None = None

    def load(self) -> None:
        """Reads topics.json and adds the system topics; raises UnreadableConfigFile."""
        wrapper = self._file.load(TopicsFile)
        if wrapper is not None:
            if not wrapper.in_log:
                self._take_for_imported()
            self._table.update(wrapper.topic_config_table)
            self.data_version = wrapper.data_version
        self.ensure_system_topics()

    def is_order_topic(self, topic: str) -> bool:
        config = self._table.get(topic)
        return config is not None and config.order

    def is_system_topic(self, topic: str) -> bool:
        """RocketMQ's system topics, and those named after this cluster and broker."""
        return is_system_topic(topic) or topic in self._own_system_topics

    def system_topics(self) -> list[str]:
        return sorted(topic for topic in self._table if self.is_system_topic(topic))

    @property
    def quotas(self) -> Mapping[str, TopicQuota]:
        """The quotas that topics have of their own, by topic."""
        if self._quotas_of is not self.data_version:
            self._quotas_of = self.data_version
            self._quotas = {
                topic: own
                for topic, config in self._table.items()
                if config.attributes and (own := topic_quota_of(config.attributes)) is not None
            }
        return self._quotas

    def to_wrapper(self) -> TopicConfigAndMappingSerializeWrapper:
        """The table as it is registered, answered and persisted; a copy."""
        return TopicConfigAndMappingSerializeWrapper(
            topic_config_table=dict(self._table), data_version=self.data_version
        )

    # --- changes ---

    def ensure_system_topics(self) -> bool:
        """Adds the system topics that are missing; returns whether the table changed. Also after a change of config."""
        table = dict(self._table)
        self._add_system_topics(table)
        if table == self._table:
            return False
        self._become(table)
        return True

    def _add_system_topics(self, table: dict[str, TopicConfig]) -> None:
        wanted = _system_topics(self._config)
        self._own_system_topics = frozenset(config.topic_name for config in wanted)
        for config in wanted:
            known = table.get(config.topic_name)
            if known is None or config.topic_name == names.AUTO_CREATE_TOPIC_KEY_TOPIC:
                table[config.topic_name] = config
            elif config.topic_name == names.RMQ_SYS_SCHEDULE_TOPIC and known.write_queue_nums < config.write_queue_nums:
                table[config.topic_name] = config  # messageDelayLevel has more levels than before
        template = table.get(names.AUTO_CREATE_TOPIC_KEY_TOPIC)
        if template is not None and not self._config.auto_create_topic_enable and template.perm & PermName.INHERIT:
            # It was on before: the topic stays readable, but no topic is made after it any more.
            table[template.topic_name] = msgspec.structs.replace(template, perm=READ_WRITE)

    def create_on_send(
        self,
        topic: str,
        default_topic: str,
        client_queue_nums: int,
        *,
        sys_flag: int = 0,
    ) -> TopicConfig | None:
        """The topic, made after `default_topic` when it does not exist and that is allowed; else None.

        The number of queues is the lower of the client's wish and the template's. The caller has validated the name. A group's
        topics are made for the group, by `create_for_send_back`.
        """
        known = self._table.get(topic)
        if known is not None:
            return known
        if not self._config.auto_create_topic_enable or topic.startswith(_OF_GROUPS):
            return None  # whatever the template: topics named after the cluster and the broker are inherited from, too
        template = self._table.get(default_topic)
        if template is None or not template.perm & PermName.INHERIT:
            return None
        # RocketMQ would make a topic of no queue for a wish below 1, which no one can send to.
        queue_nums = max(1, min(client_queue_nums, template.write_queue_nums))
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=queue_nums,
            write_queue_nums=queue_nums,
            perm=template.perm & ~PermName.INHERIT,
            topic_sys_flag=sys_flag,
            topic_filter_type=template.topic_filter_type,
        )
        self.put(config)
        logger.info("topic %s of %d queues created by a send", topic, queue_nums)
        return config

    def create_for_send_back(
        self, topic: str, queue_nums: int, perm: int = READ_WRITE, *, order: bool = False, sys_flag: int = 0
    ) -> TopicConfig:
        """The retry or dead-letter topic, made when it does not exist (createTopicInSendMessageBackMethod)."""
        known = self._table.get(topic)
        if known is not None:
            if order and not known.order:
                known = msgspec.structs.replace(known, order=True)
                self.put(known)
            return known
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=queue_nums,
            write_queue_nums=queue_nums,
            perm=perm,
            order=order,
            topic_sys_flag=sys_flag,
        )
        self.put(config)
        return config

    def create_retry_topics(self, topics: Mapping[str, int]) -> bool:
        """Make the retry topics that do not exist, with one write; by name, with their numbers of queues. Returns whether any
        was made.
        """
        made = [
            TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=READ_WRITE)
            for topic, queues in topics.items()
            if topic not in self._table
        ]
        return bool(made) and self.put_all(made)

    def put(self, config: TopicConfig) -> bool:
        """Makes or replaces one topic; returns whether anything changed. Raises StoreError when it is not written."""
        return self.put_all([config])

    def put_all(self, configs: Iterable[TopicConfig]) -> bool:
        """The same for several, with one write."""
        table = dict(self._table)
        table.update((config.topic_name, config) for config in configs)
        if table == self._table:
            return False
        remark = self._over_quota(table)
        if remark is not None:
            raise QuotaReached(remark)
        changed = {name: config for name, config in table.items() if self._table.get(name) != config}
        before = self._size_registered()
        after = before + sum(map(_registered_bytes, changed.values()))
        after -= sum(_registered_bytes(self._table[name]) for name in changed if name in self._table)
        if after > max(REGISTERED_BYTES_MAX, before):
            raise QuotaReached(
                f"the broker would register topics of {after} bytes, {REGISTERED_BYTES_MAX} are taken: delete topics and groups"
                " no one needs, or spread them over more brokers"
            )
        self._become(table, MetadataRecord(topics=changed))
        self._registered_bytes, self._registered_bytes_of = after, self.data_version
        return True

    def _size_registered(self) -> int:
        """What the table takes in a registration."""
        if self._registered_bytes_of is not self.data_version:
            self._registered_bytes = sum(map(_registered_bytes, self._table.values()))
            self._registered_bytes_of = self.data_version
        return self._registered_bytes

    def usage(self) -> list[Usage]:
        """Its quotas that have a limit, with their use."""
        return self._usage(self._table)

    def _usage(self, table: Mapping[str, TopicConfig]) -> list[Usage]:
        config = self._config
        uses = (
            Usage("quotaTopics", "", self._count_topics(table) if config.quota_topics else 0, config.quota_topics),
            Usage("quotaQueues", "", self._count_queues(table) if config.quota_queues else 0, config.quota_queues),
        )
        return [use for use in uses if use.limit]

    def _over_quota(self, table: Mapping[str, TopicConfig]) -> str | None:
        """Why the table may not become `table`, None when it may. What was there before a quota was lowered may stay."""
        for use, former in zip(self._usage(table), self._usage(self._table), strict=True):
            if use.used > max(use.limit, former.used):
                what = "topics" if use.quota == "quotaTopics" else "queues in all topics"
                return (
                    f"the broker would have {use.used} {what}, its quota {use.quota} is {use.limit}."
                    " Delete what is not needed, or ask for more"
                )
        return None

    def _count_topics(self, table: Mapping[str, TopicConfig]) -> int:
        """Those of clients; retry topics and dead letters go with their group."""
        return sum(not (name.startswith(_OF_GROUPS) or self.is_system_topic(name)) for name in table)

    def _count_queues(self, table: Mapping[str, TopicConfig]) -> int:
        """Those of all topics that are not the broker's own; each topic counts as one at least."""
        return sum(
            max(1, config.read_queue_nums, config.write_queue_nums)
            for name, config in table.items()
            if not self.is_system_topic(name)
        )

    def delete(self, topics: Iterable[str]) -> bool:
        """Forgets topics; returns whether any was there."""
        table = dict(self._table)
        gone = [topic for topic in topics if table.pop(topic, None) is not None]
        if not gone:
            return False
        self._become(table, MetadataRecord(deleted_topics=gone))
        return True

    def apply(self, record: MetadataRecord) -> None:
        """Take over what a record of the log says; `finish_applying` when all are applied."""
        self._begin_applying()
        if record.is_base:
            self._table = dict(record.topics)
            self._add_system_topics(self._table)
        else:
            self._table.update(record.topics)
            for topic in record.deleted_topics:
                self._table.pop(topic, None)

    def touch(self) -> None:
        """Raises the DataVersion alone: name servers are to take the table again (brokerPermission has changed)."""
        self._become(self._table)

    def _file_content(self) -> bytes:
        return TopicsFile(topic_config_table=self._table, data_version=self.data_version, in_log=True).to_json()


def _registered_bytes(config: TopicConfig) -> int:
    """What a topic takes in a registration: its name, for a second time, and its settings."""
    return len(config.topic_name) + len(config.to_json()) + len('"":,')


def merge_attributes(current: Mapping[str, str], text: str | None) -> dict[str, str]:
    """The attributes after `text`, RocketMQ's "+name=value,-name" (AttributeParser, AttributeUtil).

    Raises ValueError with a remark for an unknown name or a value that this broker cannot honour; one that is there may stay.
    """
    merged = dict(current)
    for part in (text or "").split(","):
        part = part.strip()
        if not part:
            continue
        sign, rest = part[0], part[1:]
        name, _, value = rest.partition("=")
        if sign not in "+-" or name not in _ATTRIBUTES:
            raise ValueError(
                f"the attribute {part[:80]!a} is not understood: write +name=value or -name, with a name of"
                f" {', '.join(sorted(_ATTRIBUTES))}"
            )
        if sign == "-":
            merged.pop(name, None)
            continue
        if len(value) > _ATTRIBUTE_MAX_CHARACTERS:
            raise ValueError(f"{name} has {len(value)} characters: at most {_ATTRIBUTE_MAX_CHARACTERS} are allowed")
        remark = None if value == current.get(name) else _ATTRIBUTES[name](value)
        if remark is not None:
            raise ValueError(remark)
        merged[name] = value
    return merged


def invalid_topic_config(config: TopicConfig, *, max_queue_nums: int = 1024) -> str | None:
    """Why this topic cannot be made, as a remark; None when it can."""
    remark = invalid_topic(config.topic_name)
    if remark is not None:
        return remark
    for name, queue_nums in (("readQueueNums", config.read_queue_nums), ("writeQueueNums", config.write_queue_nums)):
        if not 0 <= queue_nums <= max_queue_nums:
            return f"{name} is {queue_nums}: allowed is 0 to {max_queue_nums}"
    if not 0 <= config.perm <= 7:
        return f"perm is {config.perm}: allowed is 2 (write), 4 (read), 6 (both), 0 (neither), plus 1 (inherit)"
    if config.topic_filter_type not in ("SINGLE_TAG", "MULTI_TAG"):
        return f"topicFilterType is {config.topic_filter_type[:40]!a}: allowed is SINGLE_TAG or MULTI_TAG"
    return None


def _system_topics(config: BrokerConfig) -> list[TopicConfig]:
    def topic(name: str, queue_nums: int, perm: int = READ_WRITE) -> TopicConfig:
        return TopicConfig(topic_name=name, read_queue_nums=queue_nums, write_queue_nums=queue_nums, perm=perm)

    cluster, broker = config.broker_cluster_name, config.broker_name
    inherited = PermName.INHERIT
    topics = [
        topic(names.RMQ_SYS_SELF_TEST_TOPIC, 1),
        topic(names.RMQ_SYS_PROBE, 1),
        topic(names.RMQ_SYS_BENCHMARK_TOPIC, _BENCHMARK_TOPIC_QUEUE_NUMS),
        topic(cluster, _CLUSTER_TOPIC_QUEUE_NUMS, inherited | (READ_WRITE if config.cluster_topic_enable else 0)),
        topic(broker, 1, inherited | (READ_WRITE if config.broker_topic_enable else 0)),
        topic(names.RMQ_SYS_OFFSET_MOVED_EVENT, 1),
        topic(names.RMQ_SYS_SCHEDULE_TOPIC, max(_SCHEDULE_TOPIC_QUEUE_NUMS, config.message_delay_level.maximum)),
        topic(f"{cluster}_{names.REPLY_TOPIC_POSTFIX}", 1),
        topic(f"rmq_sys_REVIVE_LOG_{cluster}", _REVIVE_QUEUE_NUMS),
        topic(f"{names.SYSTEM_TOPIC_PREFIX}SYNC_BROKER_MEMBER_{broker}", 1, inherited),
        topic(names.RMQ_SYS_TRANS_HALF_TOPIC, 1),
        topic(names.RMQ_SYS_TRANS_OP_HALF_TOPIC, 1),
        topic(names.RMQ_SYS_METERING, 1, PermName.READ),
    ]
    if config.auto_create_topic_enable:
        topics.append(topic(names.AUTO_CREATE_TOPIC_KEY_TOPIC, config.default_topic_queue_nums, inherited | READ_WRITE))
    if config.trace_topic_enable:
        topics.append(topic(config.msg_trace_topic_name, 1))
    return topics
