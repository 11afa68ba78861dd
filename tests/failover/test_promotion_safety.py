"""A promotion beside replicas that may still elect: the rule, what an operator reads, and what each step dares to send. The
brokers are scripted, the rows real.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from unittest.mock import patch

import pytest
from django.utils import timezone

from controlplane.clusters.models import Cluster, Operation, OperationState, OperationStep, OperationType, Replica
from controlplane.failover.membership.verdict import verdict_of
from controlplane.failover.mode_changes import elections_in_doubt, mode_changes_hanging
from controlplane.failover.models import FailoverKind, ReplicaSample
from controlplane.failover.promotion import apis
from controlplane.failover.promotion.safety import promotion_refusal
from controlplane.failover.promotion.services import automatic_failover
from controlplane.failover.promotion.verdict import GroupView, ReplicaView, candidates_ranked, judge
from controlplane.failover.sampling import cluster_sample
from controlplane.provisioning.drivers.base import ProcessState
from controlplane.provisioning.processes import replica_process_name
from highwater.promotion import election_may_be_won
from mqwire.bodies import QuorumStatus
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import Json, World
from tests.failover.promotions import lose, run, start
from tests.failover.replicated import make_replicated
from tests.failover.scripted_group import ScriptedGroup
from tests.failover.views import NOW, slave_view

GROUP = "/api/v1/tenants/acme/clusters/trio/groups/broker-a/"


@pytest.mark.parametrize(
    ("voters", "may_elect", "won"),
    [
        (1, 0, False),
        (1, 1, True),
        (2, 1, False),
        (2, 2, True),
        (3, 1, False),
        (3, 2, True),
        (5, 2, False),
        (5, 3, True),
    ],
)
def test_a_majority_of_the_voters_may_elect(voters: int, may_elect: int, won: bool) -> None:
    assert election_may_be_won(voters, may_elect) is won


def replica(replica_id: int, said: str) -> ReplicaView:
    """`said` in words: whether it elects, and whether it answers now."""
    elects, silent = said.startswith("elects"), said.endswith("silent")
    return slave_view(
        replica_id,
        promotable=True,
        quorum=QuorumStatus(state="follower", voters=[0, 1, 2]) if elects else None,
        unreachable_since=NOW if silent else None,
        last_seen_at=None if said == "never seen, silent" else NOW,
    )


@pytest.mark.parametrize(
    ("said", "hangs", "row_elects", "safe"),
    [
        (("assigned", "assigned", "assigned"), False, False, True),
        (
            ("assigned, silent", "assigned", "assigned, silent"),
            False,
            False,
            True,
        ),  # no one has elected, nor was asked to
        (("never seen, silent", "assigned", "never seen, silent"), False, False, True),
        (("assigned", "assigned", "assigned"), True, False, True),
        (("assigned, silent", "assigned", "assigned"), True, False, True),
        (("assigned, silent", "assigned", "assigned, silent"), True, False, False),
        (("elects", "assigned", "assigned"), False, False, True),
        (("elects", "assigned", "elects"), False, False, False),
        (("elects, silent", "assigned", "assigned, silent"), False, False, True),  # its last word was before the change
        (("elects, silent", "assigned", "never seen, silent"), False, False, False),
        (("elects, silent", "assigned", "assigned"), True, True, True),
        (("elects, silent", "assigned", "elects"), True, True, False),
        (("elects, silent", "assigned", "assigned, silent"), True, True, False),
        (("elects", "elects", "elects"), True, True, False),
        (
            ("assigned", "assigned", "assigned"),
            False,
            True,
            False,
        ),  # the row says that the group elects, and nothing hangs
    ],
)
def test_a_promotion_is_safe_when_those_that_may_elect_are_no_majority(
    said: tuple[str, ...], hangs: bool, row_elects: bool, safe: bool
) -> None:
    replicas = [replica(replica_id, words) for replica_id, words in enumerate(said)]
    group = GroupView(
        name="broker-a", in_sync_replicas=2, replicas=replicas, elects=row_elects, elections_in_doubt=hangs
    )
    assert (promotion_refusal(group) is None) is safe
    if not row_elects:
        assert bool(judge(group, NOW).candidates) is safe


def test_who_has_no_row_any_more_elects_no_one() -> None:
    five = QuorumStatus(state="follower", voters=[0, 1, 2, 3, 4])
    electing = [slave_view(0, quorum=five), slave_view(1, quorum=five)]
    group = GroupView(name="broker-a", in_sync_replicas=2, replicas=[*electing, slave_view(2, promotable=True)])
    assert promotion_refusal(group) is None
    assert [one.replica_id for one in candidates_ranked(group)] == [2]


def without_voter_2(**of_2: object) -> list[ReplicaView]:
    """In the middle of the way out of dledger: replicas 1 and 3 act by sync. 2 has missed that, and that it is a voter no more."""
    four = QuorumStatus(state="pre-candidate", voters=[0, 1, 3, 4])
    five = QuorumStatus(state="pre-candidate", voters=[0, 1, 2, 3, 4])
    return [
        slave_view(0, promotable=True, quorum=four, end_offset=900, held_offset=900),
        slave_view(1, promotable=True),
        slave_view(2, **{"promotable": True, "quorum": five, "end_offset": 800, "held_offset": 800, **of_2}),
        slave_view(3, promotable=True),
        slave_view(4, promotable=True, quorum=four, end_offset=1100, held_offset=1100),
    ]


def is_safe(replicas: list[ReplicaView]) -> bool:
    group = GroupView(
        name="broker-a", in_sync_replicas=2, replicas=replicas, elects=True, elections_in_doubt=True, leader_id=4
    )
    return promotion_refusal(group) is None


def test_voters_of_the_past_decide_nothing_where_who_names_them_is_outrun() -> None:
    assert is_safe(without_voter_2())


def test_a_vote_too_few_is_no_majority_of_the_voters_of_the_past() -> None:
    assert is_safe(without_voter_2(end_offset=950, held_offset=950))  # 0 would vote for it, 4 would not


@pytest.mark.parametrize(
    ("replica_ids", "changes"),
    [
        ([1], {"held_offset": 800}),  # promoted, it would have the others truncate what replica 2 lacks
        ([1], {"unreachable_since": NOW}),  # what it holds now is not known, nor whether it leads
        ([3], {"role": "master"}),  # logs change
        ([0, 4], {"held_offset": 800}),  # the rest may go with the power of their machines
        ([0, 4], {"promotable": False}),  # their logs may be damaged, and truncated there
        ([0, 4], {"held_offset": None}),
        ([2], {"end_offset": None}),
    ],
)
def test_voters_of_the_past_count_where_who_names_them_may_win(
    replica_ids: list[int], changes: dict[str, object]
) -> None:
    replicas = without_voter_2()
    for replica_id in replica_ids:
        replicas[replica_id] = replace(replicas[replica_id], **changes)  # type: ignore[arg-type]  # of several fields
    assert not is_safe(replicas)


@pytest.mark.parametrize(
    ("of_0", "safe"),
    [
        ({"log_epoch": 0, "end_offset": 0, "held_offset": 0}, True),
        ({"end_offset": 500, "held_offset": 500}, True),
        ({"end_offset": 1300, "held_offset": 1300}, False),  # its own log is the longest: 2 would vote for it
    ],
)
def test_an_elector_whose_disk_is_new_gives_no_vote_to_one_that_is_outrun(of_0: dict[str, object], safe: bool) -> None:
    """On the way out of dledger only 1 acts by sync, and holds most; 2 has lost its log's end to a power cut."""
    voters = [0, 1, 2]
    new = QuorumStatus(state="pre-candidate", voters=voters, has_caught_up=False)
    replicas = [
        slave_view(0, **{"promotable": True, "quorum": new, **of_0}),
        slave_view(1, promotable=True, end_offset=1200, held_offset=1200),
        slave_view(2, promotable=True, quorum=QuorumStatus(state="pre-candidate", voters=voters)),
    ]
    assert is_safe(replicas) is safe
    assert not is_safe([replace(replicas[0], quorum=replicas[2].quorum), *replicas[1:]])


