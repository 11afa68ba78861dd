"""What an operation doesn't know is refused and named: a misspelled `dry_run` or `tag` must not do something else."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pytest
from django.test import Client
from pytest_django.fixtures import Settings
from rest_framework.exceptions import ParseError

from controlplane.common.parsers import JsonParser
from tests.controlplane.world import Json, World

ORDERS = "/api/v1/tenants/acme/clusters/orders/"

UNKNOWN_MEMBERS = [
    ("POST", f"{ORDERS}topics/", {"name": "x", "queue_count": 4}, "queue_count"),
    ("POST", f"{ORDERS}mode/", {"mode": "async", "dryrun": True}, "dryrun"),
    ("PATCH", ORDERS, {"nmae": "Orders"}, "nmae"),
    ("POST", f"{ORDERS}resume/", {"reason": "Monday"}, "reason"),
    ("POST", "/api/v1/tenants/acme/tokens/", {"name": "x", "role": "viewer", "expire": None}, "expire"),
]
UNKNOWN_PARAMETERS = [
    ("GET", f"{ORDERS}topics/?page=2", "page"),
    ("GET", f"{ORDERS}?limit=5", "limit"),
    ("DELETE", f"{ORDERS}?dry_run=true", "dry_run"),
    ("GET", "/api/v1/tenants/acme/usage/?mnth=2026-11", "mnth"),
]


@pytest.mark.parametrize(("method", "path", "body", "member"), UNKNOWN_MEMBERS)
def test_an_unknown_member_is_refused_by_its_name(
    world: World, api: Callable[..., Json], method: str, path: str, body: object, member: str
) -> None:
    answer = api(world.alice).call(method, path, body)
    assert answer.status_code == 400, answer.content
    errors = {error["field"]: error["code"] for error in answer.json()["errors"]}
    assert errors.get(member) == "unknown_member", errors


@pytest.mark.parametrize(("method", "path", "parameter"), UNKNOWN_PARAMETERS)
def test_an_unknown_query_parameter_is_refused_by_its_name(
    world: World, api: Callable[..., Json], method: str, path: str, parameter: str
) -> None:
    answer = api(world.alice).call(method, path)
    assert answer.status_code == 400, answer.content
    assert [error["field"] for error in answer.json()["errors"]] == [parameter]


def test_a_member_that_is_nearly_right_is_suggested(world: World, api: Callable[..., Json]) -> None:
    answer = api(world.alice).call("POST", f"{ORDERS}mode/", {"mode": "async", "replica": 2})
    assert "Did you mean replicas?" in answer.json()["detail"]


@pytest.mark.parametrize(("live", "status"), [("false", 200), ("0", 200), ("flase", 400), ("", 400)])
def test_a_flag_that_is_neither_true_nor_false_is_refused(
    world: World, api: Callable[..., Json], live: str, status: int
) -> None:
    """Misspelled it would have every broker asked, or none."""
    answer = api(world.alice).call("GET", f"/api/v1/tenants/acme/clusters/orders/topics/?live={live}")
    assert answer.status_code == status
    assert [error["field"] for error in answer.json().get("errors", ())] == ([] if status == 200 else ["live"])


def test_a_body_over_the_limit_is_answered_so(world: World, api: Callable[..., Json]) -> None:
    body = b'{"slug": "' + b"x" * 9 * 1024 * 1024 + b'"}'
    answer = api(world.alice).generic("POST", "/api/v1/tenants/acme/clusters/", body, content_type="application/json")
    assert (answer.status_code, answer["Content-Type"]) == (413, "application/problem+json")
    assert answer.json()["code"] == "body_too_large"


@pytest.mark.parametrize(
    "body",
    [
        b'{"name": [' + b"1," * 10_000 + b"1]}",
        b'{"name": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b"{" + b",".join(b'"x%d": 1' % number for number in range(10_001)) + b"}",
    ],
)
def test_a_body_of_very_many_values_is_refused_before_they_are_made(
    world: World, api: Callable[..., Json], body: bytes
) -> None:
    answer = api(world.alice).generic("PATCH", ORDERS, body, content_type="application/json")
    assert (answer.status_code, answer.json()["detail"]) == (400, "The body has more than 10000 values.")


def test_a_body_is_counted_and_read_as_the_same_text_whatever_it_is_called(
    world: World, api: Callable[..., Json]
) -> None:
    body = ('{"name": [' + "[]," * 10_001 + "1]}").encode("cp037")
    answer = api(world.alice).generic("PATCH", ORDERS, body, content_type="application/json; charset=cp037")
    assert (answer.status_code, "JSON parse error" in answer.json()["detail"]) == (400, True)


def test_commas_and_brackets_of_a_text_are_no_values() -> None:
    text = '[{",' * 10_000 + '\\"'
    assert JsonParser().parse(io.BytesIO(json.dumps({"body": text}).encode())) == {"body": text}


@pytest.mark.parametrize("end", [b"", b"\\"])
def test_a_text_that_does_not_end_is_looked_through_once(end: bytes) -> None:
    """Looked for again from each of its quotes, this one would take more than ten minutes."""
    body = b'{"a": "' + b'\\"' * 300_000 + end
    with pytest.raises(ParseError):
        JsonParser().parse(io.BytesIO(body))


def test_a_strangers_file_is_refused_by_its_forms_size_before_it_is_kept(client: Client, settings: Settings) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    taken, refused = (client.post("/login/", {"file": io.BytesIO(b"x" * size)}).status_code for size in (100, 1000))
    assert (taken, refused) == (200, 400)


def test_an_operators_address_distinguishes_a_wrong_method_from_a_missing_page(
    world: World, api: Callable[..., Json]
) -> None:
    assert api(world.alice).call("PUT", "/api/v1/operator/plans/", {}).status_code == 405
    assert api(world.alice).call("GET", "/api/v1/operator/plans/").status_code == 404


def test_a_browser_finds_the_icon(client: Client) -> None:
    assert client.get("/favicon.ico")["Location"].endswith(".svg")
