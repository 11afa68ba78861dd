"""Celery's side of billing. Tasks fetch, call one service, and leave the rest to the rows."""

import uuid

from celery import shared_task
from django.conf import settings

from controlplane.billing import budgets, invoices, plan_services, reproductions


@shared_task(name="billing.budgets_check")
def budgets_check_task() -> int:
    """Alert where a threshold of a budget was reached."""
    return budgets.budgets_check()


@shared_task(name=budgets.MAIL_TASK)
def budget_alert_mail_task(alert_id: str) -> bool:
    """Mail one alert."""
    return budgets.budget_alert_mail(uuid.UUID(alert_id))


@shared_task(name="billing.invoices_issue")
def invoices_issue_task() -> int:
    """Issue the invoices that are due."""
    return len(invoices.invoices_issue())


@shared_task(name="billing.subscriptions_default")
def subscriptions_default_task() -> int:
    """Give tenants without a plan the default one."""
    return plan_services.subscriptions_default()


@shared_task(
    name=reproductions.REPRODUCE_TASK,
    soft_time_limit=settings.HIGHWATER_JOB_TIMEOUT_S + 60,
    time_limit=settings.HIGHWATER_JOB_TIMEOUT_S + 120,
)
def invoice_reproduce_task(reproduction_id: str) -> str:
    """Make an issued bill again from its snapshot."""
    return reproductions.reproduction_execute(uuid.UUID(reproduction_id))
