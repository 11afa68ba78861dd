"""One turn at a time for all that gives or takes rights in a tenant.

Who may do what is asked after the lock was had. Asked before it, an admin who is being removed could still issue a token that
the removal has not seen, or change a member whom another has made an owner meanwhile.
"""

from controlplane.accounts.actors import Actor, TokenActor
from controlplane.accounts.models import ApiToken
from controlplane.common.errors import NotAllowed
from controlplane.tenants.models import Tenant


def members_lock(actor: Actor, tenant: Tenant) -> None:
    """Wait for the tenant's lock and hold it until the transaction ends; raises NotAllowed for a token revoked meanwhile.

    Rows that refer to the tenant can be written while it is held.
    """
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    if isinstance(actor, TokenActor) and not ApiToken.objects.filter(pk=actor.token.pk, revoked_at=None).exists():
        raise NotAllowed("This token was revoked.", code="token_revoked")
