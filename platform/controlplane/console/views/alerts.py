"""Alerts of a tenant, one alert, silences, and the rules of a cluster."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.core.paginator import Paginator
from django.forms import Form
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.alerts.kinds import KINDS, Kind, Rule
from controlplane.alerts.models import Alert, AlertSilence, AlertState
from controlplane.alerts.selectors import (
    alert_get,
    alert_list,
    rule_get,
    rules_of,
    silence_get,
    silence_list,
    silenced,
)
from controlplane.alerts.services import alert_acknowledge, rule_reset, rule_set, silence_create, silence_end
from controlplane.alerts.words import amount, sentence
from controlplane.billing.budgets import budget_get
from controlplane.billing.money import THRESHOLDS_PERCENT
from controlplane.clusters.models import Cluster, ClusterState
from controlplane.clusters.selectors import cluster_get, cluster_list
from controlplane.common.errors import ApplicationError
from controlplane.common.sentences import in_words, say
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import Act, act_of, code_answer, form_values, wants_code
from controlplane.console.alert_forms import AcknowledgeForm, RuleForm, SilenceForm, TenantSilenceForm
from controlplane.console.cluster_pages import cluster_context
from controlplane.console.pages import form_take_error, status_of, tell_done, tell_error, tenant_render
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_can

ROWS_PER_PAGE = 50
# A page shows the worst of many; the API lists all.
FIRING_MAX = 200


@dataclass(frozen=True, slots=True)
class AlertRow:
    """An alert with what a page says of it."""

    alert: Alert
    is_silenced: bool = False

    @property
    def kind(self) -> Kind:
        return KINDS[self.alert.kind]

    @property
    def sentence(self) -> str:
        return sentence(self.alert.kind, self.alert.subject, self.alert.value, self.alert.detail)

    @property
    def threshold(self) -> str:
        """The threshold with its unit; empty for a kind without one."""
        return amount(self.kind.unit, self.alert.threshold)

    @property
    def state(self) -> str:
        """The word of the pill: what is being looked after or silenced is less loud."""
        if self.alert.state == AlertState.RESOLVED:
            return "resolved"
        if self.alert.acknowledged_at is not None:
            return "acknowledged"
        return "silenced" if self.is_silenced else str(self.alert.severity)


@dataclass(frozen=True, slots=True)
class SilenceRow:
    """A silence in words."""

    silence: AlertSilence

    @property
    def what(self) -> str:
        """What no one is notified of."""
        kind = KINDS[self.silence.kind].title if self.silence.kind in KINDS else say("Everything")
        return say("%(kind)s: %(subject)s", kind=kind, subject=self.silence.subject) if self.silence.subject else kind


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A rule in words."""

    rule: Rule

    @property
    def threshold(self) -> str:
        """From where on it is wrong; `none` for what is wrong or not."""
        if not self.rule.kind.has_threshold:
            return say("none")
        value = amount(self.rule.kind.unit, self.rule.threshold)
        if self.rule.kind.is_floor:
            return say("%(value)s or less", value=value)
        return say("%(value)s or more", value=value)

    @property
    def lasting(self) -> str:
        """How long it has to last."""
        return (
            in_words(amount("seconds", self.rule.duration_s)).replace(" ", "\N{NO-BREAK SPACE}")
            if self.rule.duration_s
            else say("at once")
        )


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("alert.view")
def alerts_page(request: ConsoleRequest, tenant: Tenant) -> HttpResponse:
    """Show what is wrong now, what was, and the silences; a POST makes a silence."""
    clusters = list(cluster_list(tenant))
    form = TenantSilenceForm(
        request.POST if request.method == "POST" else None, clusters=[(one.slug, one.name) for one in clusters]
    )
    if wants_code(request):
        return code_answer(_silence_curl(tenant, form))
    if form.is_valid():
        slug = form.cleaned_data["cluster"]
        cluster = cluster_get(tenant, slug) if slug else None
        if _silence(request, tenant, form, cluster=cluster, kind=form.cleaned_data["kind"]):
            return redirect("console:alerts", tenant.slug)
    ended = Paginator(alert_list(tenant, state=AlertState.RESOLVED), ROWS_PER_PAGE).get_page(request.GET.get("page"))
    silences = [SilenceRow(silence) for silence in silence_list(tenant).order_by("until")]
    context = {
        "firing": _rows(tenant, list(alert_list(tenant, state=AlertState.FIRING)[:FIRING_MAX])),
        "rows": ended,
        "ended": [AlertRow(alert) for alert in ended.object_list],
        "silences": silences,
        "end_act": act_of("DELETE", f"{tenant.path}alert-silences/{silences[0].silence.pk}/") if silences else None,
        "form": form,
        "watched": sum(one.state == ClusterState.RUNNING for one in clusters),
        "can_manage": actor_can(request.user, "alert.manage", tenant),
        "curl": act_of("GET", f"{tenant.path}alerts/"),
        "curl_silence": _silence_curl(tenant, form),
    }
    return tenant_render(request, tenant, "console/alerts.html", context, section="alerts", status=status_of(form))


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("alert.view")
def alert_page(request: ConsoleRequest, tenant: Tenant, alert: uuid.UUID) -> HttpResponse:
    """Show one alert; a POST says that someone looks after it."""
    found = alert_get(tenant, alert)
    form = AcknowledgeForm(request.POST if request.method == "POST" else None)
    if wants_code(request):
        return code_answer(_acknowledge_act(found, form))
    if form.is_valid():
        try:
            alert_acknowledge(actor=request.user, alert=found, note=form.cleaned_data["note"])
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            tell_done(request, say("Acknowledged. It stays open until what is wrong is right."))
            return redirect("console:alert", tenant.slug, found.pk)
    return _alert(request, tenant, found, form=form)


