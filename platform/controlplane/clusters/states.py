"""A cluster's state as a word inside a sentence."""

from controlplane.clusters.models import ClusterState
from controlplane.common.sentences import say

_WORDS = {
    ClusterState.REQUESTED: say("requested"),
    ClusterState.PROVISIONING: say("provisioning"),
    ClusterState.RUNNING: say("running"),
    ClusterState.SUSPENDING: say("suspending"),
    ClusterState.SUSPENDED: say("suspended"),
    ClusterState.RESUMING: say("resuming"),
    ClusterState.FAILED: say("failed"),
    ClusterState.DELETING: say("deleting"),
    ClusterState.DELETION_PENDING: say("waiting for its deletion"),
    ClusterState.DELETED: say("deleted"),
}


def state_word(state: str) -> str:
    """Return the state: in English the machine's own word, on a page that word in the page's language."""
    return _WORDS[ClusterState(state)]
