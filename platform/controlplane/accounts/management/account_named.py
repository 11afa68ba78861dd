"""The account that a command of manage.py is about."""

from django.core.management.base import CommandError

from controlplane.accounts.models import User


def account_named(email: str) -> User:
    """Return it by its address, however that is written; raises CommandError."""
    user = User.objects.filter(email=email.strip().lower()).first()
    if user is None:
        raise CommandError(f"No one has signed up as {email!r}.")
    return user
