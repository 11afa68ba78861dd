"""The form of the log-in: django-allauth's, with our words for staying logged in."""

from typing import Any

from allauth.account.forms import LoginForm
from django.conf import settings
from django.utils.translation import gettext as _


class LogInForm(LoginForm):  # type: ignore[misc]  # untyped upstream
    """Takes address and password, and whether to stay logged in."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        remember = self.fields["remember"]
        remember.label = _("Stay logged in")
        remember.help_text = _("For up to %(days)s days in this browser. Not where others use it, too.") % {
            "days": settings.HIGHWATER_REMEMBERED_DAYS
        }
