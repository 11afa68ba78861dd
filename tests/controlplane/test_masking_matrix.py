"""Every route below a tenant, at a cluster whose every message holds secrets: a masked role gets none of them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import transaction

from controlplane.common.description import api_description
from controlplane.common.models import AuditEvent
from controlplane.tenants.models import Role
from controlplane.topics.masking import MASK
from controlplane.topics.models import MaskingRule
from controlplane.topics.tail_cursor import cursor_of
from highwater import ConsumerConnections, Message, QueryResult, SendResult
from tests.controlplane.secret_twin import MESSAGE_ID, SECRET, SecretTwin, hide_the_secrets, secret_messages
from tests.controlplane.test_api_access import CUT, GROUP, MESSAGE, ONE, TENANT, TOPIC, Row
from tests.controlplane.test_role_matrix import routes
from tests.controlplane.world import Json, World

# What a route needs to find the message.
QUERIES = {
    f"{TOPIC}messages/search/": f"?key={MESSAGE_ID}",
    f"{TOPIC}messages/tail/": f"?cursor={cursor_of({})}",
    f"{ONE}message-trace/": f"?q={MESSAGE_ID}",
    f"{GROUP}dead-letters/export/": "?kind=csv",
}
# The routes that give messages. One that is new, and gives bodies, fails here until it is added, and so is looked at.
GIVES = {
    f"{TOPIC}messages/",
    f"{TOPIC}messages/search/",
    f"{TOPIC}messages/tail/",
    MESSAGE,
    f"{ONE}message-trace/",
    f"{GROUP}dead-letters/",
    f"{GROUP}dead-letters/export/",
    f"{CUT}messages/",
    f"{CUT}export/",
}
# The modules of the control plane that handle stored messages, and how each keeps them from being shown unmasked.
HANDLE_MESSAGES = {
    "consumers/dead_letters.py",  # shows them by browsed_message
    "console/snippets/python/quickstart.py",  # runs at a tenant's
    "consumers/replay_plan.py",  # sends them
    "consumers/replays.py",  # sends them
    "failover/diverged/cuts.py",  # shows them by browsed_message
    "failover/diverged/resends.py",  # sends them
    "insight/whereabouts.py",  # shows them by browsed_message
    "topics/clocks.py",  # compares their two times, which are never masked
    "topics/copies.py",  # sends them
    "topics/gateway.py",  # browsed_message itself
    "topics/resends.py",  # sends them
    "topics/search.py",  # shows them by browsed_message
}


@pytest.fixture
def secrets(world: World) -> Iterator[World]:
    hide_the_secrets(world.acme)
    with secret_messages():
        yield world


def answers(client: Json, world: World) -> Iterator[tuple[Row, Any]]:
    for row, address in routes(world, TENANT):
        with transaction.atomic():
            answer = client.call(
                row.method, address + (QUERIES.get(row.pattern, "") if row.method == "GET" else ""), row.body
            )
            transaction.set_rollback(True)
        yield row, answer


@pytest.mark.parametrize("role", [Role.VIEWER, Role.BILLING, Role.OPERATOR])
def test_no_route_gives_a_masked_role_what_is_hidden(secrets: World, api: Callable[..., Json], role: Role) -> None:
    secrets.bob.memberships.update(role=role)
    leaks = [
        f"{row.method} {row.pattern}" for row, answer in answers(api(secrets.bob), secrets) if SECRET in _text(answer)
    ]
    assert not leaks


def test_a_developer_gets_the_mask_in_its_place_from_every_route_that_gives_messages(
    secrets: World, api: Callable[..., Json]
) -> None:
    given = [(row, _text(answer)) for row, answer in answers(api(secrets.bob), secrets)]
    assert not [f"{row.method} {row.pattern}" for row, text in given if SECRET in text]
    assert {row.pattern for row, text in given if MASK in text} == GIVES


def test_who_sees_what_is_hidden_gets_it_from_the_same_routes(secrets: World, api: Callable[..., Json]) -> None:
    found = {row.pattern for row, answer in answers(api(secrets.alice), secrets) if SECRET in _text(answer)}
    assert found == GIVES


@pytest.mark.parametrize(
    ("role", "sees"), [("developer", False), ("operator", False), ("admin", True), ("owner", True)]
)
def test_a_token_sees_what_its_role_sees(
    secrets: World, api: Callable[..., Json], token: Callable[..., str], role: str, sees: bool
) -> None:
    _topic(secrets)
    answer = api(token=token(role=role)).call("GET", f"{secrets.cluster.path}topics/invoices/messages/")
    assert answer.status_code == 200, answer.content
    assert (SECRET in _text(answer)) is sees


def test_every_answer_with_a_body_is_of_a_route_that_this_file_knows() -> None:
    schema = api_description()
    parts = schema["components"]["schemas"]

    def has_body(node: Any, seen: frozenset[str] = frozenset()) -> bool:
        if isinstance(node, dict):
            name = str(node.get("$ref", "")).removeprefix("#/components/schemas/")
            if name == "ShownBody":
                return True
            if name in parts and name not in seen:
                return has_body(parts[name], seen | {name})
            return any(has_body(part, seen) for part in node.values())
        return isinstance(node, list) and any(has_body(part, seen) for part in node)

    found = {
        path
        for path, operations in schema["paths"].items()
        for operation in operations.values()
        if isinstance(operation, dict) and has_body(operation.get("responses", {}))
    }
    exported = {pattern for pattern in GIVES if pattern.endswith("export/")}  # lines of a file have no shape
    assert found == {_described(pattern) for pattern in GIVES - exported}


def test_stored_messages_are_handled_where_this_file_says_only() -> None:
    root = Path(settings.ROOT_DIR) / "platform" / "controlplane"
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and any(one.name == "ReceivedMessage" for one in node.names)
    }
    assert found == HANDLE_MESSAGES


def test_a_body_is_shown_by_one_function_only() -> None:
    root = Path(settings.ROOT_DIR) / "platform" / "controlplane"
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Name | ast.alias)
        and (node.id if isinstance(node, ast.Name) else node.name) in ("body_shown", "body_withheld")
    }
    assert found == {"topics/bodies.py", "topics/gateway.py"}


def test_a_key_that_is_hidden_can_not_be_guessed(secrets: World, api: Callable[..., Json]) -> None:
    _topic(secrets)
    path = secrets.cluster.path
    for address in (f"{path}topics/invoices/messages/search/?key=k{SECRET}", f"{path}message-trace/?q=k{SECRET}"):
        answer = api(secrets.bob).call("GET", address)
        assert answer.status_code == 200
        assert MESSAGE_ID not in _text(answer)
        assert "masked for you" in _text(answer)
        assert MESSAGE_ID in _text(api(secrets.alice).call("GET", address))


@pytest.mark.parametrize("key", ["AB" * 16, "0A" * 28])
def test_a_hidden_key_that_looks_like_a_message_id_can_not_be_guessed(
    secrets: World, api: Callable[..., Json], monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    _topic(secrets)
    keyed = replace(SecretTwin.message, keys=(key,), properties={**SecretTwin.message.properties, "KEYS": key})
    monkeypatch.setattr(SecretTwin, "message", keyed)
    address = f"{secrets.cluster.path}message-trace/?q={key}"
    hidden = api(secrets.bob).get(address).json()
    assert (hidden["message"], hidden["matches"], hidden["groups"], hidden["replicas"]) == (None, [], [], [])
    assert "no_such_key" in [reason["cause"] for reason in hidden["reasons"]]
    assert api(secrets.alice).get(address).json()["message"]["message_id"] == MESSAGE_ID


@pytest.mark.parametrize("offset", [0, 1])
def test_where_a_message_stands_does_not_tell_its_tag(
    secrets: World, api: Callable[..., Json], monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    _topic(secrets)
    subscribed = ConsumerConnections("billing", subscriptions={"invoices": "other"})
    monkeypatch.setattr(SecretTwin, "topic_groups", lambda *_: ("billing",), raising=False)
    monkeypatch.setattr(SecretTwin, "consumer_connections", lambda *_: subscribed, raising=False)
    monkeypatch.setattr(SecretTwin, "consumer_offset", lambda *_: offset, raising=False)
    found_in = SecretTwin.query_messages

    def query_messages(twin: SecretTwin, topic: str, key: str, **options: object) -> QueryResult:
        return found_in(twin, topic, key, **options) if topic == "invoices" else QueryResult(())

    monkeypatch.setattr(SecretTwin, "query_messages", query_messages)
    address = f"{secrets.cluster.path}message-trace/?q={MESSAGE_ID}"
    (hidden,), (seen,) = (api(person).get(address).json()["groups"] for person in (secrets.bob, secrets.alice))
    assert "depends on its tag, which is masked for you" in hidden["sentence"]
    assert f"the tag is “t{SECRET}”" in seen["sentence"]
    assert hidden["standing"] == ("unknown" if offset else "waiting")


def test_a_copy_keeps_what_its_sender_only_saw_masked(
    secrets: World, api: Callable[..., Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    _topic(secrets)
    sent: list[Message] = []
    answer_of = SecretTwin.send

    def send(twin: SecretTwin, message: Message) -> SendResult:
        sent.append(message)
        return answer_of(twin, message)

    monkeypatch.setattr(SecretTwin, "send", send)
    answer = api(secrets.bob).call(
        "POST",
        f"{secrets.cluster.path}topics/invoices/messages/broker-a/0/0/resend/",
        {"properties": {"phone": MASK, "colour": "red"}, "keys": [MASK], "tags": MASK},
    )
    assert answer.status_code == 201, answer.content
    assert (sent[0].properties["phone"], sent[0].properties["colour"]) == (SECRET, "red")
    assert (sent[0].keys, sent[0].tags) == ((f"k{SECRET}", "o-1"), f"t{SECRET}")


def test_a_masked_message_goes_to_no_topic_where_it_would_be_shown(secrets: World, api: Callable[..., Json]) -> None:
    _topic(secrets)
    secrets.cluster.topics.create(name="open", state="active")
    MaskingRule.objects.filter(part="body").update(topic="invoices")
    path = f"{secrets.cluster.path}topics/invoices/messages/broker-a/0/0/resend/"
    answer = api(secrets.bob).call("POST", path, {"topic": "open"})
    assert (answer.status_code, answer.json()["code"]) == (403, "masked_elsewhere")
    assert api(secrets.alice).call("POST", path, {"topic": "open"}).status_code == 201


def test_a_rule_is_recorded_when_it_is_made_and_when_it_is_deleted(world: World, api: Callable[..., Json]) -> None:
    client, path = api(world.alice), "/api/v1/tenants/acme/masking-rules/"
    made = client.call("POST", path, {"pattern": "*.email", "topic": "orders-*"})
    assert made.status_code == 201, made.content
    assert client.call("DELETE", made.headers["Location"]).status_code == 204
    events = AuditEvent.objects.filter(action__startswith="masking_rule.").order_by("created_at")
    assert [event.action for event in events] == ["masking_rule.create", "masking_rule.delete"]
    assert events[0].details == {
        "topic": "orders-*",
        "part": "body",
        "pattern": "*.email",
        "visible_from": "admin",
        "withholds": True,
    }


def test_an_admin_does_not_delete_what_only_owners_see(world: World, api: Callable[..., Json]) -> None:
    world.bob.memberships.update(role=Role.ADMIN)
    hide_the_secrets(world.acme, visible_from="owner")
    rule = MaskingRule.objects.filter(tenant=world.acme).first()
    assert rule is not None
    assert api(world.bob).call("DELETE", rule.path).status_code == 403
    assert api(world.alice).call("DELETE", rule.path).status_code == 204


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"pattern": "card"}, "pattern"),
        ({"part": "property", "pattern": "a b"}, "pattern"),
        ({"pattern": "$.a", "topic": "a b"}, "topic"),
        ({"pattern": "$.a", "visible_from": "developer"}, "visible_from"),
    ],
)
def test_a_rule_that_hides_nothing_is_refused_at_its_field(
    world: World, api: Callable[..., Json], body: dict[str, str], field: str
) -> None:
    answer = api(world.alice).call("POST", "/api/v1/tenants/acme/masking-rules/", body)
    assert answer.status_code == 400
    assert [one["field"] for one in answer.json()["errors"]] == [field]


def test_the_same_rule_is_made_once(world: World, api: Callable[..., Json]) -> None:
    path = "/api/v1/tenants/acme/masking-rules/"
    assert api(world.alice).call("POST", path, {"pattern": "$.a"}).status_code == 201
    answer = api(world.alice).call("POST", path, {"pattern": "$.a"})
    assert (answer.status_code, answer.json()["code"]) == (409, "masking_rule_exists")


def _topic(world: World) -> None:
    world.cluster.topics.get_or_create(name="invoices", state="active")


def _text(answer: Any) -> str:
    return str(b"".join(answer) if answer.streaming else answer.content, "utf-8", "replace")


def _described(pattern: str) -> str:
    """A pattern's path as the API's description writes it."""
    names = {"<slug:tenant>": "{tenant}", "<slug:cluster>": "{cluster}", "<topic:topic>": "{topic}"}
    names |= {"<slug:broker>": "{broker}", "<int:queue_id>": "{queue_id}", "<int:queue_offset>": "{queue_offset}"}
    names |= {"<consumer_group:group>": "{group}", "<slug:group>": "{group}"}
    names |= {"<int:replica_id>": "{replica_id}", "<str:name>": "{name}"}
    for name, value in names.items():
        pattern = pattern.replace(name, value)
    return f"/api/v1/{pattern}"
