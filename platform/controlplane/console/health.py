"""A cluster's health as a sentence."""

from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from controlplane.clusters.models import Cluster, ClusterState, Health
from controlplane.clusters.selectors import cluster_health
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
    ClusterState.REQUESTED: ("plain", "It has not been started yet.", "A worker takes it within seconds."),
    ClusterState.PROVISIONING: ("plain", "It is being created.", "Clients can connect once all steps are done."),
    ClusterState.FAILED: ("bad", "Creating it failed.", "Nothing is lost: retry, or delete it."),
    ClusterState.DELETING: ("warn", "It is being deleted.", "Clients are disconnected and its data is removed."),
    ClusterState.DELETED: ("plain", "It was deleted.", ""),
}


def health_words(cluster: Cluster) -> HealthWords:
    """Return the words; what was never sampled is not known, and never called healthy."""
    if cluster.state in _NOT_RUNNING:
        tone, sentence, detail = _NOT_RUNNING[cluster.state]
        return HealthWords(tone, "", sentence, detail, None)
    if cluster.is_replicated and (words := _group_words(cluster)) is not None:
        return words
    health = cluster_health(cluster)
    if health.status == Health.HEALTHY:
        return HealthWords(
            "good",
            "All well",
            "All is well: sends and receives work.",
            f"{_daemons(cluster)} have answered{_for(health.since)}.",
            health.sampled_at,
        )
    if health.status == Health.DOWN:
        return HealthWords(
            "bad",
            "Down",
            " ".join(health.sentences) or "A daemon does not answer.",
            f"It has been so{_for(health.since)}. The supervisor restarts daemons that end.",
            health.sampled_at,
        )
    return HealthWords(
        "plain",
        "",
        "Its health is not known yet.",
        "Daemons are looked at every ten seconds.",
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
        ("No leader" if cluster.elects_leaders else "No master") if no_master else "Degraded",
        " ".join(group.sentences[0] for group in troubled),
        "The role map says what goes on, and what can be done." if no_master else "Sends and receives go on.",
        sampled_at,
    )


def _daemons(cluster: Cluster) -> str:
    name_servers = len(cluster.name_servers.all())
    brokers = sum(len(group.replicas.all()) for group in cluster.broker_groups.all())
    return f"{_count(name_servers, 'name server')} and {_count(brokers, 'broker')}"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _for(since: datetime | None) -> str:
    return "" if since is None else f" for {duration(timezone.now() - since)}"
