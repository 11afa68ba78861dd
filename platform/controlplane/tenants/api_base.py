"""The root of API views below a tenant: finds the actor and the tenant, and asks for the method's permission,
before any handler runs.
"""

from typing import Any, ClassVar, cast

from rest_framework.request import Request

from controlplane.accounts.actors import Actor
from controlplane.common.api import Api
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_require
from controlplane.tenants.selectors import tenant_get


def actor_of(request: Request) -> Actor:
    """Return who asks. Only for authenticated requests."""
    return cast(Actor, request.user)


class TenantApi(Api):
    """A view with `tenant` in its address. `permissions` names what each method needs."""

    permissions: ClassVar[dict[str, str]]

    actor: Actor
    tenant: Tenant

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate and throttle, then find the tenant and require the permission: NotFound before NotAllowed."""
        super().initial(request, *args, **kwargs)
        self.actor = actor_of(request)
        self.tenant = tenant_get(self.actor, kwargs["tenant"])
        method = "GET" if request.method in ("HEAD", "OPTIONS") else str(request.method)
        if method in self.permissions:
            actor_require(self.actor, self.permissions[method], self.tenant)
