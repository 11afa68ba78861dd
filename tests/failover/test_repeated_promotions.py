"""A master that was restarted while a slave is dead: it may not lead without that one's agreement, so the control plane has it lead
wherever nothing can be lost by that. The brokers are scripted, the rows real.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from controlplane.clusters.models import Cluster, OperationState, Replica
from controlplane.failover.errors import ConfirmationNeeded
from controlplane.failover.models import FailoverKind, GroupLeadership, ReplicaSample
from controlplane.failover.promotion.services import automatic_failover
from controlplane.failover.promotion.steps import STEPS
from controlplane.failover.promotion.verdict import GroupView
from controlplane.failover.sampling import cluster_sample
from controlplane.provisioning.drivers.base import ProcessState
from controlplane.provisioning.processes import replica_process_name
from controlplane.provisioning.steps import StepContext
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import World
from tests.failover.promotions import lose, names, operation_of, run, start
from tests.failover.replicated import make_replicated
from tests.failover.scripted_group import ScriptedGroup


def restarted_without_its_slave(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin, *, slave_died_first: bool
) -> GroupView:
    """The master was restarted while its slave is dead; the slave died before it was last seen leading, or after."""
    slave = replica_process_name(
        cluster, Replica.objects.select_related("group").get(group__cluster=cluster, broker_id=1)
    )
    lose(group, 1)
    driver.states[slave] = ProcessState.FATAL
    cluster_sample(cluster, driver)
    ago = timezone.now() - timedelta(seconds=60 if slave_died_first else 20)
    ReplicaSample.objects.filter(replica__group__cluster=cluster, replica__broker_id=1).update(
        unreachable_since=ago, process_ended_at=ago
    )
    GroupLeadership.objects.update(led_at=timezone.now() - timedelta(seconds=30))
    group.restart(0)
    (view,) = cluster_sample(cluster, driver)
    return view


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("policy", ["manual", "automatic_when_lossless"])
def test_a_restarted_master_with_a_dead_slave_leads_again_without_anyones_word(
    world: World, driver: DriverTwin, mode: str, policy: str
) -> None:
    cluster = make_replicated(world.acme, "again", mode, policy=policy)
    with ScriptedGroup.of(cluster).answering() as group:
        cluster_sample(cluster, driver)
        view = restarted_without_its_slave(cluster, group, driver, slave_died_first=True)
        failover = automatic_failover(cluster, view, driver)
        assert failover is not None
        assert run(failover, driver).state == OperationState.COMPLETED
        assert (failover.kind, failover.lossless, failover.old_master_id) == (FailoverKind.REPEAT, True, 0)
        assert group.promotions == [(5, 0)]
        assert names(failover)[:3] == ["claim_blocked", "requested", "preflight"]
        assert "replica 1 since" in failover.timeline.get(name="claim_blocked").detail
        assert failover.outage_ms is not None
        assert not Replica.objects.filter(group__cluster=cluster, fenced=True).exists()


def test_where_an_asynchronous_slave_may_have_led_an_operator_is_asked(world: World, driver: DriverTwin) -> None:
    cluster = make_replicated(world.acme, "doubt", "async", policy="automatic_when_lossless")
    with ScriptedGroup.of(cluster).answering() as group:
        cluster_sample(cluster, driver)
        view = restarted_without_its_slave(cluster, group, driver, slave_died_first=False)
        assert automatic_failover(cluster, view, driver) is None
        with pytest.raises(ConfirmationNeeded) as caught:
            start(cluster, driver)
        assert caught.value.extra == {"bytes_at_risk": None, "messages_at_risk": None}
        failover = start(cluster, driver, confirm="broker-a")
        assert run(failover, driver).state == OperationState.COMPLETED
        # A replica that may lead unseen is stopped before, and started as a slave afterwards.
        assert [call.split()[0] for call in driver.calls if call.endswith("broker-a-1")] == ["kill", "start"]
        assert (group.promotions, failover.lossless) == ([(5, 0)], False)


def test_a_promotion_that_is_repeated_by_two_workers_is_one_leadership(world: World, driver: DriverTwin) -> None:
    cluster = make_replicated(world.acme, "again", "sync")
    with ScriptedGroup.of(cluster).answering() as group:
        cluster_sample(cluster, driver)
        view = restarted_without_its_slave(cluster, group, driver, slave_died_first=True)
        failover = automatic_failover(cluster, view, driver)
        assert failover is not None
        assert automatic_failover(cluster, view, driver) is None
        for step in operation_of(failover).steps.order_by("position"):
            STEPS[step.name](StepContext.of(step, driver))
            STEPS[step.name](StepContext.of(step, driver))
        assert group.promotions == [(5, 0)]
