"""Acts as code on the pages: the API takes each curl line, a form's is what was typed, and Python and command ask the same."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from datetime import datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import pytest
from django.core.files.base import ContentFile
from django.db import transaction
from django.test import Client
from django.utils import timezone
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.alerts.models import AlertSilence
from controlplane.alerts.services import rule_set
from controlplane.billing.models import Price
from controlplane.clusters.configuration import configuration_get
from controlplane.clusters.models import Cluster, ClusterState, OperationState, OperationType
from controlplane.clusters.operations import operation_start
from controlplane.common.models import AuditEvent
from controlplane.consumers.models import ReplayState
from controlplane.tenants.service_account_services import service_account_create
from controlplane.tenants.token_services import api_token_issue
from controlplane.topics.models import Topic
from highwater import _cli_api
from tests.console.browser import LogIn
from tests.console.test_console_access import addresses
from tests.console.world import World, make_cluster, make_operation, make_topic
from tests.controlplane.billing_world import make_plan
from tests.controlplane.world import SYSTEM, alert_of, dead_letter_replay

ROOT = Path(__file__).parents[2]

# Nothing listens at the cluster of these tests: that a daemon does not answer is as far as a right request comes.
ACCEPTED = {200, 201, 202, 204, 502, 503}
# The rows are made up: these refuse a right request because of the state in which the cluster is.
STATES_NOT_MET = {"not_possible", "not_promotable", "slug_taken"}
# Whoever reads the line puts a colleague's address there.
EXAMPLE_PERSON = "someone@example.com"


def commands(page: str) -> list[str]:
    """The curl lines of a page."""
    codes = [unescape(text) for text in re.findall(r"<code[^>]*>(.*?)</code>", page, re.DOTALL)]
    return [text for text in codes if text.startswith("curl ")]


def owners_token(world: World) -> str:
    """What a shell has in $HIGHWATER_TOKEN."""
    return api_token_issue(actor=world.alice, tenant=world.tenant, name="shell", role="owner", user=world.alice).text


def run(command: str, token: str) -> Any:
    """Send to the API what a shell would have curl send."""
    words = shlex.split(command.replace("\\\n", " "))
    assert words.pop(0) == "curl"
    method, body, address = "GET", "", ""
    headers: dict[str, str] = {}
    while words:
        match words.pop(0):
            case "-X":
                method = words.pop(0)
            case "-H":
                name, _, value = words.pop(0).partition(": ")
                headers[name] = value.replace("$HIGHWATER_TOKEN", token)
            case "-d":
                body = words.pop(0)
            case other:
                assert not other.startswith("-"), other
                address = other
    path = urlsplit(address)
    target = f"{path.path}?{path.query}" if path.query else path.path
    content_type = headers.pop("Content-Type", "")
    return Client().generic(method, target, body, content_type=content_type, headers=headers)


def body_of(command: str) -> Any:
    """The JSON that a curl line sends."""
    words = shlex.split(command.replace("\\\n", " "))
    return json.loads(words[words.index("-d") + 1])


def test_every_curl_line_of_every_page_is_a_request_that_the_api_takes(world: World) -> None:
    token = owners_token(world)
    client = world.client(world.alice)
    found = set()
    for address in addresses(world):
        answer = client.get(address)
        if answer.status_code == 200 and answer.headers["Content-Type"].startswith("text/html"):
            found |= set(commands(answer.content.decode()))
    assert len(found) >= 20
    refused = []
    for command in sorted(found):
        with transaction.atomic():
            answer = run(command, token)
            transaction.set_rollback(True)
        is_right = answer.status_code in ACCEPTED or answer.json()["code"] in STATES_NOT_MET
        if not is_right and EXAMPLE_PERSON not in command:
            refused.append(f"{command}\n{answer.status_code}: {answer.content.decode()}")
    assert not refused, "\n\n".join(refused)


class Asked(NamedTuple):
    """A request, however it is made."""

    method: str
    url: str
    body: Any


def asked_by_curl(text: str) -> Asked:
    words = shlex.split(text.replace("\\\n", " "))
    method = words[words.index("-X") + 1] if "-X" in words else "GET"
    return Asked(method, words[-1], json.loads(words[words.index("-d") + 1]) if "-d" in words else None)


def asked_of(requests: list[httpx.Request]) -> Asked:
    (request,) = requests
    assert request.headers["Authorization"] == "Bearer secret"
    return Asked(request.method, str(request.url), json.loads(request.content) if request.content else None)


class Transport(httpx.MockTransport):
    """Gives the API's description, and remembers all else that is asked."""

    def __init__(self, description: object) -> None:
        super().__init__(self._answer)
        self._description = description
        self.requests: list[httpx.Request] = []

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/api/v1/schema/":
            return httpx.Response(200, json=self._description)
        self.requests.append(request)
        return httpx.Response(200, json={})


