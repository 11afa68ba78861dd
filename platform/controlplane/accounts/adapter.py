"""What django-allauth does otherwise here."""

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest

from controlplane.accounts.models import User

# In the session: where to go on after the second factor was given.
FACTOR_WANTED_FOR = "factor_wanted_for"


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]  # untyped upstream
    """Counts failed log-ins by account and address together: a stranger's guesses lock no one else out."""

    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        return f"{super()._get_login_attempts_cache_key(request, **credentials)}:{self.get_client_ip(request)}"

    def get_reauthentication_methods(self, user: User | AnonymousUser) -> list[dict[str, Any]]:
        """Leave the password out where the second factor is asked for: it would lead back to the same question."""
        methods: list[dict[str, Any]] = super().get_reauthentication_methods(user)
        request = self.request
        if request is None:
            return methods
        wanted = request.session.get(FACTOR_WANTED_FOR)
        if not wanted or wanted not in (request.GET.get("next"), request.POST.get("next")):
            return methods
        return [method for method in methods if method["id"] != "reauthenticate"]
