"""Elections that no one ordered: noticed by a sample, recorded once, and measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from controlplane.clusters.models import Cluster, Replica
from controlplane.failover.elections import elections_measure
from controlplane.failover.models import Failover, GroupLeadership
from controlplane.failover.promotion.services import automatic_failover
from controlplane.failover.sampling import cluster_sample
from controlplane.failover.selectors import timeline_of
from controlplane.provisioning.drivers.base import ProcessState, ProcessStatus
from controlplane.provisioning.processes import replica_process_name
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import World
from tests.failover.electing import all_running
from tests.failover.replicated import make_replicated
from tests.failover.scripted_quorum import ScriptedQuorum


@pytest.fixture
def cluster(world: World) -> Cluster:
    return make_replicated(world.acme, "trio", "dledger", replicas=3)


@pytest.fixture
def group(cluster: Cluster, driver: DriverTwin) -> Iterator[ScriptedQuorum]:
    with ScriptedQuorum.of(cluster).answering() as group:
        all_running(cluster, driver)
        cluster_sample(cluster, driver)
        yield group


def led_at(cluster: Cluster, ago_s: float) -> datetime:
    """The leader was last seen so long ago."""
    at = timezone.now() - timedelta(seconds=ago_s)
    GroupLeadership.objects.filter(group__cluster=cluster).update(led_at=at)
    return at


def look(cluster: Cluster, driver: DriverTwin) -> None:
    """What beat does each three seconds."""
    cluster_sample(cluster, driver)
    elections_measure(cluster, driver)


def names(election: Failover) -> list[str]:
    return [line.name for line in timeline_of(election)]


def ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def process_ended(cluster: Cluster, driver: DriverTwin, replica_id: int, at: datetime) -> None:
    """The replica's supervisor reports when its process last ended; it runs again."""
    row = Replica.objects.get(group__cluster=cluster, broker_id=replica_id)
    name = replica_process_name(cluster, row)
    reported = driver.process_statuses

    def with_end(names: Sequence[str]) -> dict[str, ProcessStatus]:
        found = reported(names)
        return {key: replace(status, stopped_at=at) if key == name else status for key, status in found.items()}

    driver.process_statuses = with_end  # type: ignore[method-assign]  # this driver's own, for this test


def test_the_foundation_of_a_group_is_no_election(cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin) -> None:
    look(cluster, driver)
    assert not Failover.objects.exists()


def test_a_new_epoch_is_recorded_once_with_no_one_who_asked(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    group[0].answers = False
    group.elect(1)
    for _ in range(3):
        look(cluster, driver)
    election = Failover.objects.get()
    assert (election.kind, election.operation, election.old_master_id, election.candidate_id) == (
        "election",
        None,
        0,
        1,
    )
    assert (election.expected_epoch, election.new_epoch, election.lossless) == (1, 2, True)
    assert "did not answer" in election.timeline.get(name="noticed").detail


def test_under_load_it_is_measured_to_the_first_message_of_the_new_epoch(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    seen = led_at(cluster, 9)
    group[0].answers = False
    group.elect(1, stored_at_ms=ms(seen) + 2000)
    group.store(group[1].end_offset, "payments", ms(seen) + 2500)
    group[1].end_offset += 100
    look(cluster, driver)
    election = Failover.objects.get()
    assert election.outage_ms is not None
    assert abs(election.outage_ms - 2500) <= 1
    assert (names(election), election.state) == (["lost", "elected", "first_write", "noticed"], "completed")
    assert election.measured_how == (
        "At most this long: measured from the last sample in which replica 0 led (one is taken each three seconds) to the"
        " first message that replica 1 stored in its epoch, by its clock."
    )


def test_the_end_of_the_old_leaders_process_is_a_better_beginning(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    seen = led_at(cluster, 9)
    process_ended(cluster, driver, 0, seen + timedelta(seconds=1))
    group.elect(1, stored_at_ms=ms(seen) + 2000)
    group.store(group[1].end_offset, "payments", ms(seen) + 2500)
    group[1].end_offset += 100
    look(cluster, driver)
    election = Failover.objects.get()
    assert election.outage_ms is not None
    assert abs(election.outage_ms - 1500) <= 1
    assert "the end of replica 0's process (its supervisor reports whole seconds)" in election.measured_how


def test_an_end_of_long_ago_is_not_taken_for_this_one(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    seen = led_at(cluster, 9)
    process_ended(cluster, driver, 0, seen - timedelta(hours=1))
    group.elect(1)
    look(cluster, driver)
    assert Failover.objects.get().writes_stopped_at == seen


def test_when_no_one_sends_a_message_of_ours_is_the_first_and_the_measure_a_bound(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    led_at(cluster, 4)
    group.elect(1)
    look(cluster, driver)
    election = Failover.objects.get()
    assert election.measured_how.startswith("At most this long: measured from")
    assert "as no client had sent any" in election.measured_how
    assert "answered SEND_OK" in election.measured_how
    assert election.outage_ms is not None
    assert election.outage_ms >= 4000


def test_a_client_has_time_to_send_first(cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin) -> None:
    led_at(cluster, 4)
    elected_ms = ms(timezone.now()) - 500
    group.elect(1, stored_at_ms=elected_ms)
    look(cluster, driver)
    assert Failover.objects.get().writes_back_at is None
    group.store(group[1].end_offset, "payments", elected_ms + 400)
    group[1].end_offset += 100
    look(cluster, driver)
    assert "to the first message that replica 1" in Failover.objects.get().measured_how


def test_the_brokers_own_records_are_no_first_write(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    seen = led_at(cluster, 9)
    group.elect(1, stored_at_ms=ms(seen) + 2000)
    group.store(group[1].end_offset, "RMQ_SYS_METERING", ms(seen) + 2100)
    group[1].end_offset += 100
    look(cluster, driver)
    assert "a message of ours" in Failover.objects.get().measured_how


def test_until_a_write_is_taken_it_goes_on(cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin) -> None:
    group[0].answers = False
    group.elect(1)
    group[2].answers = False
    look(cluster, driver)
    election = Failover.objects.get()
    assert (election.state, election.outage_ms) == ("in_progress", None)
    group[2].answers = True
    look(cluster, driver)
    election.refresh_from_db()
    assert election.state == "completed"


def test_an_epoch_in_which_nothing_was_written_is_superseded(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    group.elect(1)
    cluster_sample(cluster, driver)
    group.elect(2)
    look(cluster, driver)
    first, second = Failover.objects.order_by("new_epoch")
    assert (first.state, names(first)[-1], first.outage_ms) == ("completed", "superseded", None)
    assert second.writes_back_at is not None


def test_the_preferred_leaders_return_is_recorded_as_such(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    group.preferred = 2
    group.elect(2)
    look(cluster, driver)
    assert "the role went to the preferred leader" in Failover.objects.get().timeline.get(name="noticed").detail


def test_the_old_leaders_return_completes_the_timeline(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    group[0].answers = False
    group.elect(1)
    look(cluster, driver)
    group[0].answers = True
    group.catch_up()
    look(cluster, driver)
    assert names(Failover.objects.get())[-1] == "rejoined"


def test_no_one_promotes_by_itself_here(cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin) -> None:
    Cluster.objects.filter(pk=cluster.pk).update(failover_policy="automatic_when_lossless")
    cluster.refresh_from_db()
    group[0].answers = False
    group.leader = None
    (view,) = cluster_sample(cluster, driver)
    assert automatic_failover(cluster, view, driver) is None
    assert driver.states[next(iter(driver.states))] == ProcessState.RUNNING
