"""What is left of sessions that are over: Django keeps their rows until someone deletes them."""

from datetime import timedelta

from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from django.db.models import Exists, OuterRef
from django.utils import timezone

# The list's row may be there a moment before its session.
_LISTED_FOR = timedelta(days=1)


def sessions_expire() -> int:
    """Delete sessions that no browser can come back to, and the list's rows of those that are gone; return how many sessions."""
    now = timezone.now()
    deleted, _ = Session.objects.filter(expire_date__lt=now).delete()
    there = Session.objects.filter(session_key=OuterRef("session_key"))
    UserSession.objects.filter(~Exists(there), last_seen_at__lt=now - _LISTED_FOR).delete()
    return deleted
