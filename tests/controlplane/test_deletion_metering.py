"""A cluster that is deleted: its last usage is recorded and read before it goes, or an operator agrees to go on without it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
from django.db.models import F
from django.utils import timezone

from controlplane.accounts.models import User
from controlplane.billing.closing import metered
from controlplane.billing.periods import Month
from controlplane.clusters.lifecycle import cluster_delete, cluster_suspend
from controlplane.clusters.models import (
    BrokerGroup,
    Cluster,
    ClusterState,
    Operation,
    OperationState,
    OperationStep,
    OperationType,
    Replica,
    StepState,
)
from controlplane.clusters.replica_remoting import Answer, Closed
from controlplane.failover.models import ReplicaSample
from controlplane.insight import deletion_steps
from controlplane.insight.bounds import cluster_loss_bound, log_samples_take, loss_bound
from controlplane.insight.job_config import config_of
from controlplane.insight.models import ClusterProgress, Job, JobRun, JobRunState, LogSample
from controlplane.insight.progress import cluster_end_agree
from controlplane.provisioning.errors import StepFailed
from controlplane.provisioning.runner import Outcome, operation_step_run
from controlplane.provisioning.steps import StepContext
from mqwire.bodies import ReplicaStatus
from tests.controlplane.billing_world import make_progress
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import World

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


class Brokers:
    """What the cluster's brokers answer."""

    def __init__(self) -> None:
        self.alive = True
        self.recorded = True
        self.silent: set[str] = set()
        self.asked: list[str] = []

    def statuses(self, cluster: Cluster, addresses: list[str]) -> dict[str, Answer]:
        status = cast("ReplicaStatus", SimpleNamespace(role="master"))
        away = self.silent if self.alive else set(addresses)
        return {one: Answer(error="refused") if one in away else Answer(status) for one in addresses}

    def close(self, cluster: Cluster, address: str) -> Closed:
        self.asked.append(address)
        return Closed(recorded=self.recorded)


@pytest.fixture
def brokers(settings: Any) -> Iterator[Brokers]:
    """They live and record at once; jobs are on."""
    settings.HIGHWATER_JOBS = "on"
    found = Brokers()
    with (
        patch.object(deletion_steps, "replica_statuses", found.statuses),
        patch.object(deletion_steps, "metering_close", found.close),
    ):
        yield found


@pytest.fixture
def ran(world: World) -> None:
    """The cluster has been running."""
    Operation.objects.create(
        tenant=world.acme,
        cluster=world.cluster,
        type=OperationType.CLUSTER_CREATE,
        state=OperationState.COMPLETED,
        resource=world.cluster.path,
        requested_by="alice",
    )


@pytest.fixture
def deletion(world: World, ran: None) -> Operation:
    """Of a cluster that has been running."""
    return cluster_delete(actor=world.alice, cluster=world.cluster)


def step(deletion: Operation, name: str) -> OperationStep:
    return deletion.steps.get(name=name)


def go_on(deletion: Operation, driver: DriverTwin) -> str:
    """Run what can be run; returns what the deletion waits for, empty when it is done."""
    deletion.steps.update(not_before=None)
    for one in deletion.steps.exclude(state=StepState.COMPLETED).order_by("position"):
        outcome = operation_step_run(one.pk, driver)
        if outcome != Outcome.COMPLETED:
            one.refresh_from_db()
            return str(one.message)
    return ""


def ingest(world: World, **values: Any) -> None:
    """A run of ingest that began now, and read the cluster to its end."""
    now = timezone.now()
    JobRun.objects.filter(job=Job.INGEST, state=JobRunState.QUEUED).delete()
    JobRun.objects.create(
        job=Job.INGEST, state=JobRunState.COMPLETED, started_at=now, finished_at=now, requested_by="schedule"
    )
    make_progress(world.cluster, now - timedelta(seconds=1), updated_at=timezone.now(), **values)


def test_a_deletion_waits_until_the_last_usage_was_read_and_then_removes(
    world: World, deletion: Operation, brokers: Brokers, driver: DriverTwin
) -> None:
    brokers.recorded = False
    assert "is recording its last usage" in go_on(deletion, driver)
    brokers.recorded = True
    assert go_on(deletion, driver) == "Its last usage is being read."
    assert JobRun.objects.get(job=Job.INGEST).requested_by == "cluster deletion"
    assert not driver.calls
    ingest(world)
    ClusterProgress.objects.update(ingested_until=F("sealed_at") - timedelta(seconds=1))  # however slow this machine is
    assert go_on(deletion, driver) == ""
    world.cluster.refresh_from_db()
    assert world.cluster.state == ClusterState.DELETED
    progress = ClusterProgress.objects.get(pk=world.cluster.pk)
    assert progress.sealed_at == progress.ingested_until


