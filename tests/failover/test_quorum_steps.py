"""Changes of a group that elects its leader, step by step: repeated, cut off by a killed worker, raced. The brokers are
scripted, the rows real.
"""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from controlplane.clusters.models import BrokerGroup, Cluster, Operation, OperationState, Replica, StepState
from controlplane.clusters.operations import operation_retry
from controlplane.clusters.stuck_operations import left_behind
from controlplane.common.errors import Conflict, InvalidInput
from controlplane.failover.errors import ConfirmationNeeded, NotPossible
from controlplane.failover.membership import order
from controlplane.failover.membership import steps as membership_steps
from controlplane.failover.membership.services import Prefer, Recover, Replace, Resize, Transfer
from controlplane.failover.models import Failover, FailoverKind
from controlplane.failover.sampling import cluster_sample, fences_release
from controlplane.provisioning import health, probe
from controlplane.provisioning.models import PortLease
from controlplane.provisioning.steps import StepContext, start_brokers
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import SYSTEM, World
from tests.failover.electing import all_running, begin, completed, run_all, run_step
from tests.failover.replicated import make_replicated
from tests.failover.scripted_quorum import ScriptedQuorum, lose_majority


class Killed(BaseException):
    """The worker is gone: nothing after this line runs."""


@pytest.fixture
def cluster(world: World) -> Cluster:
    return make_replicated(world.acme, "trio", "dledger", replicas=3)


@pytest.fixture
def group(cluster: Cluster, driver: DriverTwin, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedQuorum]:
    monkeypatch.setattr(order, "TRANSFER_S", 0.05)
    with ScriptedQuorum.of(cluster).answering() as group, patch.object(probe, "port_answers", lambda host, port: True):
        all_running(cluster, driver)
        cluster_sample(cluster, driver)
        yield group


def ids(cluster: Cluster) -> list[int]:
    return sorted(Replica.objects.filter(group__cluster=cluster).values_list("broker_id", flat=True))


def until_caught_up(operation: Operation, driver: DriverTwin, group: ScriptedQuorum) -> Operation:
    """Run until the new replicas are to catch up; then they have, and the rest is run."""
    run_all(operation, driver)
    group.catch_up()
    return run_all(operation, driver)