def test_python_and_command_of_every_page_ask_what_its_curl_line_asks(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: Any
) -> None:
    monkeypatch.setenv("HIGHWATER_URL", settings.HIGHWATER_PUBLIC_URL)
    monkeypatch.setenv("HIGHWATER_TOKEN", "secret")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    description = Client().get("/api/v1/schema/?format=json").json()
    client = world.client(world.alice)
    acts: dict[str, tuple[str, str]] = {}
    for address in addresses(world):
        answer = client.get(address)
        if answer.status_code == 200 and answer.headers["Content-Type"].startswith("text/html"):
            for act in re.findall(r'<details class="as-code">(.*?)</details>', answer.content.decode(), re.DOTALL):
                curl_line, program, command = (
                    unescape(text) for text in re.findall(r"<code id[^>]*>(.*?)</code>", act, re.DOTALL)
                )
                acts[curl_line] = (program, command)
    assert len(acts) >= 20
    for curl_line, (program, command) in acts.items():
        in_python, by_command = Transport(description), Transport(description)
        with monkeypatch.context() as patched:
            patched.setattr(httpx, "request", httpx.Client(transport=in_python).request)
            exec(program, {})  # the program that the page shows
        words = shlex.split(command.replace("\\\n", " "))
        assert words[0] == "highwater"
        assert _cli_api.run(words[1:], by_command) == 0, command
        expected = asked_by_curl(curl_line)
        assert asked_of(in_python.requests) == expected
        assert asked_of(by_command.requests) == expected


class Typed(NamedTuple):
    """A form as a template has it, what is typed into it, and what its curl line sends: a body, or a query."""

    form: str
    path: str
    typed: dict[str, Any]
    expected: dict[str, object] | str


