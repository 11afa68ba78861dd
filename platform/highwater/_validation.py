"""RocketMQ's rules for names and messages, checked before anything is sent (Validators, TopicValidator)."""

from __future__ import annotations

import re

from highwater._models import Message
from highwater.errors import ConfigurationError, MessageIllegalError
from highwater.sentences import say
from mqwire import names
from mqwire.message import MAX_PROPERTIES_BYTES, NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

MAX_TOPIC_LENGTH = 127
MAX_GROUP_LENGTH = 255
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
MAX_DELAY_TIME_LEVEL = 18

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
# Fields of Message set these; a second source for them would only make surprises.
_OWNED_PROPERTIES = frozenset(
    {
        names.PROPERTY_KEYS,
        names.PROPERTY_TAGS,
        names.PROPERTY_WAIT_STORE_MSG_OK,
        names.PROPERTY_DELAY_TIME_LEVEL,
        names.PROPERTY_SHARDING_KEY,
        names.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    }
)


def check_topic(topic: str) -> None:
    """Raises MessageIllegalError for a name that no broker takes."""
    if not topic or len(topic) > MAX_TOPIC_LENGTH or not _NAME.fullmatch(topic):
        raise MessageIllegalError(
            say(
                "%(topic)s is not a topic name: it must be 1 to %(most)s of a-z A-Z 0-9 %% | _ -",
                topic=repr(topic[:200]),
                most=MAX_TOPIC_LENGTH,
            )
        )


def check_group(group: str) -> None:
    """Raises ConfigurationError for a name that no broker takes."""
    if not group or len(group) > MAX_GROUP_LENGTH or not _NAME.fullmatch(group):
        raise ConfigurationError(
            f"{group[:300]!r} is not a group name: it must be 1 to {MAX_GROUP_LENGTH} of a-z A-Z 0-9 % | _ -"
        )


def check_message(message: Message, max_message_size: int) -> None:
    """Raises MessageIllegalError that says what is wrong with the message."""
    check_topic(message.topic)
    if not message.body:
        raise MessageIllegalError(say("the message’s body is empty"))
    if len(message.body) > max_message_size:
        raise MessageIllegalError(
            say(
                "the message’s body has %(size)s bytes, more than max_message_size, %(most)s",
                size=len(message.body),
                most=max_message_size,
            )
        )
    if not 0 <= message.delay_time_level <= MAX_DELAY_TIME_LEVEL:
        raise MessageIllegalError(
            say(
                "delay_time_level is %(level)s; it must be 0 (no delay) to %(most)s",
                level=message.delay_time_level,
                most=MAX_DELAY_TIME_LEVEL,
            )
        )
    for key in message.keys:
        if not key or any(character.isspace() for character in key):
            raise MessageIllegalError(say("%(key)s is not a key: keys are not empty and hold no blanks", key=repr(key)))
    owned = _OWNED_PROPERTIES.intersection(message.properties)
    if owned:
        raise MessageIllegalError(say("property %(name)s is reserved: the message has a field for it", name=min(owned)))


def message_properties(message: Message, unique_key: str) -> dict[str, str]:
    """All properties as they are sent; raises MessageIllegalError for text that the wire can't carry."""
    properties = dict(message.properties)
    if message.keys:
        properties[names.PROPERTY_KEYS] = names.KEY_SEPARATOR.join(message.keys)
    if message.tags:
        properties[names.PROPERTY_TAGS] = message.tags
    if message.delay_time_level:
        properties[names.PROPERTY_DELAY_TIME_LEVEL] = str(message.delay_time_level)
    if message.sharding_key is not None:
        properties[names.PROPERTY_SHARDING_KEY] = message.sharding_key
    properties[names.PROPERTY_WAIT_STORE_MSG_OK] = "true" if message.wait_store_msg_ok else "false"
    properties[names.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX] = unique_key
    size = 0
    for name, value in properties.items():
        if not isinstance(value, str) or not name or not value:
            raise MessageIllegalError(
                say(
                    "property %(name)s is %(value)s; names and values are texts that are not empty",
                    name=repr(name),
                    value=repr(value),
                )
            )
        for text in (name, value):
            if NAME_VALUE_SEPARATOR in text or PROPERTY_SEPARATOR in text:
                raise MessageIllegalError(
                    say("property %(name)s holds a separator character, U+0001 or U+0002", name=repr(name))
                )
            try:
                size += len(text.encode()) + 1
            except UnicodeEncodeError as error:
                raise MessageIllegalError(
                    say("property %(name)s cannot be written as UTF-8", name=repr(name))
                ) from error
    if size > MAX_PROPERTIES_BYTES:
        raise MessageIllegalError(
            say(
                "keys, tags and properties take %(size)s bytes; at most %(most)s fit",
                size=size,
                most=MAX_PROPERTIES_BYTES,
            )
        )
    return properties
