"""Celery's side of `common`."""

from celery import shared_task

from controlplane.common import idempotency


@shared_task(name="common.idempotency_records_expire")
def idempotency_records_expire_task() -> int:
    """Delete stored answers that are older than 24 h."""
    return idempotency.idempotency_records_expire()
