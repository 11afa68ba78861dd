"""Celery's side of accounts."""

import uuid

from celery import shared_task

from controlplane.accounts import notices, session_rows


@shared_task(name=notices.MAIL_TASK)
def notice_mail_task(notice_id: str) -> bool:
    """Mail one notice."""
    return notices.notice_mail(uuid.UUID(notice_id))


@shared_task(name="accounts.notices_mail")
def notices_mail_task() -> int:
    """Mail the notices that no mail server took yet."""
    return notices.notices_mail()


@shared_task(name="accounts.sessions_expire")
def sessions_expire_task() -> int:
    """Delete sessions that are over."""
    return session_rows.sessions_expire()
