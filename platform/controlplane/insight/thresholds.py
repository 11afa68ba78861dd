"""From which backlog and growth on a group is said to never catch up: defaults, and what a tenant sets for a group."""

from dataclasses import asdict
from decimal import Decimal

from django.db import transaction
from django.utils import timezone

from controlplane.accounts.actors import Actor
from controlplane.clusters.models import Cluster
from controlplane.common.audit import audit_event_record, changes_between
from controlplane.common.errors import InvalidInput, LimitReached
from controlplane.common.sentences import say
from controlplane.insight.models import LagThreshold
from controlplane.insight.words import DEFAULT_THRESHOLDS, Thresholds
from controlplane.tenants.rules import actor_require

LAG_MAX = 10**15
GROWTH_MAX = Decimal(10**8)
# Of a cluster, with thresholds of their own. A group need not exist to be given some: anyone could name groups without end.
GROUPS_MAX = 1000


def thresholds_of(cluster: Cluster) -> dict[str, Thresholds]:
    """Return what was set, by group."""
    rows = LagThreshold.objects.filter(cluster=cluster)
    return {row.consumer_group: Thresholds(row.lag_messages, float(row.growth_per_second)) for row in rows}


def thresholds_get(cluster: Cluster, group: str) -> Thresholds:
    """Return the thresholds of a group, the defaults where nothing was set."""
    return thresholds_of(cluster).get(group, DEFAULT_THRESHOLDS)


def thresholds_set(
    *, actor: Actor, cluster: Cluster, group: str, lag_messages: int, growth_per_second: Decimal
) -> Thresholds:
    """Set them for a group; with the defaults it has none of its own any more. Raises InvalidInput for what is out of range,
    LimitReached for one group more than may have their own.
    """
    actor_require(actor, "topic.update", cluster.tenant)
    if not group or len(group) > 255:
        raise InvalidInput.for_field("group", say("Use a group's name of 1 to 255 characters."), "invalid")
    if not 0 <= lag_messages <= LAG_MAX:
        raise InvalidInput.for_field(
            "lag_messages", say("Use a number from 0 to %(most)s.", most=LAG_MAX), "out_of_range"
        )
    if not 0 <= growth_per_second <= GROWTH_MAX:
        raise InvalidInput.for_field(
            "growth_per_second", say("Use a number from 0 to %(most)s.", most=str(GROWTH_MAX)), "out_of_range"
        )
    values = {"lag_messages": lag_messages, "growth_per_second": growth_per_second}
    wanted = Thresholds(lag_messages, float(growth_per_second))
    with transaction.atomic():
        Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)  # of two requests, one is the last that fits
        before, after = asdict(thresholds_get(cluster, group)), asdict(wanted)
        own = LagThreshold.objects.filter(cluster=cluster)
        if wanted == DEFAULT_THRESHOLDS:
            own.filter(consumer_group=group).delete()
        elif not own.filter(consumer_group=group).update(**values, updated_at=timezone.now()):
            if own.count() >= GROUPS_MAX:
                raise LimitReached(
                    say(
                        "%(most)s groups of this cluster have thresholds of their own, which is the most.",
                        most=GROUPS_MAX,
                    ),
                    hint=say("Give one that is not needed the defaults again."),
                )
            LagThreshold.objects.create(cluster=cluster, consumer_group=group, **values)
        audit_event_record(
            actor=actor,
            action="lag_threshold.set",
            resource=f"{cluster.path}lag/{group}/",
            tenant_id=cluster.tenant_id,
            details={**after, "changes": changes_between(before, after)},
        )
    return thresholds_get(cluster, group)
