"""RocketMQ's rules for topic names (TopicValidator), and what a tenant may not create besides."""

import re

from controlplane.common.errors import InvalidInput
from controlplane.common.sentences import say

NAME_PATTERN = r"[%|a-zA-Z0-9_-]{1,127}"
_NAME = re.compile(NAME_PATTERN)
_RESERVED_PREFIXES = ("%RETRY%", "%DLQ%", "%LMQ%", "rmq_sys_", "RMQ_SYS_")
_RESERVED = frozenset(
    {
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
        "DefaultHeartBeatSyncerTopic",
    }
)


def topic_name_check(name: str) -> str:
    """Return the name; raises InvalidInput when RocketMQ would refuse it or keeps it for itself."""
    if not name:
        raise InvalidInput.for_field("name", say("A name is needed."), "required")
    if len(name) > 127:
        raise InvalidInput.for_field("name", say("A topic's name has at most 127 characters."), "too_long")
    if not _NAME.fullmatch(name):
        raise InvalidInput.for_field(
            "name", say("Use letters, digits and the characters %% | _ - only."), "invalid_name"
        )
    if topic_name_is_system(name):
        raise InvalidInput.for_field(
            "name", say("`%(name)s` is a name that RocketMQ keeps for itself.", name=name), "reserved"
        )
    return name


def topic_name_is_system(name: str) -> bool:
    """Return whether RocketMQ keeps this name for itself: hidden by default, never created by a tenant."""
    return name in _RESERVED or name.startswith(_RESERVED_PREFIXES)
