"""Each form of the console shows its act as code, or is excused here with a reason; and the code does what the button does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from html.parser import HTMLParser
from typing import Any, NamedTuple

import pytest
from django.db import transaction
from django.urls import resolve
from django.utils import timezone

from controlplane.accounts.operators import OPERATE_SCOPE
from controlplane.alerts.channels import channel_create
from controlplane.alerts.services import rule_set
from controlplane.billing.budgets import budget_set
from controlplane.billing.models import Price
from controlplane.clusters.models import ClusterState, OperationType
from controlplane.clusters.operations import operation_start
from controlplane.common.models import AuditEvent
from controlplane.consumers.models import ReplayState
from controlplane.insight.models import JobRunState
from controlplane.status.services import maintenance_plan
from controlplane.tenants.service_account_services import service_account_create
from controlplane.tenants.token_services import ALL_SCOPES, api_token_issue
from controlplane.topics.models import TopicState
from tests.console.test_console_access import addresses
from tests.console.test_console_curl import ROOT, run
from tests.console.world import World, make_cluster, make_topic
from tests.controlplane.billing_world import make_plan, make_run
from tests.controlplane.world import SYSTEM, alert_of, dead_letter_replay

TEMPLATES = ROOT / "web" / "templates"
# Attributes may hold Django's tags, with a `>` of their own.
_FORM = re.compile(r"<form\b((?:\{%.*?%\}|\{\{.*?\}\}|[^>{])*)>(.*?)</form>", re.DOTALL)
_BUTTON = re.compile(r"<button\b((?:\{%.*?%\}|\{\{.*?\}\}|[^>{])*)>", re.DOTALL)
_CODE = re.compile(r'data-(?:code|curl)="([^"]+)"')
_SHOWN_CODE = re.compile(r"""\{% as_code \S+ "?([^"\s%]+)"?""")
_POSTED_TO = re.compile(r"""action="\{% url '([^']+)'""")

_OF_A_BROWSER = "It concerns this browser alone, of which the API knows nothing."
_OF_A_PERSON = (
    "It concerns a person's own account; an API token belongs to a tenant, and never acts for the whole person."
)
# Forms that have no twin in the API, by template and where they lead, or by template alone: why not.
ONLY_IN_THE_CONSOLE = {
    "console/parts/theme_switch.html console:theme": _OF_A_BROWSER,
    "console/parts/language_switch.html console:language": _OF_A_BROWSER,
    "console/parts/top_bar.html account_logout": _OF_A_BROWSER,
    "console/sessions.html console:session-end": _OF_A_PERSON,
    "console/sessions.html console:session-end-others": _OF_A_PERSON,
    "console/identities.html console:identity-remove": _OF_A_PERSON,
    "console/identities.html openid_connect_login": _OF_A_PERSON,
    "console/parts/identity_buttons.html openid_connect_login": _OF_A_BROWSER,
    "console/tenant_new.html": "People alone make tenants: a token belongs to one already.",
    "console/invitation.html": (
        "The secret of the invitation is in its link alone, and is not shown again; the API takes it from who has the link."
    ),
}
# django-allauth's pages: log-in, sign-up, passwords, second factors.
ONLY_OF_A_PERSON = ("account/", "mfa/", "socialaccount/")


class Form(NamedTuple):
    """A POST form as a template has it; `codes` are the ids of its acts as code."""

    template: str
    leads_to: str
    codes: frozenset[str]
    is_shown_as_code: bool

    @property
    def name(self) -> str:
        return f"{self.template} {self.leads_to}".strip()


def _ids(names: str) -> list[str]:
    """The ids that an attribute names: a variable of the template is one."""
    return [names.strip("{} ")] if names.startswith("{{") else names.split()


def forms_in(template: str, text: str, only: str = "") -> Iterator[Form]:
    """The POST forms of a template. A form names its code itself, or each of its buttons does; in `data-` and `only`, if given."""
    pattern = re.compile(f'data-{only}="([^"]+)"') if only else _CODE
    for attributes, inside in _FORM.findall(text):
        if 'method="post"' in attributes:
            buttons = _BUTTON.findall(inside)
            of_buttons = [pattern.findall(button) for button in buttons]
            codes = pattern.findall(attributes)
            is_shown = bool(codes) or (bool(buttons) and all(of_buttons))
            ids = [one for found in (codes, *of_buttons) for names in found for one in _ids(names)]
            led = _POSTED_TO.search(attributes)
            # An address that a view hands over may be any.
            leads_to = led[1] if led else "*" if "action=" in attributes else ""
            yield Form(template, leads_to, frozenset(ids), is_shown)


def all_forms() -> list[Form]:
    return [
        form
        for path in sorted(TEMPLATES.rglob("*.html"))
        for form in forms_in(path.relative_to(TEMPLATES).as_posix(), path.read_text(encoding="utf-8"))
    ]