def test_ingest_reads_a_cluster_that_is_being_deleted_to_its_end_and_then_no_more(
    world: World, deletion: Operation, brokers: Brokers, driver: DriverTwin
) -> None:
    def read() -> list[str]:
        run = JobRun.objects.create(job=Job.INGEST, requested_by="schedule")
        found = config_of(run)["clusters"]
        run.delete()
        return [one["cluster_id"] for one in found if one["access_key"]]

    assert read() == [str(world.cluster.pk)]  # not closed yet: it serves clients
    go_on(deletion, driver)
    assert read() == [str(world.cluster.pk)]
    ingest(world)
    go_on(deletion, driver)
    assert read() == []


def test_ingest_reads_a_cluster_on_until_its_deletion_has_seen_that_it_did(
    world: World, deletion: Operation, brokers: Brokers, driver: DriverTwin
) -> None:
    """A run that began before the brokers had closed, and took a minute longer, read what they recorded since: it does not count,
    and another one has to read the cluster again.
    """
    go_on(deletion, driver)
    sealed_at = ClusterProgress.objects.get(pk=world.cluster.pk).sealed_at
    assert sealed_at is not None
    make_progress(world.cluster, sealed_at + timedelta(minutes=1))
    run = JobRun.objects.create(job=Job.INGEST, requested_by="cluster deletion")
    assert [one["cluster_id"] for one in config_of(run)["clusters"] if one["access_key"]] == [str(world.cluster.pk)]


def test_a_group_that_never_ran_keeps_no_cluster_from_being_read_to_its_end(world: World) -> None:
    """The growth that was to add it failed before it had ports: there is nothing of it that could be read."""
    group = BrokerGroup.objects.create(cluster=world.cluster, name="broker-b")
    Replica.objects.create(group=group, host="127.0.0.1")
    run = JobRun.objects.create(job=Job.INGEST, requested_by="schedule")
    assert [one["brokers"] for one in config_of(run)["clusters"]] == [["broker-a"]]


def test_a_run_that_began_before_the_last_record_does_not_count(
    world: World, deletion: Operation, brokers: Brokers, driver: DriverTwin
) -> None:
    ingest(world)
    assert go_on(deletion, driver) == "Its last usage is being read."


def test_a_run_that_began_while_the_brokers_closed_does_not_count(
    world: World, deletion: Operation, brokers: Brokers, driver: DriverTwin
) -> None:
    def close(cluster: Cluster, address: str) -> Closed:
        ingest(world)
        return Closed(recorded=True)

    with patch.object(deletion_steps, "metering_close", close):
        assert go_on(deletion, driver) == "Its last usage is being read."


def test_brokers_that_have_served_since_an_earlier_end_have_a_new_one(
    world: World, deletion: Operation, brokers: Brokers, driver: DriverTwin
) -> None:
    make_progress(world.cluster, NOON, sealed_at=NOON)
    ingest(world)
    assert go_on(deletion, driver) == "Its last usage is being read."


def test_a_run_that_could_not_read_the_cluster_does_not_count(
    world: World, deletion: Operation, brokers: Brokers, driver: DriverTwin
) -> None:
    go_on(deletion, driver)
    ingest(world, ingest_error="no name server answers")
    assert "could not be read" in go_on(deletion, driver)


def test_a_run_that_did_not_read_every_broker_to_its_last_record_does_not_count(
    world: World, deletion: Operation, brokers: Brokers, driver: DriverTwin
) -> None:
    """One was missing at the name server: an hour of it was never read, and would go with its data."""
    assert go_on(deletion, driver) == "Its last usage is being read."
    ingest(world)
    ClusterProgress.objects.update(ingested_until=timezone.now() - timedelta(hours=1))
    assert go_on(deletion, driver).startswith("Its last usage could not be read.")
    ingest(world)
    assert go_on(deletion, driver) == ""


def test_a_broker_that_a_failed_suspension_closed_and_stopped_is_read_to_where_that_closed_it(
    world: World, ran: None, brokers: Brokers, driver: DriverTwin
) -> None:
    group = BrokerGroup.objects.create(cluster=world.cluster, name="broker-b")
    stopped = Replica.objects.create(group=group, host="127.0.0.1", port=77)
    brokers.silent = {stopped.address}
    an_hour_ago = timezone.now() - timedelta(hours=1)
    make_progress(world.cluster, an_hour_ago, sealed_at=an_hour_ago)
    Cluster.objects.filter(pk=world.cluster.pk).update(state=ClusterState.SUSPENDING)
    deletion = cluster_delete(actor=world.alice, cluster=world.cluster)
    assert go_on(deletion, driver) == "Its last usage is being read."
    ingest(world)
    ClusterProgress.objects.update(ingested_until=an_hour_ago)  # where its last record ends
    assert go_on(deletion, driver) == ""


