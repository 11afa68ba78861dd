"""Which browsers an account was used with: each has a random cookie, of which the hash is kept."""

import hashlib
import secrets
from typing import Any

from django.conf import settings
from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone

from controlplane.accounts.languages import language_choose
from controlplane.accounts.models import KnownBrowser, User
from controlplane.accounts.notices import notice_write

_COOKIE_AGE_S = 400 * 24 * 3600  # the longest that browsers keep one
_KEPT_MAX = 50
# On the request: what the answer puts into the cookie.
_GIVEN = "browser_id_given"


@receiver(user_logged_in, dispatch_uid="known_browsers.log_in")
def _note_browser(request: HttpRequest, user: User, **others: Any) -> None:
    """Notify the user of a browser that is new to the account, unless it is the account's first.

    What language was chosen before the log-in is kept with the account, but not from a new browser: it may be a stranger's.
    """
    language = request.COOKIES.get(settings.LANGUAGE_COOKIE_NAME, "")
    browser_id = request.COOKIES.get(settings.HIGHWATER_BROWSER_COOKIE_NAME, "")
    known = KnownBrowser.objects.filter(user=user)
    if browser_id and known.filter(hash=_hash(browser_id)).update(last_seen_at=timezone.now()):
        language_choose(user, language)
        return
    is_first = not known.exists()
    if not 20 <= len(browser_id) <= 64:
        browser_id = secrets.token_urlsafe()
    setattr(request, _GIVEN, browser_id)
    # The form may be sent twice at once: the second finds the browser of the first.
    _, is_new = KnownBrowser.objects.get_or_create(user=user, hash=_hash(browser_id))
    if not is_new:
        return
    oldest = known.order_by("-last_seen_at").values_list("pk", flat=True)[_KEPT_MAX:]
    known.filter(pk__in=list(oldest)).delete()
    if is_first:
        language_choose(user, language)
    else:
        notice_write("new_browser", user)


def browser_cookie_set(request: HttpRequest, response: HttpResponseBase) -> None:
    """Give the browser its cookie, if a log-in of this request wants that."""
    browser_id = getattr(request, _GIVEN, None)
    if browser_id is not None:
        response.set_cookie(
            settings.HIGHWATER_BROWSER_COOKIE_NAME,
            browser_id,
            max_age=_COOKIE_AGE_S,
            httponly=True,
            samesite="Lax",
            secure=settings.SESSION_COOKIE_SECURE,
        )


def _hash(browser_id: str) -> str:
    return hashlib.sha256(browser_id.encode()).hexdigest()
