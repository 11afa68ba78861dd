"""What django-allauth does otherwise here."""

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from django.http import HttpRequest


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]  # untyped upstream
    """Counts failed log-ins by account and address together: a stranger's guesses lock no one else out."""

    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        return f"{super()._get_login_attempts_cache_key(request, **credentials)}:{self.get_client_ip(request)}"