def test_a_run_that_broke_off_does_not_count_whatever_another_job_says_of_the_cluster_meanwhile(
    world: World, deletion: Operation, brokers: Brokers, driver: DriverTwin
) -> None:
    make_progress(world.cluster, timezone.now() - timedelta(hours=1))
    go_on(deletion, driver)
    now = timezone.now()
    lost = {"state": JobRunState.FAILED, "started_at": now, "finished_at": now, "error": "Its worker was lost."}
    JobRun.objects.filter(job=Job.INGEST).update(**lost)
    make_progress(
        world.cluster, timezone.now() - timedelta(hours=1), updated_at=timezone.now()
    )  # as billing_check does
    assert go_on(deletion, driver) == "Its last usage is being read."


def test_a_run_that_failed_for_another_cluster_counts(
    world: World, deletion: Operation, brokers: Brokers, driver: DriverTwin
) -> None:
    go_on(deletion, driver)
    ingest(world)
    JobRun.objects.update(state=JobRunState.FAILED, rows_in=7)
    assert go_on(deletion, driver) == ""


def test_a_dead_clusters_deletion_says_what_may_be_lost_and_goes_on_when_an_operator_agrees(
    world: World, deletion: Operation, brokers: Brokers, driver: DriverTwin
) -> None:
    brokers.alive = False
    make_progress(world.cluster, NOON)
    LogSample.objects.create(
        cluster=world.cluster,
        broker="broker-a",
        hour=NOON,
        first_at=NOON,
        first_offset=1_000_000,
        last_at=NOON + timedelta(minutes=50),
        last_offset=4_800_000,
    )
    message = go_on(deletion, driver)
    assert message.startswith("broker-a has no master that answers, so its last usage is not recorded.")
    assert "at most 3,800,000 bytes of its log, as sampled until 2026-11-20 12:50 UTC" in message
    olga = User.objects.create_user("olga@example.com", is_staff=True)
    cluster_end_agree(actor=olga, cluster=world.cluster, until=timezone.now(), reason="Its disk is lost.")
    assert go_on(deletion, driver) == ""
    assert brokers.asked == []


def suspended_without_master(world: World, brokers: Brokers, driver: DriverTwin) -> Operation:
    """A suspension that has waited for a dead master for as long as it does."""
    make_progress(world.cluster, NOON)
    suspension = cluster_suspend(actor=world.alice, cluster=world.cluster)
    brokers.alive = False
    assert go_on(suspension, driver).startswith("broker-a has no master that answers")
    suspension.steps.filter(name="close_metering").update(started_at=timezone.now() - timedelta(minutes=2))
    assert go_on(suspension, driver) == ""
    suspension.refresh_from_db()
    return suspension


def test_a_suspension_whose_master_is_dead_goes_on_and_says_which_usage_is_not_read(
    world: World, ran: None, brokers: Brokers, driver: DriverTwin
) -> None:
    suspension = suspended_without_master(world, brokers, driver)
    world.cluster.refresh_from_db()
    assert (suspension.state, world.cluster.state) == (OperationState.COMPLETED, ClusterState.SUSPENDED)
    said = suspension.metadata["usage_unread"]["broker-a"]
    assert "Its usage after 2026-11-20 12:00 UTC is not read." in said
    assert "read when the cluster is resumed" in said


def test_usage_that_a_suspension_left_unread_keeps_the_months_invoice_waiting(
    world: World, ran: None, brokers: Brokers, driver: DriverTwin
) -> None:
    suspended_without_master(world, brokers, driver)
    one = metered(world.cluster, ClusterProgress.objects.get(pk=world.cluster.pk))
    assert one.sealed_at is not None
    assert one.sealed_at > NOON == one.ingested_until
    assert not one.is_agreed(Month.of(NOON))


def test_usage_that_a_suspension_left_unread_is_read_once_the_cluster_is_resumed(
    world: World, ran: None, brokers: Brokers, driver: DriverTwin
) -> None:
    suspended_without_master(world, brokers, driver)
    Cluster.objects.filter(pk=world.cluster.pk).update(state=ClusterState.RESUMING)
    deletion_steps.reopen_metering(StepContext(world.cluster, driver, NOON, NOON, Operation()))
    asked = config_of(JobRun.objects.create(job=Job.INGEST, requested_by="schedule"))["clusters"]
    assert [one["cluster_id"] for one in asked if one["namesrv_addr"]] == [str(world.cluster.pk)]


