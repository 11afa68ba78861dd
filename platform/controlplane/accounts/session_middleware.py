"""Keeps when and from where each session was last used."""

from collections.abc import Callable
from datetime import timedelta

from allauth.account.adapter import get_adapter
from allauth.usersessions.models import UserSession
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone

# Pages ask again every few seconds: the row is written at most so often.
WRITTEN_EACH = timedelta(minutes=1)
# In the session: that it has its row. One that was begun before there were rows gets it by its next use.
_LISTED = "is_listed"


class SessionUseMiddleware:
    """Writes the use of a session of someone who is logged in, at most once a minute, after the answer was made."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.session.session_key and request.user.is_authenticated and _LISTED not in request.session:
            UserSession.objects.create_from_request(request)
            request.session[_LISTED] = True
        response = self.get_response(request)
        if request.session.session_key and request.user.is_authenticated:
            now = timezone.now()
            stale = UserSession.objects.filter(
                session_key=request.session.session_key, user_id=request.user.pk, last_seen_at__lt=now - WRITTEN_EACH
            )
            stale.update(last_seen_at=now, ip=get_adapter().get_client_ip(request))
        return response