FORMS = [
    Typed(
        "cluster_new.html curl-cluster",
        "new-cluster/",
        {"slug": "it's", "mode": "sync", "replicas": "3", "failover_policy": "manual", "flush_disk_type": ""},
        {"slug": "it's", "mode": "sync", "replicas": 3, "failover_policy": "manual"},
    ),
    Typed(
        "topic_new.html curl-topic",
        "clusters/orders/new-topic/",
        {"name": "a b", "message_type": "FIFO", "read_queue_nums": "4", "write_queue_nums": "many"},
        {"name": "a b", "message_type": "FIFO", "read_queue_nums": 4, "write_queue_nums": "many"},
    ),
    Typed(
        "tokens.html curl-token",
        "tokens/",
        {"name": "ci", "role": "viewer", "scopes": ["read"], "life_days": "30"},
        {"name": "ci", "role": "viewer", "scopes": ["read"], "days": 30, "is_personal": True},
    ),
    Typed(
        "tokens.html curl-token",
        "tokens/",
        {"name": "ci", "role": "viewer", "scopes": ["read"], "life_days": "0", "is_service": "on"},
        {"name": "ci", "role": "viewer", "scopes": ["read"], "days": None, "is_personal": False},
    ),
    Typed(
        "members.html curl-member",
        "members/",
        {"email": "ann@example.com", "role": "viewer"},
        {"email": "ann@example.com", "role": "viewer"},
    ),
    Typed(
        "credentials.html curl-credential",
        "clusters/orders/credentials/",
        {"name": "shop", "rights": "send"},
        {"name": "shop", "role": "app", "default_topic_perm": "PUB", "default_group_perm": "DENY"},
    ),
    Typed(
        "credential_rotate.html curl-rotate",
        "clusters/orders/credentials/{access_key}/rotate/",
        {"overlap_hours": "168"},
        {"overlap_hours": 168},
    ),
    Typed(
        "credential_quotas.html curl-quotas",
        "clusters/orders/credentials/{access_key}/quotas/",
        {"quota_messages_per_second": "500", "quota_bytes_per_second": "1 MiB", "quota_connections": "many"},
        {
            "quota_messages_per_second": 500,
            "quota_bytes_per_second": 1024 * 1024,
            "quota_connections": "many",
            "quota_held_pulls": None,
        },
    ),
    Typed(
        "parts/send.html curl-send",
        "clusters/orders/topics/payments/send/",
        {"body": "grüße", "keys": "k-1 k-2", "properties": "colour=blue"},
        {"body": "grüße", "keys": ["k-1", "k-2"], "properties": {"colour": "blue"}},
    ),
    Typed(
        "topic_schema.html curl-schema",
        "clusters/orders/topics/payments/schema/",
        {"message": "shop.Refund", "descriptor_set": ContentFile(b"a set", "schema.pb")},
        {"message": "shop.Refund", "descriptor_set": "YSBzZXQ="},
    ),
    Typed(
        "tenant_settings.html curl-tenant",
        "settings/",
        {"name": "Acme", "time_zone": "Asia/Tokyo"},
        {"name": "Acme", "time_zone": "Asia/Tokyo", "requires_second_factor": False, "wants_second_factor": False},
    ),
    Typed(
        "masking.html curl-masking",
        "masking/",
        {"part": "body", "pattern": "*.email", "topic": "orders-*", "visible_from": "owner"},
        {"part": "body", "pattern": "*.email", "topic": "orders-*", "visible_from": "owner", "withholds": False},
    ),
    Typed(
        "cluster_settings.html curl-name",
        "clusters/orders/settings/name/",
        {"name": "Orders, EU"},
        {"name": "Orders, EU"},
    ),
    Typed(
        "cluster_settings.html curl-policy",
        "clusters/orders/settings/policy/",
        {"failover_policy": "automatic_when_lossless"},
        {"failover_policy": "automatic_when_lossless"},
    ),
    Typed("cluster_settings.html curl-grow", "clusters/orders/settings/grow/", {"by": "group"}, {"by": "group"}),
    Typed(
        "cluster_settings.html curl-labels",
        "clusters/orders/settings/labels/",
        {"labels": "team=shop\nenv=prod"},
        {"labels": {"env": "prod", "team": "shop"}},
    ),
    Typed(
        "cluster_settings.html curl-suspend",
        "clusters/orders/settings/suspend/",
        {"reason": "the weekend"},
        {"reason": "the weekend"},
    ),
    Typed(
        "authority.html curl-renew-ca",
        "clusters/orders/settings/certificate-authority/",
        {"step": "trust_next", "overlap_days": "14"},
        {"step": "trust_next", "overlap_days": 14},
    ),
    Typed(
        "service_accounts.html curl-service-account",
        "service-accounts/",
        {"name": "ci", "role": "viewer"},
        {"name": "ci", "role": "viewer"},
    ),
    Typed(
        "message_consume.html curl-consume",
        "clusters/orders/topics/payments/messages/broker-a/0/0/consume/",
        {"group": "billing", "client_id": "c@1"},
        {"group": "billing", "client_id": "c@1"},
    ),
    Typed(
        "drills.html curl-drill-window",
        "clusters/orders/drills/windows/",
        {
            "group": "broker-a",
            "opens_at": "2026-12-05 02:00",
            "closes_at": "2026-12-05 04:00",
            "fault": "cut",
            "confirm": "broker-a",
        },
        {
            "group": "broker-a",
            "opens_at": "2026-12-05T02:00:00+00:00",
            "closes_at": "2026-12-05T04:00:00+00:00",
            "fault": "cut",
            "gives_back": False,
            "confirm": "broker-a",
        },
    ),
    Typed(
        "diverged_cut.html curl-resend",
        "clusters/orders/diverged/broker-a/0/cut-00000000000000004096/",
        {"which": "selected", "position": ["310"], "rate_per_second": "5", "stop_after_failures": "0"},
        {"rate_per_second": 5, "stop_after_failures": 0, "positions": [310]},
    ),
    Typed(
        "dead_letters.html curl-replay",
        "clusters/orders/lag/billing/dead-letters/",
        {
            "which": "all",
            "target": "group",
            "rate_per_second": "5",
            "stop_after_failures": "1",
            "stop_after_new_dead": "2",
        },
        {"target": "group", "rate_per_second": 5, "stop_after_failures": 1, "stop_after_new_dead": 2},
    ),
    Typed(
        "alert_channels.html curl-channel",
        "alerts/channels/",
        {"kind": "webhook", "name": "On call", "address": "https://hooks.example/x"},
        {"kind": "webhook", "name": "On call", "address": "https://hooks.example/x", "critical_only": False},
    ),
    Typed(
        "alert_rule.html curl-rule",
        "clusters/orders/alerts/disk_used/",
        {"is_on": "on", "threshold": "80", "duration_s": "60"},
        {"is_on": True, "threshold": 80.0, "duration_s": 60},
    ),
    Typed(
        "parts/search.html curl-search",
        "clusters/orders/topics/payments/messages/search/",
        {"key": "a&b", "since": "2026-01-01 00:00"},
        "search/?key=a%26b&since=2026-01-01T00%3A00%3A00%2B00%3A00",
    ),
    Typed(
        "message_tail.html curl-tail",
        "clusters/orders/topics/payments/messages/tail/",
        {"tag": "paid", "key": "a&b"},
        "tail/?tag=paid&key=a%26b",
    ),
    Typed(
        "lag_group.html curl-thresholds",
        "clusters/orders/lag/billing/thresholds/",
        {"lag_messages": "100", "growth_per_second": "1.5"},
        {"lag_messages": 100, "growth_per_second": 1.5},
    ),
    Typed(
        "alert.html curl-acknowledge", "alerts/{alert}/", {"note": "Ann frees the disk"}, {"note": "Ann frees the disk"}
    ),
    Typed("members.html curl-role", "members/{membership}/", {"role": "viewer"}, {"role": "viewer"}),
    Typed(
        "budget.html curl-budget",
        "budget/",
        {"amount": "99.5", "currency": "EUR"},
        {"amount": "99.5", "currency": "EUR"},
    ),
    Typed("message_trace.html curl-trace", "clusters/orders/message-trace/", {"q": "o 1"}, "message-trace/?q=o+1"),
]

