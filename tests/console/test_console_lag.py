"""Pages of lag and of the platform's operators, over rows as Spark writes them; the brokers don't answer here."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.accounts.models import User
from controlplane.billing.models import Plan, Price, Subscription
from controlplane.billing.periods import hour_of
from controlplane.console.views.operator import delay_chart
from controlplane.insight.models import Job, JobRun, JobRunState
from controlplane.insight.selectors import Delay
from highwater import ConsumerProgress, MessageQueue, QueueProgress
from tests.console.browser import LogIn, assert_drawn, look_at
from tests.console.world import World, make_user
from tests.controlplane.billing_world import lag_window, make_plan, make_run, subscribe
from tests.controlplane.brokers_twin import BrokersTwin, brokers_that_answer
from tests.controlplane.world import offset_reset

NOW = datetime.now(UTC)
GROUP = "clusters/orders/lag/billing/"


@pytest.fixture
def lagging(world: World) -> World:
    """Six hours of a group that falls behind on one of its four queues, with an hour that was not counted."""
    begin = NOW - timedelta(hours=6)
    for step in range(0, 72, 2):
        if 24 <= step < 36:
            continue
        start = begin + timedelta(minutes=5 * step)
        lag = step * 40
        lag_window(
            world.cluster,
            start,
            lag=lag,
            lag_ms=lag * 10,
            lag_messages_p50=lag // 2,
            lag_ms_p50=lag * 5,
            window_seconds=600,
            skew=3.6,
            trend_per_second=0.13,
            drain_state="never",
            stuck=step == 70,
            loses_data_at=NOW + timedelta(hours=9) if step >= 66 else None,
        )
        for queue in range(4):
            lag_window(world.cluster, start, broker="broker-a", queue_id=queue, lag=lag if queue == 2 else lag // 40)
    make_run(job=Job.LAG_ANALYTICS, until=NOW - timedelta(minutes=4))
    return world


@pytest.fixture
def olga(world: World) -> User:
    olga = make_user("olga")
    User.objects.filter(pk=olga.pk).update(is_staff=True)
    olga.refresh_from_db()
    return olga


def test_what_the_brokers_do_not_report_is_not_0(world: World) -> None:
    page = world.client(world.victor).get(world.path("clusters/orders/lag/")).content.decode()
    assert 'data-state="unknown"' in page
    assert "The lag is not known." in page


def test_warnings_are_said_in_words(lagging: World) -> None:
    page = lagging.client(lagging.victor).get(lagging.path(GROUP)).content.decode()
    for words in (
        "The group is stuck",
        "The group will lose messages at about",
        "3.6 times the average",
        "grows by 0.13 messages/s",
        "not at this rate",
    ):
        assert words in page
    assert "Figures until" in page


def test_a_gap_in_the_history_is_a_gap_in_the_curve(lagging: World) -> None:
    response = lagging.client(lagging.victor).get(lagging.path(f"{GROUP}?span=6h"))
    spec = json.loads(response.context["charts"][0].json)
    values = spec["series"][0]["values"]
    assert None in values
    assert spec["series"][0]["words"][values.index(None)] == "not known"
    assert [label for label, _ in response.context["charts"][0].rows] == spec["labels"]


def test_the_heat_map_shows_the_hot_queue_and_what_is_not_known(lagging: World) -> None:
    heat = lagging.client(lagging.victor).get(lagging.path(f"{GROUP}?span=6h")).context["heat"]
    levels = {name: [cell.level for cell in cells] for name, cells in heat.rows}
    assert max(level or 0 for level in levels["Queue 2"]) == 5
    assert max(level or 0 for level in levels["Queue 0"]) == 1
    assert None in levels["Queue 2"]


def test_a_tenants_owner_does_not_see_the_operators_pages(world: World) -> None:
    run = make_run(JobRunState.FAILED)
    plan = make_plan()
    paths = ["", "subscriptions/", "jobs/", f"jobs/{run.pk}/", f"plans/{plan.slug}/"]
    paths += [f"plans/{plan.slug}/prices/{plan.prices.get().pk}/"]
    for path in paths:
        assert world.client(world.alice).get(f"/operator/{path}").status_code == 404, path
        assert world.client(None).get(f"/operator/{path}").status_code == 302, path
    for verb in ("retry", "acknowledge"):
        assert world.client(world.alice).post(f"/operator/jobs/{run.pk}/{verb}/").status_code == 404
    assert "failed" not in world.client(world.alice).get(world.path()).content.decode()
    assert JobRun.objects.count() == 1


def test_an_operator_makes_a_plan_a_version_and_gives_it_to_a_tenant(world: World, olga: User) -> None:
    client = world.client(olga)
    assert client.post("/operator/", {"slug": "standard", "name": "Standard", "currency": "EUR"}).status_code == 302
    rates = {"per_million_units": "40", "per_million_units_out": "20", "per_gib_month_stored": "0.1"}
    form = {
        **rates,
        "normal": "1",
        "ordered": "1.5",
        "delayed": "1",
        "transactional": "2",
        "valid_from": "2026-01-01 00:00",
    }
    posted = {f"price-{name}": value for name, value in form.items()}
    assert client.post("/operator/plans/standard/", {**posted, "what": "price"}).status_code == 302
    price = Price.objects.get()
    assert price.multipliers == {"normal": "1", "ordered": "1.5", "delayed": "1", "transactional": "2"}
    refused = client.post("/operator/plans/standard/", {**posted, "what": "price"})
    assert (refused.status_code, "Use a time in the future" in refused.content.decode()) == (422, True)
    given = {"tenant": "acme", "plan": "standard", "valid_from": "2026-01-01 00:00"}
    assert client.post("/operator/subscriptions/", given).status_code == 302
    assert Subscription.objects.get().tenant == world.tenant
    changed = {"plan-name": "Usual", "plan-is_default": "on", "what": "plan"}
    assert client.post("/operator/plans/standard/", changed).status_code == 302
    assert Plan.objects.get().is_default


def test_an_operator_changes_and_removes_a_planned_version_only(world: World, olga: User) -> None:
    plan = make_plan()
    begun = plan.prices.get()
    Price.objects.filter(pk=begun.pk).update(valid_to=hour_of(NOW) + timedelta(days=1))
    planned = Price.objects.create(
        plan=plan,
        valid_from=hour_of(NOW) + timedelta(days=1),
        currency="EUR",
        per_million_units=1,
        per_million_units_out=1,
        per_gib_month_stored=1,
    )
    client = world.client(olga)
    rates = {"per_million_units": "7", "per_million_units_out": "1", "per_gib_month_stored": "1"}
    kinds = dict.fromkeys(("normal", "ordered", "delayed", "transactional"), "1")
    path = f"/operator/plans/standard/prices/{planned.pk}/"
    assert client.post(path, {**rates, **kinds}).status_code == 302
    planned.refresh_from_db()
    assert planned.per_million_units == 7
    assert client.post(f"/operator/plans/standard/prices/{begun.pk}/", {**rates, **kinds}).status_code == 422
    assert client.post(path, {"remove": "1"}).status_code == 302
    assert Price.objects.get() == begun


def test_an_operator_queues_a_backfill_and_retries_what_failed(world: World, olga: User) -> None:
    client = world.client(olga)
    refused = client.post("/operator/jobs/", {"job": "usage_billing", "range_from": "2026-11-01 00:00"})
    assert (refused.status_code, "both ends" in refused.content.decode()) == (422, True)
    form = {"job": "usage_billing", "range_from": "2026-10-01", "range_to": "2026-11-01 00:00"}
    assert client.post("/operator/jobs/", form).status_code == 302
    assert JobRun.objects.get().is_backfill
    failed = make_run(JobRunState.FAILED)
    page = client.get("/operator/jobs/").content.decode()
    assert 'data-banner="job"' in page
    assert 'data-banner="job"' in client.get("/tenants/").content.decode()
    assert client.post(f"/operator/jobs/{failed.pk}/retry/").status_code == 302
    assert JobRun.objects.filter(retry_of=failed, state="queued").count() == 1
    assert 'data-banner="job"' not in client.get("/operator/jobs/").content.decode()


@pytest.mark.django_db(transaction=True)
def test_the_pages_of_lag_look_right(page: Page, live_server: LiveServer, lagging: World, log_in: LogIn) -> None:
    offset_reset(lagging.cluster)
    log_in(lagging.alice)
    page.goto(live_server.url + lagging.path(f"{GROUP}?span=6h"))
    expect(page.locator("#lag-messages")).to_have_attribute("data-state", "drawn")
    for chart in ("lag-messages", "lag-seconds"):
        assert_drawn(page, chart)
    look_at(page, "lag group")
    page.goto(live_server.url + lagging.path("clusters/orders/lag/"))
    look_at(page, "lag unreachable")


def test_an_operator_finds_the_runs_that_failed(world: World, olga: User) -> None:
    failed = make_run(JobRunState.FAILED)
    done = make_run()
    page = world.client(olga).get("/operator/jobs/?job=usage_billing&state=failed").content.decode()
    assert f"/operator/jobs/{failed.pk}/" in page
    assert f"/operator/jobs/{done.pk}/" not in page


def test_where_no_run_is_such_a_one_the_page_leads_to_all(world: World, olga: User) -> None:
    make_run()
    assert "All runs" in world.client(olga).get("/operator/jobs/?state=failed").content.decode()


def test_the_delay_of_one_run_stands_at_the_end_of_an_hour() -> None:
    at = datetime(2026, 11, 24, 23, 12, tzinfo=UTC)
    chart = delay_chart([Delay(at, timedelta(minutes=5))])
    assert chart.span == (at - timedelta(hours=1), at)


@pytest.mark.parametrize(
    ("values", "commands"),
    [
        (
            {"error": "The usage would fall. Way out: read them again (lake reread), or say why (lake accept)."},
            ["manage.py lake reread", "manage.py lake accept --reason &quot;...&quot;"],
        ),
        ({"error": "A file was taken out of use. Way out: read them again (lake reread)."}, ["manage.py lake reread"]),
        ({"error": "", "rows_quarantined": 3}, ["manage.py lake requeue"]),
        ({"error": "The database can't be reached.", "rows_quarantined": 0}, []),
    ],
)
def test_a_runs_page_has_the_commands_that_repair_what_it_found(
    world: World, olga: User, values: dict[str, Any], commands: list[str]
) -> None:
    run = make_run(JobRunState.FAILED, **values)
    page = world.client(olga).get(f"/operator/jobs/{run.pk}/").content.decode()
    assert re.findall(r"<code>(manage\.py lake .*?)</code>", page) == commands


def test_a_runs_page_says_its_failure_once_and_then_the_rest(world: World, olga: User) -> None:
    run = make_run(JobRunState.FAILED, error="The usage of 1 hour would fall.\ncluster 0d5c: 12 messages, 44 before")
    page = world.client(olga).get(f"/operator/jobs/{run.pk}/").content.decode()
    assert page.count("The usage of 1 hour would fall.") == 1
    assert "<pre>cluster 0d5c: 12 messages, 44 before</pre>" in page


@pytest.mark.django_db(transaction=True)
def test_the_operators_pages_look_right(
    page: Page, live_server: LiveServer, world: World, olga: User, log_in: LogIn
) -> None:
    subscribe(world.tenant, make_plan())
    failed = make_day_of_runs(datetime.now(UTC))
    refused = JobRun.objects.get(rows_refused=2)
    log_in(olga)
    for name, path in (
        *(("operator plan", "plans/standard/"), ("operator jobs", "jobs/")),
        *(("operator job failed", f"jobs/{failed.pk}/"), ("operator job refused", f"jobs/{refused.pk}/")),
    ):
        page.goto(f"{live_server.url}/operator/{path}")
        if name == "operator jobs":
            assert_drawn(page, "ingest-delay")
        look_at(page, name)


def make_day_of_runs(now: datetime) -> JobRun:
    """A busy platform's latest runs: ingest every five minutes, and all that can happen. Returns a failed one."""
    usual: dict[str, Any] = {"range_from": None, "range_to": None}
    for number in range(60, 1, -1):
        at = now - timedelta(minutes=5 * number)
        took = timedelta(seconds=9 + number * 7 % 23 + (180 if number == 30 else 0))
        records = 11_000 + number * 37
        make_run(job=Job.INGEST, until=at, finished_at=at + took, rows_in=records, rows_out=records, **usual)
    at = now - timedelta(minutes=50)
    since = at - timedelta(hours=48)
    make_run(until=at, since=since, rows_in=2_841_203, rows_out=12_480, rows_late=312, rows_refused=0)
    refusal = (
        "The usage of 2 hours would fall and was left as it is: records may be missing from the lake. Way out: read them again"
        " (lake reread), or say why it may fall (lake accept).\ncluster 0d5c, 2026-11-24 07:00: 12 messages were counted now,"
        " 4410 before"
    )
    refused = make_run(JobRunState.FAILED, until=at + timedelta(minutes=9), rows_refused=2, error=refusal)
    retry: dict[str, Any] = {"retry_of": refused, "attempt": 2, "requested_by": "olga@example.com"}
    make_run(until=at + timedelta(minutes=14), since=since, rows_in=2_841_215, rows_out=12_482, rows_late=0, **retry)
    backfill: dict[str, Any] = {"is_backfill": True, "requested_by": "olga@example.com"}
    make_run(until=at, since=at - timedelta(days=30), rows_in=41_280_000, rows_out=1_204_551, **backfill)
    quarantined: dict[str, Any] = {"rows_in": 11_210, "rows_out": 11_207, "rows_quarantined": 3, **usual}
    make_run(job=Job.INGEST, until=now - timedelta(minutes=4), **quarantined)
    unreachable = (
        "orders-eu (6b0c7c3e-9d1f-4f29-8f3a-0d7a4c1f2b11): its metering can't be read from 10.0.0.7:9876: Connection refused."
        " Is the name server running?"
    )
    failed = make_run(JobRunState.FAILED, Job.INGEST, now - timedelta(minutes=3), error=unreachable)
    running: dict[str, Any] = {"started_at": now - timedelta(seconds=40), "finished_at": None, "error": ""}
    make_run(JobRunState.RUNNING, Job.USAGE_BILLING, **running)
    make_run(JobRunState.QUEUED, Job.LAG_ANALYTICS, started_at=None, finished_at=None, error="")
    return failed


@pytest.mark.parametrize(("jobs", "words"), [("off", "Jobs are switched off"), ("on", "about 10 minutes after")])
def test_without_any_count_the_pages_of_lag_say_why(world: World, settings: Any, jobs: str, words: str) -> None:
    settings.HIGHWATER_JOBS = jobs
    client = world.client(world.alice)

    def progress(self: BrokersTwin, group: str, *, topic: str | None = None) -> ConsumerProgress:
        return ConsumerProgress(group, (QueueProgress(MessageQueue("payments", "broker-a", 0), 5, 5, 5, None),), 10.0)

    with brokers_that_answer(), patch.object(BrokersTwin, "consumer_progress", progress, create=True):
        for page in (client.get(world.cluster_path("lag/")), client.get(world.cluster_path("lag/billing/"))):
            assert page.status_code == 200
            assert words in page.content.decode()
            assert "No usage" not in page.content.decode()
