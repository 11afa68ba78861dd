"""What a group's page shows beside its lag: who is connected, and where it was reset."""

from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from controlplane.clusters.models import Cluster
from controlplane.common.errors import ApplicationError
from controlplane.console.access import ConsoleRequest
from controlplane.consumers.selectors import group_members, reset_list
from controlplane.tenants.rules import actor_can
from controlplane.topics.names import topic_name_is_system

RESETS_SHOWN_MAX = 20
MEMBERS_SHOWN_MAX = 200
ODD_SHOWN_MAX = 20
# RocketMQ's words for how a group consumes.
_WORDS = {
    "CONSUME_PASSIVELY": _("messages are pushed to them"),
    "CONSUME_ACTIVELY": _("they pull"),
    "CLUSTERING": _("each message goes to one member"),
    "BROADCASTING": _("each message goes to every member"),
}


def members_context(request: ConsoleRequest, cluster: Cluster, group: str) -> dict[str, object]:
    """Return the members, or why they are not known, and the group's latest resets."""
    context: dict[str, object] = {
        "resets": reset_list(cluster, group)[:RESETS_SHOWN_MAX],
        "can_inspect": actor_can(request.user, "consumer.inspect", cluster.tenant),
        "can_reset": actor_can(request.user, "offset.reset", cluster.tenant),
    }
    try:
        connected = group_members(cluster, group)
        shown = connected.members[:MEMBERS_SHOWN_MAX]
        return {
            **context,
            "connected": connected,
            "members": shown,
            "members_more": len(connected.members) - len(shown),
            "subscriptions": [one for one in connected.subscriptions if not topic_name_is_system(one[0])],
            "odd_ids": {one.client_id for one in connected.comparison.odd},
            "odd": connected.comparison.odd[:ODD_SHOWN_MAX],
            "odd_more": len(connected.comparison.odd) - ODD_SHOWN_MAX,
            "how": gettext(", ").join(
                str(_WORDS[word]) for word in (connected.consume_type, connected.message_model) if word in _WORDS
            ),
        }
    except ApplicationError as error:
        return {**context, "connected": None, "members_problem": error.message}
