"""When an invoice is issued: each cluster of the tenant is ingested and checked past the month's end, or its end is agreed."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from controlplane.accounts.models import User
from controlplane.billing.closing import Metered, UsageRuns, WaitFor, issue_time, waits_of
from controlplane.billing.invoices import invoice_drafts, invoices_issue, invoices_waiting
from controlplane.billing.models import Price
from controlplane.billing.periods import Month
from controlplane.clusters.models import Cluster, ClusterState
from controlplane.common.errors import InvalidInput
from controlplane.common.models import AuditEvent
from controlplane.insight.models import ClusterProgress, Job, JobRun, JobRunState
from controlplane.insight.process import JobResult
from controlplane.insight.progress import cluster_end_agree, cluster_sealed, progress_note
from tests.controlplane.billing_world import make_plan, make_progress, make_run, subscribe, use
from tests.controlplane.world import Json, World, make_cluster

OCT, NOV = Month(2026, 10), Month(2026, 11)
DUE = issue_time(OCT)
HOUR = timedelta(hours=1)
RUNS = UsageRuns(DUE, DUE)
DONE = Metered(uuid.uuid4(), "orders", ingested_until=OCT.end, checked_until=OCT.end)


def olga() -> User:
    """An operator."""
    return User.objects.create_user("olga@example.com", is_staff=True)


def waits(one: Metered, now: datetime = DUE, runs: UsageRuns = RUNS) -> list[WaitFor]:
    return [wait.what for wait in waits_of(OCT, [one], runs, now)]


def test_a_month_closes_when_its_cluster_is_ingested_and_checked_to_its_end() -> None:
    assert waits(DONE) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"ingested_until": None}, WaitFor.INGEST),
        ({"ingested_until": OCT.end - timedelta(seconds=1)}, WaitFor.INGEST),
        ({"checked_until": None}, WaitFor.CHECK),
        ({"checked_until": OCT.end - timedelta(seconds=1)}, WaitFor.CHECK),
        ({"check_error": "3 records are missing"}, WaitFor.FINDINGS),
    ],
)
def test_it_waits_for_what_is_missing(change: dict[str, object], expected: WaitFor) -> None:
    assert waits(replace(DONE, **change)) == [expected]  # type: ignore[arg-type]  # the table's values are of their fields' types


def test_an_end_that_an_operator_agreed_stands_for_all_that_is_missing() -> None:
    dead = Metered(uuid.uuid4(), "dead", check_error="gap", agreed_until=OCT.end)
    assert waits(dead) == []
    assert waits(replace(dead, agreed_until=OCT.end - HOUR)) == [WaitFor.INGEST]


def test_a_cluster_that_was_sealed_in_the_month_ends_there() -> None:
    middle = OCT.start + timedelta(days=9)
    sealed = replace(DONE, ingested_until=middle, checked_until=middle, sealed_at=middle)
    assert waits(sealed) == []
    assert waits(replace(sealed, ingested_until=middle - HOUR)) == [WaitFor.INGEST]


def test_a_cluster_that_was_sealed_before_the_month_is_not_waited_for() -> None:
    assert waits(Metered(uuid.uuid4(), "gone", sealed_at=OCT.start)) == []


def test_a_month_whose_clusters_all_ended_in_it_closes_though_nothing_is_ever_counted_past_its_end() -> None:
    middle = OCT.start + timedelta(days=9)
    runs = UsageRuns(DUE, middle)
    sealed = replace(DONE, ingested_until=middle, checked_until=middle, sealed_at=middle)
    lost = Metered(uuid.uuid4(), "lost", ingested_until=middle, agreed_until=OCT.end)
    assert [waits(one, runs=runs) for one in (sealed, lost, DONE)] == [[], [], [WaitFor.USAGE]]
    assert waits(sealed, runs=UsageRuns(DUE - HOUR, middle)) == [WaitFor.USAGE]


def test_nothing_closes_before_late_usage_was_taken_and_counted() -> None:
    assert waits(DONE, DUE - timedelta(seconds=1)) == [WaitFor.LATE_WINDOW]
    assert waits(DONE, runs=UsageRuns(DUE - timedelta(seconds=1), DUE)) == [WaitFor.USAGE]
    assert waits(DONE, runs=UsageRuns(None, None)) == [WaitFor.USAGE]


def test_the_tenant_reads_which_cluster_it_waits_for_and_not_the_error_itself() -> None:
    failing = replace(
        DONE, ingested_until=OCT.end - HOUR, ingest_failed_since=OCT.end, ingest_error="10.0.0.7:9876 refused"
    )
    (wait,) = waits_of(OCT, [failing], RUNS, DUE)
    assert wait.sentence == (
        "It waits for cluster orders: its metering is read until 2026-10-31 23:00 UTC, and reading it has failed since "
        "2026-11-01 00:00 UTC."
    )
    assert (wait.cause, wait.cluster_name) == ("10.0.0.7:9876 refused", "orders")


@pytest.fixture
def price(world: World) -> Price:
    """Of acme and globex; each uses its cluster in October."""
    plan = make_plan()
    cluster = make_cluster(world.globex, "other")
    Cluster.objects.update(created_at=OCT.start)
    for tenant in (world.acme, world.globex):
        subscribe(tenant, plan)
    price = plan.prices.get()
    for one in (world.cluster, cluster):
        use(one, OCT.start, "1", price=price)
    return price


def test_one_cluster_that_is_not_read_holds_back_its_tenant_and_no_other(world: World, price: Price) -> None:
    make_run(until=DUE)
    make_progress(world.cluster, OCT.end - HOUR)
    assert [invoice.tenant for invoice in invoices_issue(DUE)] == [world.globex]
    (waiting,) = invoices_waiting(DUE)
    assert (waiting.tenant, waiting.month, [wait.what for wait in waiting.waits]) == (world.acme, OCT, [WaitFor.INGEST])
    make_progress(world.cluster, OCT.end)
    assert [invoice.tenant for invoice in invoices_issue(DUE)] == [world.acme]
    assert invoices_waiting(DUE) == []


def test_another_cluster_of_the_tenant_without_usage_is_waited_for(world: World, price: Price) -> None:
    """Its usage may be what was not read."""
    silent = make_cluster(world.acme, "silent")
    make_run(until=DUE)
    Cluster.objects.filter(pk=silent.pk).update(created_at=OCT.start)
    ClusterProgress.objects.filter(pk=silent.pk).delete()
    assert [invoice.tenant for invoice in invoices_issue(DUE)] == [world.globex]
    Cluster.objects.filter(pk=silent.pk).update(state=ClusterState.FAILED)  # it never ran
    assert [invoice.tenant for invoice in invoices_issue(DUE)] == [world.acme]


def test_a_cluster_that_failed_to_start_and_was_deleted_in_the_month_is_not_waited_for(
    world: World, price: Price
) -> None:
    """Its metering was sealed when it was made: there never was any."""
    failed = make_cluster(world.acme, "failed")
    made_at = OCT.start + timedelta(days=9)
    Cluster.objects.filter(pk=failed.pk).update(
        created_at=made_at, state=ClusterState.DELETED, deleted_at=made_at + HOUR
    )
    make_run(until=DUE)
    ClusterProgress.objects.filter(pk=failed.pk).delete()
    cluster_sealed(failed, made_at)
    assert {invoice.tenant for invoice in invoices_issue(DUE)} == {world.acme, world.globex}


def test_a_month_that_waits_holds_back_the_next_and_stays_a_draft(world: World, price: Price) -> None:
    use(world.cluster, NOV.start, "2", price=price)
    later = issue_time(NOV)
    make_run(until=later)
    make_progress(world.cluster, OCT.end - HOUR)
    assert [invoice.tenant for invoice in invoices_issue(later)] == [world.globex]
    drafts = {draft.month: draft.waits for draft in invoice_drafts(world.acme, later)}
    assert {month: [wait.what for wait in found] for month, found in drafts.items()} == {
        OCT: [WaitFor.INGEST],
        NOV: [WaitFor.INGEST],
    }
    make_progress(world.cluster, NOV.end)
    assert [invoice.month for invoice in invoices_issue(later)] == [OCT.first_day, NOV.first_day]


def test_an_agreed_end_is_audited_and_printed_on_the_invoice(
    world: World, price: Price, api: Callable[..., Json]
) -> None:
    make_run(until=DUE)
    make_progress(world.cluster, OCT.end - HOUR)
    operator = olga()
    cluster_end_agree(actor=operator, cluster=world.cluster, until=OCT.end, reason="Its disk is lost.")
    invoice = next(one for one in invoices_issue(DUE) if one.tenant == world.acme)
    assert invoice.agreed_ends == [
        {"cluster": "orders", "until": "2026-11-01T00:00:00+00:00", "reason": "Its disk is lost."}
    ]
    assert api(world.bob).call("GET", invoice.path).json()["agreed_ends"][0]["reason"] == "Its disk is lost."
    event = AuditEvent.objects.get(action="cluster.agree_end")
    assert (event.actor, event.details["reason"]) == ("olga@example.com", "Its disk is lost.")


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"reason": "  "}, "reason"),
        ({"reason": "x" * 501}, "reason"),
        ({"until": OCT.start - timedelta(days=1)}, "until"),
        ({"until": datetime.fromisoformat("2099-01-01T00:00:00Z")}, "until"),
    ],
)
def test_an_end_that_cannot_be_agreed_is_reported_beside_its_field(
    world: World, price: Price, values: dict[str, object], field: str
) -> None:
    operator = olga()
    cluster_end_agree(actor=operator, cluster=world.cluster, until=OCT.start, reason="first")
    with pytest.raises(InvalidInput) as caught:
        cluster_end_agree(
            **{"actor": operator, "cluster": world.cluster, "until": OCT.end, "reason": "x", **values}  # type: ignore[arg-type]  # mixed values
        )
    assert [error.field for error in caught.value.errors] == [field]


def started(job: Job) -> JobRun:
    return make_run(JobRunState.RUNNING, job, until=NOV.start)


def asked_all() -> list[str]:
    return [str(cluster.pk) for cluster in Cluster.objects.all()]


def test_a_run_that_read_all_but_one_cluster_moves_the_others(world: World, price: Price) -> None:
    other = Cluster.objects.get(slug="other")
    result = JobResult(False, "one cluster failed", cluster_errors={world.cluster.pk: "no name server answers"})
    progress_note(started(Job.INGEST), result, NOV.start + HOUR, asked_all())
    failed, read = (ClusterProgress.objects.get(pk=one.pk) for one in (world.cluster, other))
    assert (failed.ingested_until, failed.ingest_failed_since) == (None, NOV.start + HOUR)
    assert "no name server answers" in failed.ingest_error
    assert (read.ingested_until, read.ingest_error) == (NOV.start, "")


def test_a_run_that_broke_off_says_nothing_of_any_cluster(world: World, price: Price) -> None:
    progress_note(
        started(Job.INGEST), JobResult(False, "It took longer than 1800 s, and was ended."), NOV.start, asked_all()
    )
    assert not ClusterProgress.objects.exclude(ingested_until=None).exists()


@pytest.mark.parametrize("state", [ClusterState.RUNNING, ClusterState.SUSPENDING, ClusterState.DELETING])
def test_a_run_says_nothing_of_a_cluster_that_it_was_not_given(world: World, price: Price, state: ClusterState) -> None:
    Cluster.objects.filter(pk=world.cluster.pk).update(state=state)
    progress_note(started(Job.INGEST), JobResult(True), NOV.start + HOUR, [str(Cluster.objects.get(slug="other").pk)])
    assert not ClusterProgress.objects.filter(pk=world.cluster.pk).exclude(ingested_until=None).exists()


def test_what_the_job_said_itself_is_left_as_it_is(world: World, price: Price) -> None:
    run = started(Job.INGEST)
    make_progress(world.cluster, OCT.end, updated_at=NOV.start + timedelta(seconds=1))
    progress_note(run, JobResult(True), NOV.start + HOUR, asked_all())
    assert ClusterProgress.objects.get(pk=world.cluster.pk).ingested_until == OCT.end


def test_a_finding_of_the_check_is_that_clusters_and_the_others_are_clean(world: World, price: Price) -> None:
    other = Cluster.objects.get(slug="other")
    for one in (world.cluster, other):
        make_progress(one, NOV.start, checked_until=None, updated_at=NOV.start - HOUR)
    result = JobResult(False, "1 findings", cluster_errors={world.cluster.pk: "2 records are missing before 1/7"})
    progress_note(started(Job.BILLING_CHECK), result, NOV.start + HOUR)
    found, clean = (ClusterProgress.objects.get(pk=one.pk) for one in (world.cluster, other))
    assert (found.checked_until, "records are missing" in found.check_error) == (None, True)
    assert (clean.checked_until, clean.check_error) == (NOV.start, "")


def test_the_first_time_that_a_cluster_is_sealed_counts(world: World) -> None:
    cluster_sealed(world.cluster, OCT.end)
    cluster_sealed(world.cluster, NOV.end)
    assert ClusterProgress.objects.get(pk=world.cluster.pk).sealed_at == OCT.end
