"""Where a tenant's alerts are sent."""

import ipaddress
import uuid
from collections.abc import Collection
from urllib.parse import urlsplit

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from controlplane.accounts.actors import Actor
from controlplane.accounts.models import User
from controlplane.alerts.models import AlertChannel, ChannelKind
from controlplane.alerts.outgoing import Network, url_problem
from controlplane.clusters.secrets import SecretUnreadable, secret_decrypt, secret_encrypt, secret_generate
from controlplane.common.audit import audit_event_record, changes_between
from controlplane.common.errors import Conflict, InvalidInput, LimitReached, NotFound
from controlplane.common.sentences import say
from controlplane.common.words import name_check
from controlplane.tenants.known_secrets import Finish, KnownSecret
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_require, role_allows
from controlplane.tenants.token_services import issuer_of

CHANNELS_MAX = 20
EMAIL_NAME = say("E-mail to owners, admins and operators")
_SIGNED = (ChannelKind.WEBHOOK, ChannelKind.DINGTALK, ChannelKind.FEISHU)


def allowed_networks() -> list[Network]:
    """Return the networks beside the public internet that the operator allows."""
    return [ipaddress.ip_network(text) for text in settings.HIGHWATER_WEBHOOK_NETWORKS]


def channel_list(tenant: Tenant) -> QuerySet[AlertChannel]:
    """Return the tenant's channels, the one for e-mail among them, which every tenant has."""
    email_channels_ensure([tenant.pk])
    return AlertChannel.objects.filter(tenant=tenant).select_related("tenant")


def email_channels_ensure(tenants: list[uuid.UUID]) -> None:
    """Make the tenants' channels for e-mail where there are none yet."""
    missing = set(tenants) - set(
        AlertChannel.objects.filter(tenant__in=tenants, kind=ChannelKind.EMAIL).values_list("tenant_id", flat=True)
    )
    rows = [AlertChannel(tenant_id=tenant, kind=ChannelKind.EMAIL, name=EMAIL_NAME) for tenant in missing]
    AlertChannel.objects.bulk_create(rows, ignore_conflicts=True)


def channel_get(tenant: Tenant, channel_id: uuid.UUID) -> AlertChannel:
    """Return one channel; raises NotFound."""
    channel = channel_list(tenant).filter(pk=channel_id).first()
    if channel is None:
        raise _no_such_channel()
    return channel


def channel_lock(channel: AlertChannel) -> None:
    """Hold the channel's row until the transaction ends; raises NotFound for one that was deleted since it was read. Rows that
    refer to it can be written while it is held.
    """
    if AlertChannel.objects.select_for_update(no_key=True).filter(pk=channel.pk).first() is None:
        raise _no_such_channel()


def _no_such_channel() -> NotFound:
    return NotFound(say("There is no such channel."))


def address_shown(channel: AlertChannel) -> str:
    """Return the host and port of the address: the rest may be a secret."""
    if not channel.address_encrypted:
        return ""
    try:
        parts = urlsplit(secret_decrypt(channel.address_encrypted))
    except SecretUnreadable:  # the page is shown nevertheless, so that the channel can be deleted
        return say("unreadable: it was encrypted under another SECRET_KEY")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/…"


