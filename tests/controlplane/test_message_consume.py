"""A member of a group handles one stored message on request: who may ask, what is answered, and what can go wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from controlplane.clusters.models import Cluster
from controlplane.clusters.remoting import remoting_errors
from controlplane.common.models import AuditEvent
from controlplane.consumers import direct
from controlplane.tenants.models import Membership, Role
from controlplane.topics import gateway
from controlplane.topics.models import Topic, TopicState
from highwater import (
    BrokerError,
    ConsumeMessageDirectlyResult,
    ConsumerOfflineError,
    ConsumerTooOldError,
    HighwaterError,
    MessageQueue,
    ProtocolError,
    ReceivedMessage,
    RequestTimeoutError,
)
from tests.controlplane.members_twin import CLIENT
from tests.controlplane.test_message_resend import stored
from tests.controlplane.world import Json, World


class RelayTwin:
    """A cluster that holds one message and has one member, who answers `result` unless `error` is set."""

    def __init__(self) -> None:
        self.result = ConsumeMessageDirectlyResult("CR_SUCCESS", None, order=False, auto_commit=True, spent_ms=12)
        self.error: HighwaterError | None = None
        self.masters: dict[int, str] = {0: "10.0.0.2:10911"}
        self.asked: list[tuple[str, str, str, str]] = []

    @contextmanager
    def cluster_admin(self, cluster: Cluster) -> Iterator[RelayTwin]:
        with remoting_errors():
            yield self

    def pull(self, queue: MessageQueue, offset: int, count: int) -> list[ReceivedMessage]:
        return [stored()]

    def group_list(self, *, cluster: str) -> tuple[str, ...]:
        return ("billing",)

    def cluster_info(self) -> Any:
        return SimpleNamespace(broker_addr_table={"broker-a": SimpleNamespace(broker_addrs=self.masters)})

    def consume_message_directly(
        self, group: str, client_id: str, message_id: str, *, topic: str, address: str
    ) -> ConsumeMessageDirectlyResult:
        self.asked.append((group, client_id, message_id, address))
        if self.error is not None:
            raise self.error
        return self.result


@pytest.fixture
def relay(world: World, monkeypatch: pytest.MonkeyPatch) -> RelayTwin:
    Topic.objects.create(cluster=world.cluster, name="payments", state=TopicState.ACTIVE)
    twin = RelayTwin()
    monkeypatch.setattr(gateway, "cluster_admin", twin.cluster_admin)
    monkeypatch.setattr(direct, "cluster_admin", twin.cluster_admin)
    return twin


def consume(world: World, group: str = "billing") -> Any:
    path = f"{world.cluster.path}topics/payments/messages/broker-a/1/7/consume/"
    return Json(world.bob).call("POST", path, {"group": group, "client_id": CLIENT})


def test_the_members_word_is_reported(world: World, relay: RelayTwin) -> None:
    relay.result = ConsumeMessageDirectlyResult(
        "CR_LATER", "ValueError: out of stock", order=True, auto_commit=True, spent_ms=7
    )
    answer = consume(world)
    assert answer.status_code == 200, answer.content
    assert answer.json() == {
        "result": "CR_LATER",
        "is_success": False,
        "remark": "ValueError: out of stock",
        "spent_ms": 7,
        "orderly": True,
    }


def test_the_present_master_is_asked_whoever_stored_the_message_first(world: World, relay: RelayTwin) -> None:
    consume(world)
    assert relay.asked == [("billing", CLIENT, "O1", "10.0.0.2:10911")]


def test_without_a_master_no_one_is_asked(world: World, relay: RelayTwin) -> None:
    relay.masters = {1: "10.0.0.3:10911"}
    answer = consume(world)
    assert (answer.status_code, answer.json()["code"]) == (409, "group_without_master")
    assert relay.asked == []


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ConsumerOfflineError(1, "The Consumer <billing> not online", "broker-a"), 404, "member_offline"),
        (RequestTimeoutError("no answer"), 503, "member_silent"),
        (BrokerError(207, "consumer <billing> Timeout", "broker-a"), 503, "member_silent"),
        (ConsumerTooOldError(1, "Version <60> too low to finish, please upgrade", "broker-a"), 409, "member_too_old"),
        (ProtocolError("no JSON"), 502, "member_unreadable"),
        (BrokerError(2, "it has yet to answer 8 requests", "broker-a"), 502, "broker_refused"),
    ],
)
def test_why_a_member_did_not_answer_is_reported(
    world: World, relay: RelayTwin, error: HighwaterError, status: int, code: str
) -> None:
    relay.error = error
    answer = consume(world)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_a_group_that_is_not_there_is_not_found(world: World, relay: RelayTwin) -> None:
    assert consume(world, "unknown").status_code == 404
    assert relay.asked == []


def test_what_a_member_says_has_its_bounds(world: World, relay: RelayTwin) -> None:
    relay.result = ConsumeMessageDirectlyResult("CR_LATER", "x" * 10**6, order=False, auto_commit=True, spent_ms=1)
    assert len(consume(world).json()["remark"]) == direct.REMARK_MAX_CHARACTERS


def test_the_audit_trail_says_who_had_which_member_handle_what(world: World, relay: RelayTwin) -> None:
    consume(world)
    event = AuditEvent.objects.get(action="message.consume")
    assert event.actor == "bob@example.com"
    assert event.details == {
        "topic": "payments",
        "offset_message_id": "O1",
        "client_id": CLIENT,
        "result": "CR_SUCCESS",
    }


@pytest.mark.parametrize("word", ["\x00", "\ud800", "CR_" * 1000, ""])
def test_a_word_that_is_no_result_is_reported_and_recorded_as_unknown(
    world: World, relay: RelayTwin, word: str
) -> None:
    relay.result = ConsumeMessageDirectlyResult(word, "at \ud800", order=False, auto_commit=True, spent_ms=1)
    answer = consume(world)
    assert (answer.status_code, answer.json()["result"], answer.json()["remark"]) == (200, "UNKNOWN", "at ?")
    assert AuditEvent.objects.get(action="message.consume").details["result"] == "UNKNOWN"


def test_a_member_that_may_have_handled_it_in_silence_is_in_the_audit_trail(world: World, relay: RelayTwin) -> None:
    relay.error = RequestTimeoutError("no answer")
    consume(world)
    assert AuditEvent.objects.get(action="message.consume").details["result"] == "member_silent"


def test_a_viewer_may_not_have_a_message_handled(world: World, relay: RelayTwin) -> None:
    Membership.objects.filter(user=world.bob).update(role=Role.VIEWER)
    assert consume(world).status_code == 403
    assert relay.asked == []
