"""What SEND_OK means in a group, in words: how many replicas hold the message then, and whether on disk. Pure."""

from controlplane.clusters.models import FlushType
from controlplane.common.sentences import say, say_all
from controlplane.failover.membership.verdict import Electorate
from controlplane.failover.promotion.verdict import GroupView

_ALONE = say("SEND_OK means that the broker holds the message: one copy.")
_MASTER = say("SEND_OK means that the master holds the message: one copy is certain.")
_MASTER_AND_SLAVE = say("SEND_OK means that the master and a slave hold the message: two copies.")
_MAJORITY = say("SEND_OK means that a majority of the replicas holds the message.")
_ON_DISK = say("A copy counts once it is on disk.")
_IN_MEMORY = say("A copy counts before it is on disk, where it is half a second later.")


def acknowledged_copies(group: GroupView, electorate: Electorate | None) -> int | None:
    """Return how many replicas certainly hold a message once it is acknowledged; None where the voters are not known."""
    if not group.elects or group.elections_in_doubt:
        return max(1, group.copies_for_certain)
    return electorate.majority if electorate is not None and electorate.voters else None


def acknowledgement_words(group: GroupView, electorate: Electorate | None, flush_disk_type: str) -> str:
    """Return what it means now: while the mode is being changed, what the weaker of the two promises."""
    if group.elects and not group.elections_in_doubt:
        copies = _MAJORITY
        if electorate is not None and electorate.voters:
            copies = say(
                "SEND_OK means that a majority of the replicas holds the message: %(majority)s of %(voters)s.",
                majority=electorate.majority,
                voters=len(electorate.voters),
            )
    elif group.copies_for_certain > 1:
        copies = _MASTER_AND_SLAVE
    else:
        copies = _MASTER if len(group.replicas) > 1 else _ALONE
    return say_all(copies, _ON_DISK if flush_disk_type == FlushType.SYNC_FLUSH else _IN_MEMORY)
