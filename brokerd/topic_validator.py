"""Which topic and group names are allowed: RocketMQ's TopicValidator, and what a name may not do on our disk.

Topic names become folder names below `consumequeue/`, group names become parts of topic names and of JSON keys
("topic@group"). So the alphabet is RocketMQ's `^[%|a-zA-Z0-9_-]+$`: it has no dot, no slash, no NUL and no "@".
"""

from __future__ import annotations

import re

from mqwire import names

TOPIC_MAX_LENGTH = 127
GROUP_MAX_LENGTH = 120  # %RETRY%<group> and %DLQ%<group> must still be topics
RETRY_OR_DLQ_TOPIC_MAX_LENGTH = 255

_ALLOWED = re.compile(r"[%|a-zA-Z0-9_-]+")

_SYSTEM_TOPICS = frozenset(
    {
        names.AUTO_CREATE_TOPIC_KEY_TOPIC,
        names.RMQ_SYS_SCHEDULE_TOPIC,
        names.RMQ_SYS_BENCHMARK_TOPIC,
        names.RMQ_SYS_TRANS_HALF_TOPIC,
        names.RMQ_SYS_TRACE_TOPIC,
        names.RMQ_SYS_TRANS_OP_HALF_TOPIC,
        names.RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
        names.RMQ_SYS_SELF_TEST_TOPIC,
        names.RMQ_SYS_OFFSET_MOVED_EVENT,
        names.RMQ_SYS_EPOCH,
        names.RMQ_SYS_METERING,
        names.RMQ_SYS_METADATA,
        names.RMQ_SYS_PROBE,
    }
)

# Clients use these as any other topic.
_OPEN_SYSTEM_TOPICS = frozenset(
    {names.RMQ_SYS_TRACE_TOPIC, names.RMQ_SYS_BENCHMARK_TOPIC, names.AUTO_CREATE_TOPIC_KEY_TOPIC}
)

# Topics that only the broker itself writes to. TBW102 is not among RocketMQ's: there a message sent to it is stored.
_TOPICS_CLOSED_TO_CLIENTS = frozenset(
    {
        names.RMQ_SYS_SCHEDULE_TOPIC,
        names.RMQ_SYS_TRANS_HALF_TOPIC,
        names.RMQ_SYS_TRANS_OP_HALF_TOPIC,
        names.RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
        names.RMQ_SYS_SELF_TEST_TOPIC,
        names.RMQ_SYS_OFFSET_MOVED_EVENT,
        names.RMQ_SYS_EPOCH,
        names.RMQ_SYS_METERING,
        names.RMQ_SYS_METADATA,
    }
)


def invalid_topic(topic: str | None) -> str | None:
    """Why `topic` is not a legal topic name, as a remark for the client; None when it is one."""
    if topic is None or not topic.strip():
        return "the topic is blank: give it a name of letters, digits, %, |, _ and -"
    if not _ALLOWED.fullmatch(topic):
        return f"the topic {_shown(topic)} contains illegal characters: only ^[%|a-zA-Z0-9_-]+$ is allowed"
    derived = topic.startswith((names.RETRY_GROUP_TOPIC_PREFIX, names.DLQ_GROUP_TOPIC_PREFIX))
    limit = RETRY_OR_DLQ_TOPIC_MAX_LENGTH if derived else TOPIC_MAX_LENGTH
    if len(topic) > limit:
        return f"the topic {_shown(topic)} has {len(topic)} characters: at most {limit} are allowed"
    return None


def invalid_group(group: str | None) -> str | None:
    """Why `group` is not a legal group name, as a remark for the client; None when it is one."""
    if group is None or not group.strip():
        return "the group is blank: give it a name of letters, digits, %, |, _ and -"
    if not _ALLOWED.fullmatch(group):
        return f"the group {_shown(group)} contains illegal characters: only ^[%|a-zA-Z0-9_-]+$ is allowed"
    if len(group) > GROUP_MAX_LENGTH:
        return f"the group {_shown(group)} has {len(group)} characters: at most {GROUP_MAX_LENGTH} are allowed"
    return None


def is_system_topic(topic: str) -> bool:
    """Topics that belong to the broker, not to a tenant: not deleted, not changed by clients, hidden in lists."""
    return topic in _SYSTEM_TOPICS or topic.startswith(names.SYSTEM_TOPIC_PREFIX)


def is_brokers_own(topic: str) -> bool:
    """System topics in which no key of a tenant changes anything."""
    return is_system_topic(topic) and topic not in _OPEN_SYSTEM_TOPICS


def is_closed_to_clients(topic: str) -> bool:
    """Topics that clients may not send to (TopicValidator's NOT_ALLOWED_SEND_TOPIC_SET, and our own).

    Nor to RocketMQ's light message queues: a store that holds one is not opened here.
    """
    return topic in _TOPICS_CLOSED_TO_CLIENTS or topic.startswith(names.LMQ_PREFIX)


def _shown(name: str) -> str:
    """A hostile name as it may stand in a remark and in a log line: escaped and short."""
    return ascii(name if len(name) <= 64 else name[:61] + "...")
