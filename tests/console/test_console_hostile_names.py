"""Whatever text a tenant or a client can choose is text on every page, in each language: planted in every column that holds free
text, and in what brokers answer. A new column or page is covered by being there.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from django.apps import apps
from django.core import mail
from django.db import models

from controlplane.clusters import remoting
from controlplane.common.audit import audit_event_record
from controlplane.console.views import operator_machine
from tests.console.test_console_access import addresses
from tests.console.test_console_masking import QUERIES
from tests.console.test_console_matrix import operator_addresses
from tests.console.world import World
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.secret_twin import MESSAGE, MESSAGE_ID, SecretTwin

MARKUP = "<img src=x onerror=alert(1)>"
HOSTILE = f"={MARKUP}\"'>{{{{7*7}}}}"
# Never free text: what addresses are made of, and the platform's own words, hashes and ciphertexts.
OWN_WORDS = {
    "AuditEvent": {"actor", "action", "resource", "details", "request_id", "hash"},  # one is recorded instead
    "AuditChain": {"head"},
    "User": {"password", "language"},
    "ApiToken": {"public_id", "secret_hash", "role"},
    "Tenant": {"slug", "time_zone"},
    "Invitation": {"secret_hash"},
    "Cluster": {"slug", "founded_mode", "tls_ca"},
    "NameServer": {"host", "data_dir", "process_state"},
    "BrokerGroup": {"name"},
    "Replica": {"host", "data_dir", "process_state", "broker_role"},
    "Credential": {"access_key", "default_topic_perm", "default_group_perm"},
    "Operation": {"resource"},
    "OperationStep": {"name"},
    "Topic": {"name"},  # it is in addresses; brokers take letters, digits, %, |, - and _ only
    "MessageResend": {"status"},
    "MaskingRule": {"topic"},
    "OffsetReset": {"consumer_group", "topic"},
    "DeadLetterReplay": {"consumer_group"},
    "Failover": {"group_name"},
    "FailoverStep": {"name"},
    "Drill": {"group_name", "mode"},
    "DrillWindow": {"group_name"},
    "DivergedResend": {"group_name", "file_name"},
    "DivergedDone": {"group_name", "file_name"},
    "JobRun": {"snapshot_id"},
    "LagThreshold": {"consumer_group"},
    "Plan": {"slug", "currency"},
    "Price": {"currency"},
    "Usage": {"kind"},
    "Budget": {"currency"},
    "Invoice": {"currency"},
    "Alert": {"kind"},
    "AlertRule": {"kind"},
    "AlertSilence": {"kind"},
    "WorkerBeat": {"queue"},
    "IdempotencyRecord": {"principal", "key_hash", "fingerprint"},
    "KnownBrowser": {"hash"},
    "AccountNotice": {"kind", "language"},
    "MailTaken": {"language"},
}


class HostileTwin(SecretTwin):
    """Every message says in each of its parts what markup would do."""

    message = replace(
        MESSAGE,
        body=HOSTILE.encode(),
        tags=HOSTILE,
        keys=(HOSTILE,),
        properties={**MESSAGE.properties, "KEYS": HOSTILE, "TAGS": HOSTILE, HOSTILE: HOSTILE, "UNIQ_KEY": MESSAGE_ID},
    )


def plant() -> list[str]:
    """Write the hostile text into every column of every row that may hold free text; returns which."""
    planted = []
    for model in apps.get_models():
        if not model.__module__.startswith("controlplane."):
            continue
        kept = OWN_WORDS.get(model.__name__, set())
        fields = [
            field
            for field in model._meta.fields
            if isinstance(field, models.CharField | models.TextField) and not field.choices and field.name not in kept
        ]
        for number, row in enumerate(model._default_manager.all()):
            changes = {field.name: hostile(field, number) for field in fields}
            if changes:
                model._default_manager.filter(pk=row.pk).update(**changes)
                planted += [f"{model.__name__}.{name}" for name in changes]
    return planted


def hostile(field: models.Field[Any, Any], number: int) -> str:
    suffix = str(number) if field.unique else ""
    return HOSTILE[: (field.max_length or 1000) - len(suffix)] + suffix


@pytest.fixture
def planted(world: World, tmp_path: Path) -> Iterator[tuple[World, list[str]]]:
    """The world with hostile texts everywhere, and every address of it; Alice runs the platform, too."""
    world.alice.is_staff = True
    world.alice.save()
    found = [*addresses(world), *operator_addresses(world), "/", "/tenants/", "/status/", "/status/feed/", "/sessions/"]
    audit_event_record(
        actor=world.alice,
        action="topic.create",
        resource=HOSTILE,
        tenant_id=world.tenant.pk,
        details={HOSTILE: HOSTILE},
    )
    world.cluster.labels = {HOSTILE: HOSTILE}
    world.cluster.save()
    names = plant()
    assert {"Cluster.name", "User.email", "AlertChannel.name", "Topic.description", "Operation.requested_by"} <= set(
        names
    )
    with (
        patch.object(remoting, "Admin", HostileTwin),
        patch.object(remoting, "Producer", HostileTwin),
        patch.object(operator_machine, "get_driver", return_value=DriverTwin(tmp_path)),
    ):
        yield world, found


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_what_a_tenant_or_a_client_calls_itself_is_text_on_every_page(
    planted: tuple[World, list[str]], language: str
) -> None:
    world, found = planted
    client = world.client(world.alice)
    client.cookies["language"] = language
    wrong, shown = [], 0
    for address in found:
        query = next((query for end, query in QUERIES.items() if address.endswith(end)), "")
        answer = client.get(address + query, headers={"Accept-Language": language})
        kind = answer.headers.get("Content-Type", "").partition(";")[0]
        text = str(answer.getvalue(), "utf-8", "replace")
        if answer.status_code == 500:
            wrong.append(f"{address}: 500")
        if kind in ("text/html", "application/rss+xml", "application/xml"):
            wrong += [f"{address}: markup"] * (MARKUP in text) + [f"{address}: evaluated"] * ("=49" in text)
            shown += "&lt;img src=x onerror" in text
        elif kind == "text/csv":
            cells = [cell for row in csv.reader(text.splitlines()) for cell in row]
            wrong += [f"{address}: formula {cell}" for cell in cells if cell.startswith(("=", "@", "\t"))]
        elif MARKUP in text:
            assert answer.headers["X-Content-Type-Options"] == "nosniff", address
    assert not wrong, "\n".join(wrong)
    assert shown > 60, "the hostile text is hardly shown, so this proves little"


def test_mails_are_plain_text() -> None:
    """So what a name holds can't become markup: no mail of ours has an HTML part."""
    root = Path(__file__).parents[2] / "platform"
    makers = ("attach_alternative", "html_message", 'content_subtype = "html"')
    found = [path for path in root.rglob("*.py") if any(maker in path.read_text("utf-8") for maker in makers)]
    assert found == []
    assert not list((root.parent / "web" / "templates").rglob("email/*.html"))
    assert mail.EmailMessage("x", "y").content_subtype == "plain"
