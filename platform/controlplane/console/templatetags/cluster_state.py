"""The one word for how a cluster is, on every page that shows it."""

from django import template

from controlplane.clusters.models import Cluster
from controlplane.common.sentences import say
from controlplane.console.health import HealthWords, health_words
from controlplane.console.pills import Pill, pill_of

register = template.Library()


@register.inclusion_tag("console/parts/pill.html")
def cluster_state(cluster: Cluster, health: HealthWords | None = None) -> dict[str, Pill]:
    """Show the state of a cluster, and of one that runs what is wrong with it. `health` saves looking it up again."""
    words = health or health_words(cluster)
    pill = pill_of(cluster.state)
    if cluster.is_running and words.tone != "good":
        pill = Pill(words.tone, words.short or say("Running, health not known"), pill.state)
    return {"pill": pill}
