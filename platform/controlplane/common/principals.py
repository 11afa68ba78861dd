"""Who a request counts for: rate limits and idempotency keys are kept per principal."""

from typing import Protocol, cast

from rest_framework.request import Request


class Principal(Protocol):
    """What users and token actors offer."""

    @property
    def principal(self) -> str:
        """A stable key of at most 64 characters."""
        ...


def principal_of(request: Request) -> str:
    """Return the key of an authenticated request's caller."""
    return cast(Principal, request.user).principal


def shared_principal_of(request: Request) -> str | None:
    """Return the key that the caller shares with others of its tenant; None for a person, and for strangers."""
    return cast("str | None", getattr(request.user, "shared_principal", None))