def test_data_with_usage_that_was_never_read_are_kept_until_an_operator_agrees(
    world: World, ran: None, brokers: Brokers, driver: DriverTwin, settings: Any
) -> None:
    suspended_without_master(world, brokers, driver)
    settings.HIGHWATER_DELETE_UNDO_HOURS = 0
    world.cluster.refresh_from_db()
    purge = cluster_delete(actor=world.alice, cluster=world.cluster)
    assert "its data hold the only record of it" in go_on(purge, driver)
    olga = User.objects.create_user("olga@example.com", is_staff=True)
    cluster_end_agree(actor=olga, cluster=world.cluster, until=timezone.now(), reason="Its disk is lost.")
    assert go_on(purge, driver) == ""


def test_a_worker_whose_operation_has_ended_closes_no_broker(
    world: World, deletion: Operation, brokers: Brokers, driver: DriverTwin
) -> None:
    """It had stood still, and the cluster been resumed: brokers that ran again refused every client."""
    context = StepContext.of(step(deletion, "close_metering"), driver)
    Operation.objects.filter(pk=deletion.pk).update(state=OperationState.FAILED)
    with pytest.raises(StepFailed, match="has ended"):
        deletion_steps.close_metering(context)
    assert brokers.asked == []
    assert ClusterProgress.objects.filter(cluster=world.cluster, sealed_at__isnull=False).count() == 0


def test_a_suspension_does_not_wait_for_jobs_that_cannot_run(
    world: World, ran: None, brokers: Brokers, driver: DriverTwin
) -> None:
    suspension = cluster_suspend(actor=world.alice, cluster=world.cluster)
    with patch.object(deletion_steps, "jobs_problem", return_value="No Java was found here."):
        assert "No Java was found here." in go_on(suspension, driver)
        suspension.steps.filter(name="confirm_ingested").update(started_at=timezone.now() - timedelta(minutes=20))
        assert go_on(suspension, driver) == ""
    suspension.refresh_from_db()
    assert "No Java was found here." in suspension.metadata["usage_unread"][""]


def test_where_jobs_cannot_run_the_deletion_says_so(
    world: World, deletion: Operation, brokers: Brokers, driver: DriverTwin
) -> None:
    with patch.object(deletion_steps, "jobs_problem", return_value="No Java was found here."):
        assert "No Java was found here." in go_on(deletion, driver)


def test_where_jobs_are_switched_off_nothing_is_waited_for_and_that_is_noted(
    world: World, deletion: Operation, driver: DriverTwin
) -> None:
    assert go_on(deletion, driver) == ""
    assert "switched off" in ClusterProgress.objects.get(pk=world.cluster.pk).agreed_reason


def test_a_cluster_that_never_ran_has_nothing_to_read(world: World, brokers: Brokers, driver: DriverTwin) -> None:
    assert go_on(cluster_delete(actor=world.alice, cluster=world.cluster), driver) == ""
    assert brokers.asked == []


def sample(broker: str, hour: int, first: int, last: int) -> LogSample:
    begin = NOON + timedelta(hours=hour)
    return LogSample(
        broker=broker,
        hour=begin,
        first_at=begin + timedelta(minutes=1),
        first_offset=first,
        last_at=begin + timedelta(minutes=59),
        last_offset=last,
    )


@pytest.mark.parametrize(
    ("since", "size"),
    [
        (None, 900 + 50),
        (NOON - timedelta(days=1), 900 + 50),
        (NOON + timedelta(minutes=30), 800 + 50),
        (NOON + timedelta(hours=1), 600 + 50),
        (NOON + timedelta(hours=2), 0 + 50),
    ],
)
def test_the_bound_is_the_growth_of_the_logs_since_the_last_sample_before(since: datetime | None, size: int) -> None:
    samples = [sample("a", 1, 500, 900), sample("a", 0, 100, 300), sample("b", 2, 40, 50)]
    found = loss_bound(samples, since)
    assert (found.size_bytes, found.until) == (size, NOON + timedelta(hours=2, minutes=59))


def test_without_samples_no_bound_is_known() -> None:
    assert loss_bound([], NOON).size_bytes is None


def test_each_hour_keeps_the_first_and_the_last_sample(world: World) -> None:
    group = world.cluster.broker_groups.get()
    replica = group.replicas.get()
    for minute, end in ((0, 100), (10, 250), (20, 400)):
        at = NOON + timedelta(minutes=minute)
        ReplicaSample.objects.update_or_create(
            replica=replica, defaults={"sampled_at": at, "last_seen_at": at, "role": "master", "end_offset": end}
        )
        assert log_samples_take(at) == 1
    row = LogSample.objects.get()
    assert (row.first_offset, row.last_offset, row.last_at) == (100, 400, NOON + timedelta(minutes=20))
    assert log_samples_take(NOON + timedelta(hours=1)) == 0  # it was not seen for a while
    assert cluster_loss_bound(world.cluster, NOON).size_bytes == 300
