"""Operations that are fair between tenants: who orders hundreds waits for the own ones, and no one else does.

Of a tenant so many operations go on at once as its limit `operations_at_once` says; the others wait in their order, with
`Operation.waits`, and send nothing to the workers. Of those that go on, one step is worked on at a time. So each round of the
queue has a few steps of any tenant, and no tenant has all workers. Changes of who leads never wait in the first way, and in
the second only for the tenant's own: a group may be without a master meanwhile. Suspensions and resumes do not wait in the
first way either, of which a cluster has one at a time, and a tenant few clusters.
"""

import uuid
from collections.abc import Iterable
from datetime import datetime

from django.db import connection
from django.db.models import QuerySet

from controlplane.clusters.models import LEADERSHIP, Operation, OperationState, OperationStep, OperationType, StepState
from controlplane.common.sentences import say, say_count
from controlplane.tenants.limits import tenant_limit
from controlplane.tenants.models import Tenant

# Groups without a master, or without a majority, wait for no other work.
_URGENT = (*LEADERSHIP, OperationType.GROUP_RECOVER)
# No one promotes, or starts a daemon again, from the moment when a cluster is to be suspended until it has been resumed.
NEVER_WAIT = (*_URGENT, OperationType.CLUSTER_SUSPEND, OperationType.CLUSTER_RESUME)
# A step begins while fewer of its tenant's steps are worked on: four processes work on the failovers' queue, two of them on
# all other operations, too.
_PROMOTIONS, _LEADERSHIP, _OTHERS = 3, 2, 1


def operation_waits(tenant: Tenant, operation_type: OperationType) -> bool:
    """Whether a new operation has to wait for others of its tenant. The answer counts in the present transaction, which must
    write the operation: until its end no other one asks for this tenant.
    """
    if operation_type in NEVER_WAIT:
        return False
    _lock(tenant.pk)
    return _waiting(tenant.pk).exists() or _going_on(tenant.pk).count() >= _at_once(tenant)


def operations_let_begin(tenant_id: uuid.UUID) -> list[Operation]:
    """Let waiting operations of the tenant begin, the oldest first, as far as there is room. Returns them; the caller enqueues
    their steps. Call it in the transaction that made room.
    """
    _lock(tenant_id)
    room = _at_once(Tenant.objects.get(pk=tenant_id)) - _going_on(tenant_id).count()
    # One that another transaction is about to end is left to it: waiting for that one, which waits for our lock, would last.
    chosen = list(_waiting(tenant_id).select_for_update(skip_locked=True)[: max(0, room)])
    for operation in chosen:
        operation.waits = False
    Operation.objects.bulk_update(chosen, ["waits"])
    return chosen


def tenants_that_wait() -> Iterable[uuid.UUID]:
    """Return the tenants of which an operation waits."""
    waiting = Operation.objects.filter(state=OperationState.IN_PROGRESS, waits=True)
    return waiting.values_list("tenant_id", flat=True).distinct()


def step_has_place(step: OperationStep, now: datetime) -> bool:
    """Whether a worker may begin this step beside the other steps of its tenant. The answer counts in the present transaction,
    which must claim the step.
    """
    operation = step.operation
    _lock(operation.tenant_id)
    others = OperationStep.objects.filter(
        operation__tenant_id=operation.tenant_id, state=StepState.RUNNING, lease_until__gte=now
    ).exclude(pk=step.pk)
    return others.count() < _places(operation)


def waiting_words(operation: Operation) -> str:
    """Return what an operation that waits for its tenant's others waits for."""
    ahead = _waiting(operation.tenant_id).filter(created_at__lt=operation.created_at).count()
    running = say_count(
        "Waits: %(count)s of your operations goes on.",
        "Waits: %(count)s of your operations go on.",
        _going_on(operation.tenant_id).count(),
    )
    if not ahead:
        return running
    before = say_count("%(count)s more comes before this one.", "%(count)s more come before this one.", ahead)
    return say("%(first)s %(rest)s", first=running, rest=before)


def operations_going_on(tenant: Tenant) -> int:
    """Return how many operations of the tenant go on that others wait for."""
    return _going_on(tenant.pk).count()


def _places(operation: Operation) -> int:
    if operation.type == OperationType.GROUP_PROMOTE:
        return _PROMOTIONS
    # A rolling restart notes when a change of a leader is under way.
    if operation.type in _URGENT or operation.metadata.get("sends_wait") is True:
        return _LEADERSHIP
    return _OTHERS


def _at_once(tenant: Tenant) -> int:
    return max(1, tenant_limit(tenant, "operations_at_once"))


def _going_on(tenant_id: uuid.UUID) -> QuerySet[Operation]:
    going_on = Operation.objects.filter(tenant_id=tenant_id, state=OperationState.IN_PROGRESS, waits=False)
    return going_on.exclude(type__in=NEVER_WAIT)


def _waiting(tenant_id: uuid.UUID) -> QuerySet[Operation]:
    waiting = Operation.objects.filter(tenant_id=tenant_id, state=OperationState.IN_PROGRESS, waits=True)
    return waiting.order_by("created_at", "pk")


def _lock(tenant_id: uuid.UUID) -> None:
    """Of two transactions that count a tenant's operations, the later one sees what the earlier one wrote. A lock of its own, not
    the tenant's row: limits lock that one, in another order.
    """
    with connection.cursor() as cursor:
        cursor.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"operations of {tenant_id}"])
