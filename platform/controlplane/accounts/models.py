"""Users and API tokens."""

from dataclasses import dataclass
from typing import Any, ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower
from django.utils import timezone

from controlplane.common.models import BaseModel


@dataclass(frozen=True, slots=True)
class SessionFactor:
    """When a browser session's newest second factor was given, in seconds since the epoch; None: never. `by_provider`: the identity
    provider has asked for one at the log-in, and the platform's setting trusts its word.
    """

    at_s: float | None
    by_provider: bool = False


class UserManager(BaseUserManager["User"]):
    """Creates users; addresses are stored in lower case, so that one mailbox is one user."""

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> "User":
        """Return the new user; `password=None` makes an unusable password."""
        if not email:
            raise ValueError("A user needs an e-mail address")
        user = self.model(email=email.strip().lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> "User":
        """Return a new user who passes every permission check of Django's own."""
        return self.create_user(email, password, is_staff=True, is_superuser=True, **fields)

    def get_by_natural_key(self, username: str | None) -> "User":
        return self.get(email=(username or "").strip().lower())


class User(AbstractBaseUser, PermissionsMixin):
    """A person. The e-mail address is the login."""

    email = models.EmailField(max_length=254, unique=True)
    name = models.CharField(max_length=100, blank=True)
    language = models.CharField(
        max_length=10, blank=True, default="", db_default="", help_text="of what is mailed; empty: English"
    )
    is_staff = models.BooleanField(default=False)
    is_active = models.BooleanField(default=True)
    date_joined = models.DateTimeField(default=timezone.now)

    objects: ClassVar[UserManager] = UserManager()

    # Of the browser session that this object was read for (`fresh_factor.session_factor_take`); None elsewhere.
    session_factor: SessionFactor | None = None

    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    class Meta:
        # With the unique index: one mailbox is one user, however it is typed.
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(email=Lower("email")), name="user_email_lower_case")
        ]

    def __str__(self) -> str:
        return self.email

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Store the address in lower case, whatever set it (django-allauth's adapter keeps the domain part only)."""
        self.email = self.email.strip().lower()
        super().save(*args, **kwargs)

    @property
    def principal(self) -> str:
        """A stable key of the caller, for rate limits and idempotency keys (at most 64 characters)."""
        return f"user:{self.pk}"

    def get_full_name(self) -> str:
        return self.name or self.email

    def get_short_name(self) -> str:
        return self.name or self.email.partition("@")[0]


class KnownBrowser(BaseModel):
    """A browser that an account was logged in with; `hash` is SHA-256 of its cookie."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="known_browsers")
    hash = models.CharField(max_length=64)
    last_seen_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["user", "hash"], name="known_browser_once")]

    def __str__(self) -> str:
        return f"{self.user} {self.hash[:8]}"


class AccountNotice(BaseModel):
    """Something that a person learns by mail about their account (`accounts.notices`)."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="notices")
    email = models.EmailField(max_length=254)
    kind = models.CharField(max_length=32)
    details = models.JSONField(default=dict)
    address = models.GenericIPAddressField(null=True)
    browser = models.CharField(max_length=100, blank=True)
    language = models.CharField(max_length=10)
    mailed_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.kind} {self.email}"


class ApiToken(BaseModel):
    """A token of one tenant: `hw_<env>_<public_id>_<secret>`, of which only SHA-256 is stored.

    With `user`, it acts as that member, never above the member's present role. With `service_account`, it acts as that program, and
    ends with it. With neither, it is a service token, which is revoked when the member who issued it, by a token or not, leaves the
    tenant or has a lower role than it.
    """

    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.CASCADE, related_name="api_tokens")
    user = models.ForeignKey(User, null=True, on_delete=models.CASCADE, related_name="api_tokens")
    service_account = models.ForeignKey(
        "tenants.ServiceAccount", null=True, on_delete=models.CASCADE, related_name="tokens"
    )
    issuer = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    name = models.CharField(max_length=100)
    public_id = models.CharField(max_length=16, unique=True)
    secret_hash = models.CharField(max_length=64)
    role = models.CharField(max_length=16)
    scopes = models.JSONField(default=list)
    created_by = models.CharField(max_length=254, blank=True)
    expires_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.name} ({self.public_id})"

    @property
    def is_live(self) -> bool:
        """Neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > timezone.now())

    @property
    def is_usable(self) -> bool:
        """Live, and who it acts as is neither deactivated nor disabled."""
        person_out = self.user is not None and not self.user.is_active
        program_out = self.service_account is not None and self.service_account.disabled_at is not None
        return self.is_live and not person_out and not program_out