_RATES = {"per_million_units": "1.20", "per_million_units_out": "0.6", "per_gib_month_stored": "0"}
_KINDS = {"normal": "1", "ordered": "2", "delayed": "1.5", "transactional": "2"}
_PRICE = {**_RATES, **_KINDS, "valid_from": "2026-12-01"}

# The same of the platform's operators.
OPERATORS_FORMS = [
    Typed(
        "operator/plans.html curl-plans",
        "",
        {"slug": "small", "name": "Small", "currency": "EUR", "is_default": "on"},
        {"slug": "small", "name": "Small", "currency": "EUR", "is_default": True},
    ),
    Typed(
        "operator/plan.html curl-price",
        "plans/standard/",
        {"what": "price", **{f"price-{name}": value for name, value in _PRICE.items()}},
        {**_RATES, "valid_from": "2026-12-01T00:00:00+00:00", "multipliers": _KINDS},
    ),
    Typed(
        "operator/plan.html curl-plan",
        "plans/standard/",
        {"what": "plan", "plan-name": "Usual", "plan-description": ""},
        {"name": "Usual", "description": "", "is_default": False},
    ),
    Typed(
        "operator/subscriptions.html curl-subscriptions",
        "subscriptions/",
        {"tenant": "acme", "plan": "standard", "valid_from": "2026-12-01 00:00"},
        {"tenant": "acme", "plan": "standard", "valid_from": "2026-12-01T00:00:00+00:00"},
    ),
    Typed(
        "operator/subscriptions.html curl-subscriptions",
        "subscriptions/",
        {"tenant": "acme", "plan": "", "valid_from": "2026-12-01 00:00"},
        {"tenant": "acme", "plan": None, "valid_from": "2026-12-01T00:00:00+00:00"},
    ),
    Typed(
        "operator/limits_tenant.html curl-set",
        "limits/acme/",
        {"name": "clusters", "value": "7", "reason": "They grow."},
        {"value": 7, "reason": "They grow."},
    ),
    Typed(
        "operator/limits_tenant.html curl-set",
        "limits/acme/",
        {"name": "clusters", "value": "", "reason": "As the others."},
        {"value": None, "reason": "As the others."},
    ),
    Typed(
        "operator/jobs.html curl-jobs",
        "jobs/",
        {"job": "usage_billing", "range_from": "2026-11-01", "range_to": "2026-12-01 00:00"},
        {
            "job": "usage_billing",
            "range_from": "2026-11-01T00:00:00+00:00",
            "range_to": "2026-12-01T00:00:00+00:00",
        },
    ),
    Typed(
        "operator/cluster_metering.html curl-agree",
        "clusters/{cluster}/metering/",
        {"until": "2026-11-20 00:00", "reason": "Its disk is lost."},
        {"until": "2026-11-20T00:00:00+00:00", "reason": "Its disk is lost."},
    ),
]

