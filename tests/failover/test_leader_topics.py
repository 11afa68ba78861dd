"""The leader of an epoch gets the topics that it lacks, however the epoch began."""

from __future__ import annotations

from datetime import timedelta
from unittest.mock import patch

import pytest
from django.utils import timezone

from controlplane.clusters import replica_remoting
from controlplane.clusters.models import Cluster
from controlplane.failover.leader_topics import leader_topics_give, leaders_without_topics
from controlplane.failover.models import Failover, FailoverKind, GroupLeadership, ReplicaSample
from controlplane.topics.models import Topic, TopicState
from tests.controlplane.world import World
from tests.failover.promotions import names
from tests.failover.replicated import make_replicated
from tests.failover.test_topics_asserted import broker_with, kept, topic

EPOCH = 3


@pytest.fixture
def cluster(world: World) -> Cluster:
    """Its replica 1 was seen leading in epoch 3."""
    cluster = make_replicated(world.acme, "pair", "async")
    group = cluster.broker_groups.get()
    leader = group.replicas.get(broker_id=1)
    GroupLeadership.objects.update_or_create(group=group, defaults={"epoch": EPOCH, "leader": leader})
    ReplicaSample.objects.update_or_create(
        replica=leader,
        defaults={"sampled_at": timezone.now(), "role": "master", "epoch": EPOCH, "unreachable_since": None},
    )
    return cluster


def is_due(cluster: Cluster) -> bool:
    return leaders_without_topics(cluster).exists()


def test_the_leader_of_a_new_epoch_gets_the_topics_that_it_lacks_once(cluster: Cluster) -> None:
    topic(cluster)
    assert is_due(cluster)
    with broker_with() as asked:
        leader_topics_give(cluster)
    assert asked == {"orders": (4, 4, 6)}
    assert not is_due(cluster)


def test_an_election_says_which_topics_its_leader_lacked(cluster: Cluster) -> None:
    topic(cluster)
    election = Failover.objects.create(
        cluster=cluster,
        group_name=cluster.broker_groups.get().name,
        kind=FailoverKind.ELECTION,
        requested_by="the group itself",
        candidate_id=1,
        new_epoch=EPOCH,
    )
    with broker_with():
        leader_topics_give(cluster)
    assert names(election) == ["topics"]
    assert election.timeline.get(name="topics").detail == "The leader lacked topics, which were created: orders."


def test_a_leader_that_does_not_list_its_topics_is_asked_again(cluster: Cluster) -> None:
    topic(cluster)
    with patch.object(replica_remoting, "topic_table", return_value=None):
        leader_topics_give(cluster)
    assert is_due(cluster)
    with broker_with(kept(4, 4)) as asked:
        leader_topics_give(cluster)
    assert (asked, is_due(cluster)) == ({}, False)


def test_a_topic_that_is_being_made_is_waited_for(cluster: Cluster) -> None:
    """The leader of before may have it alone when its row becomes active."""
    made = topic(cluster, state=TopicState.CREATING)
    with broker_with() as asked:
        leader_topics_give(cluster)
        assert (asked, is_due(cluster)) == ({}, True)
        Topic.objects.filter(pk=made.pk).update(state=TopicState.ACTIVE)
        leader_topics_give(cluster)
    assert (asked, is_due(cluster)) == ({"orders": (4, 4, 6)}, False)


def test_a_topic_that_is_in_the_making_for_ever_is_not_waited_for(cluster: Cluster) -> None:
    made = topic(cluster, state=TopicState.CREATING)
    Topic.objects.filter(pk=made.pk).update(updated_at=timezone.now() - timedelta(minutes=3))
    with broker_with():
        leader_topics_give(cluster)
    assert not is_due(cluster)


def test_a_topic_that_the_leader_refuses_keeps_no_other_from_it(cluster: Cluster) -> None:
    for name in ("first", "orders", "other"):
        topic(cluster, name)
    with broker_with(refuses="orders") as asked:
        leader_topics_give(cluster)
    assert (sorted(asked), is_due(cluster)) == (["first", "other"], True)


def test_the_next_epoch_begins_again(cluster: Cluster) -> None:
    with broker_with():
        leader_topics_give(cluster)
    GroupLeadership.objects.update(epoch=EPOCH + 1)
    assert not is_due(cluster), "no one was seen leading in it"
    ReplicaSample.objects.update(epoch=EPOCH + 1)
    assert is_due(cluster)


def test_a_leader_that_does_not_answer_is_waited_for(cluster: Cluster) -> None:
    ReplicaSample.objects.update(unreachable_since=timezone.now())
    assert not is_due(cluster)
