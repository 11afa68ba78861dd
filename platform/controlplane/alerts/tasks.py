"""Celery's side of alerts."""

import uuid

from celery import shared_task

from controlplane.alerts import deliveries, engine


@shared_task(name="alerts.evaluate")
def alerts_evaluate_task() -> int | None:
    """Look at what is known of all clusters."""
    return engine.alerts_evaluate()


@shared_task(name=deliveries.DELIVER_TASK, soft_time_limit=deliveries.TURN_MAX_S, time_limit=deliveries.TURN_MAX_S + 5)
def alert_deliver_task(tenant_id: str) -> int:
    """Try a tenant's messages that are due."""
    return deliveries.tenant_deliver(uuid.UUID(tenant_id))


@shared_task(name="alerts.deliveries_resume")
def alert_deliveries_resume_task() -> int:
    """Enqueue what waits for its next try, or was lost with its worker."""
    return deliveries.deliveries_resume()


@shared_task(name="alerts.expire")
def alerts_expire_task() -> int:
    """Delete old alerts."""
    return engine.alerts_expire()