@require_POST
@tenant_page("alert.manage")
def alert_silence(request: ConsoleRequest, tenant: Tenant, alert: uuid.UUID) -> HttpResponse:
    """Notify no one of this kind about this subject for a time."""
    found = alert_get(tenant, alert)
    form = SilenceForm(request.POST)
    if wants_code(request):
        return code_answer(_silence_curl(tenant, form, found))
    if form.is_valid() and _silence(
        request, tenant, form, cluster=found.cluster, kind=found.kind, subject=found.subject
    ):
        return redirect("console:alert", tenant.slug, found.pk)
    return _alert(request, tenant, found, silence_form=form)


@require_POST
@tenant_page("alert.manage")
def silence_end_page(request: ConsoleRequest, tenant: Tenant, silence: uuid.UUID) -> HttpResponse:
    """End a silence now."""
    try:
        silence_end(actor=request.user, silence=silence_get(tenant, silence))
    except ApplicationError as error:
        tell_error(request, error)
    else:
        tell_done(request, say("The silence has ended."))
    return redirect("console:alerts", tenant.slug)


@require_safe
@tenant_page("alert.view")
def cluster_alerts(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Show what is wrong with a cluster, and what is watched in it."""
    found = cluster_get(tenant, cluster)
    firing = list(alert_list(tenant, state=AlertState.FIRING, cluster=found.slug)[:FIRING_MAX])
    context = {
        **cluster_context(request, found),
        "firing": _rows(tenant, firing),
        "rules": [RuleRow(rule) for rule in rules_of(found)],
        "can_manage": actor_can(request.user, "alert.manage", tenant),
        "has_budget": budget_get(tenant) is not None,
        "budget_percents": THRESHOLDS_PERCENT,
        "can_budget": actor_can(request.user, "budget.manage", tenant),
        "curl": act_of("GET", f"{found.path}alert-rules/"),
    }
    return tenant_render(request, tenant, "console/cluster_alerts.html", context, section="clusters", page="alerts")


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("alert.manage")
def alert_rule(request: ConsoleRequest, tenant: Tenant, cluster: str, kind: str) -> HttpResponse:
    """Change the rule of one kind; a POST with `reset` goes back to the default."""
    found = cluster_get(tenant, cluster)
    rule = rule_get(found, kind)
    if "reset" in request.POST:
        rule_reset(actor=request.user, cluster=found, kind=kind)
        tell_done(request, say("“%(title)s” has its default again.", title=rule.kind.title))
        return redirect("console:cluster-alerts", tenant.slug, found.slug)
    form = RuleForm(request.POST if request.method == "POST" else None, rule=rule)
    if form.is_valid() and not wants_code(request):
        try:
            rule_set(actor=request.user, cluster=found, kind=kind, **form.changed())
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            tell_done(request, say("“%(title)s” is saved.", title=rule.kind.title))
            return redirect("console:cluster-alerts", tenant.slug, found.slug)
    command = act_of("PATCH", f"{found.path}alert-rules/{kind}/", form.changes())
    if wants_code(request):
        return code_answer(command)
    default_act = act_of("DELETE", f"{found.path}alert-rules/{kind}/")
    context = {
        **cluster_context(request, found),
        "rule": rule,
        "form": form,
        "curl": command,
        "default_act": default_act,
    }
    return tenant_render(
        request, tenant, "console/alert_rule.html", context, section="clusters", page="alerts", status=status_of(form)
    )


def _rows(tenant: Tenant, alerts: Sequence[Alert]) -> list[AlertRow]:
    """The loud ones first, each as new as it is."""
    quiet = silenced(tenant, alerts)
    rows = [AlertRow(alert, alert.pk in quiet) for alert in alerts]
    order = ("critical", "warning", "acknowledged", "silenced")
    return sorted(rows, key=lambda row: order.index(row.state))


def _alert(
    request: ConsoleRequest,
    tenant: Tenant,
    alert: Alert,
    *,
    form: Form | None = None,
    silence_form: SilenceForm | None = None,
) -> HttpResponse:
    posted = silence_form or form
    form = form or AcknowledgeForm()
    silence_form = silence_form or SilenceForm(initial={"hours": "4"})
    context = {
        "row": AlertRow(alert, bool(silenced(tenant, [alert]))),
        "alert": alert,
        "form": form,
        "silence_form": silence_form,
        "can_manage": actor_can(request.user, "alert.manage", tenant),
        "curl": _acknowledge_act(alert, form),
        "curl_silence": _silence_curl(tenant, silence_form, alert),
    }
    status = 200 if posted is None else status_of(posted)
    return tenant_render(request, tenant, "console/alert.html", context, section="alerts", status=status)


def _silence(
    request: ConsoleRequest,
    tenant: Tenant,
    form: SilenceForm,
    *,
    cluster: Cluster | None,
    kind: str,
    subject: str = "",
) -> bool:
    """Make a silence; False, with the form saying why, when it is refused."""
    try:
        silence_create(
            actor=request.user,
            tenant=tenant,
            cluster=cluster,
            kind=kind,
            subject=subject,
            until=form.until(timezone.now()),
            reason=form.cleaned_data["reason"],
        )
    except ApplicationError as error:
        form_take_error(form, error)
        return False
    tell_done(request, say("Silenced. It is still shown, but notifies no one."))
    return True


def _acknowledge_act(alert: Alert, form: Form) -> Act:
    example = {} if form.is_bound else {"note": "a disk is added today"}
    return act_of("POST", f"{alert.path}acknowledge/", {**example, **form_values(form)})


def _silence_curl(tenant: Tenant, form: SilenceForm, alert: Alert | None = None) -> Act:
    """Return the act that makes the silence that was typed, an example while nothing was; of the alert's own kind only."""
    values: dict[str, Any] = {"reason": "upkeep"}
    hours = 4
    if form.is_bound:
        form.is_valid()
        values |= {name: form.cleaned_data.get(name) for name in ("cluster", "kind", "reason")}
        hours = int(form.cleaned_data.get("hours") or hours)
    if alert is not None:
        values |= {"cluster": alert.cluster.slug, "kind": alert.kind, "subject": alert.subject}
    until = timezone.now() + timedelta(hours=hours)
    body = {name: value for name, value in values.items() if value}
    return act_of("POST", f"{tenant.path}alert-silences/", {**body, "until": until.isoformat(timespec="minutes")})