# A form whose curl line another test asks for: the test's file and name.
TYPED_ELSEWHERE = {
    "topic_change.html curl-topic": "test_console_topic_change.test_the_curl_line_has_only_what_is_otherwise",
    "message_resend.html curl-resend": "test_console_message_resend.test_the_curl_line_has_only_what_was_changed",
    "confirm.html curl-delete": "test_console_known_secrets.test_curl_of_a_removal_is_what_was_checked",
    **dict.fromkeys(
        ["service_account.html curl-account-token", "service_account.html curl-account-change"],
        "test_console_curl.test_each_form_of_a_service_account_has_its_own_curl_line",
    ),
    **dict.fromkeys(
        ["operator/status.html curl-incident", "operator/status.html curl-maintenance"],
        "test_console_status.test_a_form_with_an_error_says_it_and_its_curl_is_what_was_typed",
    ),
    "operator/incident.html curl-update": "test_console_status.test_the_curl_line_of_an_update_is_what_was_typed",
    "configuration.html curl-configuration": (
        "test_console_curl.test_the_curl_line_of_the_configuration_has_only_what_is_otherwise"
    ),
    "alert.html curl-silence": "test_console_curl.test_the_curl_line_of_an_alerts_silence_is_about_that_alert_alone",
    "alerts.html curl-silence": "test_console_curl.test_the_curl_line_of_a_silence_ends_it_as_chosen",
    "operator/price.html curl-price": "test_console_curl.test_the_curl_line_of_a_price_has_what_each_kind_counts",
    "operator/machine.html {{ row.fail_id }}": (
        "test_console_curl.test_the_curl_line_that_ends_an_operation_has_the_reason"
    ),
}


