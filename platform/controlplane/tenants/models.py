"""Tenants and memberships."""

from typing import ClassVar

from django.conf import settings
from django.db import models

from controlplane.common.models import BaseModel


class Role(models.TextChoices):
    """What a member may do; each role includes those below it (see `tenants.rules`)."""

    OWNER = "owner"
    OPERATOR = "operator"
    MEMBER = "member"
    VIEWER = "viewer"


class Tenant(BaseModel):
    """A customer. `slug` is its name in URLs and never changes."""

    slug = models.SlugField(max_length=40, unique=True)
    name = models.CharField(max_length=100)
    time_zone = models.CharField(
        max_length=64, default="UTC", db_default="UTC", help_text="IANA name; for display only, what is stored is UTC"
    )
    limits = models.JSONField(default=dict, db_default={}, help_text="what differs from HIGHWATER_LIMITS, by name")
    members = models.ManyToManyField(settings.AUTH_USER_MODEL, through="Membership", related_name="tenants")

    def __str__(self) -> str:
        return self.slug

    @property
    def path(self) -> str:
        """The tenant's API path, which is also its name in audit events and operations."""
        return f"/api/v1/tenants/{self.slug}/"


class Membership(BaseModel):
    """A user's role in a tenant."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.MEMBER)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["tenant", "user"], name="membership_tenant_user")]

    def __str__(self) -> str:
        return f"{self.user} {self.role} of {self.tenant}"
