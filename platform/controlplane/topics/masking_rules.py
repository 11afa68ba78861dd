"""A tenant's rules about what of its messages which role sees, and the one place where they are applied to a reader."""

import re
import uuid

from django.db import transaction
from django.db.models import QuerySet

from controlplane.accounts.actors import Actor, actor_label
from controlplane.clusters.models import Cluster
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import Conflict, InvalidInput, LimitReached, NotFound
from controlplane.common.sentences import say
from controlplane.tenants.models import Role, Tenant
from controlplane.tenants.rules import actor_ranks, actor_require, role_require
from controlplane.tenants.sensitive import factor_require
from controlplane.topics.masking import NotAPath, Part, Rule, Sight, path_of, property_pattern_check
from controlplane.topics.models import MaskingRule
from controlplane.topics.protobuf_bodies import Decoder
from controlplane.topics.schemas import schemas_of

RULES_MAX = 50
# Who may read messages at all is at least a developer.
VISIBLE_FROM = (Role.OPERATOR, Role.ADMIN, Role.OWNER)
_TOPIC_PATTERN = re.compile(r"[%|a-zA-Z0-9_\-*?]{1,127}")


def masking_rule_list(tenant: Tenant) -> QuerySet[MaskingRule]:
    """Return the tenant's rules."""
    return MaskingRule.objects.filter(tenant=tenant).select_related("tenant")


def masking_rule_get(tenant: Tenant, rule_id: uuid.UUID) -> MaskingRule:
    """Return one; raises NotFound."""
    rule = masking_rule_list(tenant).filter(pk=rule_id).first()
    if rule is None:
        raise NotFound(say("There is no such masking rule."))
    return rule


def masking_rule_create(
    *, actor: Actor, tenant: Tenant, topic: str, part: str, pattern: str, visible_from: str, withholds: bool = True
) -> MaskingRule:
    """Hide something from roles below `visible_from`, from the next request on.

    Raises NotAllowed, InvalidInput for a pattern that names nothing, Conflict for a rule that is there, LimitReached.
    """
    actor_require(actor, "masking.manage", tenant)
    if not _TOPIC_PATTERN.fullmatch(topic):
        raise InvalidInput.for_field("topic", say("Write a topic’s name. * and ? may be in it."), "invalid")
    try:
        path_of(pattern) if part == Part.BODY else property_pattern_check(pattern)
    except NotAPath as error:
        raise InvalidInput.for_field("pattern", error.sentence, "invalid") from error
    if visible_from not in VISIBLE_FROM:
        raise InvalidInput.for_field("visible_from", say("Use operator, admin or owner."), "invalid")
    with transaction.atomic():
        Tenant.objects.select_for_update().get(pk=tenant.pk)  # of two at once the second is counted, too
        same = {"topic": topic, "part": part, "pattern": pattern, "visible_from": visible_from}
        if masking_rule_list(tenant).filter(**same).exists():
            raise Conflict(say("There is such a rule already."), code="masking_rule_exists")
        if masking_rule_list(tenant).count() >= RULES_MAX:
            raise LimitReached(say("A tenant has at most %(most)s masking rules.", most=RULES_MAX))
        rule = MaskingRule.objects.create(tenant=tenant, withholds=withholds, created_by=actor_label(actor), **same)
        _record(actor, "masking_rule.create", rule)
    return rule


def masking_rule_delete(*, actor: Actor, rule: MaskingRule) -> None:
    """Show again what the rule hid. Raises NotAllowed also for a role that does not see it, FactorNeeded."""
    tenant = rule.tenant
    actor_require(actor, "masking.manage", tenant)
    role_require(actor, tenant, rule.visible_from)
    factor_require(actor, "masking_rule.delete", tenant)
    with transaction.atomic():
        if not masking_rule_list(tenant).select_for_update(of=("self",)).filter(pk=rule.pk).exists():
            raise NotFound(say("There is no such masking rule."))
        _record(actor, "masking_rule.delete", rule)
        rule.delete()


def sight_of(actor: Actor, cluster: Cluster, *, decodes: bool = True) -> Sight:
    """Return what the actor may see of the cluster's messages, for one answer. A token sees no more than its person.

    Bodies are decoded by their topics' schemas unless `decodes` says otherwise, as for files, which keep them as they are.
    """
    tenant = cluster.tenant
    rules = list(masking_rule_list(tenant))
    ranks = {role: actor_ranks(actor, tenant, role) for role in {one.visible_from for one in rules}}
    decoder = Decoder(schemas_of(cluster)) if decodes else None
    return Sight([_rule(one) for one in rules if not ranks[one.visible_from]], decoder=decoder)


def _rule(row: MaskingRule) -> Rule:
    return Rule(row.topic, Part(row.part), row.pattern, row.withholds)


def _record(actor: Actor, action: str, rule: MaskingRule) -> None:
    audit_event_record(
        actor=actor,
        action=action,
        resource=rule.path,
        tenant_id=rule.tenant_id,
        details={name: getattr(rule, name) for name in ("topic", "part", "pattern", "visible_from", "withholds")},
    )
