"""Every endpoint and method, and what the owner, a teammate (a member), an outsider and a stranger are answered there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver

from controlplane.alerts.channels import channel_list
from controlplane.alerts.models import Alert, AlertDelivery, AlertSilence
from controlplane.billing.models import Plan, Usage
from controlplane.billing.periods import Month
from controlplane.clusters.models import Operation, OperationState, OperationType
from controlplane.clusters.selectors import credential_list
from controlplane.common.schema import EXAMPLES
from controlplane.consumers.models import DeadLetterReplay
from controlplane.failover.models import DivergedResend, Drill, Failover, FailoverKind
from controlplane.insight.models import JobRunState
from controlplane.status.models import Incident, Maintenance
from controlplane.tenants.invitation_services import invitation_create
from controlplane.tenants.service_account_services import service_account_create
from controlplane.tenants.token_services import api_token_issue
from controlplane.topics.models import MaskingRule, Topic, TopicSchema, TopicState
from tests.controlplane.billing_world import make_plan, make_run, use
from tests.controlplane.world import (
    SYSTEM,
    Json,
    World,
    alert_of,
    dead_letter_replay,
    diverged_resend,
    drill_window,
    offset_reset,
)

CLUSTER = "/api/v1/tenants/acme/clusters/orders/"


@dataclass(frozen=True)
class Row:
    """What each of the four is answered. 503: allowed, but nothing listens on this cluster's ports.

    `needs` is the right that the route needs, written by hand from what it does; empty outside tenants.
    """

    pattern: str
    method: str
    owner: int
    teammate: int
    outsider: int = 404
    anonymous: int = 401
    needs: str = ""
    body: Any = None


TENANT = "tenants/<slug:tenant>/"
CLUSTERS = f"{TENANT}clusters/"
ONE = f"{CLUSTERS}<slug:cluster>/"
CREDENTIAL = f"{ONE}credentials/<slug:access_key>/"
TOPIC = f"{ONE}topics/<topic:topic>/"
MESSAGE = f"{TOPIC}messages/<slug:broker>/<int:queue_id>/<int:queue_offset>/"
CUT = f"{ONE}diverged/<slug:group>/<int:replica_id>/<str:name>/"
GROUP = f"{ONE}consumer-groups/<consumer_group:group>/"
DRILL_WINDOW = {
    "group": "broker-a",
    "opens_at": datetime.now(UTC).isoformat(),
    "closes_at": (datetime.now(UTC) + timedelta(hours=2)).isoformat(),
    "confirm": "broker-a",
}

ROWS = [
    Row("schema/", "GET", 200, 200, outsider=200, anonymous=200),
    Row("docs/", "GET", 200, 200, outsider=200, anonymous=200),
    Row("tenants/", "GET", 200, 200, outsider=200),
    Row("tenants/", "POST", 201, 201, outsider=201, body={"slug": "initech"}),
    Row(TENANT, "GET", 200, 200, needs="tenant.view"),
    Row(TENANT, "PATCH", 200, 403, needs="tenant.update", body={"name": "Acme Ltd"}),
    Row(f"{TENANT}members/", "GET", 200, 200, needs="member.view"),
    Row(f"{TENANT}invitations/", "GET", 200, 403, needs="member.manage"),
    Row(f"{TENANT}invitations/", "POST", 201, 403, needs="member.manage", body={"email": "charlie@example.com"}),
    Row(f"{TENANT}invitations/<uuid:invitation_id>/", "GET", 200, 403, needs="member.manage"),
    Row(f"{TENANT}invitations/<uuid:invitation_id>/", "DELETE", 204, 403, needs="member.manage"),
    Row("invitations/accept/", "POST", 404, 404, body={"secret": "wrong"}),
    Row("invitations/decline/", "POST", 404, 404, body={"secret": "wrong"}),
    Row(f"{TENANT}members/<uuid:membership_id>/", "GET", 200, 200, needs="member.view"),
    Row(f"{TENANT}members/<uuid:membership_id>/", "PATCH", 200, 403, needs="member.manage", body={"role": "viewer"}),
    Row(f"{TENANT}members/<uuid:membership_id>/", "DELETE", 204, 204, needs="tenant.view"),  # Bob removes himself
    Row(
        f"{TENANT}members/<uuid:membership_id>/secrets/", "GET", 200, 200, needs="member.view"
    ),  # Bob asks about himself
    Row(f"{TENANT}service-accounts/", "GET", 200, 403, needs="service_account.view"),
    Row(
        f"{TENANT}service-accounts/",
        "POST",
        201,
        403,
        needs="service_account.manage",
        body={"name": "ci", "role": "viewer"},
    ),
    Row(f"{TENANT}service-accounts/<uuid:account_id>/", "GET", 200, 403, needs="service_account.view"),
    Row(
        f"{TENANT}service-accounts/<uuid:account_id>/",
        "PATCH",
        200,
        403,
        needs="service_account.manage",
        body={"disabled": True},
    ),
    Row(f"{TENANT}service-accounts/<uuid:account_id>/", "DELETE", 204, 403, needs="service_account.manage"),
    Row(f"{TENANT}tokens/", "GET", 200, 403, needs="token.view"),
    Row(f"{TENANT}tokens/", "POST", 201, 403, needs="token.manage", body={"name": "ci"}),
    Row(f"{TENANT}tokens/<uuid:token_id>/", "GET", 200, 403, needs="token.view"),
    Row(f"{TENANT}tokens/<uuid:token_id>/", "DELETE", 204, 403, needs="token.manage"),
    Row(f"{TENANT}audit-events/", "GET", 200, 403, needs="audit.view"),
    Row(f"{TENANT}audit-chain/", "GET", 200, 403, needs="audit.view"),
    Row(f"{TENANT}masking-rules/", "GET", 200, 200, needs="masking.view"),
    Row(f"{TENANT}masking-rules/", "POST", 201, 403, needs="masking.manage", body={"pattern": "$.card.number"}),
    Row(f"{TENANT}masking-rules/<uuid:rule_id>/", "GET", 200, 200, needs="masking.view"),
    Row(f"{TENANT}masking-rules/<uuid:rule_id>/", "DELETE", 204, 403, needs="masking.manage"),
    Row(f"{TENANT}limits/", "GET", 200, 200, needs="tenant.view"),
    Row(f"{TENANT}clusters/<slug:cluster>/figures/", "GET", 200, 200, needs="cluster.view"),
    Row(f"{TENANT}operations/", "GET", 200, 200, needs="operation.view"),
    Row(f"{TENANT}metrics/", "GET", 200, 200, needs="lag.view"),
    Row(f"{TENANT}usage/", "GET", 200, 200, needs="billing.view"),
    Row(f"{TENANT}usage/breakdown/", "GET", 400, 400, needs="billing.view"),  # it asks by what
    Row(f"{TENANT}usage/records/", "GET", 200, 200, needs="billing.view"),
    Row(f"{TENANT}usage/export/<slug:kind>/", "GET", 200, 200, needs="billing.view"),
    Row(f"{TENANT}plan/", "GET", 200, 200, needs="billing.view"),
    Row(f"{TENANT}budget/", "GET", 404, 404, needs="billing.view"),  # there is none
    Row(f"{TENANT}budget/", "PUT", 200, 403, needs="budget.manage", body={"amount": "10", "currency": "EUR"}),
    Row(f"{TENANT}budget/", "DELETE", 204, 403, needs="budget.manage"),
    Row(f"{TENANT}invoices/", "GET", 200, 200, needs="billing.view"),
    Row(f"{TENANT}invoices/<slug:invoice>/", "GET", 200, 200, needs="billing.view"),
    Row(f"{TENANT}invoices/<slug:invoice>/csv/", "GET", 200, 200, needs="billing.view"),
    Row(f"{TENANT}invoices/<slug:invoice>/pdf/", "GET", 200, 200, needs="billing.view"),
    Row(f"{TENANT}invoices/<slug:invoice>/lines/<int:position>/usage/", "GET", 200, 200, needs="billing.view"),
    Row(CLUSTERS, "GET", 200, 200, needs="cluster.view"),
    Row(CLUSTERS, "POST", 202, 403, needs="cluster.create", body={"slug": "billing"}),
    Row(ONE, "GET", 200, 200, needs="cluster.view"),
    Row(ONE, "PATCH", 200, 403, needs="cluster.update", body={"name": "Orders"}),
    Row(ONE, "DELETE", 202, 403, needs="cluster.delete"),
    Row(f"{ONE}suspend/", "POST", 202, 403, needs="cluster.suspend", body={"reason": "the weekend"}),
    Row(f"{ONE}resume/", "POST", 409, 403, needs="cluster.resume"),  # it runs
    Row(f"{ONE}restore/", "POST", 409, 403, needs="cluster.resume"),  # it is not deleted
    Row(f"{ONE}purge/", "POST", 409, 403, needs="cluster.delete", body={"confirm": "orders"}),
    Row(f"{ONE}grow/", "POST", 400, 403, needs="cluster.grow"),  # it has one master
    Row(
        f"{ONE}certificate-authority/renew/", "POST", 409, 403, needs="cluster.renew_ca", body={"step": "trust_next"}
    ),  # it has no TLS
    Row(f"{ONE}configuration/", "GET", 200, 200, needs="cluster.view"),
    Row(f"{ONE}configuration/", "PATCH", 200, 403, needs="cluster.update", body={"values": {"fileReservedTime": 96}}),
    Row(f"{ONE}configuration/apply/", "POST", 200, 403, needs="cluster.update"),
    Row(f"{ONE}configuration/changes/", "GET", 200, 200, needs="cluster.view"),
    Row(f"{ONE}configuration/changes/<int:number>/", "GET", 404, 404, needs="cluster.view"),  # nothing was changed yet
    Row(f"{ONE}configuration/changes/<int:number>/put-back/", "POST", 404, 403, needs="cluster.update", body={}),
    Row(f"{ONE}restart/", "POST", 422, 403, needs="cluster.restart", body={}),  # nothing of it answers
    Row(f"{ONE}upgrade/", "POST", 422, 403, needs="cluster.restart", body={}),
    Row(f"{ONE}daemons/", "GET", 200, 200, needs="cluster.view"),
    Row(f"{ONE}groups/", "GET", 200, 200, needs="cluster.view"),
    Row(
        f"{ONE}groups/<slug:group>/promote/", "POST", 422, 403, needs="group.promote", body={}
    ),  # and no one to promote
    Row(f"{ONE}groups/<slug:group>/switchover/", "POST", 422, 403, needs="group.promote", body={}),
    Row(
        f"{ONE}groups/<slug:group>/transfer/", "POST", 422, 403, needs="group.promote", body={}
    ),  # it does not elect its leader
    Row(f"{ONE}groups/<slug:group>/prefer/", "POST", 422, 403, needs="group.promote", body={"replica": 0}),
    Row(f"{ONE}groups/<slug:group>/replace/", "POST", 422, 403, needs="cluster.grow", body={"replica": 0}),
    Row(f"{ONE}groups/<slug:group>/recover/", "POST", 422, 403, needs="group.promote", body={"replica": 0}),
    Row(f"{ONE}groups/<slug:group>/resize/", "POST", 422, 403, needs="cluster.grow", body={"replicas": 5}),
    Row(
        f"{ONE}groups/<slug:group>/drill/", "POST", 422, 403, needs="group.promote", body={"confirm": "broker-a"}
    ),  # no one could take over
    Row(f"{ONE}drills/", "GET", 200, 200, needs="failover.view"),
    Row(f"{ONE}drills/<uuid:drill_id>/", "GET", 200, 200, needs="failover.view"),
    Row(f"{ONE}drill-windows/", "GET", 200, 200, needs="failover.view"),
    Row(f"{ONE}drill-windows/", "POST", 422, 403, needs="group.promote", body=DRILL_WINDOW),  # no one could take over
    Row(f"{ONE}drill-windows/<uuid:window_id>/", "GET", 200, 200, needs="failover.view"),
    Row(f"{ONE}drill-windows/<uuid:window_id>/cancel/", "POST", 200, 403, needs="group.promote"),
    Row(f"{ONE}diverged/", "GET", 200, 200, needs="failover.view"),  # it says that no one answers
    Row(CUT, "GET", 503, 503, needs="failover.view"),
    Row(CUT, "DELETE", 503, 403, needs="diverged.manage"),
    Row(f"{CUT}messages/", "GET", 503, 503, needs="message.browse"),
    Row(f"{CUT}export/", "GET", 503, 503, needs="message.browse"),
    Row(f"{CUT}done/", "POST", 503, 403, needs="diverged.manage", body={}),
    Row(f"{CUT}resends/", "POST", 503, 503, needs="message.send", body={}),
    Row(f"{ONE}diverged-resends/", "GET", 200, 200, needs="failover.view"),
    Row(f"{ONE}diverged-resends/<uuid:resend_id>/", "GET", 200, 200, needs="failover.view"),
    Row(f"{ONE}diverged-resends/<uuid:resend_id>/cancel/", "POST", 200, 200, needs="message.send", body={}),
    Row(
        f"{ONE}diverged-resends/<uuid:resend_id>/continue/", "POST", 409, 409, needs="message.send", body={}
    ),  # it runs
    Row(f"{ONE}mode/", "POST", 422, 403, needs="cluster.grow", body={"mode": "dledger"}),  # it has one master
    Row(f"{ONE}failovers/", "GET", 200, 200, needs="failover.view"),
    Row(f"{ONE}failovers/<uuid:failover_id>/", "GET", 200, 200, needs="failover.view"),
    Row(f"{ONE}message-trace/", "GET", 400, 400, needs="message.browse"),  # it asks for what
    Row(f"{ONE}lag/", "GET", 503, 503, needs="lag.view"),
    Row(f"{ONE}lag-csv/", "GET", 503, 503, needs="lag.view"),
    Row(f"{ONE}lag/<consumer_group:group>/", "GET", 200, 200, needs="lag.view"),  # it says that no one answers
    Row(f"{ONE}lag/<consumer_group:group>/history/", "GET", 400, 400, needs="lag.view"),  # it asks of which topic
    Row(f"{ONE}lag/<consumer_group:group>/thresholds/", "GET", 200, 200, needs="lag.view"),
    Row(
        f"{ONE}lag/<consumer_group:group>/thresholds/",
        "PUT",
        200,
        200,
        needs="topic.update",
        body={"lag_messages": 100, "growth_per_second": 0.1},
    ),
    Row(f"{TENANT}alerts/", "GET", 200, 200, needs="alert.view"),
    Row(f"{TENANT}alerts/<uuid:alert_id>/", "GET", 200, 200, needs="alert.view"),
    Row(f"{TENANT}alerts/<uuid:alert_id>/acknowledge/", "POST", 200, 403, needs="alert.manage", body={}),
    Row(f"{TENANT}alert-channels/", "GET", 200, 200, needs="alert.view"),
    Row(
        f"{TENANT}alert-channels/",
        "POST",
        201,
        403,
        needs="alert.manage",
        body={"kind": "webhook", "name": "hook", "address": "https://example.com/hook"},
    ),
    Row(f"{TENANT}alert-channels/<uuid:channel_id>/", "GET", 200, 200, needs="alert.view"),
    Row(f"{TENANT}alert-channels/<uuid:channel_id>/", "PATCH", 200, 403, needs="alert.manage", body={"is_on": False}),
    Row(f"{TENANT}alert-channels/<uuid:channel_id>/", "DELETE", 409, 403, needs="alert.manage"),  # it is e-mail
    Row(f"{TENANT}alert-channels/<uuid:channel_id>/test/", "POST", 202, 403, needs="alert.manage"),
    Row(f"{TENANT}alert-deliveries/", "GET", 200, 200, needs="alert.view"),
    Row(f"{TENANT}alert-deliveries/<uuid:delivery_id>/", "GET", 200, 200, needs="alert.view"),
    Row(f"{TENANT}alert-deliveries/<uuid:delivery_id>/again/", "POST", 202, 403, needs="alert.manage"),
    Row(f"{TENANT}alert-silences/", "GET", 200, 200, needs="alert.view"),
    Row(
        f"{TENANT}alert-silences/",
        "POST",
        201,
        403,
        needs="alert.manage",
        body={"until": (datetime.now(UTC) + timedelta(hours=1)).isoformat(), "reason": "upkeep"},
    ),
    Row(f"{TENANT}alert-silences/<uuid:silence_id>/", "DELETE", 204, 403, needs="alert.manage"),
    Row(f"{ONE}alert-rules/", "GET", 200, 200, needs="alert.view"),
    Row(f"{ONE}alert-rules/<slug:kind>/", "GET", 200, 200, needs="alert.view"),
    Row(f"{ONE}alert-rules/<slug:kind>/", "PATCH", 200, 403, needs="alert.manage", body={"is_on": False}),
    Row(f"{ONE}alert-rules/<slug:kind>/", "DELETE", 200, 403, needs="alert.manage"),
    Row(f"{GROUP}members/", "GET", 503, 503, needs="lag.view"),
    Row(f"{GROUP}members/running/", "GET", 400, 400, needs="consumer.inspect"),  # it asks of which member
    Row(f"{GROUP}offset-resets/", "GET", 200, 200, needs="lag.view"),
    Row(
        f"{GROUP}offset-resets/", "POST", 503, 403, needs="offset.reset", body={"topic": "payments", "target": "latest"}
    ),
    Row(f"{GROUP}offset-resets/<uuid:reset_id>/", "GET", 200, 200, needs="lag.view"),
    Row(f"{GROUP}offset-resets/<uuid:reset_id>/undo/", "POST", 503, 403, needs="offset.reset", body={}),
    Row(f"{GROUP}dead-letters/", "GET", 503, 503, needs="message.browse"),
    Row(f"{GROUP}dead-letters/export/", "GET", 503, 503, needs="message.browse"),
    Row(f"{GROUP}dead-letter-replays/", "GET", 200, 200, needs="lag.view"),
    Row(f"{GROUP}dead-letter-replays/", "POST", 503, 503, needs="dead_letter.replay", body={}),
    Row(f"{GROUP}dead-letter-replays/<uuid:replay_id>/", "GET", 200, 200, needs="lag.view"),
    Row(f"{GROUP}dead-letter-replays/<uuid:replay_id>/cancel/", "POST", 200, 200, needs="dead_letter.replay", body={}),
    Row(
        f"{GROUP}dead-letter-replays/<uuid:replay_id>/continue/", "POST", 503, 503, needs="dead_letter.replay", body={}
    ),
    Row(f"{ONE}credentials/", "GET", 200, 200, needs="credential.view"),
    Row(f"{ONE}credentials/", "POST", 503, 403, needs="credential.create", body={"name": "billing"}),
    Row(CREDENTIAL, "GET", 200, 200, needs="credential.view"),
    Row(CREDENTIAL, "PATCH", 503, 403, needs="credential.update", body={"quota_connections": 5}),
    Row(CREDENTIAL, "DELETE", 503, 403, needs="credential.delete"),
    Row(f"{CREDENTIAL}quotas/", "GET", 200, 200, needs="credential.view"),
    Row(f"{CREDENTIAL}reveal/", "POST", 200, 200, needs="credential.reveal"),
    Row(f"{CREDENTIAL}rotate/", "POST", 503, 403, needs="credential.create", body={"overlap_hours": 24}),
    Row(f"{ONE}topics/", "GET", 200, 200, needs="topic.view"),
    Row(f"{ONE}topics-csv/", "GET", 200, 200, needs="topic.view"),
    Row(f"{ONE}topics/", "POST", 503, 503, needs="topic.create", body={"name": "refunds"}),
    Row(TOPIC, "GET", 200, 200, needs="topic.view"),
    Row(TOPIC, "PATCH", 503, 503, needs="topic.update", body={"description": "What was sold"}),
    Row(TOPIC, "DELETE", 503, 403, needs="topic.delete"),
    Row(f"{TOPIC}route/", "GET", 503, 503, needs="topic.view"),
    Row(f"{TOPIC}schema/", "GET", 200, 200, needs="topic.view"),
    Row(f"{TOPIC}schema/", "PUT", 200, 200, needs="topic.update", body=EXAMPLES["TopicSchemaSetRequest"]),
    Row(f"{TOPIC}schema/", "DELETE", 204, 204, needs="topic.update"),
    Row(f"{TOPIC}messages/", "GET", 503, 503, needs="message.browse"),
    Row(f"{TOPIC}messages/search/", "GET", 400, 400, needs="message.browse"),  # it asks for a key
    Row(f"{TOPIC}messages/tail/", "GET", 503, 503, needs="message.browse"),
    Row(f"{TOPIC}messages/", "POST", 503, 503, needs="message.send", body={"body": "hello"}),
    Row(MESSAGE, "GET", 503, 503, needs="message.browse"),
    Row(f"{MESSAGE}resend/", "POST", 503, 503, needs="message.send", body={}),
    Row(
        f"{MESSAGE}consume/",
        "POST",
        503,
        503,
        needs="message.consume",
        body={"group": "billing", "client_id": "10.0.0.7@4711"},
    ),
    Row("operations/<uuid:operation_id>/", "GET", 200, 200, needs="operation.view"),
    Row("operations/<uuid:operation_id>/retry/", "POST", 409, 403, needs="operation.retry"),  # it has not failed
    Row(
        "operations/<uuid:operation_id>/cancel/", "POST", 409, 403, needs="operation.cancel"
    ),  # it is no rolling restart
    # The platform's operators' own: to a tenant's owner they don't exist either.
    Row("operator/plans/", "GET", 404, 404),
    Row("operator/plans/", "POST", 404, 404, body={"slug": "mine", "currency": "EUR"}),
    Row("operator/plans/<slug:plan>/", "GET", 404, 404),
    Row("operator/plans/<slug:plan>/", "PATCH", 404, 404, body={"name": "Mine"}),
    Row("operator/plans/<slug:plan>/prices/", "GET", 404, 404),
    Row("operator/plans/<slug:plan>/prices/", "POST", 404, 404, body={}),
    Row("operator/plans/<slug:plan>/prices/<uuid:price_id>/", "GET", 404, 404),
    Row("operator/plans/<slug:plan>/prices/<uuid:price_id>/", "PUT", 404, 404, body={}),
    Row("operator/plans/<slug:plan>/prices/<uuid:price_id>/", "DELETE", 404, 404),
    Row("operator/invoices/<slug:invoice>/reproductions/", "GET", 404, 404),
    Row("operator/invoices/<slug:invoice>/reproductions/", "POST", 404, 404),
    Row("operator/subscriptions/", "GET", 404, 404),
    Row("operator/tenants/", "GET", 404, 404),
    Row("operator/tenants/<slug:tenant>/limits/", "GET", 404, 404),
    Row("operator/tenants/<slug:tenant>/limits/<str:limit>/", "PUT", 404, 404, body={"value": 1, "reason": "x"}),
    Row("operator/subscriptions/", "POST", 404, 404, body={}),
    Row("status/", "GET", 200, 200, outsider=200, anonymous=200),
    Row("status/incidents/", "GET", 200, 200, outsider=200, anonymous=200),
    Row("operator/incidents/", "GET", 404, 404),
    Row("operator/incidents/", "POST", 404, 404, body={}),
    Row("operator/incidents/<uuid:incident_id>/", "GET", 404, 404),
    Row("operator/incidents/<uuid:incident_id>/updates/", "POST", 404, 404, body={}),
    Row("operator/maintenance/", "GET", 404, 404),
    Row("operator/maintenance/", "POST", 404, 404, body={}),
    Row("operator/maintenance/<uuid:maintenance_id>/", "GET", 404, 404),
    Row("operator/maintenance/<uuid:maintenance_id>/", "DELETE", 404, 404),
    Row("operator/leftovers/", "GET", 404, 404),
    Row("operator/hosts/", "GET", 404, 404),
    Row("operator/hosts/taken/", "GET", 404, 404),
    Row("operator/troubles/", "GET", 404, 404),
    Row("operator/leftovers/", "POST", 404, 404, body={}),
    Row("operator/operations/<uuid:operation_id>/requeue/", "POST", 404, 404),
    Row("operator/operations/<uuid:operation_id>/fail/", "POST", 404, 404, body={"reason": "stuck"}),
    Row("operator/job-runs/", "GET", 404, 404),
    Row("operator/job-runs/", "POST", 404, 404, body={"job": "ingest"}),
    Row("operator/job-runs/<uuid:run_id>/", "GET", 404, 404),
    Row("operator/job-runs/<uuid:run_id>/retry/", "POST", 404, 404),
    Row("operator/job-runs/<uuid:run_id>/acknowledge/", "POST", 404, 404),
    Row("operator/job-runs/<uuid:run_id>/replay/", "POST", 404, 404),
    Row("operator/clusters/<uuid:cluster_id>/metering/", "GET", 404, 404),
    Row(
        "operator/clusters/<uuid:cluster_id>/metering/",
        "POST",
        404,
        404,
        body={"until": "2026-11-01T00:00:00Z", "reason": "x"},
    ),
]


def filled(pattern: str, values: Mapping[str, str]) -> str:
    """The pattern's address with these values for its parts."""
    if "alert-rules" in pattern:
        pattern = pattern.replace("<slug:kind>", "disk_used")
    for name, value in values.items():
        pattern = pattern.replace(name, value)
    return f"/api/v1/{pattern}"


