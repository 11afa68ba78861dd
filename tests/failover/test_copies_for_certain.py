"""On how many replicas an acknowledged message surely is, and on which it may be: by what the replicas say, not by the row
alone.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from controlplane.clusters.models import Cluster
from controlplane.failover.promotion.verdict import Cleanness, GroupView, cleanness_of
from controlplane.failover.samples import surely_held_by
from controlplane.failover.sampling import group_sample
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import World
from tests.failover.replicated import make_replicated
from tests.failover.scripted_group import ScriptedGroup, ScriptedReplica
from tests.failover.views import NOW, slave_view

AWAY = {"unreachable_since": NOW - timedelta(minutes=1)}


@pytest.fixture
def cluster(world: World) -> Cluster:
    return make_replicated(world.acme, "pair", "sync", replicas=3)


def without_master(group: ScriptedGroup, cluster: Cluster, driver: DriverTwin) -> Cleanness:
    """Return whether replica 1 can be promoted cleanly once the master, which was seen leading, is dead."""
    group_sample(cluster, group.name, driver)
    group[0].answers = False
    view = group_sample(cluster, group.name, driver)
    assert view is not None
    return cleanness_of(view, 1)


@pytest.mark.parametrize("replicas", [2, 3])
def test_a_promotion_is_judged_by_the_mode_that_replicas_act_by_not_by_the_row(
    world: World, driver: DriverTwin, replicas: int
) -> None:
    cluster = make_replicated(world.acme, "by-hand", "sync", replicas=replicas)
    group = ScriptedGroup.of(cluster)
    with group.answering():
        group.mode = "async"
        group[0].end_offset += 5_000
        found = without_master(group, cluster, driver)
    assert not found.clean
    assert found.bytes_at_risk == 5_000


def test_a_master_that_alone_acted_by_another_mode_is_taken_at_its_last_word(
    cluster: Cluster, driver: DriverTwin
) -> None:
    group = ScriptedGroup.of(cluster)
    with group.answering():
        group.mode = "async"
        group_sample(cluster, group.name, driver)
        group[0].answers = False
        group.mode = "sync"
        view = group_sample(cluster, group.name, driver)
    assert view is not None
    assert not cleanness_of(view, 1).clean


def test_a_follower_that_has_no_row_counts_for_what_the_master_acknowledged(
    cluster: Cluster, driver: DriverTwin
) -> None:
    group = ScriptedGroup.of(cluster)
    with group.answering():
        group[0].end_offset += 5_000
        group.replicas.append(ScriptedReplica(9, "127.0.9.9:10", end_offset=group[0].end_offset))
        found = without_master(group, cluster, driver)
    assert not found.clean
    assert "answers of 3 replicas, and 2 of 4" in found.because


def test_in_sync_replicas_of_two_that_act_by_it_are_clean(cluster: Cluster, driver: DriverTwin) -> None:
    group = ScriptedGroup.of(cluster)
    with group.answering():
        assert without_master(group, cluster, driver).clean


def view_of(*held_by: int | None, row: int = 2) -> GroupView:
    """Replica 0 led last and is away; each says that so many surely hold what is acknowledged."""
    replicas = [
        slave_view(key, surely_held_by=one, **({"role": "master", **AWAY} if key == 0 else {}))
        for key, one in enumerate(held_by)
    ]
    return GroupView(name="broker-a", in_sync_replicas=row, replicas=replicas, leader_id=0)


@pytest.mark.parametrize(
    ("view", "copies"),
    [
        (view_of(2, 2, 2), 2),
        (view_of(3, 3, 3), 2),  # the row's promise is not raised
        (view_of(1, 2, 2), 1),
        (view_of(2, 2, 1), 1),
        (view_of(None, None, 2), 2),
        (view_of(2, 2, row=1), 1),
    ],
)
def test_the_fewest_copies_that_anyone_speaks_of_count(view: GroupView, copies: int) -> None:
    assert view.copies_for_certain == copies


def test_one_that_is_away_and_did_not_lead_last_is_not_heard() -> None:
    """It may have gone before the mode was changed; a record of the mode is on as many replicas as any other."""
    replicas = [
        slave_view(0, role="master", surely_held_by=2, **AWAY),
        slave_view(1, surely_held_by=2),
        slave_view(2, surely_held_by=1, **AWAY),
    ]
    assert GroupView(name="broker-a", in_sync_replicas=2, replicas=replicas, leader_id=0).copies_for_certain == 2


@pytest.mark.parametrize(
    ("changes", "copies"),
    [
        ({"mode": "sync", "in_sync_replicas": 3}, 3),
        ({"mode": "sync", "in_sync_replicas": 1}, 1),  # enableAutoInSyncReplicas, and minInSyncReplicas 1
        ({"mode": "sync", "pending_mode": "async"}, 1),
        ({"mode": "async", "pending_mode": "sync", "in_sync_replicas": 2}, 1),
        ({"mode": "sync", "pending_mode": "dledger"}, 2),
        ({"mode": "dledger", "pending_mode": "sync"}, None),
        (
            {"mode": "async", "has_caught_up": False},
            None,
        ),  # a new disk: the mode is in the log that it does not hold yet
        ({"mode": "async", "has_caught_up": False, "role": "master"}, 1),
    ],
)
def test_what_a_replica_says_of_copies_goes_by_its_mode_and_the_pending_one(
    changes: dict[str, object], copies: int | None
) -> None:
    scripted = ScriptedGroup("broker-a", "sync", [ScriptedReplica(1, "127.0.0.1:10911")])
    (answer,) = (scripted._answer(one) for one in scripted.replicas)
    assert answer.status is not None
    assert surely_held_by(msgspec.structs.replace(answer.status, **changes)) == copies