def test_every_form_with_a_curl_line_is_typed_into() -> None:
    templates = ROOT / "web" / "templates" / "console"
    forms = {
        f"{path.relative_to(templates)} {code}"
        for path in templates.rglob("*.html")
        for code in re.findall(r'data-curl="([^"]+)"', path.read_text(encoding="utf-8"))
    }
    typed = {form.form for form in (*FORMS, *OPERATORS_FORMS)} | TYPED_ELSEWHERE.keys()
    assert forms - typed == set(), "give each a row in FORMS, or name its test in TYPED_ELSEWHERE"
    assert typed - forms == set(), "no template has these"
    for place in TYPED_ELSEWHERE.values():
        module, name = place.split(".")
        assert f"\ndef {name}(" in (ROOT / "tests" / "console" / f"{module}.py").read_text(encoding="utf-8"), place


@pytest.mark.parametrize("form", FORMS, ids=[form.form for form in FORMS])
def test_the_curl_line_of_a_form_is_what_was_typed_and_asking_for_it_changes_nothing(world: World, form: Typed) -> None:
    make_topic(world.cluster, "payments")
    before = (Cluster.objects.count(), Topic.objects.count(), world.tenant.memberships.count())
    client = world.client(world.alice)
    ask = client.get if isinstance(form.expected, str) else client.post
    access_key = world.cluster.credentials.get(is_control=False).access_key
    membership = world.tenant.memberships.get(user=world.bob)
    path = form.path.format(access_key=access_key, membership=membership.pk, alert=alert_of(world.cluster).pk)
    answer = ask(world.path(path), form.typed, headers={"X-Wants": "curl"})
    assert answer.status_code == 200
    line = answer.json()["curl"]
    assert line.endswith(f"{form.expected}'") if isinstance(form.expected, str) else body_of(line) == form.expected
    assert (Cluster.objects.count(), Topic.objects.count(), world.tenant.memberships.count()) == before
    world.tenant.refresh_from_db()
    assert world.tenant.time_zone == "UTC"


@pytest.mark.parametrize("form", OPERATORS_FORMS, ids=[form.form for form in OPERATORS_FORMS])
def test_the_curl_line_of_an_operators_form_is_what_was_typed_and_asking_for_it_changes_nothing(
    world: World, form: Typed
) -> None:
    world.alice.is_staff = True
    world.alice.save()
    make_plan()
    client = world.client(world.alice)
    path = f"/operator/{form.path.format(cluster=world.cluster.pk)}"
    assert commands(client.get(path).content.decode())
    events = AuditEvent.objects.count()
    answer = client.post(path, form.typed, headers={"X-Wants": "curl"})
    assert answer.status_code == 200
    assert body_of(answer.json()["curl"]) == form.expected
    assert AuditEvent.objects.count() == events


def test_the_curl_line_of_the_configuration_has_only_what_is_otherwise(world: World) -> None:
    # A browser sends no box that is not ticked.
    shown = {
        state.key.name: state.wanted for state in configuration_get(world.cluster).keys if state.wanted is not False
    }
    path = world.cluster_path("settings/configuration/")
    answer = world.client(world.alice).post(path, {**shown, "deleteWhen": "7"}, headers={"X-Wants": "curl"})
    assert body_of(answer.json()["curl"]) == {"values": {"deleteWhen": 7}, "dry_run": True}


def test_the_curl_line_of_a_silence_ends_it_as_chosen(world: World) -> None:
    typed = {"cluster": "orders", "kind": "lag_seconds", "hours": "24", "reason": "upkeep"}
    answer = world.client(world.alice).post(world.path("alerts/"), typed, headers={"X-Wants": "curl"})
    body = body_of(answer.json()["curl"])
    in_a_day = timezone.now() + timedelta(days=1)
    assert abs(datetime.fromisoformat(body.pop("until")) - in_a_day) < timedelta(minutes=2)
    assert body == {"cluster": "orders", "kind": "lag_seconds", "reason": "upkeep"}


