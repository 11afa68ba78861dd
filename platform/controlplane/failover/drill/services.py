"""Writes: a failover drill. Planned on a fresh look at every replica; the workers do it (steps.py)."""

from collections.abc import Callable
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from controlplane.accounts.actors import Actor, actor_label
from controlplane.clusters.models import BrokerGroup, Cluster, Operation, OperationState, OperationType, Replica
from controlplane.clusters.operations import operation_start
from controlplane.clusters.remoting import require_running
from controlplane.clusters.workflows import operation_title
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import InvalidInput
from controlplane.common.logging import get_logger
from controlplane.common.sentences import say, say_all
from controlplane.failover.drill.plan import DrillPlan, plan_drill
from controlplane.failover.errors import ConfirmationNeeded, NotPossible
from controlplane.failover.models import Drill, DrillFault, Failover, FailoverKind
from controlplane.failover.promotion.verdict import GroupView
from controlplane.failover.sampling import group_sample
from controlplane.failover.timeline import timeline_add
from controlplane.provisioning.drivers.base import Driver
from controlplane.provisioning.processes import replica_process_name
from controlplane.tenants.rules import actor_require

_log = get_logger("controlplane.failover")

_ALWAYS = {
    "drill_preflight",
    "drill_probe",
    "drill_fault",
    "failover_verify",
    "failover_topics",
    "failover_rejoin",
    "drill_judge",
}
_ASSIGNED = {"failover_fence", "failover_promote"}
_ELECTED = {"drill_elect"}
_LASTING = {"drill_end_fault"}
_VERBS: dict[DrillFault, Callable[[str, int], str]] = {
    DrillFault.KILL: lambda by, replica: say(
        "By %(by)s: a failover drill that kills replica %(replica)s.", by=by, replica=replica
    ),
    DrillFault.HANG: lambda by, replica: say(
        "By %(by)s: a failover drill that suspends replica %(replica)s.", by=by, replica=replica
    ),
    DrillFault.CUT: lambda by, replica: say(
        "By %(by)s: a failover drill that cuts off replica %(replica)s.", by=by, replica=replica
    ),
}
_RETURN = {"return_begin", "return_verify", "return_topics"}
_RETURN_ASSIGNED = {"return_preflight", "return_drain", "return_fence", "return_promote", "return_rejoin"}
_RETURN_ELECTED = {"return_transfer"}


def drill_preview(
    *,
    cluster: Cluster,
    group: BrokerGroup,
    driver: Driver,
    gives_back: bool = False,
    fault: DrillFault | None = DrillFault.KILL,
) -> DrillPlan:
    """Look at every replica now, and say what a drill would do. Raises Conflict unless the cluster is running."""
    require_running(cluster)
    view = group_sample(cluster, group.name, driver) or GroupView(name=group.name, in_sync_replicas=1, replicas=())
    return plan_drill(
        view.placed(), timezone.now(), gives_back=gives_back, fault=fault, running=_running_words(cluster)
    )


def drill_start(
    *,
    actor: Actor,
    cluster: Cluster,
    group: BrokerGroup,
    driver: Driver,
    gives_back: bool = False,
    fault: DrillFault = DrillFault.KILL,
    confirm: str = "",
) -> Drill:
    """Start the operation that stops the group's leader and measures what follows.

    Raises NotPossible with the causes, ConfirmationNeeded unless `confirm` is the group's name, Conflict when the cluster isn't
    running or another operation on it is in progress: of two requests at once, one wins.
    """
    actor_require(actor, "group.promote", cluster.tenant)
    plan = drill_preview(cluster=cluster, group=group, driver=driver, gives_back=gives_back, fault=fault)
    if confirm and confirm != group.name:
        raise InvalidInput.for_field("confirm", say("Type the group's name, %(group)s.", group=group.name), "mismatch")
    if plan.problems or plan.leader_id is None or plan.candidate_id is None:
        raise NotPossible(say_all(*plan.problems) or plan.cleanness.because)
    if not confirm:
        raise ConfirmationNeeded(
            say("The leader of %(group)s is stopped: sends fail or wait for some seconds.", group=group.name),
            hint=say("Send `confirm` with the group's name, %(group)s, to begin.", group=group.name),
        )
    return drill_begin(actor=actor, cluster=cluster, group=group, plan=plan, fault=fault)


