"""The operators' pages: plans with their prices, subscriptions, and runs of the jobs. To everyone else they don't exist."""

import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import wraps
from typing import Any, Concatenate, ParamSpec
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.conf import settings
from django.core.paginator import Paginator
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext, gettext_noop
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.accounts.operators import operator_require
from controlplane.billing.models import Plan, Price, Subscription
from controlplane.billing.plan_services import (
    KINDS,
    plan_create,
    plan_update,
    price_add,
    price_remove,
    price_update,
    subscription_set,
)
from controlplane.billing.selectors import plan_get, price_get
from controlplane.common.errors import ApplicationError
from controlplane.common.sentences import in_words
from controlplane.console.access import ConsoleRequest, console_page
from controlplane.console.acts import act_of, code_answer, wants_code
from controlplane.console.billing_forms import (
    JobForm,
    JobSearchForm,
    PlanChangeForm,
    PlanForm,
    PriceForm,
    RatesForm,
    SubscriptionForm,
)
from controlplane.console.charts import Chart, Curve
from controlplane.console.pages import form_take_error, status_of, tell_done, tell_error
from controlplane.insight.availability import jobs_problem
from controlplane.insight.models import Job, JobRunState
from controlplane.insight.progress import ingested_until
from controlplane.insight.repairs import repairs_of
from controlplane.insight.selectors import Delay, counted, failures_open, ingest_delays, job_run_get, job_run_list
from controlplane.insight.services import job_run_acknowledge, job_run_queue, job_run_replay, job_run_retry
from controlplane.insight.words import length_words

P = ParamSpec("P")
_PER_PAGE = 25


