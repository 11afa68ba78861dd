"""A topic's protobuf schema in the console: every page with messages shows their bodies by it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

import pytest

from controlplane.console.templatetags.console import body_preview
from controlplane.topics.bodies import ShownBody
from controlplane.topics.tail_cursor import cursor_of
from tests.console.world import World, make_schema, make_topic
from tests.controlplane.secret_twin import CUT, MESSAGE, MESSAGE_ID, SecretTwin, secret_messages

ORDER = b"\x0a\x03o-1\x10\xe2\x09"
MESSAGE_PAGE = "topics/invoices/messages/broker-a/0/0/"
CUT_PAGE = f"diverged/broker-a/0/{CUT}/"


@pytest.fixture
def orders(world: World) -> Iterator[World]:
    """Every message of the cluster is an order, and the topic's schema says so."""
    make_schema(make_topic(world.cluster, "invoices"))
    with secret_messages(), patch.object(SecretTwin, "message", replace(MESSAGE, body=ORDER)):
        yield world


def text(world: World, rest: str) -> str:
    answer = world.client(world.bob).get(world.cluster_path(rest))
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.mark.parametrize(
    "rest",
    [
        "topics/invoices/",
        "topics/invoices/messages/",
        f"topics/invoices/messages/search/?key={MESSAGE_ID}",
        f"topics/invoices/messages/tail/?cursor={cursor_of({})}",
        MESSAGE_PAGE,
        "lag/billing/dead-letters/",
        CUT_PAGE,
    ],
)
def test_a_page_with_messages_shows_the_fields_of_their_bodies(orders: World, rest: str) -> None:
    assert "&quot;cents&quot;: &quot;1250&quot;" in text(orders, rest)


@pytest.mark.parametrize("rest", [MESSAGE_PAGE, CUT_PAGE])
def test_protobuf_is_offered_where_there_is_a_schema_alone(orders: World, rest: str) -> None:
    assert ">Protobuf</a>" in text(orders, rest)
    orders.cluster.topics.get(name="invoices").schema.delete()
    assert ">Protobuf</a>" not in text(orders, rest)


def test_in_a_list_indented_json_is_one_line_and_a_text_stays_as_it_is() -> None:
    body = ShownBody("protobuf", '{\n  "id": "a  b"\n}', 5, 5)
    assert body_preview(body) == '{ "id": "a  b" }'
    assert body_preview(replace(body, encoding="utf-8")) == body.text