def test_the_refusal_says_how_many_are_needed_and_the_way_out() -> None:
    replicas = [replica(0, "elects, silent"), replica(1, "assigned"), replica(2, "elects")]
    group = GroupView(name="broker-a", in_sync_replicas=2, replicas=replicas, elects=True, elections_in_doubt=True)
    assert promotion_refusal(group) == (
        "A change of the mode of broker-a is not finished: replicas 0 and 2 may still elect a leader. Of 3 replicas only 1"
        " certainly no longer elects, and 2 must before one may be promoted. Way out: bring replica 0 back, or retry the change"
        " of the mode once a replica leads. Only if the disks of replica 0 are gone for good: recover the group from lost disks."
    )
    assert verdict_of(group, NOW).sentences[-1] == promotion_refusal(group)


# --- with rows


@pytest.fixture
def cluster(world: World) -> Cluster:
    return make_replicated(world.acme, "trio", "sync", replicas=3, policy="automatic_when_lossless")


@pytest.fixture
def group(cluster: Cluster, driver: DriverTwin) -> Iterator[ScriptedGroup]:
    with ScriptedGroup.of(cluster).answering() as group, patch.object(apis, "get_driver", return_value=driver):
        for row in Replica.objects.filter(group__cluster=cluster).select_related("group"):
            driver.states[replica_process_name(cluster, row)] = ProcessState.RUNNING
        yield group


