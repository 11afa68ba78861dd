"""Tenants, memberships and invitations."""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower
from django.utils import timezone

from controlplane.common.models import BaseModel
from controlplane.common.sentences import say


class Role(models.TextChoices):
    """What a member may do (see `tenants.rules`). Each includes those below it, but for billing, which only looks after costs."""

    OWNER = "owner", say("Owner")
    ADMIN = "admin", say("Admin")
    OPERATOR = "operator", say("Operator")
    DEVELOPER = "developer", say("Developer")
    BILLING = "billing", say("Billing")
    VIEWER = "viewer", say("Viewer")


class Tenant(BaseModel):
    """A customer. `slug` is its name in URLs and never changes."""

    slug = models.SlugField(max_length=40, unique=True)
    name = models.CharField(max_length=100)
    time_zone = models.CharField(
        max_length=64, default="UTC", db_default="UTC", help_text="IANA name; for display only, what is stored is UTC"
    )
    limits = models.JSONField(default=dict, db_default={}, help_text="what differs from HIGHWATER_LIMITS, by name")
    wants_second_factor = models.BooleanField(
        default=False, db_default=False, help_text="people give it again before sensitive acts (tenants.sensitive)"
    )
    requires_second_factor = models.BooleanField(
        default=False, db_default=False, help_text="people see the tenant only in sessions in which they gave one"
    )
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
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.DEVELOPER)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["tenant", "user"], name="membership_tenant_user")]

    def __str__(self) -> str:
        return f"{self.user} {self.role} of {self.tenant}"


class ServiceAccount(BaseModel):
    """A program of the tenant. Its tokens end with it, or while it is disabled, and not with the person who made them."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="service_accounts")
    name = models.CharField(max_length=100)
    description = models.CharField(max_length=200, blank=True)
    role = models.CharField(max_length=16, choices=Role.choices)
    created_by = models.CharField(max_length=254)
    disabled_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["tenant", "name"], name="service_account_tenant_name")]

    def __str__(self) -> str:
        return self.name

    @property
    def path(self) -> str:
        """The account's API path."""
        return f"{self.tenant.path}service-accounts/{self.pk}/"

    @property
    def state(self) -> str:
        """`active` or `disabled`."""
        return "active" if self.disabled_at is None else "disabled"


class Invitation(BaseModel):
    """An offer of a role to the owner of an address. It is open until it is accepted, ended or too old.

    Only a hash of the link's secret is kept; `sealed_secret` holds it encrypted until the mail is sent.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField(max_length=254)
    role = models.CharField(max_length=16, choices=Role.choices)
    inviter = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="+")
    secret_hash = models.CharField(max_length=64, unique=True)
    sealed_secret = models.BinaryField(default=bytes)
    expires_at = models.DateTimeField()
    mailed_at = models.DateTimeField(null=True)
    accepted_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True, help_text="revoked, declined or replaced by a later one")

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(email=Lower("email")), name="invitation_email_lower_case"),
            models.UniqueConstraint(
                fields=["tenant", "email"],
                condition=Q(accepted_at=None, ended_at=None),
                name="invitation_tenant_email_open",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.role} of {self.tenant} for {self.email}"

    @property
    def path(self) -> str:
        """The invitation's API path."""
        return f"{self.tenant.path}invitations/{self.pk}/"

    @property
    def state(self) -> str:
        """`pending` or `expired`, of one that was neither accepted nor ended."""
        return "pending" if self.expires_at > timezone.now() else "expired"
