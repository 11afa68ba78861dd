"""The language that a person reads: chosen in the foot of a page, kept with the account for what is mailed."""

from django.conf import settings

from controlplane.accounts.models import User


def language_choose(user: User, language: str) -> None:
    """Mail the user in this language from now on; one that the console is not in changes nothing."""
    if language in dict(settings.LANGUAGES):
        User.objects.filter(pk=user.pk).exclude(language=language).update(language=language)