def operator_page(
    view: Callable[Concatenate[ConsoleRequest, P], HttpResponseBase],
) -> Callable[..., HttpResponseBase]:
    """Wrap a page for operators: everyone else who is logged in gets 404."""

    @wraps(view)
    def wrapped(request: ConsoleRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        operator_require(request.user)
        return view(request, *args, **kwargs)

    return console_page(wrapped)


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page
def plans(request: ConsoleRequest) -> HttpResponse:
    """Show the plans, and make one."""
    form = PlanForm(request.POST if request.method == "POST" else None)
    command = act_of("POST", "/api/v1/operator/plans/", form.body())
    if wants_code(request):
        return code_answer(command)
    if form.is_valid():
        try:
            plan = plan_create(actor=request.user, **form.cleaned_data)
        except ApplicationError as error:
            form_take_error(form, error, {"slug_taken": "slug"})
        else:
            tell_done(request, gettext("%(name)s is created. Add its first price.") % {"name": plan.name})
            return redirect("console:operator-plan", plan.slug)
    now = timezone.now()
    rows = [{"plan": plan, "price": _now(list(plan.prices.all()), now)} for plan in Plan.objects.order_by("name")]
    context = {"form": form, "rows": rows, "curl": command}
    return operator_render(request, "console/operator/plans.html", context, "plans", status_of(form))


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page
def plan_page(request: ConsoleRequest, plan: str) -> HttpResponse:
    """Show a plan with the versions of its prices, change what it is called, and add a version."""
    found = plan_get(plan)
    changing = request.method == "POST" and request.POST.get("what") == "plan"
    adding = request.method == "POST" and not changing
    initial = {"name": found.name, "description": found.description, "is_default": found.is_default}
    change = PlanChangeForm(request.POST if changing else None, initial=initial, prefix="plan")
    versions = list(Price.objects.filter(plan=found).order_by("-valid_from"))
    price = PriceForm(
        request.POST if adding else None, initial=_rates_of(versions[0]) if versions else {}, prefix="price"
    )
    price_act = act_of("POST", f"{found.path}prices/", price.body())
    change_act = act_of("PATCH", found.path, change.body())
    if wants_code(request):
        return code_answer(change_act if changing else price_act)
    if change.is_valid():
        plan_update(actor=request.user, plan=found, **change.cleaned_data)
        tell_done(request, gettext("The plan is saved."))
        return redirect("console:operator-plan", found.slug)
    if price.is_valid():
        try:
            price_add(actor=request.user, plan=found, valid_from=price.cleaned_data["valid_from"], rates=price.rates())
        except ApplicationError as error:
            form_take_error(price, error)
        else:
            tell_done(request, gettext("The version is added."))
            return redirect("console:operator-plan", found.slug)
    now = timezone.now()
    context = {
        "plan": found,
        "change_form": change,
        "price_form": price,
        "versions": [{"price": version, "state": _state(version, now)} for version in versions],
        "kinds": KINDS,
        "curl": act_of("GET", f"{found.path}prices/"),
        "price_act": price_act,
        "change_act": change_act,
    }
    status = max(status_of(change), status_of(price))
    return operator_render(request, "console/operator/plan.html", context, "plans", status)


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page
def price_page(request: ConsoleRequest, plan: str, price: uuid.UUID) -> HttpResponse:
    """Change or remove a version that has not begun."""
    found = plan_get(plan)
    version = price_get(found, price)
    if request.method == "POST" and request.POST.get("remove"):
        try:
            price_remove(actor=request.user, price=version)
        except ApplicationError as error:
            tell_error(request, error)
        else:
            tell_done(request, gettext("The version is removed."))
        return redirect("console:operator-plan", found.slug)
    form = RatesForm(request.POST if request.method == "POST" else None, initial=_rates_of(version))
    has_begun = version.valid_from <= timezone.now()
    path = f"{found.path}prices/{version.pk}/"
    command = act_of("GET", path) if has_begun else act_of("PUT", path, form.body())
    if wants_code(request):
        return code_answer(command)
    if form.is_valid():
        try:
            price_update(actor=request.user, price=version, rates=form.rates())
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            tell_done(request, gettext("The version is saved."))
            return redirect("console:operator-plan", found.slug)
    context = {
        "plan": found,
        "price": version,
        "form": form,
        "has_begun": has_begun,
        "curl": command,
        "curl_remove": act_of("DELETE", path),
    }
    return operator_render(request, "console/operator/price.html", context, "plans", status_of(form))


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page
def subscriptions(request: ConsoleRequest) -> HttpResponse:
    """Show who has which plan, and give one."""
    form = SubscriptionForm(request.POST if request.method == "POST" else None)
    command = act_of("POST", "/api/v1/operator/subscriptions/", form.body())
    if wants_code(request):
        return code_answer(command)
    if form.is_valid():
        values = form.cleaned_data
        plan = Plan.objects.filter(slug=values["plan"]).first() if values["plan"] else None
        try:
            subscription_set(actor=request.user, tenant=values["tenant"], plan=plan, valid_from=values["valid_from"])
        except ApplicationError as error:
            form_take_error(form, error, {"no_price": "plan"})
        else:
            tell_done(request, gettext("The subscription is set."))
            return redirect("console:operator-subscriptions")
    rows = Subscription.objects.select_related("tenant", "plan").order_by("-created_at", "pk")
    context = {
        "form": form,
        "rows": Paginator(rows, _PER_PAGE).get_page(request.GET.get("page")),
        "query": "",
        "curl": command,
    }
    return operator_render(request, "console/operator/subscriptions.html", context, "subscriptions", status_of(form))


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page
def jobs(request: ConsoleRequest) -> HttpResponse:
    """Show the runs, how far each job has counted, and queue a run or a backfill."""
    form = JobForm(request.POST if request.method == "POST" else None)
    command = act_of("POST", "/api/v1/operator/job-runs/", form.body())
    if wants_code(request):
        return code_answer(command)
    if form.is_valid():
        try:
            run = job_run_queue(actor=request.user, **form.cleaned_data)
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            tell_done(request, gettext("%(job)s is queued.") % {"job": run.get_job_display()})
            return redirect("console:operator-job", run.pk)
    wanted = JobSearchForm(request.GET, auto_id="find_%s")
    found = job_run_list(**wanted.cleaned_data) if wanted.is_valid() else job_run_list()
    runs = Paginator(found.order_by("-created_at", "pk"), _PER_PAGE).get_page(request.GET.get("page"))
    failed = next((run for run in runs.object_list if run.state == JobRunState.FAILED), None)
    done = next((run for run in runs.object_list if run.state == JobRunState.COMPLETED and run.can_replay), None)
    context = {
        "form": form,
        "problem": jobs_problem(),
        "covered": [{"job": job, "counted": counted(job), "until": _until(job)} for job in Job],
        "kept": retention(),
        "charts": [delay_chart(ingest_delays())],
        "wanted": wanted,
        "runs": runs,
        "retry_act": failed and act_of("POST", f"{failed.path}retry/"),
        "replay_act": done and act_of("POST", f"{done.path}replay/"),
        "query": urlencode({name: value for name, value in wanted.cleaned_data.items() if value}),
        "curl": command,
    }
    return operator_render(request, "console/operator/jobs.html", context, "jobs", status_of(form))


@require_safe
@operator_page
def job_page(request: ConsoleRequest, run: uuid.UUID) -> HttpResponse:
    """Show one run."""
    found = job_run_get(run)
    context = {
        "run": found,
        "repairs": repairs_of(found),
        "curl": act_of("GET", found.path),
        "retry_act": act_of("POST", f"{found.path}retry/"),
        "acknowledge_act": act_of("POST", f"{found.path}acknowledge/"),
        "replay_act": act_of("POST", f"{found.path}replay/"),
    }
    return operator_render(request, "console/operator/job.html", context, "jobs")


@require_POST
@operator_page
def job_retry(request: ConsoleRequest, run: uuid.UUID) -> HttpResponse:
    """Queue a run that failed again."""
    try:
        again = job_run_retry(actor=request.user, run=job_run_get(run))
    except ApplicationError as error:
        tell_error(request, error)
        return redirect("console:operator-job", run)
    tell_done(request, gettext("It is queued again."))
    return redirect("console:operator-job", again.pk)


@require_POST
@operator_page
def job_replay(request: ConsoleRequest, run: uuid.UUID) -> HttpResponse:
    """Queue a backfill of what a run covered."""
    try:
        again = job_run_replay(actor=request.user, run=job_run_get(run))
    except ApplicationError as error:
        tell_error(request, error)
        return redirect("console:operator-job", run)
    tell_done(request, gettext("The same range is queued again."))
    return redirect("console:operator-job", again.pk)


def delay_chart(delays: list[Delay]) -> Chart:
    """Return how long records waited at most until they were read, run by run."""
    moments = [delay.at for delay in delays]
    curve = Curve.of(
        gettext("Delay"),
        [delay.length.total_seconds() for delay in delays],
        lambda value: in_words(length_words(timedelta(seconds=float(value)))),
    )
    return Chart(
        "ingest-delay",
        gettext("Ingest delay in seconds: how long a record waited at most until it was read"),
        "lines",
        gettext("Run that ended at"),
        [f"{moment:%Y-%m-%d %H:%M} UTC" for moment in moments],
        [f"{moment:%H:%M}" for moment in moments],
        moments,
        ZoneInfo("UTC"),
        [curve],
        # One moment alone spans nothing.
        (min(moments[0], moments[-1] - timedelta(hours=1)), moments[-1]) if moments else None,
        empty=gettext(
            "It is known from the second completed run of ingest on, which comes some minutes after the first."
        ),
    )


@require_POST
@operator_page
def job_acknowledge(request: ConsoleRequest, run: uuid.UUID) -> HttpResponse:
    """Take a failure out of the banner."""
    try:
        job_run_acknowledge(actor=request.user, run=job_run_get(run))
    except ApplicationError as error:
        tell_error(request, error)
    return redirect("console:operator-job", run)


def operator_render(
    request: ConsoleRequest, template: str, context: dict[str, Any], page: str, status: int = 200
) -> HttpResponse:
    """Render a page of the operators' area; `page` marks where in its navigation it is."""
    response = render(request, template, {**context, "page": page, "failures": failures_open()}, status=status)
    response.headers["Cache-Control"] = "private, no-cache"
    return response


def _until(job: Job) -> datetime | None:
    """How far a job has come: its runs' ranges say so, or for ingest the cluster that is furthest behind."""
    return ingested_until() if job == Job.INGEST else counted(job).until


def retention() -> list[tuple[str, str, str]]:
    """Return what is kept, for how long, and the setting that says so."""
    days = (
        (gettext("Metering records, and with them how far a backfill reaches"), "HIGHWATER_LAKE_DAYS"),
        (gettext("Records that were refused"), "HIGHWATER_QUARANTINE_DAYS"),
        (gettext("Runs of the jobs"), "HIGHWATER_JOB_RUN_HISTORY_DAYS"),
        (gettext("History of lag"), "HIGHWATER_LAG_HISTORY_DAYS"),
    )
    hours = (
        (gettext("Versions of the tables that no invoice was made from"), "HIGHWATER_LAKE_SNAPSHOT_HOURS"),
        (gettext("How long a closed hour takes late records"), "HIGHWATER_LATE_WINDOW_HOURS"),
        (gettext("Messages at the brokers, and with them what can be read again"), "HIGHWATER_RETENTION_HOURS"),
    )
    return [
        (what, gettext(length) % {"count": getattr(settings, setting)}, setting)
        for length, rows in ((gettext_noop("%(count)s days"), days), (gettext_noop("%(count)s hours"), hours))
        for what, setting in rows
    ]


def _now(prices: list[Price], now: Any) -> Price | None:
    return next((price for price in prices if _state(price, now) == "active"), None)


def _state(price: Price, now: Any) -> str:
    if price.valid_from > now:
        return "planned"
    return "active" if price.valid_to is None or price.valid_to > now else "past"


def _rates_of(price: Price) -> dict[str, object]:
    rates = {
        name: getattr(price, name) for name in ("per_million_units", "per_million_units_out", "per_gib_month_stored")
    }
    shown = {name: format(value.normalize(), "f") for name, value in rates.items()}
    return {**shown, **price.multipliers}