def values(world: World) -> dict[str, str]:
    """What leads to something that there is, for each part of a pattern. Makes it; call it once."""
    token = api_token_issue(actor=SYSTEM, tenant=world.acme, name="row").token
    topic, _ = Topic.objects.get_or_create(cluster=world.cluster, name="invoices", state=TopicState.ACTIVE)
    TopicSchema.objects.get_or_create(
        topic=topic, descriptor_set=b"", message="shop.Order", made_by="alice@example.com"
    )
    operation = Operation.objects.create(
        tenant=world.acme,
        cluster=world.cluster,
        type=OperationType.CLUSTER_CREATE,
        state=OperationState.COMPLETED,
        resource=world.cluster.path,
        requested_by="alice@example.com",
    )
    failover = Failover.objects.create(
        operation=operation,
        cluster=world.cluster,
        group_name="broker-a",
        kind=FailoverKind.PROMOTE,
        requested_by="alice@example.com",
        candidate_id=1,
    )
    drill = Drill.objects.create(
        operation=operation,
        failover=failover,
        cluster=world.cluster,
        group_name="broker-a",
        mode="sync",
        requested_by="alice@example.com",
        leader_id=0,
    )
    reset = offset_reset(world.cluster)
    resend = DivergedResend.objects.first() or diverged_resend(world.cluster)
    replay = DeadLetterReplay.objects.first() or dead_letter_replay(world.cluster)
    plan = Plan.objects.filter(slug="standard").first() or make_plan()
    price = plan.prices.get()
    if not Usage.objects.exists():
        use(world.cluster, datetime.now(UTC), "1.5", price=price)
    alert = Alert.objects.first() or alert_of(world.cluster)
    now = datetime.now(UTC)
    delivery = AlertDelivery.objects.create(
        channel=channel_list(world.acme)[0], payload={"event": "test"}, not_before=now
    )
    silence = AlertSilence.objects.create(tenant=world.acme, until=now + timedelta(hours=1), reason="upkeep")
    account = service_account_create(actor=SYSTEM, tenant=world.acme, name="row", role="viewer")
    incident = Incident.objects.create(title="x", impact="down", parts=["api"], state="investigating")
    window = Maintenance.objects.create(
        title="x", text="x", parts=["api"], starts_at=now, ends_at=now + timedelta(hours=1)
    )
    rule, _ = MaskingRule.objects.get_or_create(
        tenant=world.acme, part="property", pattern="row", visible_from="admin", created_by="alice@example.com"
    )
    # What reads nothing, the rule withholds from no developer.
    world.cluster.credentials.filter(is_control=False).update(default_topic_perm="PUB", default_group_perm="DENY")
    return {
        "<uuid:rule_id>": str(rule.pk),
        "<uuid:alert_id>": str(alert.pk),
        "<uuid:resend_id>": str(resend.pk),
        "<int:replica_id>": "0",
        "<str:name>": "cut-00000000000000004096",
        "<uuid:silence_id>": str(silence.pk),
        "<uuid:channel_id>": str(delivery.channel_id),
        "<uuid:delivery_id>": str(delivery.pk),
        "<uuid:account_id>": str(account.pk),
        "<uuid:incident_id>": str(incident.pk),
        "<uuid:maintenance_id>": str(window.pk),
        "<slug:plan>": plan.slug,
        "<uuid:price_id>": str(price.pk),
        "<slug:kind>": "csv",
        "<uuid:cluster_id>": str(world.cluster.pk),
        "<uuid:run_id>": str(make_run(JobRunState.FAILED).pk),
        "<slug:invoice>": f"draft-{Month.of(datetime.now(UTC))}-eur",
        "<int:position>": "1",
        "<int:number>": "1",
        "<slug:broker>": "broker-a",
        "<int:queue_id>": "0",
        "<int:queue_offset>": "0",
        "<consumer_group:group>": "billing",
        "<slug:tenant>": "acme",
        "<slug:cluster>": "orders",
        "<topic:topic>": "invoices",
        "<slug:access_key>": str(credential_list(world.cluster).get().access_key),
        "<uuid:invitation_id>": str(
            invitation_create(actor=SYSTEM, tenant=world.acme, email="dora@example.com", role="viewer").invitation.pk
        ),
        "<uuid:membership_id>": str(world.bob.memberships.get().pk),
        "<uuid:token_id>": str(token.pk),
        "<uuid:operation_id>": str(operation.pk),
        "<slug:group>": "broker-a",
        "<uuid:failover_id>": str(failover.pk),
        "<uuid:drill_id>": str(drill.pk),
        "<uuid:window_id>": str(drill_window(world.cluster).pk),
        "<uuid:reset_id>": str(reset.pk),
        "<uuid:replay_id>": str(replay.pk),
    }


