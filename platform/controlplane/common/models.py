"""Base model, audit events, stored answers of idempotent requests, and mails of which a part was sent."""

import uuid
from typing import ClassVar

from django.db import models
from django.utils import timezone


class BaseModel(models.Model):
    """A row with a random UUID as its key and two UTC times."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        abstract = True


class AuditEvent(BaseModel):
    """Who did what to which resource. Rows are only ever added, each as the next of its tenant's chain (`common.audit_chain`)."""

    # The hash covers it, so it is set before the row is written.
    created_at = models.DateTimeField(default=timezone.now, editable=False, db_index=True)

    # Not a foreign key: common is below tenants, and the trail outlives the tenant.
    tenant_id = models.UUIDField(null=True, db_index=True)
    actor = models.CharField(max_length=254, help_text="e-mail, token name, or `system`")
    action = models.CharField(max_length=64, help_text="noun.verb, e.g. cluster.create")
    resource = models.CharField(max_length=512, help_text="the resource's API path, or its name")
    details = models.JSONField(default=dict)
    request_id = models.CharField(max_length=64, blank=True)
    address = models.GenericIPAddressField(null=True)
    sequence = models.BigIntegerField(help_text="its number in the chain, from 1")
    hash = models.CharField(max_length=64, help_text="SHA-256 of the event and of its predecessor's hash")

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["tenant_id", "-created_at"], name="audit_tenant_time"),
            models.Index(fields=["tenant_id", "sequence"], name="audit_tenant_sequence"),
        ]

    def __str__(self) -> str:
        return f"{self.actor} {self.action} {self.resource}"


class AuditChain(models.Model):
    """The last event of a chain. Who adds one holds this row until the transaction ends, so that a chain does not fork."""

    tenant_id = models.UUIDField(primary_key=True, help_text="all zeros: of events that belong to no tenant")
    length = models.BigIntegerField(default=0)
    head = models.CharField(max_length=64)

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.length}"


class IdempotencyRecord(BaseModel):
    """The answer that was given to one (principal, Idempotency-Key).

    The answer is encrypted with a key that is derived from the Idempotency-Key itself, of which only the hash is
    stored: a reader of the table can't read the secrets that a stored answer may hold.
    """

    class State(models.TextChoices):
        IN_FLIGHT = "in_flight"
        ANSWERED = "answered"

    principal = models.CharField(max_length=64)
    key_hash = models.CharField(max_length=64)
    fingerprint = models.CharField(max_length=64, help_text="SHA-256 of method, path and body")
    state = models.CharField(max_length=16, choices=State.choices, default=State.IN_FLIGHT)
    status = models.PositiveSmallIntegerField(null=True)
    answer = models.BinaryField(default=bytes)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["principal", "key_hash"], name="idempotency_principal_key")
        ]

    def __str__(self) -> str:
        return f"{self.principal} {self.state}"


class MailTaken(models.Model):
    """A mail server took the message in this language of a mail to several people, and not that in another one."""

    mail = models.CharField(max_length=64, help_text="what the caller of `mail_each` named it")
    language = models.CharField(max_length=16)
    taken_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["mail", "language"], name="mail_taken_once")]

    def __str__(self) -> str:
        return f"{self.mail} {self.language}"
