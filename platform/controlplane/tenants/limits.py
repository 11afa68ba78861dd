"""A limit of one tenant: its own where an operator gave it one, else the platform's."""

from django.conf import settings

from controlplane.tenants.models import Tenant


def tenant_limit(tenant: Tenant, name: str) -> int:
    """Return one limit of the tenant, by a name of HIGHWATER_LIMITS."""
    return int(tenant.limits.get(name, settings.HIGHWATER_LIMITS[name]))
