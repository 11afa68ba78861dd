"""What an operation doesn't know is refused and named: a misspelled `dry_run` or `tag` must not do something else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

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


def test_a_body_over_the_limit_is_answered_so(world: World, api: Callable[..., Json]) -> None:
    body = b'{"slug": "' + b"x" * 9 * 1024 * 1024 + b'"}'
    answer = api(world.alice).generic("POST", "/api/v1/tenants/acme/clusters/", body, content_type="application/json")
    assert (answer.status_code, answer["Content-Type"]) == (413, "application/problem+json")
    assert answer.json()["code"] == "body_too_large"


def test_an_operators_address_distinguishes_a_wrong_method_from_a_missing_page(
    world: World, api: Callable[..., Json]
) -> None:
    assert api(world.alice).call("PUT", "/api/v1/operator/plans/", {}).status_code == 405
    assert api(world.alice).call("GET", "/api/v1/operator/plans/").status_code == 404


def test_a_browser_finds_the_icon(client: Client) -> None:
    assert client.get("/favicon.ico")["Location"].endswith(".svg")