def channel_create(
    *, actor: Actor, tenant: Tenant, kind: str, name: str, address: str, secret: str = "", critical_only: bool = False
) -> tuple[AlertChannel, str]:
    """Make a channel; returns it with the secret of a webhook that named none, which is shown once.

    Raises InvalidInput, Conflict for a name that is taken, LimitReached.
    """
    actor_require(actor, "alert.manage", tenant)
    name = name_check("name", name)
    if kind not in ChannelKind or kind == ChannelKind.EMAIL:
        kinds = ", ".join(one for one in ChannelKind.values if one != ChannelKind.EMAIL)
        raise InvalidInput.for_field("kind", f"Use one of {kinds}.", "unknown_kind")
    if problem := url_problem(address, allowed_networks()):
        raise InvalidInput.for_field("address", problem, "invalid_address")
    if secret and kind not in _SIGNED:
        label = ChannelKind(kind).label
        raise InvalidInput.for_field("secret", say("%(kind)s signs no messages.", kind=label), "not_signed")
    generated = secret_generate() if kind == ChannelKind.WEBHOOK and not secret else ""
    try:
        with transaction.atomic():
            _require_room(tenant)
            channel = AlertChannel.objects.create(
                tenant=tenant,
                kind=kind,
                name=name,
                address_encrypted=secret_encrypt(address),
                secret_encrypted=secret_encrypt(secret or generated) if secret or generated else b"",
                critical_only=critical_only,
                maker=issuer_of(actor),
            )
            _record(actor, "alert_channel.create", channel, {"kind": kind, "host": address_shown(channel)})
    except IntegrityError:
        raise Conflict(say("A channel has this name."), code="name_taken", hint=say("Choose another one.")) from None
    return channel, generated


def _require_room(tenant: Tenant) -> None:
    """Raise LimitReached for one more than there may be. Call it in the transaction that writes it."""
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)  # of two requests, one is the last that fits
    if channel_list(tenant).count() >= CHANNELS_MAX:
        raise LimitReached(
            say("There are %(channels_max)s channels.", channels_max=CHANNELS_MAX),
            code="over_limit",
            hint=say("Delete one that is not needed."),
        )


def channel_update(
    *, actor: Actor, channel: AlertChannel, is_on: bool | None = None, critical_only: bool | None = None
) -> AlertChannel:
    """Switch a channel on or off, or to critical alerts only. Raises NotFound for one that was deleted meanwhile."""
    actor_require(actor, "alert.manage", channel.tenant)
    given = {"is_on": is_on, "critical_only": critical_only}
    with transaction.atomic():
        channel_lock(channel)
        present = AlertChannel.objects.filter(pk=channel.pk)
        before = present.values(*given).get()
        after = {field: before[field] if new is None else new for field, new in given.items()}
        present.update(**after)
        _record(actor, "alert_channel.update", channel, {"changes": changes_between(before, after)})
    channel.refresh_from_db()
    return channel


def channel_delete(*, actor: Actor, channel: AlertChannel) -> None:
    """Delete a channel with the log of what was sent to it. Raises Conflict for e-mail, which is only switched off."""
    actor_require(actor, "alert.manage", channel.tenant)
    if channel.kind == ChannelKind.EMAIL:
        raise Conflict(say("E-mail can't be deleted."), code="email_stays", hint=say("Switch it off."))
    with transaction.atomic():
        _record(actor, "alert_channel.delete", channel, {"kind": channel.kind})
        channel.delete()


class MadeChannels:
    """Channels that a person made: alerts go to an address of their choice, signed with a secret that they know."""

    kind = "alert_channel"
    permission = "alert.manage"

    def find(self, tenant: Tenant, user: User, still: str | None) -> list[KnownSecret]:
        """Return those that the user made, none for a role that may make others."""
        if still is not None and role_allows(still, self.permission):
            return []
        channels = AlertChannel.objects.filter(tenant=tenant, maker=user)
        return [
            KnownSecret(self.kind, channel.pk, channel.name, address_shown(channel), True, channel.created_at)
            for channel in channels
        ]

    def revoke(self, actor: Actor, tenant: Tenant, ids: Collection[uuid.UUID]) -> Finish:
        """Delete them."""
        for channel in AlertChannel.objects.filter(tenant=tenant, pk__in=ids).select_related("tenant"):
            channel_delete(actor=actor, channel=channel)
        return tuple


def _record(actor: Actor, action: str, channel: AlertChannel, details: dict[str, object]) -> None:
    audit_event_record(
        actor=actor,
        action=action,
        resource=f"{channel.tenant.path}alert-channels/{channel.pk}/",
        tenant_id=channel.tenant_id,
        details={"name": channel.name, **details},
    )
