"""Who changed what: searched by the API and on the page, and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from controlplane.common.audit import audit_event_record
from controlplane.common.models import AuditEvent
from tests.controlplane.world import Json, World

EVENTS = "/api/v1/tenants/acme/audit-events/"
PAGE = "/t/acme/audit/"


@pytest.fixture
def alice(world: World, api: Callable[..., Json]) -> Json:
    """Her browser, logged in before anything else happens."""
    client: Json = api(world.alice)
    return client


@pytest.fixture
def events(world: World, alice: Json) -> list[AuditEvent]:
    """Alice made a topic two hours ago, the platform sampled something now, globex did a thing of its own."""
    AuditEvent.objects.all().delete()  # her log-in, too
    made = [
        audit_event_record(
            actor="alice@example.com",
            action="topic.create",
            resource="/api/v1/tenants/acme/clusters/orders/topics/payments/",
            tenant_id=world.acme.pk,
            details={"queues": 8},
        ),
        audit_event_record(actor="=cmd()", action="tenant.update", resource="acme", tenant_id=world.acme.pk),
        audit_event_record(actor="mallory", action="topic.create", resource="x", tenant_id=world.globex.pk),
    ]
    AuditEvent.objects.filter(pk=made[0].pk).update(created_at=timezone.now() - timedelta(hours=2))
    return made


@pytest.mark.parametrize(
    ("query", "actions"),
    [
        ("", ["tenant.update", "topic.create"]),
        ("search=ALICE", ["topic.create"]),
        ("search=topics/pay", ["topic.create"]),
        ("search=mallory", []),
    ],
)
def test_events_of_the_tenant_are_found_by_part_of_their_words(
    alice: Json, events: list[AuditEvent], query: str, actions: list[str]
) -> None:
    found = alice.call("GET", f"{EVENTS}?{query}").json()["results"]
    assert [event["action"] for event in found] == actions


def test_a_span_of_time_holds_its_begin_and_not_its_end(alice: Json, events: list[AuditEvent]) -> None:
    at = AuditEvent.objects.get(pk=events[0].pk).created_at.isoformat().replace("+00:00", "Z")
    assert [one["action"] for one in alice.call("GET", f"{EVENTS}?until={at}").json()["results"]] == []
    assert len(alice.call("GET", f"{EVENTS}?since={at}").json()["results"]) == 2


def test_the_file_holds_what_the_page_found_and_no_formula(alice: Json, events: list[AuditEvent]) -> None:
    assert "topics/payments/" in alice.get(f"{PAGE}?search=alice").content.decode()
    rows = list(csv.DictReader(io.StringIO(alice.get(f"{PAGE}csv/").content.decode())))
    assert [row["actor"] for row in rows] == ["'=cmd()", "alice@example.com"]
    assert rows[1]["details"] == '{"queues": 8}'


def test_an_empty_search_says_what_to_do(alice: Json, events: list[AuditEvent]) -> None:
    page = alice.get(f"{PAGE}?search=nothing-like-it").content.decode()
    assert "No event matches" in page


def test_what_the_database_refuses_is_replaced_in_details(world: World) -> None:
    made = audit_event_record(
        actor="a", action="topic.update", resource="x", details={"a\x00": [{"b": "\x00c\ud800"}, ("\udfff", 1)]}
    )
    made.refresh_from_db()
    assert made.details == {"a\ufffd": [{"b": "\ufffdc\ufffd"}, ["\ufffd", 1]]}


def test_a_change_says_what_it_was_before(world: World, alice: Json) -> None:
    bob = world.acme.memberships.get(user=world.bob)
    acme = world.acme.path
    requests = [
        ("PATCH", acme, {"time_zone": "Asia/Tokyo"}),
        ("PATCH", f"{acme}members/{bob.pk}/", {"role": "viewer"}),
        ("PATCH", world.cluster.path, {"labels": {"env": "prod"}}),
        ("PATCH", f"{world.cluster.path}alert-rules/disk_used/", {"threshold": 70}),
        ("PUT", f"{acme}budget/", {"amount": "10", "currency": "EUR"}),
        ("PUT", f"{acme}budget/", {"amount": "12.50", "currency": "EUR"}),
    ]
    assert {alice.call(*request).status_code for request in requests} == {200}
    found = AuditEvent.objects.filter(tenant_id=world.acme.pk).order_by("sequence")
    assert {event.action: event.details["changes"] for event in found if "changes" in event.details} == {
        "tenant.update": {"time_zone": ["UTC", "Asia/Tokyo"]},
        "member.update": {"role": [str(bob.role), "viewer"]},
        "cluster.update": {"labels": [{}, {"env": "prod"}]},
        "alert_rule.set": {"threshold": [85, 70]},
        "budget.set": {"amount": ["10.00", "12.50"]},
    }


def test_the_page_shows_what_it_was_before(world: World, alice: Json) -> None:
    alice.call("PATCH", world.acme.path, {"time_zone": "Asia/Tokyo"})
    assert "time zone: UTC → Asia/Tokyo" in alice.get(PAGE).content.decode()
