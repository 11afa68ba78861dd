"""Celery's side of tenants."""

import uuid

from celery import shared_task

from controlplane.tenants import invitation_services


@shared_task(name=invitation_services.MAIL_TASK)
def invitation_mail_task(invitation_id: str) -> bool:
    """Mail one invitation."""
    return invitation_services.invitation_mail(uuid.UUID(invitation_id))


@shared_task(name="tenants.invitations_mail")
def invitations_mail_task() -> int:
    """Mail the invitations that no mail server took yet."""
    return invitation_services.invitations_mail()
