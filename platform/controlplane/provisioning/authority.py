"""Writes: a cluster's authority is renewed, in three operations of which each takes one step of its succession.

By itself each begins when it is due, by the authority's end or by the overlap that a person chose; by hand at any time before. The
workers do it (`authority_steps.py`).
"""

from datetime import datetime, timedelta

from django.db import transaction

from controlplane.accounts.actors import Actor, SystemActor
from controlplane.clusters.certificates import Succession, succession
from controlplane.clusters.models import Cluster, ClusterState, Operation, OperationState, OperationType
from controlplane.clusters.operations import operation_retry, operation_start
from controlplane.clusters.remoting import require_running
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import Conflict
from controlplane.common.logging import get_logger
from controlplane.common.sentences import say
from controlplane.tenants.rules import actor_require

_log = get_logger("controlplane.certificates")

# How long programs have to get the file with both certificates, where a person began the renewal.
OVERLAP_DAYS, OVERLAP_DAYS_MAX = 30, 180
# The members of an operation's metadata.
STEP, OVERLAP = "step", "overlap_days"
_OWN_STEPS = {Succession.TRUST_NEXT: "ca_make", Succession.SIGN_BY_NEXT: "ca_sign", Succession.DROP_FORMER: "ca_drop"}


def authority_renew(
    *, actor: Actor, cluster: Cluster, step: str, overlap_days: int = OVERLAP_DAYS, confirm: str = ""
) -> Operation:
    """Start the operation that takes this step of the renewal now.

    Raises Conflict when another step is next, when the cluster has no authority, isn't running or has an operation in progress, and
    when the next authority is to sign before its day and `confirm` is not the cluster's slug: programs without it are refused then.
    """
    actor_require(actor, "cluster.renew_ca", cluster.tenant)
    require_running(cluster)
    if not cluster.tls_ca:
        raise Conflict(
            say("This cluster was made before TLS and has no CA."),
            code="no_certificate_authority",
            hint=say("Create a new cluster: each has TLS."),
        )
    due = succession(cluster.tls_ca)[0]
    if step != due:
        raise Conflict(
            say("The next step of the CA's renewal is `%(due)s`, not `%(step)s`.", due=due.value, step=step),
            code="ca_step_not_next",
        )
    if due is Succession.SIGN_BY_NEXT and confirm != cluster.slug:
        raise Conflict(
            say("Programs whose ca.pem has not both certificates yet can't connect with TLS once the next CA signs."),
            code="confirmation_needed",
            hint=say("Give them the present file first, then send the cluster's name as `confirm`."),
        )
    return _start(actor, cluster, due, overlap_days if due is Succession.TRUST_NEXT else None)


def authorities_go_on(now: datetime) -> None:
    """Start the operation of each running cluster whose authority has a step due, and retry what failed. One that can't begin waits
    for the next look.
    """
    for cluster in Cluster.objects.filter(state=ClusterState.RUNNING).exclude(tls_ca="").select_related("tenant"):
        try:
            _go_on(cluster, now)
        except Conflict as conflict:
            _log.info("the authority's succession waits", cluster=str(cluster), cause=conflict.message)
        except ValueError:
            _log.exception("the authority can't be read", cluster=str(cluster))


def _go_on(cluster: Cluster, now: datetime) -> None:
    actor = SystemActor("certificates")
    newest = Operation.objects.filter(cluster=cluster, type=OperationType.CLUSTER_CA).order_by("-created_at").first()
    if newest is not None and newest.state == OperationState.FAILED:
        try:
            operation_retry(actor=actor, operation=newest)
        except Conflict as conflict:
            if conflict.code != "operation_outdated":
                raise
        else:
            return
    step, due_at = succession(cluster.tls_ca, cluster.tls_ca_step_at)
    if now >= due_at:
        _start(actor, cluster, step, None)


def _start(actor: Actor, cluster: Cluster, step: Succession, overlap_days: int | None) -> Operation:
    skipped = {name for one, name in _OWN_STEPS.items() if one is not step}
    with transaction.atomic():
        operation = operation_start(
            actor=actor,
            cluster=cluster,
            operation_type=OperationType.CLUSTER_CA,
            metadata={STEP: step.value, OVERLAP: overlap_days},
            steps=[
                name
                for name in ("ca_refresh", "ca_look", *_OWN_STEPS.values(), "ca_write", "ca_verify")
                if name not in skipped
            ],
        )
        audit_event_record(
            actor=actor,
            action=str(operation.type),
            resource=cluster.path,
            tenant_id=cluster.tenant_id,
            details={STEP: step.value, OVERLAP: overlap_days, "operation": str(operation.pk)},
        )
    return operation


def overlap_of(operation: Operation) -> timedelta | None:
    """Return how long both authorities are trusted before the next one signs; None: as long as the present one's end allows."""
    days = operation.metadata.get(OVERLAP)
    return None if days is None else timedelta(days=days)
