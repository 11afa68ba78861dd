"""The actor: who a service acts for, whether it came by a session, a token or from inside.

Rules (`controlplane.tenants.rules`) are asked about an actor; services write its label into audit events.
"""

import uuid
from dataclasses import dataclass
from typing import TypeAlias

from controlplane.accounts.models import ApiToken, User


@dataclass(frozen=True, slots=True)
class TokenActor:
    """A request that came with an API token. Stands where Django expects `request.user`."""

    token: ApiToken

    is_authenticated = True
    is_anonymous = False
    is_active = True

    @property
    def pk(self) -> uuid.UUID:
        """The token's key; Django REST framework's throttles ask a user for it."""
        return self.token.pk

    @property
    def principal(self) -> str:
        """A stable key of the caller, for rate limits and idempotency keys."""
        return f"token:{self.token.pk}"

    @property
    def shared_principal(self) -> str:
        """A stable key of all tokens of the tenant."""
        return f"tenant:{self.token.tenant_id}"

    def __str__(self) -> str:
        account = self.token.service_account
        whose = "" if account is None else f"service account {account.name}, "
        return f"{whose}token {self.token.name} ({self.token.public_id})"


@dataclass(frozen=True, slots=True)
class SystemActor:
    """The control plane itself: beat tasks and management commands."""

    name: str = "system"

    is_authenticated = True
    is_anonymous = False
    is_active = True

    @property
    def pk(self) -> None:
        return None

    @property
    def principal(self) -> str:
        """See TokenActor."""
        return "system"

    def __str__(self) -> str:
        return self.name


Actor: TypeAlias = User | TokenActor | SystemActor


def actor_label(actor: Actor) -> str:
    """Return what audit events and operations write: an e-mail address, a token's name, or `system`."""
    return str(actor)[:254]
