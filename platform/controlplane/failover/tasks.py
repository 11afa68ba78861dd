"""Celery's side of failover: a look at each replicated cluster every three seconds."""

import uuid

from celery import shared_task
from django.db.models import Count
from django.utils import timezone

from controlplane.clusters.models import Cluster, ClusterMode
from controlplane.clusters.remoting import slow_cluster_logged
from controlplane.clusters.selectors import clusters_watched
from controlplane.common.turns import interleaved, turn
from controlplane.failover import elections, sampling
from controlplane.failover.diverged.resends import TURN_TASK, resend_turn, resends_resume
from controlplane.failover.drill.services import drill_faults_end
from controlplane.failover.drill.windows import drill_window_look, drill_windows_open
from controlplane.failover.leader_topics import leader_topics_give, leaders_without_topics
from controlplane.failover.promotion.services import automatic_failover
from controlplane.provisioning.drivers import get_driver

_LAST = 9  # by Redis: 0, where nothing is said, is first


@shared_task(name="failover.clusters_sample")
def clusters_sample_task() -> None:
    """Enqueue one look at each watched cluster with more than one broker; one that still waits is dropped."""
    watched = clusters_watched().annotate(brokers=Count("broker_groups__replicas"))
    # One that grows out of mode single has several before it has another mode.
    watched = watched.exclude(mode=ClusterMode.SINGLE, brokers__lte=1)
    for cluster_id in interleaved((tenant, pk) for tenant, pk in watched.values_list("tenant_id", "pk")):
        # After the steps of promotions: one of a cluster that hangs takes 1.5 s.
        cluster_sample_task.apply_async(args=(str(cluster_id),), expires=3, priority=_LAST)


@shared_task(name="failover.cluster_sample", ignore_result=True, soft_time_limit=20, time_limit=30)
def cluster_sample_task(cluster_id: str) -> None:
    """Look at one cluster, and promote where the policy says so; or measure what its groups decided themselves."""
    found = clusters_watched().filter(pk=uuid.UUID(cluster_id)).first()
    if found is None:
        return
    with turn("leaders", found.tenant_id, found.pk) as mine:
        if mine:
            with slow_cluster_logged():
                _look(found)


def _look(found: Cluster) -> None:
    driver = get_driver()
    views = sampling.cluster_sample(found, driver)
    if not found.is_running:
        return  # who retries its operation, or promotes, sees where it stands; nothing is done by itself
    sampling.fences_release(found)
    drill_faults_end(found, driver)
    # Groups that elect decide themselves, but for one whose leader is assigned again, a change of its mode being unfinished.
    for view in views:
        automatic_failover(found, view, driver)
    if leaders_without_topics(found).exists():  # a task of its own: thousands take their time
        leader_topics_task.apply_async(args=(str(found.pk),), expires=15, priority=_LAST)
    if found.elects_leaders:  # last: where daemons are slow it may take what is left of the time for waiting
        elections.elections_measure(found, driver)


@shared_task(name="failover.leader_topics", ignore_result=True, soft_time_limit=45, time_limit=50)
def leader_topics_task(cluster_id: str) -> None:
    """Give a cluster's new leaders the topics that they lack."""
    found = clusters_watched().filter(pk=uuid.UUID(cluster_id)).first()
    if found is None or not found.is_running:
        return
    with turn("topics", found.tenant_id, found.pk) as mine:
        if mine:
            with slow_cluster_logged():
                leader_topics_give(found)


@shared_task(name="failover.drill_windows_look")
def drill_windows_look_task() -> None:
    """Enqueue one look at each ordered drill whose window is open or has passed."""
    waiting = drill_windows_open(timezone.now())
    for window_id in interleaved((tenant, pk) for tenant, pk in waiting.values_list("cluster__tenant_id", "pk")):
        drill_window_look_task.apply_async(args=(str(window_id),), expires=15, priority=_LAST)


@shared_task(name="failover.drill_window_look", ignore_result=True, soft_time_limit=20, time_limit=30)
def drill_window_look_task(window_id: str) -> None:
    """Begin one ordered drill if its group is healthy; a cluster of which another one is looked at has its turn later."""
    found = drill_windows_open(timezone.now()).select_related("cluster").filter(pk=uuid.UUID(window_id)).first()
    if found is None:
        return
    with turn("drills", found.cluster.tenant_id, found.cluster_id) as mine:
        if mine:
            with slow_cluster_logged():
                drill_window_look(found.pk, get_driver(), timezone.now())


@shared_task(name=TURN_TASK)
def diverged_resend_turn_task(resend_id: str) -> str:
    """Send about a second's worth of a saved cut's messages."""
    return resend_turn(uuid.UUID(resend_id))


@shared_task(name="failover.diverged_resends_resume")
def diverged_resends_resume_task() -> int:
    """Go on with resends whose worker died."""
    return resends_resume()