def hanging(cluster: Cluster, before: str, after: str, *, state: str = "failed", begun: bool = True) -> Cluster:
    """A change of the mode that is not completed; returns the cluster with the row of before."""
    operation = Operation.objects.create(
        tenant=cluster.tenant,
        cluster=cluster,
        type=OperationType.CLUSTER_MODE,
        state=state,
        resource=cluster.path,
        requested_by="alice",
        metadata={"from": before, "to": after},
    )
    OperationStep.objects.create(operation=operation, position=1, name="mode_change", attempts=int(begun))
    Cluster.objects.filter(pk=cluster.pk).update(mode=before)
    return Cluster.objects.select_related("tenant").get(pk=cluster.pk)


def dead_for_long(cluster: Cluster, group: ScriptedGroup, driver: DriverTwin) -> GroupView:
    """The leader is gone for good."""
    cluster_sample(cluster, driver)
    lose(group)
    cluster_sample(cluster, driver)
    ReplicaSample.objects.filter(replica__group__cluster=cluster, replica__broker_id=0).update(
        unreachable_since=timezone.now() - timedelta(seconds=9)
    )
    (view,) = cluster_sample(cluster, driver)
    return view


@pytest.mark.parametrize(("before", "after"), [("sync", "dledger"), ("dledger", "sync")])
@pytest.mark.parametrize("path", ["promote/", "switchover/"])
def test_no_promotion_is_sent_while_a_majority_may_elect(
    world: World,
    api: Callable[..., Json],
    cluster: Cluster,
    group: ScriptedGroup,
    driver: DriverTwin,
    before: str,
    after: str,
    path: str,
) -> None:
    cluster = hanging(cluster, before, after)
    group.electing = {2}
    view = dead_for_long(cluster, group, driver)
    dry = api(world.alice).call("POST", f"{GROUP}{path}?dry_run=true", {}).json()
    assert (dry["possible"], "Of 3 replicas only 1 certainly no longer elects, and 2 must" in dry["problems"][0]) == (
        False,
        True,
    )
    asked = api(world.alice).call("POST", f"{GROUP}{path}", {"confirm": "broker-a"} if path == "promote/" else {})
    assert (asked.status_code, asked.json()["code"]) == (422, "not_promotable")
    assert automatic_failover(cluster, view, driver) is None
    (reported,) = api(world.bob).call("GET", GROUP.removesuffix("broker-a/")).json()["results"]
    assert (reported["state"], reported["candidates"]) == ("no_master", [])
    assert "may still elect a leader" in reported["sentences"][-1]
    assert group.calls == []


