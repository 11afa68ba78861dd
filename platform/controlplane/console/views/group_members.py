"""What a group's page shows beside its lag: who is connected, and where it was reset."""

from controlplane.clusters.models import Cluster
from controlplane.common.errors import ApplicationError
from controlplane.console.access import ConsoleRequest
from controlplane.consumers.selectors import group_members, reset_list
from controlplane.tenants.rules import actor_can

RESETS_SHOWN_MAX = 20
MEMBERS_SHOWN_MAX = 200


def members_context(request: ConsoleRequest, cluster: Cluster, group: str) -> dict[str, object]:
    """Return the members, or why they are not known, and the group's latest resets."""
    context: dict[str, object] = {
        "resets": reset_list(cluster, group)[:RESETS_SHOWN_MAX],
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
        }
    except ApplicationError as error:
        return {**context, "connected": None, "members_problem": error.message}
