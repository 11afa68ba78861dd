"""A session's key changes when its user shows the password or a factor again: who has read the old one has nothing (ASVS 7.2.4).

The key changes after the page that asked has been made, so that what it does finds the session by the key that the browser sent.
The old key is worth nothing from then on. A page in another tab may have asked with it at that very moment: its answer leads to
the log-in, and from there, with the new cookie, back to the page; it must not take the new cookie away
(`session_middleware.SessionCookieMiddleware`).
"""

from typing import Any

from allauth.account.signals import authentication_step_completed
from allauth.usersessions.models import UserSession
from django.db import transaction
from django.dispatch import receiver
from django.http import HttpRequest

# On the request: that the session's key is to change.
_WAS_CONFIRMED = "was_confirmed_again"


@receiver(authentication_step_completed, dispatch_uid="session_keys.confirmed")
def _note_confirmed(request: HttpRequest, *, reauthenticated: bool = False, **others: Any) -> None:
    if reauthenticated:
        setattr(request, _WAS_CONFIRMED, True)


def session_key_renew(request: HttpRequest) -> None:
    """Give the session another key, if its user has shown the password or a factor again in this request."""
    old_key = request.session.session_key
    if not getattr(request, _WAS_CONFIRMED, False) or not old_key or not request.user.is_authenticated:
        return
    with transaction.atomic():
        request.session.cycle_key()
        listed = UserSession.objects.filter(session_key=old_key, user_id=request.user.pk)
        if not listed.update(session_key=request.session.session_key):
            # Another request has changed the key since this one began, as after a second click: no session goes unlisted.
            UserSession.objects.create_from_request(request)
