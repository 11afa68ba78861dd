"""brokerd/topic_validator.py: which names are topics and groups."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerd.topic_validator import (
    invalid_group,
    invalid_topic,
    is_closed_to_clients,
    is_system_topic,
)
from mqwire.metering import OTHERS
from mqwire.names import is_system_group

HOSTILE = [
    "../etc/passwd",
    "..",
    ".",
    "a/b",
    "a\\b",
    "a\x00b",
    "a b",
    "a@b",
    "тема",
    "订单",
    "a\n",
    "\n",
    "a.b",
    "$(reboot)",
    "<script>",
    "a\u200b",
    "\uff11\uff12",
    OTHERS,
]


@pytest.mark.parametrize("name", ["orders", "A-b_c|9", "%RETRY%g", "%DLQ%g", "x" * 127, "%RETRY%" + "g" * 120, "%"])
def test_rocketmqs_topic_names_are_allowed(name: str) -> None:
    assert invalid_topic(name) is None


@pytest.mark.parametrize("name", [None, "", "  ", "x" * 128, "%RETRY%" + "g" * 249, *HOSTILE])
def test_other_topic_names_are_refused_with_a_reason(name: str) -> None:
    assert invalid_topic(name)


@pytest.mark.parametrize("name", ["group", "CID_a-b|c%d", "g" * 120])
def test_rocketmqs_group_names_are_allowed(name: str) -> None:
    assert invalid_group(name) is None


@pytest.mark.parametrize("name", [None, "", "\t", "g" * 121, *HOSTILE])
def test_other_group_names_are_refused_with_a_reason(name: str) -> None:
    assert invalid_group(name)


@given(st.text(max_size=300))
def test_no_allowed_name_is_more_than_one_part_of_a_path(name: str) -> None:
    if invalid_topic(name) is None:
        assert os.path.basename(name) == name
        assert name not in (".", "..")
        assert len(os.fsencode(name)) <= 255


@given(st.text(max_size=300))
def test_a_remark_is_one_short_line_of_ascii(name: str) -> None:
    for remark in (invalid_topic(name), invalid_group(name)):
        if remark is not None:
            assert remark.isascii()
            assert remark.isprintable()
            assert len(remark) < 700


@pytest.mark.parametrize("topic", ["TBW102", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_EPOCH"])
def test_the_brokers_own_topics_are_system_topics(topic: str) -> None:
    assert is_system_topic(topic)


def test_a_tenants_topic_is_no_system_topic() -> None:
    assert not is_system_topic("orders")


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "%LMQ%orders"])
def test_clients_may_not_send_to_the_delay_topic_nor_to_what_the_store_does_not_open_again(topic: str) -> None:
    assert is_closed_to_clients(topic)


def test_clients_may_send_to_tbw102() -> None:
    assert not is_closed_to_clients("TBW102")


@pytest.mark.parametrize("group", ["TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS", "CID_ONSAPI_PULL"])
def test_rocketmqs_own_groups_are_system_groups(group: str) -> None:
    assert is_system_group(group)