def test_a_form_is_found_however_its_attributes_are_written() -> None:
    (plain, buttons, half) = forms_in(
        "x.html",
        """<form class="row" method="post" action="{% url 'console:end' row.pk %}" {% if a > b %}hidden{% endif %}>
        <button name="act" value="on">On</button></form>
        <form method="post"><button data-code="curl-a curl-b">A</button><button data-code="curl-c">C</button></form>
        <form method="post"><button data-code="curl-a">A</button><button>B</button></form><form method="get"></form>""",
    )
    assert (plain.name, plain.is_shown_as_code) == ("x.html console:end", False)
    assert (sorted(buttons.codes), buttons.is_shown_as_code) == (["curl-a", "curl-b", "curl-c"], True)
    assert not half.is_shown_as_code


def test_each_form_shows_its_act_as_code_or_is_excused_with_a_reason() -> None:
    forms = [form for form in all_forms() if not form.template.startswith(ONLY_OF_A_PERSON)]
    assert len(forms) > 80
    without = {form.name for form in forms if not form.is_shown_as_code}
    assert without - ONLY_IN_THE_CONSOLE.keys() == set(), "name the act as code in `data-curl` or `data-code`"
    assert ONLY_IN_THE_CONSOLE.keys() - without == set(), "no template has these, or they show code"


def test_each_form_names_code_that_its_page_shows() -> None:
    texts = {
        path.relative_to(TEMPLATES).as_posix(): path.read_text(encoding="utf-8") for path in TEMPLATES.rglob("*.html")
    }
    for form in [form for form in all_forms() if form.codes]:
        around = [text for name, text in texts.items() if name == form.template or f'"{form.template}"' in text]
        shown = {code for text in around for code in _SHOWN_CODE.findall(text)}
        # What an including template hands over as `code_id`.
        handed = {code for text in around for code in re.findall(r'code_id="([^"]+)"', text)}
        wanted = form.codes - {"code_id"} | (handed if "code_id" in form.codes else set())
        assert wanted
        assert wanted <= shown, form.name


class Button(NamedTuple):
    """A button of a page: its form's address, what it sends, and the curl lines that are to do the same."""

    form: str
    ids: tuple[str, ...]
    address: str
    sent: dict[str, Any]
    lines: tuple[str, ...]


class Page(HTMLParser):
    """The POST forms of a page, each with its attributes, fields and buttons; and the texts of code by their ids."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.forms: list[tuple[dict[str, str], dict[str, str], list[dict[str, str]]]] = []
        self.codes: dict[str, str] = {}
        self._is_in_form = False
        self._select = self._code = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._is_in_form = found.get("method") == "post"
            if self._is_in_form:
                self.forms.append((found, {}, []))
        elif tag == "code":
            self._code = found.get("id", "")
        elif self._is_in_form:
            self._field(tag, found)

    def _field(self, tag: str, found: dict[str, str]) -> None:
        _, fields, buttons = self.forms[-1]
        name, value = found.get("name", ""), found.get("value", "")
        if tag == "button" and found.get("type") != "button":
            buttons.append(found)
        elif tag == "input" and (found.get("type") not in ("checkbox", "radio") or "checked" in found):
            fields[name] = value
        elif tag == "select":
            self._select = name
        elif tag == "option" and (self._select not in fields or "selected" in found):
            fields[self._select] = value

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._is_in_form = False
        elif tag == "code":
            self._code = ""

    def handle_data(self, data: str) -> None:
        if self._code:
            self.codes[self._code] = self.codes.get(self._code, "") + data


def buttons_of(address: str, text: str) -> Iterator[Button]:
    """The buttons of a page's forms with `data-code`; of those in rows of a list, the first, which the code is about."""
    page = Page(text)
    found = set()
    for form, fields, buttons in page.forms:
        action = form.get("action", "")
        leads_to = f"console:{resolve(action).url_name}" if action else ""
        for button in buttons:
            ids = tuple((button.get("data-code") or form.get("data-code", "")).split())
            if not ids or (leads_to, ids) in found:
                continue
            found.add((leads_to, ids))
            lines = tuple(page.codes[one] for one in ids)
            typed: dict[str, str] = {name: typed_for(lines[0]) for name in ("typed", "confirm") if name in fields}
            pressed = {button["name"]: button.get("value", "")} if "name" in button else {}
            yield Button(leads_to, ids, action or address, {**fields, **typed, **pressed}, lines)


def typed_for(line: str) -> str:
    """What someone types to confirm the act: the name that its curl line has, or what that takes away."""
    confirmed = re.search(r'confirm(?:": "|=)([\w-]+)', line)
    return confirmed[1] if confirmed else re.findall(r"/([^/]+)/'?$", line)[0]


_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def effects(act: Any, known: str) -> list[tuple[Any, ...]]:
    """What the audit trail has of an act that is taken back afterwards; without the ids that it made up."""
    before = set(AuditEvent.objects.values_list("pk", flat=True))

    def shown(value: object) -> str:
        return _UUID.sub(lambda found: found[0] if found[0] in known else "new", str(value))

    with transaction.atomic():
        act()
        found = [
            (event.action, shown(event.resource), shown(event.details))
            for event in AuditEvent.objects.exclude(pk__in=before).order_by("sequence", "created_at")
        ]
        transaction.set_rollback(True)
    return found


