"""Machines that are gone for good in the middle of a change of the mode into dledger, of which the others have not heard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from unittest.mock import patch

import pytest

from controlplane.clusters import replica_remoting
from controlplane.clusters.models import Cluster, Operation, OperationState, Replica
from controlplane.clusters.replica_answer import Answer
from controlplane.failover.membership import order
from controlplane.failover.membership.plan import plan_recover
from controlplane.failover.membership.services import Recover
from controlplane.failover.mode.plan import plan_mode
from controlplane.failover.orders import carried_out
from controlplane.failover.promotion.order import Fence, FenceAnswers, Promote
from controlplane.failover.promotion.verdict import GroupView
from controlplane.failover.sampling import cluster_sample, fences_release
from highwater.promotion import Ballot, Recovery
from mqwire.bodies import QuorumStatus
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import World
from tests.failover.electing import all_running, begin, run_all, run_step
from tests.failover.promotions import lose
from tests.failover.replicated import make_replicated
from tests.failover.scripted_group import ScriptedGroup
from tests.failover.test_promotion_safety import hanging
from tests.failover.views import NOW, slave_view
from tests.highwater.test_promotion import status

GONE = {"unreachable_since": NOW - timedelta(days=3), "process_ended_at": NOW - timedelta(days=3)}


def burnt(**changes: object) -> GroupView:
    """Replicas 0 and 1 are gone, and 2 has not heard of the change."""
    replicas = [
        slave_view(0, role="master", **GONE),
        slave_view(1, **GONE),
        slave_view(2, promotable=True, in_sync=None),
    ]
    values = {"in_sync_replicas": 2, "elections_in_doubt": True, "leader_id": 0, "epoch": 3, **changes}
    return GroupView(name="broker-a", replicas=replicas, **values)  # type: ignore[arg-type]  # values of any type


def test_those_that_are_gone_can_be_given_up() -> None:
    plan = plan_recover(burnt(), 2, NOW)
    assert (plan.problems, plan.removing, plan.voters_after) == ((), (0, 1), (2,))
    assert "Replicas 0 and 1 of 3 voters are given up for good" in plan.loss


def test_without_a_change_that_hangs_a_replica_is_promoted_instead() -> None:
    (problem,) = plan_recover(burnt(elections_in_doubt=False), 2, NOW).problems
    assert "Promote a replica instead" in problem


def test_no_one_is_given_up_while_another_that_is_left_holds_more() -> None:
    view = burnt()
    fuller = slave_view(3, held_offset=2000, promotable=True)
    view = replace(view, replicas=[*view.replicas, fuller, slave_view(4, **GONE)])
    (problem,) = plan_recover(view, 2, NOW).problems
    assert "Replica 3 holds more" in problem
    assert plan_recover(view, 3, NOW).removing == (0, 1, 4)


def test_one_that_is_left_and_has_heard_of_the_change_goes_on_by_elections() -> None:
    heard = QuorumStatus(state="unattached", voters=[0, 1, 2])
    view = burnt()
    view = replace(view, replicas=[*view.replicas[:2], replace(view.replicas[2], quorum=heard)])
    assert (plan_recover(view, 2, NOW).problems, plan_recover(view, 2, NOW).removing) == ((), (0, 1))


def test_afterwards_the_mode_can_be_asked_for_with_other_replicas() -> None:
    (left,) = (replace(one, role="master", accepts_sends=True) for one in burnt().replicas if one.replica_id == 2)
    view = replace(burnt(leader_id=2), replicas=[left])
    assert plan_mode("sync", "sync", [view], NOW, replicas=3).problems == ()


@pytest.mark.parametrize(("led_epoch", "lacks"), [(3, False), (5, True)])
def test_who_leads_without_a_majority_is_told_of_a_leader_of_whom_its_log_has_nothing(
    led_epoch: int, lacks: bool
) -> None:
    """Consumers may have read others in the place of any of its messages: groups that had committed nothing passed over these."""
    recovery = Recovery((0, 1), (2,), None, "")
    promised = status(2, epoch=8)
    asked: list[Promote] = []

    def carry_out(request: object) -> object:
        if isinstance(request, Promote):
            asked.append(request)
        return FenceAnswers(0.0, {2: Answer(promised)}) if isinstance(request, Fence) else Answer(promised)

    carried_out(order.lead_assigned(burnt(led_epoch=led_epoch), recovery, 2, Ballot(8, 9)), carry_out)
    assert [one.lacks_an_epoch for one in asked] == [lacks]


@pytest.fixture
def cluster(world: World) -> Cluster:
    return make_replicated(world.acme, "trio", "sync", replicas=3)


@pytest.fixture
def group(cluster: Cluster, driver: DriverTwin) -> Iterator[ScriptedGroup]:
    with ScriptedGroup.of(cluster).answering() as group:

        def forgotten(*arguments: object, **others: object) -> Answer:
            return group._answer(group[2])

        with patch.object(replica_remoting, "replica_members", forgotten):
            all_running(cluster, driver)
            cluster_sample(cluster, driver)
            lose(group, 0)
            lose(group, 1)
            yield group


@pytest.mark.parametrize("incomplete", [False, True])
def test_the_replica_that_is_left_leads_once_the_lost_ones_are_stopped_for_good(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin, incomplete: bool
) -> None:
    """Also one whose log may lack records at its end: their loss was agreed to."""
    group[2].incomplete = incomplete
    cluster = hanging(cluster, "sync", "dledger")
    operation = begin(cluster, driver, Recover(2), confirm="broker-a")
    group.calls.clear()
    driver.calls.clear()
    assert run_step(operation, driver, "quorum_stop_lost") == "completed"
    assert len([call for call in driver.calls if call.startswith("remove ")]) == 2
    assert run_all(operation, driver).state == OperationState.COMPLETED
    assert [call.split()[0] for call in group.calls if "2" in call.split()[1]] == ["demote", "promote", "promoted"]
    assert [*Replica.objects.filter(group__cluster=cluster).values_list("broker_id", flat=True)] == [2]


@pytest.mark.parametrize("lacks", [False, True])
def test_that_an_epoch_may_be_missing_reaches_the_replica_that_is_left(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin, lacks: bool
) -> None:
    """The order said so, and the step that carries it out left it out."""
    cluster = hanging(cluster, "sync", "dledger")
    operation = begin(cluster, driver, Recover(2), confirm="broker-a")
    with patch.object(order, "lacks_an_epoch", lambda *_: lacks):
        assert run_all(operation, driver).state == OperationState.COMPLETED
    assert group.told_to_lack == [2] * lacks


def test_the_lost_ones_stay_stopped_though_the_operation_failed_after_the_promotion(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    cluster = hanging(cluster, "sync", "dledger")
    operation = begin(cluster, driver, Recover(2), confirm="broker-a")
    assert run_step(operation, driver, "quorum_stop_lost") == "completed"
    run_step(operation, driver, "quorum_recover")
    Operation.objects.filter(pk=operation.pk).update(state=OperationState.FAILED)
    fences_release(cluster)
    stopped = Replica.objects.filter(group__cluster=cluster, fenced=True).values_list("broker_id", flat=True)
    assert sorted(stopped) == [0, 1]