def test_the_curl_line_of_an_alerts_silence_is_about_that_alert_alone(world: World) -> None:
    alert = alert_of(world.cluster, "lag_seconds", subject="billing")
    typed = {"hours": "4", "reason": "upkeep"}
    path = world.path(f"alerts/{alert.pk}/silence/")
    answer = world.client(world.alice).post(path, typed, headers={"X-Wants": "curl"})
    body = body_of(answer.json()["curl"])
    assert datetime.fromisoformat(body.pop("until")) > timezone.now()
    assert body == {"cluster": "orders", "kind": "lag_seconds", "subject": "billing", "reason": "upkeep"}
    assert not AlertSilence.objects.exists()


def test_the_curl_line_that_ends_an_operation_has_the_reason(world: World) -> None:
    operation = operation_start(actor=SYSTEM, cluster=world.cluster, operation_type=OperationType.GROUP_TRANSFER)
    world.alice.is_staff = True
    world.alice.save()
    path, typed = f"/operator/operations/{operation.pk}/fail/", {"reason": "it hangs"}
    answer = world.client(world.alice).post(path, typed, headers={"X-Wants": "curl"})
    assert body_of(answer.json()["curl"]) == typed
    operation.refresh_from_db()
    assert operation.state == OperationState.IN_PROGRESS


def line_to(page: str, end: str) -> str:
    """The one curl line of a page whose address ends so."""
    (found,) = [line for line in commands(page) if line.rstrip("'").endswith(end)]
    return found


def test_a_failed_operation_shows_its_retry_as_code_to_who_may(world: World) -> None:
    operation = make_operation(make_cluster(world.tenant, "staging", ClusterState.FAILED), OperationState.FAILED, 2)
    path = world.path(f"operations/{operation.pk}/")
    line = line_to(world.client(world.alice).get(path).content.decode(), f"{operation.path}retry/")
    token = owners_token(world)
    assert run(line, token).status_code == 202
    assert "retry/" not in world.client(world.victor).get(path).content.decode()


def test_a_rule_that_was_changed_shows_as_code_how_it_gets_its_default_back(world: World) -> None:
    path = world.cluster_path("alerts/disk_used/")
    client = world.client(world.alice)
    assert "DELETE" not in client.get(path).content.decode()
    rule_set(actor=world.alice, cluster=world.cluster, kind="disk_used", threshold=70.0)
    (line,) = [line for line in commands(client.get(path).content.decode()) if "-X DELETE" in line]
    token = owners_token(world)
    assert run(line, token).json()["is_default"] is True


def test_a_replay_that_was_cancelled_shows_as_code_how_it_goes_on(world: World) -> None:
    replay = dead_letter_replay(world.cluster, ReplayState.CANCELLED)
    page = world.client(world.alice).get(world.cluster_path(f"lag/billing/replays/{replay.pk}/"))
    line = line_to(page.content.decode(), f"{replay.path}continue/")
    token = owners_token(world)
    assert run(line, token).status_code in ACCEPTED


def test_the_curl_line_of_a_price_has_what_each_kind_counts(world: World) -> None:
    world.alice.is_staff = True
    world.alice.save()
    price = make_plan().prices.get()
    Price.objects.filter(pk=price.pk).update(valid_from=timezone.now() + timedelta(days=1))
    rates = {"per_million_units": "1.20", "per_million_units_out": "0.6", "per_gib_month_stored": "0"}
    kinds = {"normal": "1", "ordered": "2", "delayed": "1.5", "transactional": "2"}
    path = f"/operator/plans/{price.plan.slug}/prices/{price.pk}/"
    answer = world.client(world.alice).post(path, {**rates, **kinds}, headers={"X-Wants": "curl"})
    assert body_of(answer.json()["curl"]) == {**rates, "multipliers": kinds}


def test_a_viewer_is_not_told_the_curl_line_of_what_a_viewer_may_not_do(world: World) -> None:
    answer = world.client(world.victor).post(world.path("members/"), {"email": "x"}, headers={"X-Wants": "curl"})
    assert answer.status_code == 403


