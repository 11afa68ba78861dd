"""The OpenAPI description's `webhooks`: what a channel of the kind `webhook` is sent, and what its answer means."""

from __future__ import annotations

from typing import Any

from controlplane.alerts.deliveries import PAUSES_S
from controlplane.alerts.kinds import KIND_CHOICES, SEVERITY_CHOICES
from controlplane.alerts.messages import ALERTS_MAX

_SIGNED = (
    "`Highwater-Signature` is `v1=` and the HMAC-SHA256, in hex, of `Highwater-Timestamp`, a full stop and the body, with the"
    " channel's secret as the key. Compare it in constant time, and refuse old timestamps. A message may come twice, with the"
    " same `Highwater-Delivery`."
)

_ALERT: dict[str, Any] = {
    "type": "object",
    "description": "An alert that fires or has ended.",
    "required": [
        *("id", "cluster", "kind", "title", "severity", "subject", "sentence", "since", "resolved_at", "url"),
    ],
    "properties": {
        "id": {"type": "string", "format": "uuid"},
        "cluster": {"type": "string"},
        "kind": {"type": "string", "enum": [kind for kind, _ in KIND_CHOICES]},
        "title": {"type": "string"},
        "severity": {"type": "string", "enum": [severity for severity, _ in SEVERITY_CHOICES]},
        "subject": {"type": "string", "description": "what in the cluster it is about; empty: the cluster"},
        "sentence": {"type": "string"},
        "since": {"type": "string", "format": "date-time", "description": "when it was first seen to be wrong"},
        "resolved_at": {"type": ["string", "null"], "format": "date-time"},
        "url": {"type": "string", "format": "uri", "description": "its page in the console"},
    },
}
_ALERTS = {"type": "array", "maxItems": ALERTS_MAX, "items": {"$ref": "#/components/schemas/WebhookAlert"}}
_MEMBERS: dict[str, Any] = {
    "id": {"type": "string", "format": "uuid", "description": "of the delivery, as in `Highwater-Delivery`"},
    "sent_at": {"type": "string", "format": "date-time"},
    "tenant": {"type": "string"},
    "tenant_name": {"type": "string"},
    "fired": _ALERTS,
    "resolved": _ALERTS,
    "not_named": {"type": "integer", "minimum": 0, "description": "how many more there are"},
    "url": {"type": "string", "format": "uri", "description": "the page in the console"},
}
_HEADERS: tuple[tuple[str, bool, dict[str, Any], str], ...] = (
    ("Highwater-Event", True, {"type": "string"}, "What happened, as `event` in the body."),
    ("Highwater-Delivery", True, {"type": "string", "format": "uuid"}, "Which message this is; each try has the same."),
    ("Highwater-Timestamp", True, {"type": "string", "pattern": r"^\d+$"}, "When it was sent: seconds since 1970."),
    (
        "Highwater-Signature",
        False,  # a channel from before signatures has no secret
        {"type": "string", "pattern": "^v1=[0-9a-f]{64}$"},
        "`v1=` and the HMAC-SHA256, in hex, of the timestamp, a full stop and the body.",
    ),
)
_EXAMPLE: dict[str, Any] = {
    "id": "0d9f8d0e-8b41-4b3e-9d53-0e2f6a1f9c11",
    "sent_at": "2026-12-05T02:00:20+00:00",
    "tenant": "acme",
    "tenant_name": "Acme Trading",
    "fired": [],
    "resolved": [],
    "not_named": 0,
}
_EXAMPLE_ALERT: dict[str, Any] = {
    "id": "6f0a2a53-6d0c-4a5c-9f3f-0b1f3f0a4c11",
    "cluster": "orders",
    "kind": "leader_missing",
    "title": "No leader",
    "severity": "critical",
    "subject": "broker-a",
    "sentence": "broker-a has no leader that answers: what is sent to its queues is refused.",
    "since": "2026-12-05T02:00:00+00:00",
    "resolved_at": None,
    "url": "https://queues.example.com/t/acme/alerts/6f0a2a53-6d0c-4a5c-9f3f-0b1f3f0a4c11/",
}
# By event: the summary, the description, members of its own, and an example's.
_EVENTS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "alerts": (
        "Alerts began to fire, or have ended",
        f"At most {ALERTS_MAX} alerts of each are named.",
        {},
        {"fired": [_EXAMPLE_ALERT], "url": "https://queues.example.com/t/acme/alerts/"},
    ),
    "budget": (
        "A share of the month's budget is spent",
        "Sent at 50, 80 and 100 %; nothing is stopped.",
        {"sentence": {"type": "string"}, "threshold_percent": {"type": "integer", "minimum": 1}},
        {
            "sentence": "80 % of the budget for December is spent.",
            "threshold_percent": 80,
            "url": "https://queues.example.com/t/acme/usage/",
        },
    ),
    "test": (
        "Someone tried the channel",
        "It only shows that messages arrive.",
        {},
        {"url": "https://queues.example.com/t/acme/alerts/"},
    ),
}


def add_webhooks(result: dict[str, Any], generator: object, request: object, public: bool) -> dict[str, Any]:
    """Postprocessing hook: one webhook for each event, and the shapes of what it sends."""
    schemas = result["components"]["schemas"]
    schemas["WebhookAlert"] = _ALERT
    result["webhooks"] = {}
    for event, (summary, text, members, example) in _EVENTS.items():
        name = f"Webhook{event.capitalize()}Message"
        properties = {"event": {"const": event}, **_MEMBERS, **members}
        schemas[name] = {
            "type": "object",
            "description": summary + ".",
            "required": list(properties),
            "properties": properties,
            "examples": [{"event": event, **_EXAMPLE, **example}],
        }
        result["webhooks"][event] = {"post": _sent(event, name, summary, f"{text} {_SIGNED}")}
    return result


def _sent(event: str, schema: str, summary: str, text: str) -> dict[str, Any]:
    minutes = sum(PAUSES_S) // 60
    return {
        "operationId": f"webhook_{event}",
        "summary": summary,
        "description": text,
        "tags": ["webhooks"],
        "security": [],
        "parameters": [
            {"name": name, "in": "header", "required": always, "description": meaning, "schema": shape}
            for name, always, shape, meaning in _HEADERS
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}},
        },
        "responses": {
            "2XX": {"description": "It was taken. The body is not read."},
            "default": {
                "description": f"It was not taken: it is sent again, {len(PAUSES_S) + 1} times in {minutes} minutes in all."
                " A redirect is not followed, and counts as one."
            },
        },
    }