def test_a_group_that_left_dledger_in_the_middle_is_promoted_once_a_majority_elects_no_more(
    world: World, api: Callable[..., Json], cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    cluster = hanging(cluster, "dledger", "sync")
    group.electing = {0}
    dead_for_long(cluster, group, driver)
    (reported,) = api(world.bob).call("GET", GROUP.removesuffix("broker-a/")).json()["results"]
    assert (reported["state"], reported["candidates"], reported["electorate"]) == ("no_master", [1, 2], None)
    operation = run(start(cluster, driver), driver)
    assert operation.steps.get(name="failover_verify").state == "completed", operation.error
    assert group.promotions == [(5, 1)]


def test_the_policy_promotes_in_the_middle_of_a_change_by_the_same_rule(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    cluster = hanging(cluster, "sync", "dledger")
    view = dead_for_long(cluster, group, driver)
    failover = automatic_failover(cluster, view, driver)
    assert failover is not None
    assert failover.kind == FailoverKind.AUTOMATIC


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_step_looks_again_before_it_sends_a_promotion(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin, steps: int
) -> None:
    from controlplane.provisioning.runner import operation_step_run

    cluster = hanging(cluster, "sync", "dledger")
    dead_for_long(cluster, group, driver)
    failover = start(cluster, driver)
    assert failover.operation is not None
    for step in failover.operation.steps.order_by("position")[:steps]:
        operation_step_run(step.pk, driver)
    group.electing = {2}
    operation = run(failover, driver)
    assert operation.state == OperationState.FAILED
    assert "may still elect" in str(operation.error)
    failed = operation.steps.get(state="failed")
    assert failed.name == ("failover_preflight", "failover_fence", "failover_promote")[steps]
    assert group.promotions == []
    assert not any(call.startswith("promote") for call in group.calls)


def test_a_switchover_demotes_no_one_while_a_majority_may_elect(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    cluster = hanging(cluster, "sync", "dledger")
    cluster_sample(cluster, driver)
    failover = start(cluster, driver, FailoverKind.SWITCHOVER)
    group.before_call = lambda call: group.electing.update({0, 2} if call.startswith("freeze") else ())
    assert run(failover, driver).state == OperationState.FAILED
    assert group.calls == ["freeze 10000"]


def test_the_role_is_not_given_back_where_a_majority_has_begun_to_elect(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    cluster = hanging(cluster, "sync", "dledger")
    cluster_sample(cluster, driver)
    failover = start(cluster, driver)

    def sends_go_on(call: str) -> None:
        if call == "demote 0":
            group[0].end_offset += 100
            group.electing = {1, 2}

    group.before_call = sends_go_on
    assert run(failover, driver).state == OperationState.FAILED
    assert group.calls == ["demote 0", "demote 1", "demote 2"]


def test_a_master_that_was_restarted_is_asked_to_lead_again_only_where_none_elects(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    cluster = hanging(cluster, "sync", "dledger")
    cluster_sample(cluster, driver)
    lose(group, 1)
    group.restart(0)
    group[0].claims, group.electing = True, {2}
    cluster_sample(cluster, driver)
    ReplicaSample.objects.filter(replica__group__cluster=cluster, replica__broker_id=1).update(
        unreachable_since=timezone.now() - timedelta(seconds=9)
    )
    (view,) = cluster_sample(cluster, driver)
    assert automatic_failover(cluster, view, driver) is None
    group.electing = set()
    (view,) = cluster_sample(cluster, driver)
    failover = automatic_failover(cluster, view, driver)
    assert failover is not None
    assert (failover.kind, failover.candidate_id) == (FailoverKind.REPEAT, 0)


@pytest.mark.parametrize(
    ("change", "doubt"),
    [
        (("sync", "dledger", "failed", True), True),
        (("sync", "dledger", "in_progress", True), True),
        (("sync", "dledger", "failed", False), False),  # no leader was ever asked
        (("sync", "dledger", "completed", True), False),
        (("dledger", "async", "failed", True), True),
        (("sync", "async", "failed", True), False),
    ],
)
def test_elections_are_in_doubt_from_the_moment_in_which_a_leader_may_have_been_asked(
    cluster: Cluster, change: tuple[str, str, str, bool], doubt: bool
) -> None:
    before, after, state, begun = change
    assert elections_in_doubt(hanging(cluster, before, after, state=state, begun=begun)) is doubt


def test_a_change_of_the_number_of_replicas_does_not_settle_a_change_that_hangs(cluster: Cluster) -> None:
    hanging(cluster, "sync", "async")
    cluster = hanging(cluster, "sync", "sync", state="completed")
    assert mode_changes_hanging(cluster) == [("sync", "async")]
    assert mode_changes_hanging(hanging(cluster, "async", "sync", state="completed")) == []


def test_a_failed_change_after_another_does_not_hide_it(cluster: Cluster) -> None:
    hanging(cluster, "sync", "dledger")
    cluster = hanging(cluster, "sync", "async", begun=False)
    assert mode_changes_hanging(cluster) == [("sync", "async"), ("sync", "dledger")]
    assert elections_in_doubt(cluster)