def drill_steps(*, elects: bool, gives_back: bool, fault: DrillFault) -> set[str]:
    """Return the names of the workflow's steps that a drill has."""
    steps = _ALWAYS | (_ELECTED if elects else _ASSIGNED)
    if fault != DrillFault.KILL:
        steps |= _LASTING
    if gives_back:
        steps |= _RETURN | (_RETURN_ELECTED if elects else _RETURN_ASSIGNED)
    return steps


def drill_begin(*, actor: Actor, cluster: Cluster, group: BrokerGroup, plan: DrillPlan, fault: DrillFault) -> Drill:
    """Write the operation of a plan that was just made and is possible, and enqueue its first step.

    Raises Conflict while another operation on the cluster is in progress, NotPossible for a plan with problems.
    """
    if plan.problems or plan.leader_id is None or plan.candidate_id is None:
        raise NotPossible(say_all(*plan.problems) or plan.cleanness.because)
    leader_id, candidate_id = plan.leader_id, plan.candidate_id
    with transaction.atomic():
        operation = operation_start(
            actor=actor,
            cluster=cluster,
            operation_type=OperationType.GROUP_DRILL,
            resource=f"{cluster.path}groups/{group.name}/",
            metadata={"group": group.name, "target": leader_id, "gives_back": plan.gives_back, "fault": fault},
            steps=drill_steps(elects=plan.elects, gives_back=plan.gives_back, fault=fault),
        )
        failover = Failover.objects.create(
            operation=operation,
            cluster=cluster,
            group_name=group.name,
            kind=FailoverKind.DRILL,
            requested_by=actor_label(actor),
            candidate_id=candidate_id,
            old_master_id=leader_id,
            bytes_at_risk=0,
            messages_at_risk=0,
        )
        drill = Drill.objects.create(
            operation=operation,
            failover=failover,
            cluster=cluster,
            group_name=group.name,
            mode=cluster.mode,
            fault=fault,
            gives_back=plan.gives_back,
            requested_by=actor_label(actor),
            leader_id=leader_id,
        )
        what = _VERBS[fault](failover.asked_by, leader_id)
        timeline_add(failover, "requested", what)
        audit_event_record(
            actor=actor,
            action=str(operation.type),
            resource=operation.resource,
            tenant_id=cluster.tenant_id,
            details={"leader": leader_id, "gives_back": plan.gives_back, "fault": fault},
        )
    return drill


def _running_words(cluster: Cluster) -> str:
    running = Operation.objects.filter(cluster=cluster, state=OperationState.IN_PROGRESS).first()
    if running is None:
        return ""
    return say(
        "Another operation on this cluster is in progress: “%(type)s”, which %(requested_by)s asked for.",
        type=operation_title(running),
        requested_by=running.requested_by,
    )


def drill_faults_end(cluster: Cluster, driver: Driver) -> None:
    """End processes that a drill suspended and could not end, as its operation failed first; the health sampling starts them.

    A cut ends by itself: who was cut off may lead again by now.
    """
    hanging = Drill.objects.filter(cluster=cluster, fault_at__isnull=False, fault_ended_at=None).defer("probes")
    for drill in hanging.exclude(operation__state=OperationState.IN_PROGRESS):
        row = Replica.objects.filter(
            group__cluster=cluster, group__name=drill.group_name, broker_id=drill.leader_id
        ).first()
        if row is not None and drill.fault_at is not None and drill.fault != DrillFault.CUT:
            name = replica_process_name(cluster, row)
            status = driver.process_statuses([name])[name]
            # One that was started since does not hang. Supervisors report whole seconds.
            if status.started_at is None or status.started_at < drill.fault_at - timedelta(seconds=1):
                driver.process_kill(name)
                _log.warning("a drill's suspended process was ended", process=name)
        Drill.objects.filter(pk=drill.pk).update(fault_ended_at=timezone.now(), updated_at=timezone.now())