@pytest.fixture
def lively(world: World) -> list[str]:
    """The addresses of pages on which nearly every button is shown."""
    world.alice.is_staff = True
    world.alice.save()
    now = timezone.now()
    tenant, cluster = world.tenant, world.cluster
    make_topic(cluster, "refunds", TopicState.FAILED)
    channel_create(
        actor=world.alice,
        tenant=tenant,
        kind="webhook",
        name="pager",
        address="https://hooks.example/x",
        critical_only=True,
    )
    restart = operation_start(
        actor=SYSTEM, cluster=make_cluster(tenant, "turning"), operation_type=OperationType.CLUSTER_RESTART
    )
    budget_set(actor=world.alice, tenant=tenant, amount=Decimal(250), currency="EUR")
    stopped = make_cluster(tenant, "resting", ClusterState.SUSPENDED)
    leaving = make_cluster(tenant, "leaving", ClusterState.DELETION_PENDING)
    stopped.stopped_at = leaving.stopped_at = leaving.delete_at = now
    stopped.save()
    leaving.save()
    account = service_account_create(actor=world.alice, tenant=tenant, name="deploy", role="developer")
    ended = dead_letter_replay(cluster, ReplayState.CANCELLED)
    going = dead_letter_replay(cluster)
    failed, done = make_run(JobRunState.FAILED), make_run()
    plan = make_plan("business")
    later = plan.prices.get()
    Price.objects.filter(pk=later.pk).update(valid_from=now + timedelta(days=1))
    maintenance_plan(
        actor=world.alice,
        title="Disks",
        text="New disks.",
        parts=["console"],
        starts_at=now + timedelta(days=1),
        ends_at=now + timedelta(days=1, hours=1),
    )
    alert_of(cluster)
    rule_set(actor=world.alice, cluster=cluster, kind="disk_used", threshold=70.0)
    return [
        *addresses(world),
        world.cluster_path("topics/refunds/"),
        world.path(f"operations/{restart.pk}/"),
        world.path("clusters/resting/"),
        world.path("clusters/leaving/"),
        world.path("clusters/leaving/settings/"),
        world.path(f"service-accounts/{account.pk}/"),
        *(world.cluster_path(f"lag/billing/replays/{one.pk}/") for one in (ended, going)),
        "/operator/jobs/",
        *(f"/operator/jobs/{run.pk}/" for run in (failed, done)),
        f"/operator/plans/{plan.slug}/prices/{later.pk}/",
        "/operator/status/",
    ]


_SILENT = "The page needs brokers that answer, and these don't."
_NO_DRIVER = "The page needs a driver of daemons that answers."
# What no page of this world has, by the form's address and the code's id. That the API takes these lines, other tests say.
NOT_SHOWN = {
    " code_id": _SILENT,
    " curl-reset": _SILENT,
    "console:diverged-done curl-done": _SILENT,
    "console:cluster-configuration-apply curl-apply": _SILENT,
    "console:cluster-configuration curl-save": "It is shown in answer to a form, with what was typed there.",
    "console:cluster-configuration curl-restart": "It is shown in answer to a form, with what was typed there.",
    " curl-restart": _NO_DRIVER,
    " curl-upgrade": _NO_DRIVER,
    "console:operator-machine-clear curl-clear": _NO_DRIVER,
    "console:operator-machine-delete curl-delete": _NO_DRIVER,
    "console:operator-operation-requeue row.requeue_id": _NO_DRIVER,
    "console:operator-invoice-reproduce curl-reproduce": "It needs an invoice that was issued, with its snapshot.",
}
# Button and code alike are answered that no broker does, and leave no trace.
TRACELESS = {"console:dead-letter-replay-continue curl-continue"}


def test_the_code_of_each_button_leaves_the_same_audit_trail_as_the_button(world: World, lively: list[str]) -> None:
    scopes = (*ALL_SCOPES, OPERATE_SCOPE)
    token = api_token_issue(
        actor=SYSTEM, tenant=world.tenant, name="shell", role="owner", user=world.alice, scopes=scopes
    ).text
    client = world.client(world.alice)
    seen: set[str] = set()
    traceless: set[str] = set()
    for address in lively:
        answer = client.get(address)
        page = answer.content.decode() if answer.headers.get("Content-Type", "").startswith("text/html") else ""
        if answer.status_code != 200 or "<html" not in page:
            continue
        for button in buttons_of(address, page):
            known = str(button)
            by_code = effects(lambda lines=button.lines: [run(line, token) for line in lines], known)
            by_button = effects(lambda one=button: client.post(one.address, one.sent), known)
            assert by_code == by_button, button
            names = {f"{button.form} {one}" for one in button.ids}
            seen |= names | {f"* {one}" for one in button.ids}
            traceless |= set() if by_code else names
    wanted = {
        f"{form.leads_to} {code}"
        for path in TEMPLATES.rglob("*.html")
        for form in forms_in("", path.read_text(encoding="utf-8"), only="code")
        for code in form.codes
    }
    assert wanted - seen == NOT_SHOWN.keys()
    assert traceless == TRACELESS
