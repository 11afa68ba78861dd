"""Whether a drill may begin, and what it would do. Pure.

It may only where nothing acknowledged is lost should the leader's process end now, and every other replica is well: what
holds for a promotion of a dead leader's heir is asked of the group as it would be then.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from controlplane.common.sentences import say, say_all
from controlplane.failover.membership.plan import PlannedStep, successor
from controlplane.failover.membership.verdict import electorate_of, verdict_of
from controlplane.failover.models import DrillFault, FailoverKind
from controlplane.failover.promotion.services import failover_preflight
from controlplane.failover.promotion.verdict import Cleanness, GroupState, GroupView, ReplicaView

_MAJORITY_HOLDS = say(
    "what was acknowledged is on a majority of the voters, and the next leader is elected among them."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillPlan:
    """What would happen. `problems` forbid it. `leader_id` is who is stopped, `candidate_id` who is expected to lead then."""

    group: str
    looked_at: datetime
    gives_back: bool = False
    fault: DrillFault | None = DrillFault.KILL
    problems: tuple[str, ...] = ()
    leader_id: int | None = None
    candidate_id: int | None = None
    elects: bool = False
    cleanness: Cleanness
    steps: tuple[PlannedStep, ...] = ()

    @property
    def possible(self) -> bool:
        return not self.problems


def plan_drill(
    view: GroupView,
    now: datetime,
    *,
    gives_back: bool = False,
    fault: DrillFault | None = DrillFault.KILL,
    running: str = "",
) -> DrillPlan:
    """Say whether a drill of this group, as it was just sampled, may begin. `running` names another operation; no `fault`,
    that it is not chosen yet.
    """
    leader = view.master
    if leader is None or len(view.replicas) < 2:
        cause = say("No replica leads: there is nothing to try.") if len(view.replicas) > 1 else ALONE
        return DrillPlan(group=view.name, looked_at=now, problems=(cause,), cleanness=Cleanness(False, cause))
    verdict = verdict_of(view, now)
    problems = [running] if running else []
    if verdict.state != GroupState.HEALTHY:
        problems.append(say_all(say("A drill needs a healthy group."), *verdict.sentences))
    if view.elects:
        candidate_id, cleanness, found = _elected(view, leader)
    else:
        candidate_id, cleanness, found = _assigned(view, leader, now)
    problems += found
    return DrillPlan(
        group=view.name,
        looked_at=now,
        gives_back=gives_back,
        fault=fault,
        problems=tuple(problems),
        leader_id=leader.replica_id,
        candidate_id=candidate_id,
        elects=view.elects,
        cleanness=cleanness,
        steps=() if problems else _steps(view, leader.replica_id, gives_back=gives_back, fault=fault),
    )


ALONE = say(
    "The group has one replica: it can't survive the loss of its leader. The modes sync and dledger add others."
)


def _fault_words(fault: DrillFault | None, replica: int) -> str:
    if fault is None:
        return say("Replica %(replica)s suffers what you choose below.", replica=replica)
    if fault == DrillFault.CUT:
        return say(
            "Replica %(replica)s runs on, and for 15 seconds nothing reaches it, and nothing of it reaches anyone.",
            replica=replica,
        )
    if fault == DrillFault.KILL:
        return say("The process of replica %(replica)s is killed without warning.", replica=replica)
    return say(
        "The process of replica %(replica)s is suspended: it keeps its connections, and answers nothing any more.",
        replica=replica,
    )


def _assigned(view: GroupView, leader: ReplicaView, now: datetime) -> tuple[int | None, Cleanness, Sequence[str]]:
    """Judge the promotion that follows, with the leader gone."""
    gone = replace(leader, unreachable_since=now, process_ended_at=now)
    after = replace(view, replicas=[gone if one is leader else one for one in view.replicas])
    preflight = failover_preflight(view=after, kind=FailoverKind.DRILL, candidate_id=None, now=now)
    candidate_id = None if preflight.candidate is None else preflight.candidate.replica_id
    if preflight.problems or preflight.cleanness.clean:
        return candidate_id, preflight.cleanness, preflight.problems
    return (
        candidate_id,
        preflight.cleanness,
        (say("A promotion would not be clean: %(because)s", because=preflight.cleanness.because),),
    )


def _elected(view: GroupView, leader: ReplicaView) -> tuple[int | None, Cleanness, Sequence[str]]:
    electorate = electorate_of(view)
    candidate_id = successor(view, electorate, (leader.replica_id,))
    left = [one for one in view.replicas if one is not leader and one.answers and one.replica_id in electorate.voters]
    problems = []
    if view.elections_in_doubt:
        problems.append(say("A change of the mode is not finished: retry it first."))
    if electorate.change_pending:
        problems.append(say("A change of the voters is not confirmed by a majority yet."))
    if candidate_id is None or len(left) < electorate.majority:
        problems.append(say("Without its leader no majority of the voters is left to elect another one."))
    return candidate_id, Cleanness(not problems, _MAJORITY_HOLDS if not problems else problems[0], 0, 0), problems


def _steps(view: GroupView, leader_id: int, *, gives_back: bool, fault: DrillFault | None) -> tuple[PlannedStep, ...]:
    follows = (
        PlannedStep(
            say("Wait for the election"),
            say("The other voters elect a leader; nothing is promoted."),
            say("Sends and reads."),
        )
        if view.elects
        else PlannedStep(
            say("Promote the candidate"),
            say(
                "The other replicas promise a new epoch, the candidate leads in it, and name servers and"
                " topics are checked. It goes on only if that is still clean; otherwise the old leader is"
                " started again."
            ),
            say("Sends."),
        )
    )
    steps = [
        PlannedStep(
            say("Send probe messages"),
            say("Every 50 ms one to the group's probe topic, which no one reads or pays for."),
        ),
        PlannedStep(say("Stop the leader"), _fault_words(fault, leader_id), say("Sends.")),
        follows,
        PlannedStep(
            say("Start the old leader again"),
            say("Replica %(leader_id)s rejoins as a follower, and catches up.", leader_id=leader_id),
        ),
        PlannedStep(
            say("Write the report"),
            say("The longest time without an accepted write, and which acknowledged probes are not in the log."),
        ),
    ]
    if gives_back:
        stops = say("Sends, for a moment.")
        steps.append(
            PlannedStep(
                say("Give the leadership back"),
                say("Replica %(leader_id)s leads again, without loss.", leader_id=leader_id),
                stops,
            )
        )
    return tuple(steps)
