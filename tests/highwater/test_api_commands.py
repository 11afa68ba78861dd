"""The API's operations as commands: names, options, values, and the line that makes a request."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import pytest

from highwater.api_commands import Command, Field, command_line, command_words, commands_of, value_of
from highwater.errors import ConfigurationError
from highwater.printable import has_controls

DESCRIPTION: dict[str, Any] = {
    "components": {
        "schemas": {
            "Mode": {"type": "string", "enum": ["async", "sync"]},
            "ClusterCreate": {
                "type": "object",
                "required": ["slug"],
                "properties": {
                    "slug": {"type": "string", "description": "Its name in\naddresses."},
                    "id": {"type": "string", "readOnly": True},
                    "mode": {"allOf": [{"$ref": "#/components/schemas/Mode"}], "default": "async"},
                    "replicas": {"type": ["integer", "null"]},
                    "labels": {"type": "object"},
                    "zones": {"type": "array", "items": {"type": "integer"}},
                    "odd": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
                },
            },
        }
    },
    "paths": {
        "/api/v1/tenants/{tenant}/clusters/": {
            "parameters": [],
            "get": {
                "operationId": "cluster_list",
                "summary": "List the clusters",
                "parameters": [
                    {"in": "query", "name": "page_size", "schema": {"type": "integer"}},
                    {"in": "header", "name": "Accept-Language", "schema": {"type": "string"}},
                ],
            },
            "post": {
                "operationId": "cluster_create",
                "requestBody": {
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ClusterCreate"}}}
                },
            },
        },
        "/api/v1/tenants/{tenant}/clusters/{cluster}/topics/{topic}/": {"delete": {"operationId": "topic_delete"}},
    },
}
COMMANDS = {(each.noun, each.verb): each for each in commands_of(DESCRIPTION)}
CREATE = COMMANDS["cluster", "create"]
FIELDS = {field.name: field for field in CREATE.body}


@pytest.mark.parametrize(
    ("operation_id", "words"),
    [
        ("cluster_list", ("cluster", "list")),
        ("consumer_group_members", ("consumer-group", "members")),
        ("metrics", ("metrics", "get")),
    ],
)
def test_an_operations_last_word_is_the_verb(operation_id: str, words: tuple[str, str]) -> None:
    assert command_words(operation_id) == words


def test_places_of_a_path_are_arguments_but_the_tenant() -> None:
    command = COMMANDS["topic", "delete"]
    assert (command.places, command.of_tenant, command.has_body) == (("cluster", "topic"), True, False)


def test_query_parameters_are_options_and_headers_are_none() -> None:
    assert [(field.option, field.kind) for field in COMMANDS["cluster", "list"].query] == [("--page-size", "integer")]


def test_members_of_the_body_are_options_but_those_that_are_read_only() -> None:
    assert list(FIELDS) == ["slug", "mode", "replicas", "labels", "zones", "odd"]
    assert FIELDS["slug"] == Field("slug", required=True, help="Its name in addresses.")
    assert FIELDS["mode"].choices == ("async", "sync")
    assert (FIELDS["replicas"].kind, FIELDS["replicas"].nullable) == ("integer", True)
    assert (FIELDS["zones"].kind, FIELDS["zones"].items) == ("array", "integer")
    assert FIELDS["odd"].kind == "any"


@pytest.mark.parametrize(
    ("name", "texts", "value"),
    [
        ("slug", ["12"], "12"),
        ("slug", ["null"], "null"),
        ("replicas", ["3"], 3),
        ("replicas", ["null"], None),
        ("labels", ['{"a": "b"}'], {"a": "b"}),
        ("zones", ["1", "2"], [1, 2]),
        ("zones", ["[1, 2]"], [1, 2]),
        ("odd", ["x"], "x"),
        ("odd", ["7"], 7),
    ],
)
def test_a_text_is_read_as_its_field_says(name: str, texts: list[str], value: object) -> None:
    assert value_of(FIELDS[name], texts) == value


@pytest.mark.parametrize(
    ("name", "texts", "said"),
    [
        ("replicas", ["many"], "--replicas 'many' is no whole number"),
        ("replicas", ["1.5"], "--replicas '1.5' is no whole number"),
        ("replicas", ["true"], "--replicas 'true' is no whole number"),
        ("labels", ["[]"], "--labels '[]' is no JSON object"),
        ("slug", ["a", "b"], "--slug is given 2 times"),
    ],
)
def test_a_text_that_does_not_fit_is_refused_with_its_option(name: str, texts: list[str], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        value_of(FIELDS[name], texts)
    assert str(refused.value) == said


def words(command: Command, address: str, body: Mapping[str, Any] | None = None) -> list[str]:
    return shlex.split(command_line(command, address, body).replace("\\\n", " "))


def test_a_request_becomes_the_line_that_makes_it() -> None:
    body = {"slug": "it's", "replicas": 3, "zones": [1, 2], "labels": {"a": "b"}}
    assert words(CREATE, "/api/v1/tenants/acme/clusters/", body) == [
        *("highwater", "cluster", "create", "--tenant", "acme", "--slug", "it's", "--replicas", "3"),
        *("--zones", "1", "--zones", "2", "--labels", '{"a": "b"}'),
    ]


def test_a_query_becomes_options() -> None:
    assert words(COMMANDS["cluster", "list"], "/api/v1/tenants/acme/clusters/?page_size=5") == [
        *("highwater", "cluster", "list", "--tenant", "acme", "--page-size", "5")
    ]


def test_places_are_unquoted_and_one_that_looks_like_an_option_stands_last() -> None:
    assert words(COMMANDS["topic", "delete"], "/api/v1/tenants/acme/clusters/prod/topics/%25RETRY%25a/") == [
        *("highwater", "topic", "delete", "prod", "%RETRY%a", "--tenant", "acme")
    ]
    assert words(COMMANDS["topic", "delete"], "/api/v1/tenants/acme/clusters/prod/topics/-x/") == [
        *("highwater", "topic", "delete", "--tenant", "acme", "--", "prod", "-x")
    ]


@pytest.mark.parametrize("value", ["null", [True], ["[x"], [""]])
def test_what_no_option_gives_without_doubt_is_sent_as_json(value: object) -> None:
    sent = words(CREATE, "/api/v1/tenants/acme/clusters/", {"slug": value})
    assert sent[-2] == "--data"


def test_an_option_keeps_a_value_that_begins_with_a_dash() -> None:
    assert words(CREATE, "/api/v1/tenants/acme/clusters/", {"slug": "-x"})[-1] == "--slug=-x"


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_place_that_would_be_another_path_is_refused(name: str) -> None:
    """DELETE of topics/.. would be that of the cluster."""
    with pytest.raises(ConfigurationError, match="is no name"):
        COMMANDS["topic", "delete"].filled({"tenant": "acme", "cluster": "prod", "topic": name})


@pytest.mark.parametrize("text", ["a\x03\nid|sh #", "\x7f\x7f' ; id #", "\x9b2J", "back\\slash \x1b]52;c;x\x07"])
def test_the_shown_line_has_no_control_characters_and_gives_the_text(text: str) -> None:
    line = command_line(
        COMMANDS["topic", "delete"], f"/api/v1/tenants/acme/clusters/c/topics/{quote(text, safe='')}/", None
    )
    assert not has_controls(line.replace("\\\n", ""))
    program = line.replace("highwater topic delete", "printf '%s\\0'")
    done = subprocess.run(["sh", "-c", program], capture_output=True, check=True)
    assert done.stdout.split(b"\0")[:2] == [b"c", text.encode()]


def test_a_body_with_control_characters_is_sent_as_json_without_them() -> None:
    (line,) = command_line(CREATE, "/api/v1/tenants/acme/clusters/", {"slug": "a\x7fb"}).splitlines()[-1:]
    assert line == """  --data '{"slug": "a\\u007fb"}'"""
