"""Operators of the platform: who runs it, as opposed to a tenant's role `operator`. They are Django's staff.

To everyone else their area does not exist: NotFound, as for an absent page.
"""

from controlplane.accounts.actors import Actor, SystemActor, TokenActor
from controlplane.accounts.models import User
from controlplane.common.errors import NotFound

OPERATE_SCOPE = "operate"


def is_operator(actor: Actor) -> bool:
    """Whether the actor runs the platform.

    A token does when it was issued for an operator with the scope `operate`, and as long as that person is one; a
    tenant's service token never does.
    """
    match actor:
        case SystemActor():
            return True
        case TokenActor(token=token):
            return token.user is not None and OPERATE_SCOPE in token.scopes and _is_staff(token.user)
        case User():
            return _is_staff(actor)
        case _:  # AnonymousUser
            return False


def operator_require(actor: Actor) -> None:
    """Raise NotFound unless the actor runs the platform."""
    if not is_operator(actor):
        raise NotFound("There is nothing here.")


def operator_addresses() -> dict[str, str]:
    """Return where operators get mail of what went wrong, and in which language."""
    return dict(User.objects.filter(is_staff=True, is_active=True).values_list("email", "language"))


def _is_staff(user: User) -> bool:
    return user.is_active and user.is_staff
