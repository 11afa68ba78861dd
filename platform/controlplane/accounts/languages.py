"""The language that a person reads: chosen in the foot of a page, kept with the account for what is mailed."""

from typing import Any

from django.conf import settings
from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver
from django.http import HttpRequest

from controlplane.accounts.models import User


def language_choose(user: User, language: str) -> None:
    """Mail the user in this language from now on; one that the console is not in changes nothing."""
    if language in dict(settings.LANGUAGES):
        User.objects.filter(pk=user.pk).exclude(language=language).update(language=language)


@receiver(user_logged_in, dispatch_uid="languages.log_in")
def _note_language(request: HttpRequest, user: User, **others: Any) -> None:
    """Note what was chosen before the log-in or the sign-up."""
    language_choose(user, request.COOKIES.get(settings.LANGUAGE_COOKIE_NAME, ""))
