"""When a browser session ends by itself: without use, and at last by its age. Longer where its user chose to stay logged in."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.signals import user_logged_in
from django.contrib.sessions.backends.base import SessionBase
from django.dispatch import receiver
from django.http import HttpRequest

# In the session, as seconds since the epoch.
_BEGUN_AT = "begun_at"
_USED_AT = "used_at"
# The use is written at most so often.
_WRITTEN_EACH_S = 60


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """How long a session may go unused, and how old it may be, in seconds."""

    idle_s: int
    age_s: int


@dataclass(frozen=True, slots=True)
class SessionLife:
    """When a session was begun and last used by its user, and what it may be."""

    begun_at_s: float
    used_at_s: float
    limits: SessionLimits
    is_remembered: bool

    def is_over(self, now_s: float) -> bool:
        """Whether it was unused for too long, or is too old."""
        return now_s - self.used_at_s >= self.limits.idle_s or now_s - self.begun_at_s >= self.limits.age_s

    @property
    def ends_at(self) -> datetime:
        """When it ends if no one uses it any more."""
        end_s = min(self.used_at_s + self.limits.idle_s, self.begun_at_s + self.limits.age_s)
        return datetime.fromtimestamp(end_s, UTC)


def session_limits(*, is_remembered: bool) -> SessionLimits:
    """Return the limits of this platform."""
    if is_remembered:
        return SessionLimits(
            settings.HIGHWATER_REMEMBERED_IDLE_DAYS * 86400, settings.HIGHWATER_REMEMBERED_DAYS * 86400
        )
    return SessionLimits(settings.HIGHWATER_SESSION_IDLE_MINUTES * 60, settings.HIGHWATER_SESSION_HOURS * 3600)


def session_life(session: SessionBase, now_s: float) -> SessionLife:
    """Return the life of a session; one from before there were limits begins now."""
    begun_at_s = float(session.get(_BEGUN_AT, now_s))
    is_remembered = not session.get_expire_at_browser_close()
    limits = session_limits(is_remembered=is_remembered)
    return SessionLife(begun_at_s, float(session.get(_USED_AT, begun_at_s)), limits, is_remembered)


def session_use(session: SessionBase, now_s: float) -> None:
    """Note that the session was used, at most once a minute."""
    session.setdefault(_BEGUN_AT, now_s)
    if now_s - float(session.get(_USED_AT, 0)) >= _WRITTEN_EACH_S:
        session[_USED_AT] = now_s


def is_use(request: HttpRequest) -> bool:
    """Whether a person did something, as opposed to a page that asks for news by itself, all night long."""
    if request.method not in ("GET", "HEAD"):
        return True
    return not request.headers.get("HX-Request") and request.headers.get("Sec-Fetch-Mode", "navigate") == "navigate"


@receiver(user_logged_in, dispatch_uid="session_limits.begin")
def _begin(request: HttpRequest, **others: Any) -> None:
    request.session[_BEGUN_AT] = request.session[_USED_AT] = time.time()