def test_every_address_and_method_of_the_api_has_a_row() -> None:
    known = {(row.pattern, row.method) for row in ROWS}
    found = set(_methods())
    assert found == known


def test_a_token_of_another_tenant_sees_nothing(world: World, api: Callable[..., Json]) -> None:
    text = api_token_issue(actor=SYSTEM, tenant=world.globex, name="foreign", role="owner").text
    assert api(token=text).call("GET", CLUSTER).status_code == 404


def test_a_viewers_token_may_read_and_not_change(
    world: World, api: Callable[..., Json], token: Callable[..., str]
) -> None:
    client = api(token=token(role="viewer"))
    assert client.call("GET", CLUSTER).status_code == 200
    assert client.call("DELETE", CLUSTER).status_code == 403


def test_a_token_is_held_to_its_scopes(world: World, api: Callable[..., Json], token: Callable[..., str]) -> None:
    client = api(token=token(role="owner", scopes=("read",)))
    assert client.call("GET", CLUSTER).status_code == 200
    answer = client.call("DELETE", CLUSTER)
    assert (answer.status_code, answer.json()["code"]) == (403, "missing_scope")


def test_a_members_own_token_dies_with_the_membership(world: World, api: Callable[..., Json]) -> None:
    text = api_token_issue(actor=SYSTEM, tenant=world.acme, name="bob's", role="operator", user=world.bob).text
    client = api(token=text)
    assert client.call("GET", CLUSTER).status_code == 200
    world.bob.memberships.all().delete()
    assert client.call("GET", CLUSTER).status_code == 404


