"""Sharding keys, unique keys, and the rules for names and messages."""

from __future__ import annotations

import time
from datetime import datetime

import pytest

from highwater import ConfigurationError, Credentials, Message, MessageIllegalError, MessageQueue
from highwater._selector import select_by_hash
from highwater._validation import check_group, check_message, check_topic, message_properties
from mqwire.unique_key import UniqueKeyGenerator, key_time_ms

QUEUES = [MessageQueue("t", "broker-a", number) for number in range(7)]
LIMIT = 4 * 1024 * 1024


@pytest.mark.parametrize(
    ("key", "queue_id"),
    # Printed by Java: Math.abs(key.hashCode() % 7). "polygenelubricants" hashes to Integer.MIN_VALUE.
    [("", 0), ("a", 6), ("order-1", 6), ("order-17", 3), ("polygenelubricants", 2), ("ключ", 4), ("😀", 2)],
)
def test_a_sharding_key_maps_to_the_queue_that_java_chooses(key: str, queue_id: int) -> None:
    assert select_by_hash(QUEUES, key).queue_id == queue_id


def test_unique_keys_differ() -> None:
    generator = UniqueKeyGenerator("127.0.0.1")
    assert len({generator.next_key() for _ in range(10_000)}) == 10_000


def test_two_generators_make_different_keys() -> None:
    now = int(time.time() * 1000)
    assert UniqueKeyGenerator("127.0.0.1").next_key(now) != UniqueKeyGenerator("127.0.0.1").next_key(now)


def test_a_unique_key_begins_with_the_address() -> None:
    assert UniqueKeyGenerator("10.1.2.3").next_key().startswith("0A010203")


def test_a_unique_key_has_32_digits_with_ipv4_and_56_with_ipv6() -> None:
    assert len(UniqueKeyGenerator("127.0.0.1").next_key()) == 32
    assert len(UniqueKeyGenerator("::1").next_key()) == 56


def test_a_unique_key_says_when_it_was_made() -> None:
    now = int(time.time() * 1000)
    assert key_time_ms(UniqueKeyGenerator("127.0.0.1").next_key(now), now) == now


def test_the_time_in_a_key_survives_the_end_of_the_month() -> None:
    made = int(datetime(2026, 1, 31, 23, 59, 59, 500_000).timestamp() * 1000)
    key = UniqueKeyGenerator("127.0.0.1").next_key(made)
    assert key_time_ms(key, made + 2000) == made


@pytest.mark.parametrize("topic", ["", "a b", "ü", "a" * 128, "a.b", "a/b"])
def test_a_topic_name_that_brokers_refuse_is_refused_before_sending(topic: str) -> None:
    with pytest.raises(MessageIllegalError, match="topic name"):
        check_topic(topic)


@pytest.mark.parametrize("topic", ["orders", "%RETRY%group", "a|b", "A-1_2", "a" * 127])
def test_a_topic_name_that_brokers_take_passes(topic: str) -> None:
    check_topic(topic)


@pytest.mark.parametrize("group", ["", "a b", "a" * 256])
def test_a_group_name_that_brokers_refuse_is_refused(group: str) -> None:
    with pytest.raises(ConfigurationError, match="group name"):
        check_group(group)


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (Message("t", b""), "empty"),
        (Message("t", bytes(LIMIT + 1)), "max_message_size"),
        (Message("t", b"x", delay_time_level=19), "delay_time_level"),
        (Message("t", b"x", keys=["a b"]), "blanks"),
        (Message("t", b"x", properties={"TAGS": "x"}), "reserved"),
    ],
)
def test_a_message_that_no_broker_takes_is_refused_before_sending(message: Message, complaint: str) -> None:
    with pytest.raises(MessageIllegalError, match=complaint):
        check_message(message, LIMIT)


def test_a_body_of_exactly_the_maximum_size_passes() -> None:
    check_message(Message("t", bytes(LIMIT)), LIMIT)


@pytest.mark.parametrize("value", ["", "a\x01b", "a\x02b", "\ud800"])
def test_a_property_that_the_wire_cannot_carry_is_refused(value: str) -> None:
    with pytest.raises(MessageIllegalError):
        message_properties(Message("t", b"x", properties={"p": value}), "KEY")


def test_properties_of_more_than_32767_bytes_are_refused() -> None:
    with pytest.raises(MessageIllegalError, match="32767"):
        message_properties(Message("t", b"x", properties={"p": "v" * 32767}), "KEY")


def test_a_messages_fields_become_rocketmqs_properties() -> None:
    message = Message("t", b"x", tags="paid", keys=["o-1", "o-2"], properties={"p": "ü"}, delay_time_level=3)
    assert message_properties(message, "KEY") == {
        "p": "ü",
        "KEYS": "o-1 o-2",
        "TAGS": "paid",
        "DELAY": "3",
        "WAIT": "true",
        "UNIQ_KEY": "KEY",
    }


def test_a_single_key_may_stand_alone() -> None:
    assert Message("t", b"x", keys="o-1").keys == ("o-1",)


def test_a_text_as_body_is_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigurationError, match="encode"):
        Message("t", "text")  # type: ignore[arg-type]  # what a caller without a type checker does


def test_credentials_do_not_show_their_secret() -> None:
    assert "s3cret" not in repr(Credentials("key", "s3cret", "t0ken"))
    assert "t0ken" not in repr(Credentials("key", "s3cret", "t0ken"))
