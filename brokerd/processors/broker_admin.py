"""The broker itself: runtime information, configuration, statistics, whole tables for slaves. Source:
AdminBrokerProcessor."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from typing import TYPE_CHECKING, Protocol

from brokerd.config import HOT_KEYS, TENANTS_HOT_KEYS, ConfigError
from brokerd.delay_levels import queue_id_of_level
from brokerd.metadata_record import MetadataRecord
from brokerd.processors.context import Handler, Peer
from brokerd.processors.handler import answers_refusals, changing_tables
from brokerd.replies import Refusal, Reply
from brokerd.send_latency import distribution
from brokerd.store import StoreError
from mqwire.bodies import KVTable
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_broker import GetBrokerConfigResponseHeader, ViewBrokerStatsDataRequestHeader
from mqwire.latency import latency_from_json, latency_quantile_ms, latency_to_json
from mqwire.names import DLQ_GROUP_TOPIC_PREFIX, RMQ_SYS_SCHEDULE_TOPIC, is_system_group
from mqwire.properties import PropertiesError, format_properties, parse_properties
from mqwire.version import program_version

if TYPE_CHECKING:
    from brokerd.acl import AccessControl
    from brokerd.config import BrokerConfig
    from brokerd.consumer_manager import ConsumerManager
    from brokerd.consumer_offset import ConsumerOffsetManager
    from brokerd.long_polling import PullRequestHoldService
    from brokerd.processors.context import Clock, DelayedMessages, MetadataLog
    from brokerd.producer_manager import ProducerManager
    from brokerd.quotas import Quotas
    from brokerd.replica.replica import Replica
    from brokerd.stats import BrokerStats
    from brokerd.store import MessageStore
    from brokerd.subscription_group import SubscriptionGroupManager
    from brokerd.topic_config import TopicConfigManager

logger = logging.getLogger(__name__)

BROKER_VERSION = "HIGHWATER_0_1_0"
# Read when the process starts: what lies on the disk later is what a restart would run.
_PROGRAM_VERSION = program_version("brokerd")
GROUPS_AWAY_MAX = 100
# All keys that there are have a few KiB; a mebibyte of lines would take seconds, while others wait.
_CONFIG_MAX_BYTES = 64 * 1024

# Keys whose change the system topics or the registration must follow.
_KEYS_OF_TOPICS = frozenset({"brokerPermission", "autoCreateTopicEnable", "defaultTopicQueueNums"})


class _Broker(Protocol):
    """What these processors use of the broker."""

    config: BrokerConfig
    store: MessageStore
    topic_configs: TopicConfigManager
    subscription_groups: SubscriptionGroupManager
    consumer_offsets: ConsumerOffsetManager
    consumers: ConsumerManager
    producers: ProducerManager
    acl: AccessControl | None
    stats: BrokerStats
    quotas: Quotas
    held_pulls: PullRequestHoldService
    replica: Replica

    @property
    def metadata_log(self) -> MetadataLog: ...

    @property
    def schedule(self) -> DelayedMessages: ...

    @property
    def clock(self) -> Clock: ...

    def leader_port_changed(self) -> None: ...

    def register_soon(self) -> None: ...


def _client_connections(broker: _Broker) -> int:
    """How many open connections producers and consumers use."""
    producers = {channel.peer.id for group in broker.producers.groups() for channel in broker.producers.channels(group)}
    return len(producers.union(channel.peer.id for one in broker.consumers.groups.values() for channel in one.channels))


def get_broker_runtime_info(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """What mqadmin clusterList and brokerStatus show. Rates are those of the last 10 s, minute and 10 minutes."""
    return request.reply(body=KVTable(table=runtime_info(broker)).to_json())


def runtime_info(broker: _Broker) -> dict[str, str]:
    """RocketMQ's names. Thread pools do not exist here; their values are there because its tools read them."""
    store, stats = broker.store, broker.stats
    totals = stats.totals()
    today = stats.history.day_totals()
    used_ratio = str(store.used_ratio())
    pull_rates = zip(stats.rates("pulls_found"), stats.rates("pulls_missed"), strict=True)
    backlogs = _backlogs(broker)
    # Those that have a backlog here and no member that is connected.
    away = sorted(group for group, count in backlogs.items() if count and broker.consumers.find(group) is None)
    info = {
        "brokerActive": "true",
        "brokerVersionDesc": BROKER_VERSION,
        "highwaterVersion": _PROGRAM_VERSION,
        "bootTimestamp": str(stats.started_at_ms),
        "startAcceptSendRequestTimeStamp": "0",
        "runtime": _duration((broker.clock.time_ms() - stats.started_at_ms) // 1000),
        "putMessageTimesTotal": str(totals.messages_put),
        "putMessageSizeTotal": str(totals.bytes_put),
        "putMessageAverageSize": str(totals.bytes_put / max(totals.messages_put, 1)),
        "putTps": _rates(stats.rates("messages_put")),
        "putBytesPerSecond": _rates(stats.rates("bytes_put")),
        "getBytesPerSecond": _rates(stats.rates("bytes_got")),
        "getFoundTps": _rates(stats.rates("pulls_found")),
        "getMissTps": _rates(stats.rates("pulls_missed")),
        "getTotalTps": _rates(
            tuple(None if found is None or missed is None else found + missed for found, missed in pull_rates)
        ),
        "getTransferredTps": _rates(stats.rates("messages_got")),
        "msgPutTotalYesterdayMorning": str(today.put_yesterday_morning),
        "msgPutTotalTodayMorning": str(today.put_today_morning),
        "msgPutTotalTodayNow": str(totals.messages_put),
        "msgGetTotalYesterdayMorning": str(today.got_yesterday_morning),
        "msgGetTotalTodayMorning": str(today.got_today_morning),
        "msgGetTotalTodayNow": str(totals.messages_got),
        "commitLogMinOffset": str(store.min_physical_offset),
        "commitLogMaxOffset": str(store.end_offset),
        "commitLogDurableOffset": str(store.durable_offset),
        "commitLogConfirmOffset": str(store.confirm_offset),
        "commitLogDiskRatio": used_ratio,
        "consumeQueueDiskRatio": used_ratio,
        "commitLogDirCapacity": _capacity(broker.config.store_path_commit_log),
        "storeState": store.state.value,
        "earliestMessageTimeStamp": str(store.earliest_store_time_ms),
        "dispatchBehindBytes": "0",  # ConsumeQueue entries are made with their records
        "remainHowManyDataToFlush": f"{store.end_offset - store.durable_offset} B",
        "pageCacheLockTimeMills": "0",
        "timerReadBehind": "0",
        "timerOffsetBehind": "0",
        "timerCongestNum": "0",
        "timerEnqueueTps": "0.0",
        "timerDequeueTps": "0.0",
        "producerGroups": str(len(broker.producers.groups())),
        "consumerGroups": str(len(broker.consumers.groups)),
        "clientConnections": str(_client_connections(broker)),
        "consumerLagMessages": str(sum(backlogs.values())),
        "consumerGroupsAway": json.dumps(away[:GROUPS_AWAY_MAX]),
        "consumerGroupsAwayCount": str(len(away)),
        "deadLetterMessages": str(dead_letter_messages(broker)),
    }
    if (took := stats.send_latency.last_minute()) is not None:
        info |= _send_latency(took)
    if store.refusal is not None:
        info["storeRefusal"] = str(store.refusal)
    uses = [
        *broker.quotas.usage(broker.held_pulls),
        *broker.topic_configs.usage(),
        *broker.subscription_groups.usage(),
    ]
    info["quotas"] = json.dumps([dataclasses.asdict(use) for use in uses])
    for pool in ("send", "pull", "query", "litePull", "ack"):
        info[f"{pool}ThreadPoolQueueSize"] = "0"
        info[f"{pool}ThreadPoolQueueCapacity"] = "0"
        info[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
    for level, offset in sorted(broker.schedule.offsets.items()):
        end = store.max_offset(RMQ_SYS_SCHEDULE_TOPIC, queue_id_of_level(level))
        info[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
    return info


def _send_latency(counts: list[int]) -> dict[str, str]:
    """What the sends of the last minute took: RocketMQ's figures, and the counts that they are made of."""
    reported = latency_to_json(counts)
    by_bound = latency_from_json(reported) or {}
    return {
        "sendLatency": reported,
        "putMessageDistributeTime": distribution(counts),
        "putMessageEntireTimeMax": str(round(latency_quantile_ms(by_bound, 1) or 0)),
        "putLatency99": str(latency_quantile_ms(by_bound, 0.99) or 0.0),
        "putLatency999": str(latency_quantile_ms(by_bound, 0.999) or 0.0),
    }


def _backlogs(broker: _Broker) -> dict[str, int]:
    """Messages that each group has not consumed yet, in all queues in which it has an offset: what retention has deleted is not
    counted.

    There may be a million offsets, most of them in queues that never had a message: each topic's ends are looked up once.
    """
    store, stored = broker.store, broker.store.topics()
    ends_of: dict[str, dict[int, tuple[int, int]]] = {}
    backlogs: dict[str, int] = {}
    for topic, group, offsets in broker.consumer_offsets.offsets_by_group():
        if is_system_group(group):
            continue
        ends = ends_of.get(topic)
        if ends is None:
            ends = ends_of[topic] = {
                queue_id: (store.min_offset(topic, queue_id), store.max_offset(topic, queue_id))
                for queue_id in stored.get(topic, ())
            }
        backlogs[group] = backlogs.get(group, 0) + sum(
            max(end - max(offsets[queue_id], oldest), 0)
            for queue_id, (oldest, end) in ends.items()
            if queue_id in offsets
        )
    return backlogs


def dead_letter_messages(broker: _Broker) -> int:
    """Dead letters ever written here, of all groups: retention and readers take none away."""
    store = broker.store
    return sum(
        store.max_offset(topic, queue_id)
        for topic, queue_ids in store.topics().items()
        if topic.startswith(DLQ_GROUP_TOPIC_PREFIX)
        for queue_id in queue_ids
    )


def _rates(rates: tuple[float | None, ...]) -> str:
    """Three rates with blanks between; a rate that is not sampled yet leaves its place empty, as in RocketMQ."""
    return " ".join("" if rate is None else f"{rate:.2f}" for rate in rates)


def _capacity(folder: str) -> str:
    """As RocketMQ writes it, for exporters that take it apart."""
    status = os.statvfs(folder)
    total_gib = status.f_frsize * status.f_blocks / 2**30
    free_gib = status.f_frsize * status.f_bavail / 2**30
    return f"Total : {total_gib:.1f} GiB, Free : {free_gib:.1f} GiB."


def _duration(seconds: int) -> str:
    minutes, seconds = divmod(max(seconds, 0), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def get_broker_config(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """All keys as properties text; secrets are left out."""
    version = broker.topic_configs.data_version.to_json().decode()
    text = format_properties(broker.config.to_properties())
    return request.reply(header=GetBrokerConfigResponseHeader(version=version), body=text.encode())


@answers_refusals
def update_broker_config(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """Changes keys while the broker runs, all or none: those of an allow-list, none of which is a path or a command."""
    if len(request.body) > _CONFIG_MAX_BYTES:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"the body has {len(request.body)} bytes, at most {_CONFIG_MAX_BYTES} are read: name fewer keys",
        )
    try:
        changes = {entry.key: entry.value for entry in parse_properties(bytes(request.body))}
    except PropertiesError as error:
        raise Refusal(ResponseCode.INVALID_PARAMETER, f"the body is not properties text: {error}") from error
    rules = broker.acl is None or broker.acl.is_infrastructure(request, has_certificate=peer.has_certificate)
    allowed = HOT_KEYS if rules else TENANTS_HOT_KEYS
    forbidden = sorted(changes.keys() - allowed)
    if forbidden:
        raise Refusal(
            ResponseCode.NO_PERMISSION,
            f"Can not update config: {', '.join(name[:60] for name in forbidden[:10])!a} cannot be changed while the"
            f" broker runs; what {'can' if allowed is HOT_KEYS else 'this account can change'}:"
            f" {', '.join(sorted(allowed))}",
        )
    try:
        changed = broker.config.change(changes)
    except ConfigError as error:
        raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from error
    except OSError as error:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"broker.conf could not be written, nothing has changed: {error.strerror or error}",
        ) from error
    if changed:
        logger.warning("%s changes the configuration: %s", peer.remote_address[0], ", ".join(sorted(changed)))
    if "leaderListenPort" in changed:
        broker.leader_port_changed()
    if changed & _KEYS_OF_TOPICS:
        if not broker.topic_configs.ensure_system_topics():
            broker.topic_configs.touch()
        if broker.replica.leads:
            broker.metadata_log.write_base()  # the slaves take it over
        broker.register_soon()
    return request.reply()


def view_broker_stats_data(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """Counts of the last minute, hour and day: TOPIC_PUT_NUMS and GROUP_GET_NUMS (topic@group), and the broker's own
    BROKER_PUT_NUMS and BROKER_GET_NUMS, whose key is the cluster's name."""
    header = request.header(ViewBrokerStatsDataRequestHeader)
    key = header.stats_key
    if header.stats_name.startswith("BROKER_"):
        key = "" if key == broker.config.broker_cluster_name else "\0"
    data = broker.stats.history.view(header.stats_name, key)
    if data is None:
        return request.reply(
            ResponseCode.SYSTEM_ERROR,
            f"The stats <{header.stats_name[:60]}> <{header.stats_key[:300]}> not exist: nothing was counted under it",
        )
    return request.reply(body=data.to_json())


def get_all_consumer_offset(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """All groups' offsets."""
    return request.reply(body=broker.consumer_offsets.to_wrapper().to_json())


def get_all_delay_offset(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """How far each delay level has been delivered, for RocketMQ's tools: slaves learn it with the log."""
    return request.reply(body=broker.schedule.to_wrapper().to_json())


@answers_refusals
def clean_unused_topic(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """Forgets the messages of topics that have no configuration any more, on all replicas, as a deletion does.

    A slave does so with its master: mqadmin asks each, and what one of them misses in its tables the group may have.
    """
    if not broker.replica.leads:
        return request.reply(remark="a slave forgets the messages that its master does: ask that one")
    changing_tables(broker.metadata_log)
    # The broker's own records have no topic configuration, and are what its tables are made of.
    unused = [
        topic
        for topic in broker.store.topics()
        if broker.topic_configs.select(topic) is None and not broker.topic_configs.is_system_topic(topic)
    ]
    if unused:
        logger.warning("%s cleans unused topics: %s", peer.remote_address[0], ", ".join(unused))
    try:
        for topic in unused:
            broker.metadata_log.write(MetadataRecord(deleted_topics=[topic]))
            broker.metadata_log.forget_messages(topic)
    except (OSError, StoreError) as error:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"not all topics are cleaned: {error}; ask again") from error
    return broker.metadata_log.answer(request.reply())


HANDLERS: dict[RequestCode, Handler] = {
    RequestCode.GET_BROKER_RUNTIME_INFO: get_broker_runtime_info,
    RequestCode.GET_BROKER_CONFIG: get_broker_config,
    RequestCode.UPDATE_BROKER_CONFIG: update_broker_config,
    RequestCode.VIEW_BROKER_STATS_DATA: view_broker_stats_data,
    RequestCode.GET_ALL_CONSUMER_OFFSET: get_all_consumer_offset,
    RequestCode.GET_ALL_DELAY_OFFSET: get_all_delay_offset,
    RequestCode.CLEAN_UNUSED_TOPIC: clean_unused_topic,
}