def test_a_members_own_token_is_never_above_the_members_role(world: World, api: Callable[..., Json]) -> None:
    text = api_token_issue(actor=SYSTEM, tenant=world.acme, name="bob's", role="owner", user=world.bob).text
    assert api(token=text).call("DELETE", CLUSTER).status_code == 403


def test_a_session_needs_the_csrf_token_to_change_anything(world: World) -> None:
    client = Json(world.alice, enforce_csrf_checks=True)
    assert client.call("PATCH", CLUSTER, {"name": "x"}).status_code == 403


def test_the_control_planes_own_credential_looks_absent(world: World, api: Callable[..., Json]) -> None:
    control = world.cluster.credentials.get(is_control=True)
    client = api(world.alice)
    assert client.call("GET", f"{CLUSTER}credentials/{control.access_key}/").status_code == 404
    listed = client.call("GET", f"{CLUSTER}credentials/").json()["results"]
    assert control.access_key not in {credential["access_key"] for credential in listed}


def _methods() -> Iterator[tuple[str, str]]:
    for pattern, view in _patterns(get_resolver().url_patterns, ""):
        if not pattern.startswith("api/v1/"):
            continue
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            if hasattr(view.view_class, method.lower()):
                yield pattern.removeprefix("api/v1/"), method


def _patterns(patterns: list[URLPattern | URLResolver], prefix: str) -> Iterator[tuple[str, Any]]:
    for pattern in patterns:
        path = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from _patterns(pattern.url_patterns, path)
        else:
            yield path, pattern.callback
