"""Has the leader of each epoch keep every active topic: one that was made or changed in the last moment may be known to none but
the leader of before.

A promotion and a recovery have a step for it. All else that begins an epoch, and what those steps could not do in time, is found
by the look at the cluster, until it is done: a client that asks for such a topic gets an error meanwhile.
"""

from datetime import timedelta

from django.db.models import F, QuerySet
from django.utils import timezone

from controlplane.clusters.models import Cluster
from controlplane.common.errors import ApplicationError
from controlplane.common.logging import get_logger
from controlplane.common.sentences import say
from controlplane.failover.models import Failover, GroupLeadership
from controlplane.failover.timeline import timeline_add
from controlplane.topics.models import Topic, TopicState
from controlplane.topics.services import topics_assert

_log = get_logger("controlplane.failover")

_MADE_WITHIN = timedelta(minutes=2)  # no request takes longer


def leaders_without_topics(cluster: Cluster) -> QuerySet[GroupLeadership]:
    """Return the groups of which a leader was seen, and was not looked at in this epoch."""
    leading = GroupLeadership.objects.filter(
        group__cluster=cluster,
        leader__port__isnull=False,
        leader__sample__role="master",
        leader__sample__epoch=F("epoch"),
        leader__sample__unreachable_since=None,
    )
    return leading.exclude(topics_epoch=F("epoch")).select_related("group", "leader__group")


def _topics_in_the_making(cluster: Cluster) -> bool:
    since = timezone.now() - _MADE_WITHIN
    return Topic.objects.filter(cluster=cluster, state=TopicState.CREATING, updated_at__gte=since).exists()


def leader_topics_give(cluster: Cluster) -> None:
    """Give each such leader the topics that it lacks. One that can't be asked is asked again after the next look."""
    for leadership in leaders_without_topics(cluster):
        assert leadership.leader is not None, "the query asks for one"
        # One that is being made becomes active when the brokers have it: it may be on the leader of before alone.
        in_the_making = _topics_in_the_making(cluster)
        try:
            lacked = topics_assert(cluster, leadership.group.name, leadership.leader.address)
        except ApplicationError as error:
            _log.warning(
                "the topics of a new leader could not be checked", group=leadership.group.name, error=error.message
            )
            continue
        if not in_the_making:
            of_the_epoch = GroupLeadership.objects.filter(pk=leadership.pk, epoch=leadership.epoch)
            of_the_epoch.update(topics_epoch=leadership.epoch)
        if not lacked:
            continue
        _log.info("a new leader lacked topics", group=leadership.group.name, topics=sorted(lacked))
        failover = Failover.objects.filter(
            cluster=cluster, group_name=leadership.group.name, new_epoch=leadership.epoch
        ).first()
        if failover is not None:
            timeline_add(
                failover,
                "topics",
                say("The leader lacked topics, which were created: %(join)s.", join=", ".join(sorted(lacked))),
            )
