"""Stock clients against a broker with access control: the right key, a wrong one, and none."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.interop.clients import DriverProcess, JavaClient
from tests.interop.content import assert_exactly_these, plans
from tests.interop.targets import ADMIN_KEY, Target

NO_PERMISSION = 16


@pytest.fixture
def topic(secured_target: Target) -> str:
    name = f"topic-{uuid.uuid4().hex[:12]}"
    secured_target.create_topic(name, queues=2)
    return name


def test_a_client_with_the_right_key_sends_and_receives(
    client: DriverProcess, secured_target: Target, topic: str
) -> None:
    messages = plans(topic, 60)
    with client.consumer(secured_target.cluster, topic) as consumer:
        outcomes = client.produce(secured_target.cluster, topic, messages, mode="async")
        assert {outcome["status"] for outcome in outcomes} == {"SEND_OK"}, outcomes[:2]
        assert_exactly_these(messages, consumer.receive(len(messages)))


def test_java_signs_binary_headers_whose_fields_it_writes_twice(
    secured_target: Target, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETMQ_SERIALIZE_TYPE", "ROCKETMQ")
    messages = plans(topic, 20)
    with JavaClient(tmp_path) as java, java.consumer(secured_target.cluster, topic) as consumer:
        outcomes = java.produce(secured_target.cluster, topic, messages)
        assert {outcome["status"] for outcome in outcomes} == {"SEND_OK"}, outcomes[:2]
        assert_exactly_these(messages, consumer.receive(len(messages)))


@pytest.mark.parametrize(
    ("access_key", "secret_key"),
    [(ADMIN_KEY, "not-the-secret"), ("nobody", "not-the-secret"), (None, None)],
    ids=["wrong secret", "unknown access key", "no credentials"],
)
def test_java_is_told_no_permission(
    java_client: DriverProcess, secured_target: Target, topic: str, access_key: str | None, secret_key: str | None
) -> None:
    stranger = secured_target.cluster.with_credentials(access_key, secret_key)
    (outcome,) = java_client.produce(stranger, topic, plans("refused", 1, sizes=[10]), retries=0)
    assert outcome["status"] is None
    assert outcome["response_code"] == NO_PERMISSION, outcome


@pytest.mark.parametrize(
    ("access_key", "secret_key"),
    [(ADMIN_KEY, "not-the-secret"), (None, None)],
    ids=["wrong secret", "no credentials"],
)
def test_go_is_refused(
    go_client: DriverProcess, secured_target: Target, topic: str, access_key: str | None, secret_key: str | None
) -> None:
    stranger = secured_target.cluster.with_credentials(access_key, secret_key)
    (outcome,) = go_client.produce(stranger, topic, plans("refused", 1, sizes=[10]), retries=0)
    assert outcome["status"] is None


def test_a_consumer_without_the_key_receives_nothing(
    java_client: DriverProcess, secured_target: Target, topic: str
) -> None:
    messages = plans(topic, 4, sizes=[10])
    java_client.produce(secured_target.cluster, topic, messages)
    stranger = secured_target.cluster.with_credentials(ADMIN_KEY, "not-the-secret")
    with java_client.consumer(stranger, topic) as consumer:
        assert consumer.poll(1, 3_000) == []
