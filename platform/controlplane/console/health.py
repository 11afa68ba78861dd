"""A cluster's health as a sentence."""

from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from controlplane.clusters.models import Cluster, ClusterState, Health
from controlplane.clusters.selectors import cluster_health
from controlplane.common.sentences import say, say_all, say_count
from controlplane.console.pills import Tone
from controlplane.console.templatetags.console import duration
from controlplane.failover.promotion.verdict import GroupState
from controlplane.failover.role_map import group_rows


@dataclass(frozen=True, slots=True)
class HealthWords:
    """`short` for a table cell (empty when not known), `sentence` and `detail` for the cluster's page.

    `sampled_at` is when the daemons were last looked at.
    """

    tone: Tone
    short: str
    sentence: str
    detail: str
    sampled_at: datetime | None


_NOT_RUNNING: dict[str, tuple[Tone, str, str]] = {
    ClusterState.REQUESTED: ("plain", say("It has not been started yet."), say("A worker takes it within seconds.")),
    ClusterState.PROVISIONING: (
        "plain",
        say("It is being created."),
        say("Clients can connect once all steps are done."),
    ),
    ClusterState.FAILED: ("bad", say("Creating it failed."), say("Nothing is lost: retry, or delete it.")),
    ClusterState.DELETING: (
        "warn",
        say("It is being deleted."),
        say("Clients can’t connect any more."),
    ),
    ClusterState.SUSPENDING: (
        "plain",
        say("It is being suspended."),
        say("Clients are refused from now on; nothing that is stored is lost."),
    ),
    ClusterState.SUSPENDED: (
        "plain",
        say("It is suspended: none of its daemons runs, and clients can’t connect."),
        say("Its messages, keys and addresses are kept."),
    ),
    ClusterState.RESUMING: (
        "plain",
        say("It is being started again."),
        say("Clients can connect once all steps are done."),
    ),
    ClusterState.DELETION_PENDING: (
        "warn",
        say("It is deleted, and can still be restored: none of its daemons runs, and clients can’t connect."),
        say("Its messages, keys and addresses are kept until then."),
    ),
    ClusterState.DELETED: ("plain", say("It was deleted."), ""),
}


# The same where the operation has failed: it does not go on by itself.
_HALF_WAY: dict[str, tuple[Tone, str, str]] = {
    ClusterState.SUSPENDING: (
        "bad",
        say("Suspending it failed."),
        say("Brokers may refuse clients already; nothing that is stored is lost. Retry it, or resume the cluster."),
    ),
    ClusterState.RESUMING: (
        "bad",
        say("Starting it again failed."),
        say("Clients can’t connect yet; nothing that is stored is lost. Retry it."),
    ),
}


def health_words(cluster: Cluster) -> HealthWords:
    """Return the words; what was never sampled is not known, and never called healthy."""
    if cluster.state in _NOT_RUNNING:
        tone, sentence, detail = _NOT_RUNNING[cluster.state]
        if cluster.error and cluster.state in _HALF_WAY:
            tone, sentence, detail = _HALF_WAY[cluster.state]
        return HealthWords(tone, "", sentence, detail, None)
    if cluster.is_replicated and (words := _group_words(cluster)) is not None:
        return words
    health = cluster_health(cluster)
    if health.status == Health.HEALTHY:
        return HealthWords(
            "good",
            say("All well"),
            say("All is well: sends and receives work."),
            _answered(_daemons(cluster), health.since),
            health.sampled_at,
        )
    if health.status == Health.DOWN:
        return HealthWords(
            "bad",
            say("Down"),
            say_all(*health.sentences) or say("A daemon does not answer."),
            _down(health.since),
            health.sampled_at,
        )
    return HealthWords(
        "plain",
        "",
        say_all(say("Its health is not known yet."), *health.sentences),
        say("Daemons are looked at every ten seconds."),
        health.sampled_at,
    )


def _group_words(cluster: Cluster) -> HealthWords | None:
    """What is wrong with the groups; None when every one has its master and its slaves in sync."""
    troubled = [group for group in group_rows(cluster) if group.state in (GroupState.NO_MASTER, GroupState.DEGRADED)]
    if not troubled:
        return None
    no_master = any(group.state == GroupState.NO_MASTER for group in troubled)
    sampled_at = min((group.sampled_at for group in troubled if group.sampled_at is not None), default=None)
    return HealthWords(
        "bad" if no_master else "warn",
        (say("No leader") if cluster.elects_leaders else say("No master")) if no_master else say("Degraded"),
        say_all(*(group.sentences[0] for group in troubled)),
        say("The role map says what goes on, and what can be done.") if no_master else say("Sends and receives go on."),
        sampled_at,
    )


def _daemons(cluster: Cluster) -> str:
    brokers = sum(len(group.replicas.all()) for group in cluster.broker_groups.all())
    return say(
        "%(name_servers)s and %(brokers)s",
        name_servers=say_count("%(count)s name server", "%(count)s name servers", len(cluster.name_servers.all())),
        brokers=say_count("%(count)s broker", "%(count)s brokers", brokers),
    )


def _answered(daemons: str, since: datetime | None) -> str:
    if since is None:
        return say("%(daemons)s have answered.", daemons=daemons)
    return say("%(daemons)s have answered for %(time)s.", daemons=daemons, time=duration(timezone.now() - since))


def _down(since: datetime | None) -> str:
    if since is None:
        return say("It has been so. The supervisor restarts daemons that end.")
    time = duration(timezone.now() - since)
    return say("It has been so for %(time)s. The supervisor restarts daemons that end.", time=time)
