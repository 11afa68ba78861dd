"""Celery's side of alerts."""

from celery import shared_task

from controlplane.alerts import engine


@shared_task(name="alerts.evaluate")
def alerts_evaluate_task() -> int | None:
    """Look at what is known of all clusters."""
    return engine.alerts_evaluate()


@shared_task(name="alerts.expire")
def alerts_expire_task() -> int:
    """Delete old alerts."""
    return engine.alerts_expire()
