"""The page that sends a stored message again: what is left as it is shown stays exactly as it was."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime
from typing import Any

import pytest
from django.http import HttpResponse
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.common.errors import Conflict, InvalidInput
from controlplane.console.views import message_resend as resend_view
from controlplane.console.views import messages as messages_view
from controlplane.topics.bodies import BodyForm, body_shown
from controlplane.topics.copies import Edit
from controlplane.topics.gateway import BrowsedMessage, SentMessage
from controlplane.topics.models import MessageResend, Topic
from tests.console.browser import LogIn, look_at
from tests.console.world import World, make_topic

MESSAGE = "topics/payments/messages/broker-a/1/7/"


def browsed(body: bytes = b'{"order": 17}\r\n{"order": 18}', **properties: str) -> BrowsedMessage:
    now = datetime.now(UTC)
    return BrowsedMessage(
        message_id="7F0000010000000100000000000000FF",
        offset_message_id="7F00000100002A9F0000000000001000",
        broker_name="broker-a",
        queue_id=1,
        queue_offset=7,
        born_at=now,
        stored_at=now,
        born_host="10.0.0.7",
        tags="paid",
        keys=("o-1", "o-2"),
        properties={"KEYS": "o-1 o-2", "TAGS": "paid", "DELAY": "3", "colour": " red", **properties},
        reconsume_times=0,
        body=body_shown(body, 64 * 1024),
    )


class Gateway:
    """Shows one message, and keeps what was to be sent. `error` is raised instead."""

    def __init__(self) -> None:
        self.message = browsed()
        self.edits: list[Edit] = []
        self.again: list[bool] = []
        self.error: Conflict | None = None
        self.not_json = True

    def get(self, *, body_as: BodyForm = BodyForm.AUTO, **_: object) -> BrowsedMessage:
        if body_as is BodyForm.JSON and self.not_json:
            raise InvalidInput.for_field("body_as", "This body is not JSON.")
        return self.message

    def resend(self, *, edit: Edit, again: bool, **_: object) -> SentMessage:
        self.edits.append(edit)
        self.again.append(again)
        if self.error is not None:
            raise self.error
        return SentMessage("SEND_OK", "U", "O", "broker-a", 3, 14)


@pytest.fixture
def topic(world: World) -> Topic:
    make_topic(world.cluster, "refunds")
    return make_topic(world.cluster, "payments")


@pytest.fixture
def gateway(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> Gateway:
    twin = Gateway()
    monkeypatch.setattr(resend_view, "message_get", twin.get)
    monkeypatch.setattr(resend_view, "message_resend", twin.resend)
    monkeypatch.setattr(messages_view, "message_get", twin.get)
    return twin


def send(world: World, *, wants: str = "", **typed: Any) -> HttpResponse:
    shown = {
        "topic": "payments",
        "body_as": "text",
        "body": '{"order": 17}\r\n{"order": 18}',
        "tags": "paid",
        "keys": "o-1 o-2",
        "properties": "colour= red",
    }
    headers = {"X-Wants": wants} if wants else {}
    answer: HttpResponse = world.client(world.bob).post(  # type: ignore[assignment]  # Django's own answer, with more on it
        world.cluster_path(f"{MESSAGE}resend/"), {**shown, **typed}, headers=headers
    )
    return answer


def test_what_is_left_as_shown_is_not_sent_from_the_form(world: World, gateway: Gateway) -> None:
    answer = send(world)
    assert (answer.status_code, answer.headers["Location"]) == (302, world.cluster_path(MESSAGE))
    assert gateway.edits == [Edit()]


def test_only_what_was_changed_is_an_edit(world: World, gateway: Gateway) -> None:
    send(world, topic="refunds", body="a\r\nb", tags="", keys="o-3", properties="colour=green\r\nsize=2")
    assert gateway.edits == [
        Edit("refunds", b"a\nb", tags="", keys=("o-3",), properties={"colour": "green", "size": "2"})
    ]


def test_delay_properties_are_not_in_the_form(world: World, gateway: Gateway) -> None:
    page = world.client(world.bob).get(world.cluster_path(f"{MESSAGE}resend/")).content.decode()
    assert "colour= red" in page
    assert "DELAY" not in page


def test_a_binary_body_stays_unless_bytes_are_given(world: World, gateway: Gateway) -> None:
    gateway.message = browsed(b"\x00\xff")
    send(world, body_as="keep", body="")
    send(world, body_as="base64", body="AP\r\n8=")
    assert [edit.body for edit in gateway.edits] == [None, b"\x00\xff"]


def test_what_is_no_base64_is_said_at_the_body(world: World, gateway: Gateway) -> None:
    answer = send(world, body_as="base64", body="?")
    assert answer.status_code == 422
    assert "This is not base64." in answer.content.decode()
    assert gateway.edits == []


def test_the_curl_line_has_only_what_was_changed(world: World, gateway: Gateway) -> None:
    words = shlex.split(json.loads(send(world, wants="curl", tags="due").content)["curl"].replace("\\\n", " "))
    assert json.loads(words[words.index("-d") + 1]) == {"tags": "due"}
    assert gateway.edits == []


def resent(topic: Topic, **changes: Any) -> MessageResend:
    values: dict[str, Any] = {
        "broker_name": "broker-a",
        "queue_id": 1,
        "queue_offset": 7,
        "target_topic": "payments",
        "outcome": "sent",
        "status": "SEND_OK",
        "new_broker_name": "broker-a",
        "new_queue_id": 3,
        "new_queue_offset": 14,
        "made_by": "alice@example.com",
    }
    return MessageResend.objects.create(topic=topic, **{**values, **changes})


def test_a_message_that_was_sent_again_says_so_and_asks_for_a_confirmation(
    world: World, gateway: Gateway, topic: Topic
) -> None:
    resent(topic)
    message = world.client(world.bob).get(world.cluster_path(MESSAGE)).content.decode()
    assert world.cluster_path("topics/payments/messages/broker-a/3/14/") in message
    gateway.error = Conflict("This message was sent again before: once.", code="resent_before")
    answer = send(world)
    assert answer.status_code == 422
    page = answer.content.decode()
    assert "This message was sent again before." in page
    gateway.error = None
    assert send(world, again="on").status_code == 302
    assert gateway.again == [False, True]


def test_a_resend_without_an_answer_is_said_to_be_unknown(world: World, gateway: Gateway, topic: Topic) -> None:
    resent(topic, outcome="sending", new_broker_name="", new_queue_id=None, new_queue_offset=None)
    page = world.client(world.bob).get(world.cluster_path(MESSAGE)).content.decode()
    assert "it may be stored or not" in page


def test_the_page_is_chinese_for_who_chose_it(world: World, gateway: Gateway) -> None:
    client = world.client(world.bob)
    client.post("/language/", {"language": "zh-hans", "next": "/"})
    page = client.get(world.cluster_path(f"{MESSAGE}resend/")).content.decode()
    assert "重新发送消息" in page
    assert "每行一个" in page


def test_a_body_that_is_not_what_was_asked_for_is_shown_as_it_comes(world: World, gateway: Gateway) -> None:
    page = world.client(world.bob).get(world.cluster_path(f"{MESSAGE}?as=json")).content.decode()
    assert "This body is not JSON." in page
    assert "{&quot;order&quot;: 17}" in page
    gateway.not_json = False
    page = world.client(world.bob).get(world.cluster_path(f"{MESSAGE}?as=json")).content.decode()
    assert "This body is not JSON." not in page
    assert "body_as=json" in page


@pytest.mark.django_db(transaction=True)
def test_sending_a_message_again_looks_right(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn, gateway: Gateway, topic: Topic
) -> None:
    resent(topic)
    resent(topic, outcome="unknown", new_broker_name="", new_queue_id=None, new_queue_offset=None)
    log_in(world.bob)
    page.goto(live_server.url + world.cluster_path(MESSAGE))
    look_at(page, "message")
    page.get_by_role("link", name="Edit and send again").click()
    look_at(page, "message resend")
    page.get_by_label("New body").fill('{"order": 19}')
    page.get_by_label("Send it once more").check()
    page.get_by_role("button", name="Send as a new message").click()
    expect(page.get_by_text("in queue 3 at offset 14")).to_be_visible()
    assert gateway.edits == [Edit(body=b'{"order": 19}')]
