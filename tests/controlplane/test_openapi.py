"""The OpenAPI description, and requests made up from it: whatever comes in, nothing of ours breaks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema_rs
import pytest
import schemathesis
from django.core.management import call_command
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from drf_spectacular.renderers import OpenApiJsonRenderer
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from controlplane.accounts import authentication
from controlplane.accounts.operators import OPERATE_SCOPE
from controlplane.alerts.outgoing import url_problem
from controlplane.clusters.models import Operation, OperationState, OperationType
from controlplane.common.description import api_description
from controlplane.common.schema import EXAMPLES
from controlplane.tenants.token_services import ALL_SCOPES, api_token_issue
from controlplane.topics.models import Topic, TopicState
from controlplane.wsgi import application
from tests.controlplane.billing_world import make_plan
from tests.controlplane.world import SYSTEM, World

# Beside those at the bounds of each field, which are always tried; HIGHWATER_API_CASES=100 for a long search.
CASES_PER_OPERATION = int(os.environ.get("HIGHWATER_API_CASES", "2"))
KNOWN = {
    "tenant": "acme",
    "cluster": "orders",
    "topic": "invoices",
    "access_key": "HWFUZZ",
    "group": "broker-a",
    "plan": "standard",
    "operation_id": "6f0a2a53-6d0c-4a5c-9f3f-0b1f3f0a4c11",
}


@pytest.fixture(autouse=True)
def _one_connection() -> Iterator[None]:
    """As Django's own test client does: requests end inside the test's transaction, which must stay open."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def bearer(world: World, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The header of a token that may do everything in acme and operate, where there is one of everything under the known names."""
    # Dozens of requests for each operation: half of their time went into looking up this token anew.
    monkeypatch.setattr(authentication, "token_authenticate", cache(authentication.token_authenticate))
    Topic.objects.create(cluster=world.cluster, name=KNOWN["topic"], state=TopicState.ACTIVE)
    world.cluster.credentials.filter(is_control=False).update(access_key=KNOWN["access_key"])
    Operation.objects.create(
        pk=KNOWN["operation_id"],
        tenant=world.acme,
        cluster=world.cluster,
        type=OperationType.CLUSTER_CREATE,
        state=OperationState.COMPLETED,
        resource=world.cluster.path,
        requested_by="alice@example.com",
    )
    make_plan(KNOWN["plan"])
    world.alice.is_staff = True
    world.alice.save()
    scopes = (*ALL_SCOPES, OPERATE_SCOPE)
    text = api_token_issue(actor=SYSTEM, tenant=world.acme, name="fuzz", user=world.alice, scopes=scopes).text
    return {"Authorization": f"Bearer {text}"}


schema = schemathesis.openapi.from_wsgi("/api/v1/schema/?format=json", application)


@schema.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Lead to something that exists, mostly."""
    return path_parameters and {name: KNOWN.get(name, value) for name, value in path_parameters.items()}


@schema.parametrize()
@settings(
    max_examples=CASES_PER_OPERATION,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_made_up_requests_break_nothing(case: Any, bearer: dict[str, str]) -> None:
    from django.core.cache import cache as counters

    counters.clear()  # the rate limit is another test's business
    case.call_and_validate(
        headers=bearer,
        checks=[
            _no_error_of_ours,
            content_type_conformance,
            response_headers_conformance,
            response_schema_conformance,
            status_code_conformance,
        ],
    )


def _no_error_of_ours(context: Any, response: Any, case: Any) -> bool | None:
    """503 is the cluster that does not answer: nothing listens on this one's ports."""
    return True if response.status_code == 503 else not_a_server_error(context, response, case)