def test_a_transfer_is_asked_for_once_and_its_outage_is_measured(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    operation = run_all(begin(cluster, driver, Transfer(2)), driver)
    assert (operation.state, group.leader, group.calls) == (OperationState.COMPLETED, 2, ["transfer 2"])
    transfer = Failover.objects.get(operation=operation)
    assert (transfer.kind, transfer.old_master_id, transfer.candidate_id) == (FailoverKind.TRANSFER, 0, 2)
    assert (transfer.expected_epoch, transfer.new_epoch) == (1, 2)
    assert transfer.outage_ms is not None


def test_a_transfer_that_was_ordered_is_no_election(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    run_all(begin(cluster, driver, Transfer(1)), driver)
    cluster_sample(cluster, driver)
    assert not Failover.objects.filter(kind=FailoverKind.ELECTION).exists()


def test_a_transfer_that_does_not_happen_is_tried_again_and_measures_nothing(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    group.stuck = True
    operation = begin(cluster, driver, Transfer(1))
    run_step(operation, driver, "quorum_look")
    assert run_step(operation, driver, "quorum_transfer") == "pending"
    transfer = Failover.objects.get(operation=operation)
    assert (transfer.writes_stopped_at, group.leader) == (None, 0)
    group.stuck = False
    assert run_all(operation, driver).state == OperationState.COMPLETED
    assert group.leader == 1


def test_a_worker_killed_after_the_transfer_has_its_step_taken_over(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    operation = begin(cluster, driver, Transfer(1))
    run_step(operation, driver, "quorum_look")
    with patch.object(membership_steps, "elected_note", side_effect=Killed), pytest.raises(Killed):
        run_step(operation, driver, "quorum_transfer")
    operation.steps.filter(name="quorum_transfer").update(state="pending", claim=None)
    assert run_all(operation, driver).state == OperationState.COMPLETED
    assert group.calls == ["transfer 1"]
    transfer = Failover.objects.get(operation=operation)
    assert transfer.outage_ms is not None


def test_of_two_changes_at_once_one_is_refused(cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin) -> None:
    begin(cluster, driver, Transfer(1))
    with pytest.raises(Conflict):
        begin(cluster, driver, Resize(5))
    assert ids(cluster) == [0, 1, 2]


def test_the_preferred_leader_is_written_into_the_log_then_into_the_files(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    operation = run_all(begin(cluster, driver, Prefer(2)), driver)
    assert (operation.state, group.preferred, group.calls) == (OperationState.COMPLETED, 2, ["prefer 2"])
    texts = [text for path, text in driver.files.items() if path.endswith("broker.conf")]
    assert all("preferredLeaderId=n2" in text for text in texts)
    assert len(texts) == 3
    assert not any(call.startswith("start ") for call in driver.calls)
    run_all(begin(cluster, driver, Prefer(None)), driver)
    assert BrokerGroup.objects.get(cluster=cluster).preferred_leader is None


def test_a_dead_replica_is_replaced_by_an_empty_one(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    group[2].answers = False
    operation = begin(cluster, driver, Replace(2))
    old = Replica.objects.get(group__cluster=cluster, broker_id=2)
    PortLease.objects.create(host="h", port=5, cluster_id=cluster.pk, holder=old.pk, purpose="listenPort")
    run_all(operation, driver)
    waiting = operation.steps.get(name="quorum_catch_up")
    assert waiting.message == "Replica 3 has not caught up yet. It is 4.8 MiB behind."
    group.catch_up()
    assert run_all(operation, driver).state == OperationState.COMPLETED
    assert (group.voters, ids(cluster)) == ([0, 1, 3], [0, 1, 3])
    assert group.calls == ["addObserver 3", "addVoter 3", "removeVoter 2"]
    assert group.forgotten == [(0, 2), (1, 2), (3, 2)]  # the leader first
    assert not PortLease.objects.filter(holder=old.pk).exists()
    assert "folder_remove broker-a-2" in driver.calls
    assert [call for call in driver.calls if call.startswith("start ")][-1].endswith("broker-a-3")


def test_only_the_new_replica_is_started_and_it_knows_its_peers(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    until_caught_up(begin(cluster, driver, Resize(5)), driver, group)
    started = {call.rpartition("-")[2] for call in driver.calls if call.startswith("start ")}
    assert started == {"3", "4"}
    texts = {path: text for path, text in driver.files.items() if path.endswith("broker.conf")}
    assert len(texts) == 5
    for text in texts.values():
        peers = next(line for line in text.splitlines() if line.startswith("dLegerPeers="))
        assert [f"n{one}-" in peers for one in range(5)] == [True] * 5


def test_growing_makes_voters_one_at_a_time_and_shrinking_takes_them_again(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    assert until_caught_up(begin(cluster, driver, Resize(5)), driver, group).state == OperationState.COMPLETED
    assert group.voters == [0, 1, 2, 3, 4]
    assert group.calls == ["addObserver 3", "addObserver 4", "addVoter 3", "addVoter 4"]
    group.calls.clear()
    assert run_all(begin(cluster, driver, Resize(3)), driver).state == OperationState.COMPLETED
    assert (group.voters, ids(cluster), group.calls) == ([0, 1, 2], [0, 1, 2], ["removeVoter 3", "removeVoter 4"])


def test_an_id_is_never_given_out_twice(cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin) -> None:
    until_caught_up(begin(cluster, driver, Resize(5)), driver, group)
    run_all(begin(cluster, driver, Resize(3)), driver)
    operation = begin(cluster, driver, Resize(5))
    assert operation.metadata["adding"] == [5, 6]


def test_a_leader_that_is_to_go_hands_its_role_over_first(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    until_caught_up(begin(cluster, driver, Resize(5)), driver, group)
    group.calls.clear()
    run_all(begin(cluster, driver, Resize(3, remove=[0, 4])), driver)
    assert group.calls == ["transfer 1", "removeVoter 0", "removeVoter 4"]
    assert (group.leader, ids(cluster)) == (1, [1, 2, 3])
    cluster_sample(cluster, driver)
    assert not Failover.objects.filter(kind=FailoverKind.ELECTION).exists()


def test_a_worker_killed_at_any_request_leaves_nothing_that_a_retry_does_not_finish(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    group[2].answers = False
    operation = begin(cluster, driver, Replace(2))
    killed: list[str] = []

    def kill_once(call: str) -> None:
        if call not in killed:
            killed.append(call)
            raise Killed

    group.before_call = kill_once
    for _ in range(6):
        try:
            until_caught_up(operation, driver, group)
        except Killed:
            operation.steps.filter(state="running").update(state="pending", claim=None)
    assert completed(operation)
    assert killed == ["addObserver 3", "addVoter 3", "removeVoter 2"]
    assert (group.voters, ids(cluster)) == ([0, 1, 3], [0, 1, 3])


def test_a_failed_change_is_retried_from_its_first_step(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    operation = until_caught_up(begin(cluster, driver, Resize(5)), driver, group)
    Operation.objects.filter(pk=operation.pk).update(state=OperationState.FAILED)
    operation_retry(actor=SYSTEM, operation=Operation.objects.get(pk=operation.pk))
    group.calls.clear()
    assert run_all(operation, driver).state == OperationState.COMPLETED
    assert group.calls == []


def test_an_election_in_the_middle_is_waited_for_and_the_new_leader_is_asked(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    operation = begin(cluster, driver, Replace(2))
    group[2].answers = False
    run_all(operation, driver)
    group.catch_up()
    group.leader = None
    assert run_step(operation, driver, "quorum_catch_up") == "pending"
    assert "broker-a has no leader right now" in operation.steps.get(name="quorum_catch_up").message
    group.elect(1)
    assert run_all(operation, driver).state == OperationState.COMPLETED
    assert group.voters == [0, 1, 3]


def test_without_a_majority_nothing_is_begun(cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin) -> None:
    group[1].answers = group[2].answers = False
    for change in (Transfer(1), Prefer(1), Replace(2), Resize(5)):
        with pytest.raises(NotPossible, match="can't confirm anything"):
            begin(cluster, driver, change)
    assert (group.calls, ids(cluster)) == ([], [0, 1, 2])


def test_a_group_goes_on_without_a_lost_majority_and_grows_again(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    lose_majority(group)
    group[1].epoch = 4
    operation = begin(cluster, driver, Recover(1), confirm="broker-a")
    with patch.object(membership_steps, "leadership_raise", side_effect=Killed), pytest.raises(Killed):
        run_all(operation, driver)
    operation.steps.filter(name="quorum_recover").update(state="pending", claim=None)
    stopped = [call for call in driver.calls if call.startswith("remove ")]
    assert (len(stopped), group.calls) == (2, [])  # no one leads before the lost ones have surely ended
    assert run_all(operation, driver).state == OperationState.COMPLETED
    assert (group.calls, group.voters, ids(cluster)) == (["promise 1", "recover 1 without [0, 2]"], [1], [1])
    assert group[1].epoch > 4
    grown = until_caught_up(begin(cluster, driver, Resize(3)), driver, group)
    assert (grown.state, group.voters) == (OperationState.COMPLETED, [1, 3, 4])


def test_a_recovered_leader_is_given_the_topics_that_it_lacks(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    lose_majority(group)
    operation = begin(cluster, driver, Recover(1), confirm="broker-a")
    leader = Replica.objects.get(group__cluster=cluster, broker_id=1)
    with patch.object(membership_steps, "topics_assert", return_value=["orders"]) as asserted:
        assert run_all(operation, driver).state == OperationState.COMPLETED
    asserted.assert_called_once_with(cluster, "broker-a", leader.address)


def test_a_recovery_is_done_whichever_of_those_that_are_left_leads_by_now(world: World, driver: DriverTwin) -> None:
    """Retried, it said that nothing had been changed, and failed each time."""
    cluster = make_replicated(world.acme, "five", "dledger", replicas=5)
    with ScriptedQuorum.of(cluster).answering() as group, patch.object(probe, "port_answers", lambda host, port: True):
        all_running(cluster, driver)
        cluster_sample(cluster, driver)
        group.leader = None
        for lost in (0, 1, 2):
            group[lost].answers = group[lost].pulls = False
        operation = begin(cluster, driver, Recover(3), confirm="broker-a")
        run_step(operation, driver, "quorum_stop_lost")
        while run_step(operation, driver, "quorum_recover") != "completed":
            pass
        group.elect(4)
        operation.steps.filter(name="quorum_recover").update(state=StepState.PENDING, claim=None)
        leader = Replica.objects.get(group__cluster=cluster, broker_id=4)
        with patch.object(membership_steps, "topics_assert", return_value=[]) as asserted:
            assert run_all(operation, driver).state == OperationState.COMPLETED
        asserted.assert_called_once_with(cluster, "broker-a", leader.address)
        assert (group.voters, ids(cluster)) == ([3, 4], [3, 4])


def test_a_replica_that_fell_silent_after_the_confirmation_is_not_given_up_with_the_others(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    lose_majority(group)
    operation = begin(cluster, driver, Recover(1), confirm="broker-a")
    group[2].answers = True
    assert run_all(operation, driver).state == OperationState.FAILED
    assert (group.calls, group.voters, ids(cluster)) == ([], [0, 1, 2], [0, 1, 2])


def chosen_one_leads(cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin) -> Operation:
    """Return a recovery from lost disks that ended as failed after the chosen replica began to lead."""
    lose_majority(group)
    operation = begin(cluster, driver, Recover(1), confirm="broker-a")
    assert run_step(operation, driver, "quorum_stop_lost") == "completed"
    while run_step(operation, driver, "quorum_recover") != "completed":
        pass
    operation.steps.filter(name="quorum_forget").update(state=StepState.FAILED)
    Operation.objects.filter(pk=operation.pk).update(state=OperationState.FAILED)
    operation.refresh_from_db()
    return operation


def started_by_a_look(cluster: Cluster, driver: DriverTwin) -> list[str]:
    """What the beat does: let go of fences, and start what does not run."""
    fences_release(cluster)
    driver.calls.clear()
    with patch.object(health, "registrations", return_value=[]), patch.object(health, "accounts_reconcile"):
        with patch.object(health, "quotas_reconcile"):
            health.cluster_sample_health(cluster.pk, driver)
    return [call for call in driver.calls if call.startswith("start ") and "broker-a" in call]


def test_replicas_that_were_given_up_are_not_started_again_though_the_recovery_failed_afterwards(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    operation = chosen_one_leads(cluster, group, driver)
    assert started_by_a_look(cluster, driver) == []
    assert "Lost replicas stay stopped" in left_behind(operation)


def test_replicas_that_were_given_up_stay_stopped_when_the_cluster_is_resumed(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    operation = chosen_one_leads(cluster, group, driver)
    driver.calls.clear()
    start_brokers(StepContext.of(operation.steps.get(name="quorum_forget"), driver))
    assert [call.rsplit("-", 1)[-1] for call in driver.calls if call.startswith("start ")] == ["1"]


def test_a_retry_of_the_recovery_frees_those_that_were_given_up(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    operation = chosen_one_leads(cluster, group, driver)
    fences_release(cluster)
    operation_retry(actor=SYSTEM, operation=operation)
    assert run_all(operation, driver).state == OperationState.COMPLETED
    assert ids(cluster) == [1]


def test_a_replica_that_was_given_up_can_be_replaced_where_the_recovery_can_not_be_retried(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    chosen_one_leads(cluster, group, driver)
    for lost in (0, 2):
        replacement = until_caught_up(begin(cluster, driver, Replace(lost)), driver, group)
        assert replacement.state == OperationState.COMPLETED
    assert (group.voters, ids(cluster)) == ([1, 3, 4], [1, 3, 4])


def test_replicas_that_were_given_up_are_no_part_of_a_growth(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    """With their old disks they are a majority of the voters that they know."""
    chosen_one_leads(cluster, group, driver)
    for count in (3, 5):
        with pytest.raises(NotPossible, match="gave up replicas 0 and 2 for good"):
            begin(cluster, driver, Resize(count))


def test_the_lost_are_started_again_where_no_one_was_asked_to_lead(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    lose_majority(group)
    operation = begin(cluster, driver, Recover(1), confirm="broker-a")
    assert run_step(operation, driver, "quorum_stop_lost") == "completed"
    group[1].answers = False
    assert run_all(operation, driver).state == OperationState.FAILED
    assert len(started_by_a_look(cluster, driver)) == 2
    assert "Nothing was changed" in left_behind(operation)


def test_nothing_is_given_up_without_the_name_or_while_a_majority_answers(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    with pytest.raises(NotPossible, match="nothing to recover"):
        begin(cluster, driver, Recover(1), confirm="broker-a")
    lose_majority(group)
    with pytest.raises(ConfirmationNeeded, match="given up for good"):
        begin(cluster, driver, Recover(1))
    with pytest.raises(InvalidInput):
        begin(cluster, driver, Recover(1), confirm="broker-b")
    assert group.calls == []
