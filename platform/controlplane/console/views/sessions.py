"""Where a person is logged in: the browsers, and an end for one or for all others."""

import time
from dataclasses import dataclass

from allauth.account.internal.flows.reauthentication import raise_if_reauthentication_required
from allauth.usersessions.internal.flows.sessions import end_other_sessions, end_sessions
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.sessions.backends.base import SessionBase
from django.contrib.sessions.backends.db import SessionStore
from django.db import transaction
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.accounts.account_events import account_event_record
from controlplane.accounts.browsers import browser_name
from controlplane.accounts.session_limits import SessionLife, session_life
from controlplane.common.sentences import say
from controlplane.console.access import ConsoleRequest, console_page
from controlplane.console.pages import never_store, tell_done

_APP = "allauth.usersessions"  # that asks


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A line of the list."""

    session: UserSession
    is_current: bool
    life: SessionLife

    @property
    def browser(self) -> str:
        """What it says of itself, in short."""
        return browser_name(self.session.user_agent)


@require_http_methods(["GET", "HEAD"])
@console_page
def session_list(request: ConsoleRequest) -> HttpResponse:
    """Show the user's sessions, the last used first. What has ended meanwhile is taken out of the list."""
    now_s = time.time()
    sessions = sorted(UserSession.objects.purge_and_list(request.user), key=lambda one: one.last_seen_at, reverse=True)
    rows = [
        SessionRow(one, one.session_key == request.session.session_key, session_life(_data_of(one), now_s))
        for one in sessions
    ]
    rows = [row for row in rows if not row.life.is_over(now_s)]
    context = {
        "rows": rows,
        "has_others": any(not row.is_current for row in rows),
        "idle_minutes": settings.HIGHWATER_SESSION_IDLE_MINUTES,
        "hours": settings.HIGHWATER_SESSION_HOURS,
        "remembered_idle_days": settings.HIGHWATER_REMEMBERED_IDLE_DAYS,
        "remembered_days": settings.HIGHWATER_REMEMBERED_DAYS,
    }
    return never_store(render(request, "console/sessions.html", context))


@require_POST
@console_page
def session_end(request: ConsoleRequest, session: int) -> HttpResponse:
    """End one session of one's own; asks for the password or factor again first. The present one ends as by logging out."""
    found = UserSession.objects.filter(user_id=request.user.pk, pk=session).first()
    if found is None:
        raise Http404(say("You have no such session. It may have ended already."))
    if found.session_key != request.session.session_key:
        raise_if_reauthentication_required(request, app=_APP)
    with transaction.atomic():
        _record(request, "session.end", {"browser": browser_name(found.user_agent), "address": found.ip})
        end_sessions(request, [found])
    tell_done(request, say("That session has ended."))
    return redirect("console:session-list")


@require_POST
@console_page
def session_end_others(request: ConsoleRequest) -> HttpResponse:
    """End all sessions but the present one; asks for the password or factor again first."""
    raise_if_reauthentication_required(request, app=_APP)
    with transaction.atomic():
        _record(request, "session.end_others", {})
        end_other_sessions(request, request.user)
    tell_done(request, say("All your other sessions have ended."))
    return redirect("console:session-list")


def _data_of(session: UserSession) -> SessionBase:
    return SessionStore(session.session_key)


def _record(request: ConsoleRequest, action: str, details: dict[str, str]) -> None:
    account_event_record(actor=request.user, action=action, user=request.user, details=details)