def test_the_description_is_valid_and_without_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("spectacular", "--validate", "--fail-on-warn", "--format", "openapi-json")
    document = json.loads(capsys.readouterr().out)
    assert document["openapi"].startswith("3.1")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The description as it is answered in JSON."""
    found: dict[str, Any] = json.loads(OpenApiJsonRenderer().render(api_description()))
    return found


def test_the_description_forbids_members_that_a_request_does_not_have(document: dict[str, Any]) -> None:
    shape = document["components"]["schemas"]["TenantCreateRequest"]
    assert jsonschema_rs.is_valid(shape, {"slug": "acme", "name": "Acme"})
    assert not jsonschema_rs.is_valid(shape, {"slug": "acme", "name": "Acme", "nmae": "Acme"})


# How long a body may be, the size of its request and the broker say; how many brokers, the cluster's mode; a rule's threshold, its
# kind; and of a decimal number its digits.
_BOUND_ELSEWHERE = {
    *(f"{shape}.{member}" for shape in ("ResendRequest", "TestMessageRequest") for member in ("body", "body_base64")),
    *("ClusterCreateRequest.groups", "ClusterCreateRequest.replicas", "PatchedRuleSetRequest.threshold"),
    "ThresholdsRequest.growth_per_second",
}


def test_every_member_of_a_request_has_its_bounds(document: dict[str, Any]) -> None:
    shapes: dict[str, Any] = document["components"]["schemas"]
    seen: set[str] = set()
    unbounded: set[str] = set()

    def look(shape: dict[str, Any], where: str) -> None:
        name = shape.get("$ref", "").rpartition("/")[2]
        if name and name not in seen:
            seen.add(name)
            look(shapes[name], name)
        for kind in ("allOf", "oneOf", "anyOf"):
            for one in shape.get(kind, ()):
                look(one, where)
        types = {shape["type"]} if isinstance(shape.get("type"), str) else set(shape.get("type", ()))
        is_listed = "enum" in shape or "const" in shape
        is_form = "pattern" in shape or shape.get("format") in ("date-time", "date", "uuid")
        if (
            ("string" in types and not (is_listed or is_form or "maxLength" in shape))
            or (types & {"integer", "number"} and not (is_listed or {"minimum", "maximum"} <= shape.keys()))
            or ("array" in types and "maxItems" not in shape)
        ):
            unbounded.add(where)
        for member, one in shape.get("properties", {}).items():
            look(one, f"{where}.{member}")
        for part, end in (("items", "[]"), ("additionalProperties", ".*")):
            if isinstance(shape.get(part), dict):
                look(shape[part], where + end)

    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for content in operation.get("requestBody", {}).get("content", {}).values():
                look(content["schema"], f"{method} {path}")
    assert len(seen) > 60
    assert unbounded == _BOUND_ELSEWHERE


def test_the_description_forbids_a_change_of_nothing(document: dict[str, Any]) -> None:
    for name in ("PatchedTenantUpdateRequest", "PatchedClusterUpdateRequest", "PatchedRuleSetRequest"):
        assert document["components"]["schemas"][name]["minProperties"] == 1


@pytest.mark.parametrize(
    ("amount", "is_number"), [("250.00", True), (".5", True), ("7", True), ("", False), ("-", False)]
)
def test_the_description_says_what_a_number_is(document: dict[str, Any], amount: str, is_number: bool) -> None:
    member = document["components"]["schemas"]["BudgetSetRequest"]["properties"]["amount"]
    assert jsonschema_rs.is_valid(member, amount) is is_number


@pytest.mark.parametrize(
    ("wanted", "is_whole"),
    [
        ({"target": "latest"}, True),
        ({"target": "time"}, False),
        ({"target": "time", "at": None}, False),
        ({"target": "time", "at": "2026-12-01T00:00:00Z"}, True),
        ({"target": "shift", "shift": 0}, False),
        ({"target": "shift", "shift": -1}, True),
        ({"target": "group", "source_group": ""}, False),
        ({"target": "group", "source_group": "billing"}, True),
    ],
)
def test_the_description_says_what_each_reset_needs(
    document: dict[str, Any], wanted: dict[str, Any], is_whole: bool
) -> None:
    schema = {**document, "$ref": "#/components/schemas/OffsetResetCreateRequest"}
    assert jsonschema_rs.is_valid(schema, {"topic": "payments", **wanted}) is is_whole


@pytest.mark.parametrize(
    ("address", "is_address"),
    [
        ("https://alerts.example.com/highwater?team=a@b", True),
        ("https://[2606:4700::1111]:8443", True),
        ("http://alerts.example.com/", False),
        ("https://alice:secret@alerts.example.com/", False),
        ("https://alerts.example.com/a b", False),
        ("https://", False),
    ],
)
def test_the_description_says_what_a_channels_address_is(
    document: dict[str, Any], address: str, is_address: bool
) -> None:
    member = document["components"]["schemas"]["ChannelCreateRequest"]["properties"]["address"]
    assert jsonschema_rs.is_valid(member, address) is is_address
    assert (url_problem(address) == "") is is_address


def test_the_description_says_that_a_slug_is_typed_to_purge(document: dict[str, Any]) -> None:
    member = document["components"]["schemas"]["ClusterPurgeRequest"]["properties"]["confirm"]
    assert [jsonschema_rs.is_valid(member, text) for text in ("orders", "", "Orders!")] == [True, False, False]


def test_the_description_bounds_the_length_of_a_page(document: dict[str, Any]) -> None:
    parameters = document["paths"]["/api/v1/tenants/"]["get"]["parameters"]
    limit = next(one["schema"] for one in parameters if one["name"] == "limit")
    assert (limit["minimum"], limit["maximum"]) == (1, 200)


def test_every_operation_lists_its_problems_and_answers_nothing_else(document: dict[str, Any]) -> None:
    components = document["components"]["responses"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            statuses = set(operation["responses"])
            assert "default" not in statuses, f"{method} {path}: any answer would be one that is described"
            assert {"400", "401", "429", "500"} <= statuses, f"{method} {path}"
            assert ("{" in path) <= ("404" in statuses), f"{method} {path}"
            assert (method != "get") <= ("403" in statuses), f"{method} {path}"
            assert ("requestBody" in operation) <= ({"413", "415"} <= statuses), f"{method} {path}"
            for status in statuses:
                if status >= "400":
                    answer = components[operation["responses"][status]["$ref"].rpartition("/")[2]]
                    assert list(answer["content"]) == ["application/problem+json"]
                    assert "Retry-After" in answer["headers"] or status != "429"


def test_an_idempotency_key_is_described_where_it_is_kept(document: dict[str, Any]) -> None:
    paths = document["paths"]
    names = [
        {one["name"] for one in paths[f"/api/v1/{path}"]["post"].get("parameters", [])}
        for path in ("tenants/", "invitations/accept/")
    ]
    assert ["Idempotency-Key" in each for each in names] == [True, False]


def test_every_operation_has_a_summary_of_one_line(document: dict[str, Any]) -> None:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            summary = operation.get("summary", "")
            assert 8 <= len(summary) <= 110, f"{method} {path}: {summary!r}"
            assert "\n" not in summary
            assert summary.count("`") % 2 == 0, f"{method} {path} ends within a name: {summary!r}"


def test_every_example_is_valid_by_its_own_schema(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert set(EXAMPLES) <= set(schemas)
    for name in EXAMPLES:
        schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        for example in schemas[name]["examples"]:
            assert set(example) <= set(schemas[name]["properties"]), name
            jsonschema_rs.validator_for(schema).validate(example)


def test_every_body_of_a_request_has_an_example(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for kind in ("paths", "webhooks"):
        for path, operations in document[kind].items():
            for method, operation in operations.items():
                for content in operation.get("requestBody", {}).get("content", {}).values():
                    name = content["schema"]["$ref"].rpartition("/")[2]
                    assert schemas[name].get("examples"), f"{method} {path}: {name}"


def test_a_test_message_has_one_body_of_two(document: dict[str, Any]) -> None:
    components = document["components"]
    schema = {"$ref": "#/components/schemas/TestMessageRequest", "components": components}
    validator = jsonschema_rs.validator_for(schema)
    assert [validator.is_valid(body) for body in ({"body": "a"}, {"body_base64": "YQ=="})] == [True, True]
    assert [validator.is_valid(body) for body in ({}, {"body": "a", "body_base64": "YQ=="})] == [False, False]


def test_every_link_leads_to_an_operation_and_fills_its_address(document: dict[str, Any]) -> None:
    paths = document["paths"]
    needs = {
        operation["operationId"]: {one["name"] for one in operation.get("parameters", []) if one["in"] == "path"}
        for operations in paths.values()
        for operation in operations.values()
    }
    links = [
        (operation["operationId"], link)
        for operations in paths.values()
        for operation in operations.values()
        for response in operation["responses"].values()
        for link in response.get("links", {}).values()
    ]
    assert {"cluster_create", "topic_create", "group_promote"} <= {before for before, _ in links}
    for before, link in links:
        assert set(link["parameters"]) == needs[link["operationId"]], f"{before} -> {link['operationId']}"


def test_offsets_are_strings(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for name, field in (("QueueOffsets", "max_offset"), ("Message", "queue_offset"), ("SentMessage", "queue_offset")):
        assert schemas[name]["properties"][field]["type"] == "string"