def test_a_tenant_is_made_by_people_alone_so_no_curl_line_says_otherwise(world: World) -> None:
    assert commands(world.client(world.alice).get("/tenants/new/").content.decode()) == []


def test_a_shell_sends_exactly_what_was_typed(world: World, live_server: LiveServer, settings: Any) -> None:
    settings.HIGHWATER_PUBLIC_URL = live_server.url
    typed = 'It\'s "$HOME" `id` \\ grüße'
    form = {"name": typed, "time_zone": "UTC"}
    command = world.client(world.alice).post(world.path("settings/"), form, headers={"X-Wants": "curl"})
    token = api_token_issue(actor=world.alice, tenant=world.tenant, name="shell", role="owner").text
    shell = ["sh", "-c", command.json()["curl"]]
    done = subprocess.run(
        shell, env={**os.environ, "HIGHWATER_TOKEN": token}, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["name"] == typed


def test_an_open_curl_line_follows_what_is_typed(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn
) -> None:
    log_in(world.alice)
    page.goto(live_server.url + world.path("new-cluster/"))
    page.get_by_text("The same with curl, Python or highwater").click()
    page.get_by_label("Name", exact=True).fill("payments")
    expect(page.locator("#curl-cluster")).to_contain_text('"slug": "payments"')
    expect(page.locator("#curl-cluster-python")).to_contain_text("'slug': 'payments'")
    expect(page.locator("#curl-cluster-command")).to_contain_text("--slug payments")
    page.get_by_label("Recover by itself").check()
    expect(page.locator("#curl-cluster")).to_contain_text('"mode": "dledger"')


def test_the_code_below_a_list_is_about_the_row_that_was_changed_last(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn
) -> None:
    bob, victor = (world.tenant.memberships.get(user=user) for user in (world.bob, world.victor))
    log_in(world.alice)
    page.goto(live_server.url + world.path("members/"))
    page.get_by_label("Role of bob@example.com").select_option("admin")
    page.get_by_text("Change a role with curl, Python or highwater").click()
    expect(page.locator("#curl-role")).to_contain_text(str(bob.pk))
    expect(page.locator("#curl-role")).to_contain_text('"role": "admin"')
    page.get_by_label("Role of victor@example.com").select_option("developer")
    expect(page.locator("#curl-role")).to_contain_text(str(victor.pk))
    page.get_by_text("Change a role with curl, Python or highwater").click(click_count=2)
    expect(page.locator("#curl-role-command")).to_contain_text("--role developer")
    expect(page.locator("#curl-role")).to_contain_text(str(victor.pk))


@pytest.mark.parametrize(
    ("what", "typed", "method", "expected"),
    [
        (
            "token",
            {"name": "ci", "role": "viewer", "scopes": ["read"], "life_days": "90"},
            "POST",
            {"name": "ci", "role": "viewer", "scopes": ["read"], "days": 90},
        ),
        (
            "account",
            {"account-name": "deploy", "account-role": "viewer"},
            "PATCH",
            {"name": "deploy", "role": "viewer", "description": ""},
        ),
    ],
)
def test_each_form_of_a_service_account_has_its_own_curl_line(
    world: World, what: str, typed: dict[str, object], method: str, expected: dict[str, object]
) -> None:
    account = service_account_create(actor=world.alice, tenant=world.tenant, name="ci", role="developer")
    if what == "token":
        expected = {**expected, "service_account_id": str(account.pk)}
    answer = world.client(world.alice).post(
        world.path(f"service-accounts/{account.pk}/"), {"what": what, **typed}, headers={"X-Wants": "curl"}
    )
    line = answer.json()["curl"]
    assert body_of(line) == expected
    assert f"-X {method}" in line
    account.refresh_from_db()
    assert (account.name, account.tokens.count()) == ("ci", 0)
