"""What the description says of webhooks is what a channel sends."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import jsonschema_rs
import pytest

from controlplane.alerts.messages import budget_payload, payload_of, request_of, trial_payload
from controlplane.alerts.models import AlertState, ChannelKind
from controlplane.common.description import api_description
from tests.controlplane.world import World, alert_of

NOW = datetime(2026, 12, 5, 2, 0, 20, tzinfo=UTC)
BASE = "https://queues.example.com"
DELIVERY = "0d9f8d0e-8b41-4b3e-9d53-0e2f6a1f9c11"


def payload(event: str, world: World) -> dict[str, Any]:
    match event:
        case "alerts":
            ended = alert_of(world.cluster, "daemon_down", state=AlertState.RESOLVED, resolved_at=NOW)
            return payload_of("acme", "Acme", [alert_of(world.cluster)], [ended], BASE)
        case "budget":
            return budget_payload("acme", "Acme", "80 % of the budget is spent.", 80, BASE)
    return trial_payload("acme", "Acme", BASE)


@pytest.mark.parametrize("event", ["alerts", "budget", "test"])
def test_each_event_is_described_with_its_headers(event: str, world: World) -> None:
    document = api_description()
    sent = request_of(ChannelKind.WEBHOOK, f"{BASE}/hook", "secret", payload(event, world), DELIVERY, NOW)
    operation = document["webhooks"][event]["post"]
    schema = {
        **operation["requestBody"]["content"]["application/json"]["schema"],
        "components": document["components"],
    }
    body = json.loads(sent.body)
    jsonschema_rs.validator_for(schema, validate_formats=True).validate(body)
    described = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    assert set(body) == set(described["properties"])
    own = {name: value for name, value in sent.headers.items() if name.startswith("Highwater-")}
    parameters = {one["name"]: one["schema"] for one in operation["parameters"]}
    assert set(own) == set(parameters)
    for name, value in own.items():
        jsonschema_rs.validator_for(parameters[name], validate_formats=True).validate(value)


def test_no_event_is_left_out() -> None:
    assert set(api_description()["webhooks"]) == {"alerts", "budget", "test"}


def test_each_example_of_a_webhook_is_valid() -> None:
    document = api_description()
    for operation in (one["post"] for one in document["webhooks"].values()):
        reference = operation["requestBody"]["content"]["application/json"]["schema"]
        described = document["components"]["schemas"][reference["$ref"].rpartition("/")[2]]
        schema = {**reference, "components": document["components"]}
        for example in described["examples"]:
            jsonschema_rs.validator_for(schema, validate_formats=True).validate(example)
