"""A topic's schema by the API: given, read, taken away, on record; and what it changes where messages are shown."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from controlplane.common.models import AuditEvent
from controlplane.common.schema import EXAMPLES
from controlplane.topics.models import MaskingRule, Topic, TopicSchema, TopicState
from tests.controlplane.secret_twin import MESSAGE, SecretTwin, secret_messages
from tests.controlplane.world import Json, World

EXAMPLE = EXAMPLES["TopicSchemaSetRequest"]
ORDER = b"\x0a\x03o-1\x10\xe2\x09"
PATH = "/api/v1/tenants/acme/clusters/orders/topics/invoices/"


@pytest.fixture
def client(world: World, api: Callable[..., Json]) -> Json:
    """Bob, a developer, at a cluster with the topic `invoices`."""
    Topic.objects.create(cluster=world.cluster, name="invoices", state=TopicState.ACTIVE)
    return api(world.bob)


@pytest.fixture
def order() -> Iterator[None]:
    """Every message of the cluster is an order."""
    with secret_messages(), patch.object(SecretTwin, "message", replace(MESSAGE, body=ORDER)):
        yield


def give(client: Json, **changes: Any) -> Any:
    return client.call("PUT", f"{PATH}schema/", {**EXAMPLE, **changes})


def test_a_schema_is_given_read_replaced_and_taken_away(client: Json) -> None:
    assert client.call("GET", f"{PATH}schema/").status_code == 404
    for _ in range(2):
        assert give(client).status_code == 200
    found = client.call("GET", f"{PATH}schema/").json()
    size_bytes = len(base64.b64decode(EXAMPLE["descriptor_set"]))
    assert {name: found[name] for name in EXAMPLE} == EXAMPLE
    assert (found["size_bytes"], found["made_by"], len(found["sha256"])) == (size_bytes, "bob@example.com", 64)
    assert [client.call("DELETE", f"{PATH}schema/").status_code for _ in range(2)] == [204, 404]


def test_base64_in_lines_is_taken(client: Json) -> None:
    in_lines = base64.encodebytes(base64.b64decode(EXAMPLE["descriptor_set"])).decode()
    assert give(client, descriptor_set=in_lines).status_code == 200


def test_each_change_of_a_schema_is_on_record(client: Json) -> None:
    give(client)
    client.call("DELETE", f"{PATH}schema/")
    found = AuditEvent.objects.filter(action__startswith="topic_schema").order_by("sequence")
    assert [one.action for one in found] == ["topic_schema.set", "topic_schema.delete"]
    assert {one.details["message"] for one in found} == {"shop.Order"}


def test_what_a_schema_took_the_place_of_is_on_record(client: Json) -> None:
    first = give(client).json()
    files = FileDescriptorSet.FromString(base64.b64decode(EXAMPLE["descriptor_set"]))
    files.file[0].message_type.add(name="Refund")
    second = give(
        client, descriptor_set=base64.b64encode(files.SerializeToString()).decode(), message="shop.Refund"
    ).json()
    event = AuditEvent.objects.filter(action="topic_schema.set").latest("sequence")
    assert event.details["changes"] == {
        name: [first[name], second[name]] for name in ("message", "size_bytes", "sha256")
    }


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"descriptor_set": "?"}, "descriptor_set"),
        ({"descriptor_set": "aGVsbG8="}, "descriptor_set"),
        ({"descriptor_set": "A" * 349_528}, "descriptor_set"),
        ({"message": "shop.Refund"}, "message"),
        ({"message": "x" * 256}, "message"),
    ],
)
def test_what_is_wrong_is_said_beside_its_field_and_changes_nothing(
    client: Json, changes: dict[str, str], field: str
) -> None:
    answer = give(client, **changes)
    assert (answer.status_code, [one["field"] for one in answer.json()["errors"]]) == (400, [field])
    assert not TopicSchema.objects.exists()


def test_messages_are_shown_by_the_schema_once_there_is_one(client: Json, order: None) -> None:
    def encodings() -> set[str]:
        listed = client.call("GET", f"{PATH}messages/").json()["results"]
        found = client.call("GET", f"{PATH}messages/search/?key=o-1").json()["results"]
        single = client.call("GET", f"{PATH}messages/broker-a/0/0/").json()
        return {one["body"]["encoding"] for one in [*listed, *found, single]}

    assert encodings() == {"hex"}
    give(client)
    assert encodings() == {"protobuf"}
    body = client.call("GET", f"{PATH}messages/broker-a/0/0/?body_as=protobuf").json()["body"]
    assert body["text"] == '{\n  "id": "o-1",\n  "cents": "1250"\n}'


def test_a_list_of_messages_shows_bodies_as_asked_where_they_are_so(client: Json, order: None) -> None:
    def encoding(form: str) -> str:
        (one,) = client.call("GET", f"{PATH}messages/?body_as={form}").json()["results"]
        return str(one["body"]["encoding"])

    assert [encoding(form) for form in ("base64", "json", "protobuf")] == ["base64", "hex", "hex"]
    give(client)
    assert [encoding(form) for form in ("hex", "protobuf")] == ["hex", "protobuf"]


def test_protobuf_of_a_topic_without_a_schema_is_refused(client: Json, order: None) -> None:
    answer = client.call("GET", f"{PATH}messages/broker-a/0/0/?body_as=protobuf")
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "body_as")


def test_a_rule_that_hides_bodies_is_not_gone_round_by_a_schema(world: World, client: Json, order: None) -> None:
    give(client)
    MaskingRule.objects.create(
        tenant=world.acme, topic="*", part="body", pattern="$.cents", visible_from="admin", created_by="alice"
    )
    for form in ("auto", "protobuf"):
        body = client.call("GET", f"{PATH}messages/broker-a/0/0/?body_as={form}").json()["body"]
        assert (body["text"], body["masking"]) == ("", "withheld")


def test_a_file_of_messages_keeps_bodies_as_they_are(client: Json, order: None) -> None:
    give(client)
    path = "/api/v1/tenants/acme/clusters/orders/consumer-groups/billing/dead-letters/"
    assert client.call("GET", path).json()["results"][0]["body"]["encoding"] == "protobuf"
    answer = client.call("GET", f"{path}export/")
    assert b'"body_encoding": "hex"' in answer.content


def test_a_schema_goes_with_its_topic(client: Json) -> None:
    give(client)
    Topic.objects.all().delete()
    assert not TopicSchema.objects.exists()
