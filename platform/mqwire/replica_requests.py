"""Requests that change who leads a broker group, who belongs to it and in which mode: one function each, for all that send them.

The codes and headers are in `codes.py` and `headers_replica.py`; each of these is answered by the replica's status.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mqwire.bodies import ReplicaStatus
from mqwire.codes import HighwaterRequestCode
from mqwire.header import CustomHeader
from mqwire.headers_replica import (
    NetworkCutRequestHeader,
    ReplicaDemoteRequestHeader,
    ReplicaFreezeSendsRequestHeader,
    ReplicaMembersRequestHeader,
    ReplicaModeRequestHeader,
    ReplicaPromoteRequestHeader,
    ReplicaTransferRequestHeader,
)


class ReplicaRequest(NamedTuple):
    """What is sent: a request code and its header, None where it has none."""

    code: HighwaterRequestCode
    header: CustomHeader | None


STATUS = ReplicaRequest(HighwaterRequestCode.REPLICA_STATUS, None)


def promote(
    group: str,
    replica_id: int,
    *,
    expected_epoch: int,
    new_epoch: int,
    in_sync: Sequence[int] = (),
    with_incomplete_log: bool = False,
    lacks_an_epoch: bool = False,
    lost: Sequence[int] = (),
) -> ReplicaRequest:
    """Lead in `new_epoch` if you are in `expected_epoch` now; safe to repeat.

    `in_sync`: the replicas that promised, and follow in a moment.
    `with_incomplete_log`: it was known, when this was decided, that your log may lack records at its end.
    `lacks_an_epoch`: someone may have led in one of which the log has nothing.
    `lost`: of a group that elects, its voters that are gone for good.
    """
    return ReplicaRequest(
        HighwaterRequestCode.REPLICA_PROMOTE,
        ReplicaPromoteRequestHeader(
            group=group,
            replica_id=replica_id,
            expected_epoch=expected_epoch,
            new_epoch=new_epoch,
            in_sync=";".join(map(str, in_sync)),
            with_incomplete_log=with_incomplete_log,
            lacks_an_epoch=lacks_an_epoch,
            lost=";".join(map(str, lost)),
        ),
    )


def demote(group: str, *, epoch: int, leader_address: str | None = None, lost: Sequence[int] = ()) -> ReplicaRequest:
    """Promise `epoch`: lead and follow no one in it or below. `leader_address` is the replica to follow.

    `lost`: of a group that elects, its voters that are gone for good; the replica at `leader_address` is to lead then.
    """
    header = ReplicaDemoteRequestHeader(
        group=group, epoch=epoch, leader_address=leader_address, lost=";".join(map(str, lost))
    )
    return ReplicaRequest(HighwaterRequestCode.REPLICA_DEMOTE, header)


def freeze_sends(group: str, *, epoch: int, for_ms: int) -> ReplicaRequest:
    """Refuse sends for so long; 0 takes them again at once."""
    header = ReplicaFreezeSendsRequestHeader(group=group, epoch=epoch, for_millis=for_ms)
    return ReplicaRequest(HighwaterRequestCode.REPLICA_FREEZE_SENDS, header)


def cut_network(group: str, replica_id: int, *, for_ms: int) -> ReplicaRequest:
    """Be cut off from everyone for so long, a moment after the answer."""
    header = NetworkCutRequestHeader(group=group, replica_id=replica_id, for_millis=for_ms)
    return ReplicaRequest(HighwaterRequestCode.NETWORK_CUT, header)


def transfer(group: str, target: int) -> ReplicaRequest:
    """Hand the leadership of a group that elects to `target`; begun when answered, done when the target leads."""
    header = ReplicaTransferRequestHeader(group=group, target=target)
    return ReplicaRequest(HighwaterRequestCode.REPLICA_TRANSFER, header)


def change_members(
    group: str, change: str, replica_id: int | None, *, replica_address: str | None = None
) -> ReplicaRequest:
    """Change who counts: addObserver (with `replica_address`), addVoter, removeVoter, prefer or forget."""
    header = ReplicaMembersRequestHeader(group=group, change=change, replica_id=replica_id, address=replica_address)
    return ReplicaRequest(HighwaterRequestCode.REPLICA_MEMBERS, header)


def change_mode(
    group: str,
    mode: str,
    *,
    in_sync_replicas: int = 1,
    min_in_sync_replicas: int = 1,
    leader: ReplicaStatus | None = None,
) -> ReplicaRequest:
    """Replicate in another mode; written when answered, in force on each replica when its status shows it.

    `leader` is what the one that is asked has said of itself: it refuses if it has been asked for a mode since, so that a
    request that comes late undoes no change.
    """
    header = ReplicaModeRequestHeader(
        group=group,
        mode=mode,
        in_sync_replicas=in_sync_replicas,
        min_in_sync_replicas=min_in_sync_replicas,
        epoch=None if leader is None else leader.epoch,
        end_offset=None if leader is None else leader.end_offset,
    )
    return ReplicaRequest(HighwaterRequestCode.REPLICA_MODE, header)
