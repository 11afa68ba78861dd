"""The audit trail's chain of hashes: whatever is done to its rows is found, and the first wrong event named."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.models import F

from controlplane.common.audit import audit_event_record
from controlplane.common.audit_chain import chain_check
from controlplane.common.models import AuditChain, AuditEvent
from tests.controlplane.world import Json, World

EVENTS = 5


def record(tenant_id: uuid.UUID | None, count: int = EVENTS) -> None:
    for number in range(count):
        details = {"queues": number, "rate": 1e20, "share": 0.1, "names": ["zoë", None], "deep": {"b": 1, "a": 2.0}}
        audit_event_record(actor="alice", action="topic.create", resource="x", tenant_id=tenant_id, details=details)


@pytest.fixture
def rows(world: World) -> AuditEvents:
    """Five events of acme."""
    record(world.acme.pk)
    return AuditEvents(world.acme.pk)


class AuditEvents:
    """Rows of one tenant, by number."""

    def __init__(self, tenant_id: uuid.UUID) -> None:
        self.tenant_id = tenant_id
        self.all = AuditEvent.objects.filter(tenant_id=tenant_id)

    def at(self, sequence: int) -> AuditEvent:
        return self.all.get(sequence=sequence)


def change(rows: AuditEvents) -> None:
    rows.all.filter(sequence=3).update(actor="mallory")


def change_details(rows: AuditEvents) -> None:
    rows.all.filter(sequence=3).update(details={"queues": 9})


def change_with_its_hash(rows: AuditEvents) -> None:
    rows.all.filter(sequence=2).update(hash="f" * 64)


def delete(rows: AuditEvents) -> None:
    rows.at(3).delete()


def delete_the_first(rows: AuditEvents) -> None:
    rows.at(1).delete()


def delete_the_last(rows: AuditEvents) -> None:
    rows.at(EVENTS).delete()


def delete_and_renumber(rows: AuditEvents) -> None:
    rows.at(3).delete()
    rows.all.filter(sequence__gt=3).update(sequence=F("sequence") - 1)


def insert_between(rows: AuditEvents) -> None:
    rows.all.filter(sequence__gte=3).update(sequence=F("sequence") + 1)
    insert_after(rows, 3)


def insert_after(rows: AuditEvents, sequence: int = EVENTS + 1) -> None:
    AuditEvent.objects.create(tenant_id=rows.tenant_id, actor="mallory", action="x", resource="x", sequence=sequence)


def insert_before(rows: AuditEvents) -> None:
    insert_after(rows, 0)


def insert_twice(rows: AuditEvents) -> None:
    insert_after(rows, 3)


def reorder(rows: AuditEvents) -> None:
    third, fourth = rows.at(3), rows.at(4)
    rows.all.filter(pk=third.pk).update(sequence=4)
    rows.all.filter(pk=fourth.pk).update(sequence=3)


def move_to_another_tenant(rows: AuditEvents) -> None:
    rows.all.filter(sequence=3).update(tenant_id=uuid.uuid4())


def shorten_the_head(rows: AuditEvents) -> None:
    AuditChain.objects.filter(pk=rows.tenant_id).update(length=4, head=rows.at(4).hash)


def forget_the_chain(rows: AuditEvents) -> None:
    AuditChain.objects.filter(pk=rows.tenant_id).delete()


@pytest.mark.parametrize("newest", [None, 4])
def test_what_was_written_is_found_right(rows: AuditEvents, newest: int | None) -> None:
    check = chain_check(rows.tenant_id, newest=newest)
    assert (check.is_intact, check.length, check.checked) == (True, EVENTS, newest or EVENTS)
    assert check.head == rows.at(EVENTS).hash


@pytest.mark.parametrize(
    ("harm", "named"),
    [
        (change, 3),
        (change_details, 3),
        (change_with_its_hash, 2),
        (delete, 3),
        (delete_the_first, 1),
        (delete_the_last, EVENTS),
        (delete_and_renumber, 3),
        (insert_between, 3),
        (insert_after, EVENTS + 1),
        (insert_before, 0),
        (insert_twice, 3),
        (reorder, 3),
        (move_to_another_tenant, 3),
        (shorten_the_head, EVENTS),
        (forget_the_chain, 1),
    ],
)
def test_what_was_done_to_a_row_is_found(rows: AuditEvents, harm: Callable[[AuditEvents], None], named: int) -> None:
    harm(rows)
    assert chain_check(rows.tenant_id).broken_sequence == named


def test_the_next_event_of_a_harmed_trail_does_not_heal_it(rows: AuditEvents) -> None:
    change(rows)
    record(rows.tenant_id, 2)
    assert chain_check(rows.tenant_id).broken_sequence == 3
    assert chain_check(rows.tenant_id, newest=2).is_intact


@pytest.mark.django_db(transaction=True)
def test_two_writers_at_once_make_one_chain(world: World) -> None:
    together = threading.Barrier(2)

    def write() -> None:
        try:
            for _ in range(EVENTS):
                together.wait(timeout=30)
                with transaction.atomic():
                    record(world.acme.pk, 1)
        finally:
            connection.close()

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    check = chain_check(world.acme.pk)
    assert (check.is_intact, check.length) == (True, 2 * EVENTS), check


def test_the_command_names_the_broken_chain_and_checks_the_others(world: World, rows: AuditEvents) -> None:
    record(None, 1)
    out = StringIO()
    call_command("verify_audit_trail", stdout=out)
    assert "acme: intact, 5 events, head " in out.getvalue()
    assert "platform: intact" in out.getvalue()
    change(rows)
    out = StringIO()
    with pytest.raises(CommandError, match="1 chain is broken"):
        call_command("verify_audit_trail", stdout=out)
    assert f"acme: BROKEN at event 3 ({rows.at(3).pk}) of 5" in out.getvalue()
    with pytest.raises(CommandError, match="no tenant nowhere"):
        call_command("verify_audit_trail", "nowhere")


def test_the_api_and_the_page_say_whether_the_trail_is_right(
    world: World, api: Callable[..., Json], rows: AuditEvents
) -> None:
    alice = api(world.alice)  # whose log-in is an event, too
    answer = alice.call("GET", "/api/v1/tenants/acme/audit-chain/").json()
    assert (answer["is_intact"], answer["checked"], answer["head"]) == (True, EVENTS + 1, rows.at(EVENTS + 1).hash)
    assert answer["head"] in alice.get("/t/acme/audit/?check=1").content.decode()
    change(rows)
    answer = alice.call("GET", "/api/v1/tenants/acme/audit-chain/").json()
    assert (answer["is_intact"], answer["broken_sequence"]) == (False, 3)
    assert "Event 3 is not right" in alice.get("/t/acme/audit/?check=1").content.decode()
