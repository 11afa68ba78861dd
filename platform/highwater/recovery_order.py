"""The order of a recovery, in which a group that elects goes on without a majority of its voters, by an operator's word. Pure,
without sockets, rows or a clock: `highwater admin recoverQuorum` and the control plane's step both carry its requests out.

Who may lead, and what that costs, judge_recovery() in promotion.py says. Two recoveries at once, each with another replica that
is left, must not both come to an end: each would have its own replica lead, of the same epoch by chance, and both logs would be
confirmed. So every replica that is left promises a fence first, the one that is to lead, too, and names it. One that has promised
another fence since does not lead in the epoch of this one. By what they hold when they promise it is judged again: no one sends
them more.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from highwater.errors import HighwaterError, NoRouteError
from highwater.promotion import Ballot, Recovery, Standing, judge_recovery
from highwater.sentences import say
from mqwire.bodies import ReplicaStatus


@dataclass(frozen=True, slots=True)
class PromiseRecovery:
    """Ask for a promise of the epoch, so that `leader_id` leads in the next one, without those that are lost."""

    replica_id: int
    epoch: int
    leader_id: int
    lost: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LeadRecovered:
    """Have the replica lead in `new_epoch`, if it has promised nothing newer than `expected_epoch`."""

    replica_id: int
    expected_epoch: int
    new_epoch: int
    lost: tuple[int, ...]


Request = PromiseRecovery | LeadRecovered


def recovery_order(
    recovery: Recovery, wanted_id: int, ballot: Ballot
) -> Generator[Request, ReplicaStatus | HighwaterError, ReplicaStatus]:
    """Have those that are left promise `ballot.fence`, and `wanted_id` lead in `ballot.epoch`; return what it says then.

    Each request is answered by the replica's status, or by why there is none. Raises NoRouteError where it does not lead.
    """
    promises: dict[int, ReplicaStatus] = {}
    for replica_id in sorted(recovery.survivors, key=lambda one: (one != wanted_id, one)):
        said = yield PromiseRecovery(replica_id, ballot.fence, wanted_id, recovery.lost)
        if isinstance(said, HighwaterError) or said.epoch != ballot.fence:
            why = str(said) if isinstance(said, HighwaterError) else say("it is in epoch %(epoch)s", epoch=said.epoch)
            raise NoRouteError(
                say(
                    "Replica %(replica_id)s is not given up, and does not promise epoch %(epoch)s: %(why)s. Nothing was recovered."
                    " Ask again: if it does not answer then, it is among those to give up, and must be stopped first.",
                    replica_id=replica_id,
                    epoch=ballot.fence,
                    why=why,
                )
            )
        promises[replica_id] = said
    quorum = promises[wanted_id].quorum
    voters = recovery.survivors if quorum is None else quorum.voters
    again = judge_recovery(voters, {key: Standing.of(said) for key, said in promises.items()}, wanted_id)
    if again.problem is not None:
        raise NoRouteError(again.problem)
    if set(again.lost) != set(recovery.lost):
        raise NoRouteError(
            say(
                "Voters %(lost)s do not answer now, and the loss of %(lost_2)s was confirmed.",
                lost=str(list(again.lost)),
                lost_2=str(list(recovery.lost)),
            )
        )
    led = yield LeadRecovered(wanted_id, ballot.fence, ballot.epoch, recovery.lost)
    if isinstance(led, HighwaterError):
        raise led
    return led
