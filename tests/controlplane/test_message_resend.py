"""A stored message is sent again as a new one: what the copy has, who may, and what is said the second time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from controlplane.common.models import AuditEvent
from controlplane.tenants.models import Membership, Role
from controlplane.topics import gateway, resends
from controlplane.topics.copies import RESEND_OF, Edit, edited_copy
from controlplane.topics.models import MessageResend, Topic, TopicState
from highwater import (
    BrokerError,
    ConnectError,
    HighwaterError,
    Message,
    MessageQueue,
    ReceivedMessage,
    RequestTimeoutError,
    SendResult,
    SendStatus,
)
from tests.controlplane.world import Json, World

BIG = b"\x00\xff" * 1024 * 1024


def stored(body: bytes = b"two apples", **properties: str) -> ReceivedMessage:
    return ReceivedMessage(
        topic="payments",
        body=body,
        tags="paid",
        keys=("o-1", "o-2"),
        properties={"colour": "red", **properties},
        message_id="U1",
        offset_message_id="O1",
        queue=MessageQueue("payments", "broker-a", 1),
        queue_offset=7,
        physical_offset=0,
        born_timestamp_ms=1,
        store_timestamp_ms=2,
        born_host=("10.0.0.1", 1),
        store_host=("10.0.0.1", 1),
        flag=3,
    )


class BrokersTwin:
    """A cluster that holds one message, and takes what is sent unless `error` is set."""

    def __init__(self) -> None:
        self.message = stored()
        self.sent: list[Message] = []
        self.error: Exception | None = None

    def pull(self, queue: MessageQueue, offset: int, count: int) -> list[ReceivedMessage]:
        return [self.message]

    def send(self, message: Message) -> SendResult:
        self.sent.append(message)
        if self.error is not None:
            raise self.error
        return SendResult(SendStatus.SEND_OK, "U2", "O2", MessageQueue(message.topic, "broker-a", 3), 14)


@pytest.fixture
def brokers(world: World, monkeypatch: pytest.MonkeyPatch) -> BrokersTwin:
    for name in ("payments", "refunds"):
        Topic.objects.create(cluster=world.cluster, name=name, state=TopicState.ACTIVE)
    twin = BrokersTwin()

    @contextmanager
    def stand_in(*_: object, **__: object) -> Iterator[BrokersTwin]:
        yield twin

    monkeypatch.setattr(gateway, "cluster_admin", stand_in)
    monkeypatch.setattr(resends, "cluster_producer", stand_in)
    return twin


def resend(world: World, body: dict[str, Any] | None = None, user: Any = None) -> Any:
    path = f"{world.cluster.path}topics/payments/messages/broker-a/1/7/resend/"
    return Json(user or world.bob).call("POST", path, body or {})


def test_a_message_is_sent_again_as_it_was_with_its_origin(world: World, brokers: BrokersTwin) -> None:
    answer = resend(world)
    assert answer.status_code == 201, answer.content
    assert (answer.json()["queue_id"], answer.json()["queue_offset"]) == (3, "14")
    (sent,) = brokers.sent
    assert (sent.topic, sent.body, sent.tags, sent.keys, sent.flag) == (
        "payments",
        b"two apples",
        "paid",
        ("o-1", "o-2"),
        3,
    )
    assert sent.properties == {"colour": "red", RESEND_OF: "O1"}


def test_what_is_changed_is_sent_as_changed(world: World, brokers: BrokersTwin) -> None:
    changed = {
        "topic": "refunds",
        "body": "three apples",
        "tags": "",
        "keys": ["o-3"],
        "properties": {"colour": "green"},
    }
    assert resend(world, changed).status_code == 201
    (sent,) = brokers.sent
    assert (sent.topic, sent.body, sent.tags, sent.keys) == ("refunds", b"three apples", None, ("o-3",))
    assert sent.properties == {"colour": "green", RESEND_OF: "O1"}


@pytest.mark.parametrize(
    "name", ["DELAY", "RETRY_TOPIC", "REAL_TOPIC", "TRAN_MSG", "RECONSUME_TIME", "TIMER_DELAY_MS", "UNIQ_KEY", "WAIT"]
)
def test_properties_of_delay_retry_and_transaction_are_not_sent_again(name: str) -> None:
    assert edited_copy(stored(b"x", **{name: "3"}), "payments", Edit()).properties == {"colour": "red", RESEND_OF: "O1"}


def test_the_copy_of_a_copy_names_the_message_that_it_was_made_from() -> None:
    assert edited_copy(stored(RESEND_OF="O0"), "payments", Edit()).properties[RESEND_OF] == "O1"


def test_a_big_binary_body_is_sent_again_byte_by_byte(world: World, brokers: BrokersTwin) -> None:
    brokers.message = stored(BIG)
    assert resend(world, {"tags": "again"}).status_code == 201
    assert brokers.sent[0].body == BIG


def test_a_binary_body_is_given_as_base64(world: World, brokers: BrokersTwin) -> None:
    assert resend(world, {"body_base64": "AP8="}).status_code == 201
    assert brokers.sent[0].body == b"\x00\xff"


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"topic": "unknown"}, "topic"),
        ({"topic": "RMQ_SYS_METERING"}, "topic"),
        ({"topic": "%RETRY%billing"}, "topic"),
        ({"properties": {"DELAY": "3"}}, "properties"),
        ({"properties": {"RESEND_OF": "O9"}}, "properties"),
        ({"keys": ["a b"]}, "keys"),
        ({"body_base64": "?"}, "body_base64"),
        ({"body": ""}, "body"),
        ({"tag": "x"}, "tag"),
    ],
)
def test_what_can_not_be_sent_is_refused_at_its_field(
    world: World, brokers: BrokersTwin, changed: dict[str, Any], field: str
) -> None:
    answer = resend(world, changed)
    assert answer.status_code == 400
    assert field in [error["field"].split(".")[0] for error in answer.json()["errors"]]
    assert brokers.sent == []


def test_the_second_time_it_is_said_and_has_to_be_confirmed(world: World, brokers: BrokersTwin) -> None:
    resend(world)
    answer = resend(world)
    assert (answer.status_code, answer.json()["code"]) == (409, "resent_before")
    assert "once" in answer.json()["detail"]
    assert len(brokers.sent) == 1
    assert resend(world, {"again": True}).status_code == 201
    assert len(brokers.sent) == 2


@pytest.mark.parametrize("error", [ConnectError("refused"), BrokerError(14, "no", "broker-a")])
def test_a_send_that_was_surely_not_stored_does_not_count(
    world: World, brokers: BrokersTwin, error: HighwaterError
) -> None:
    brokers.error = error
    with pytest.raises(type(error)):  # `cluster_producer`, which the twin stands in for, makes a problem of it
        resend(world)
    assert not MessageResend.objects.exists()


@pytest.mark.parametrize(
    "error",
    [
        RequestTimeoutError("no answer"),
        BrokerError(1, "it is appended, but no majority confirmed it in time", "broker-a"),
    ],
)
def test_a_send_that_may_be_stored_counts(world: World, brokers: BrokersTwin, error: HighwaterError) -> None:
    brokers.error = error
    answer = resend(world)
    assert (answer.status_code, answer.json()["code"]) == (503, "resend_unknown")
    brokers.error = None
    assert resend(world).json()["code"] == "resent_before"


def test_the_message_says_how_it_was_sent_again(world: World, brokers: BrokersTwin) -> None:
    resend(world, {"topic": "refunds"})
    path = f"{world.cluster.path}topics/payments/messages/broker-a/1/7/"
    (reported,) = Json(world.bob).get(path).json()["resends"]
    assert (reported["outcome"], reported["topic"], reported["queue_offset"]) == ("sent", "refunds", "14")
    assert reported["made_by"] == "bob@example.com"


def test_the_audit_trail_says_what_was_changed_and_not_the_body(world: World, brokers: BrokersTwin) -> None:
    resend(world, {"body": "secret", "topic": "refunds"})
    details = AuditEvent.objects.get(action="message.resend").details
    assert details == {
        "origin": "O1",
        "topic": "refunds",
        "message_id": "U2",
        "changed": ["body"],
        "body_size_bytes": 6,
    }


def test_a_viewer_may_not_send_again(world: World, brokers: BrokersTwin) -> None:
    Membership.objects.filter(user=world.bob).update(role=Role.VIEWER)
    assert resend(world).status_code == 403
    assert brokers.sent == []


def test_the_body_of_a_message_is_shown_as_asked(world: World, brokers: BrokersTwin) -> None:
    brokers.message = stored(b'{"amount":1.10}')
    path = f"{world.cluster.path}topics/payments/messages/broker-a/1/7/"
    shown = Json(world.bob).get(f"{path}?body_as=json").json()["body"]
    assert (shown["encoding"], shown["text"]) == ("json", '{\n  "amount": 1.10\n}')
    brokers.message = stored(b"hello")
    answer = Json(world.bob).get(f"{path}?body_as=json")
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "body_as")


def test_a_message_whose_topic_is_deleted_meanwhile_is_not_sent(
    world: World, brokers: BrokersTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull = brokers.pull

    def pull_and_be_overtaken(queue: MessageQueue, offset: int, count: int) -> list[ReceivedMessage]:
        Topic.objects.filter(name="payments").delete()
        return pull(queue, offset, count)

    monkeypatch.setattr(brokers, "pull", pull_and_be_overtaken)
    assert resend(world).status_code == 404
    assert brokers.sent == []
