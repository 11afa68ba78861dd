"""Keeps when and from where each session was last used, ends those past their limits, and lets no old answer take a cookie away."""

import time
from collections.abc import Callable
from datetime import timedelta
from http import HTTPStatus

from allauth.account.adapter import get_adapter
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.sessions.exceptions import SessionInterrupted
from django.contrib.sessions.middleware import SessionMiddleware
from django.http import HttpRequest
from django.http.response import HttpResponse, HttpResponseBase
from django.utils import timezone
from django.utils.translation import gettext as _

from controlplane.accounts.known_browsers import browser_cookie_set
from controlplane.accounts.session_keys import session_key_renew
from controlplane.accounts.session_limits import is_use, session_life, session_use

# Pages ask again every few seconds: the row is written at most so often.
WRITTEN_EACH = timedelta(minutes=1)
# In the session: that it has its row. One that was begun before there were rows gets it by its next use.
_LISTED = "is_listed"


class SessionCookieMiddleware(SessionMiddleware):
    """Leaves the cookie alone where the browser may have a newer one by now: it asked with a key that has changed since.

    Django would delete it, and log its user out. A cookie that names no session is worth nothing, so it may stay.
    """

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        try:
            response = super().process_response(request, response)
        except SessionInterrupted:
            if request.method not in ("GET", "HEAD"):
                raise
            # The session was there when the page was made. What is lost is when it was used.
            return response
        if getattr(request.session, "is_unknown", False) and request.session.is_empty():
            response.cookies.pop(settings.SESSION_COOKIE_NAME, None)
        return response


class SessionUseMiddleware:
    """Ends a session that is past its limits, writes the use of one (at most once a minute), changes its key once its user has
    confirmed who it is, and gives a new browser its cookie.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.session.session_key and request.user.is_authenticated:
            now_s = time.time()
            if session_life(request.session, now_s).is_over(now_s):
                logout(request)
                messages.info(request, _("Your session has ended. Please log in again."))
            elif is_use(request):
                session_use(request.session, now_s)
        if request.session.session_key and request.user.is_authenticated and _LISTED not in request.session:
            UserSession.objects.create_from_request(request)
            request.session[_LISTED] = True
        response = self.get_response(request)
        # With an error of ours no session is kept, and no cookie sent.
        if response.status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
            session_key_renew(request)
        if request.session.session_key and request.user.is_authenticated:
            now = timezone.now()
            stale = UserSession.objects.filter(
                session_key=request.session.session_key, user_id=request.user.pk, last_seen_at__lt=now - WRITTEN_EACH
            )
            stale.update(last_seen_at=now, ip=get_adapter().get_client_ip(request))
        browser_cookie_set(request, response)
        return response
