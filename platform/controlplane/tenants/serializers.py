"""Shapes of the tenants API."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.common.strictness import Shape
from controlplane.tenants.models import Role
from controlplane.tenants.rules import Scope
from controlplane.tenants.service_account_services import ROLES
from controlplane.tenants.services import SLUG_PATTERN
from controlplane.tenants.token_services import DEFAULT_LIFE_DAYS

ACCOUNT_STATES = [("active", "Active"), ("disabled", "Disabled")]
ACCOUNT_ROLES = [(role.value, role.label) for role in ROLES]


@extend_schema_field({"type": "string", "minLength": 2, "maxLength": 39, "pattern": f"^{SLUG_PATTERN.pattern}$"})
class NewSlug(serializers.CharField):
    """A name in addresses that is about to be given; services check it, and say which rule it breaks."""

    def __init__(self, **options: Any) -> None:
        super().__init__(min_length=2, max_length=39, **options)


@extend_schema_field({"type": "string", "minLength": 1, "pattern": f"^{SLUG_PATTERN.pattern}$"})
class TypedSlug(serializers.CharField):
    """The name in an address, typed once more; services compare it, and say what to type."""


class TenantSerializer(Shape):
    """A tenant."""

    slug = serializers.SlugField()
    name = serializers.CharField()
    time_zone = serializers.CharField(help_text="IANA name; for display only")
    wants_second_factor = serializers.BooleanField(help_text="sensitive acts in the console ask for it again")
    requires_second_factor = serializers.BooleanField(
        help_text="people see the tenant only in sessions in which they gave one; API tokens are not asked"
    )
    path = serializers.CharField()
    created_at = serializers.DateTimeField()


class TenantCreateSerializer(Shape):
    """What a new tenant needs."""

    slug = NewSlug()
    name = serializers.CharField(max_length=100, required=False, default="", allow_blank=True)


class TenantUpdateSerializer(Shape):
    """What can be changed of a tenant; at least one."""

    name = serializers.CharField(max_length=100, required=False)
    time_zone = serializers.CharField(max_length=64, required=False)
    wants_second_factor = serializers.BooleanField(required=False)
    requires_second_factor = serializers.BooleanField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not attrs:
            raise serializers.ValidationError({"name": ["Nothing to change was given."]})
        return attrs


class MembershipSerializer(Shape):
    """A member."""

    id = serializers.UUIDField()
    email = serializers.EmailField(source="user.email")
    name = serializers.CharField(source="user.name")
    role = serializers.ChoiceField(choices=Role.choices)
    created_at = serializers.DateTimeField()


_REVOKE_HELP = "ids of secrets that the member knows and that are to end in the same step, or the word all"


class MembershipUpdateSerializer(Shape):
    """The new role."""

    role = serializers.ChoiceField(choices=Role.choices)
    revoke = serializers.ListField(
        child=serializers.CharField(max_length=36), required=False, max_length=1000, help_text=_REVOKE_HELP
    )


class MembershipRemoveSerializer(Shape):
    """What ends with the membership."""

    revoke = serializers.CharField(required=False, max_length=3500, help_text=f"{_REVOKE_HELP}, with commas in between")


class KnownSecretQuerySerializer(Shape):
    """In which case."""

    role = serializers.ChoiceField(
        choices=Role.choices, required=False, help_text="leave out what the member may still have with this role"
    )


class KnownSecretSerializer(Shape):
    """Something that goes on working when the member leaves."""

    id = serializers.UUIDField()
    kind = serializers.ChoiceField(choices=["alert_channel", "key_pair", "service_account_token"])
    name = serializers.CharField()
    place = serializers.CharField(help_text="the service account, the cluster, or the channel's host")
    made = serializers.BooleanField(help_text="the member made it; else they have seen its secret")
    known_since = serializers.DateTimeField()


class KnownSecretsSerializer(Shape):
    """All of them."""

    secrets = KnownSecretSerializer(many=True)


class InvitationSerializer(Shape):
    """An invitation that was not answered yet, without its link."""

    id = serializers.UUIDField()
    email = serializers.EmailField()
    role = serializers.ChoiceField(choices=Role.choices)
    state = serializers.ChoiceField(choices=["pending", "expired"])
    invited_by = serializers.EmailField(source="inviter.email", default=None, allow_null=True)
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    mailed_at = serializers.DateTimeField(allow_null=True, help_text="null: not sent yet")


class IssuedInvitationSerializer(InvitationSerializer):
    """A new invitation. `link` is shown this once; it works for an account with the address that was invited."""

    link = serializers.URLField()


class InvitationCreateSerializer(Shape):
    """Whom to invite."""

    email = serializers.EmailField(max_length=254)
    role = serializers.ChoiceField(choices=Role.choices, default=Role.DEVELOPER)


class InvitationAnswerSerializer(Shape):
    """The last part of the invitation's link."""

    secret = serializers.CharField(max_length=64)


class ServiceAccountSerializer(Shape):
    """A program of the tenant. `last_used_at` is of its token that was used last."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    description = serializers.CharField(allow_blank=True)
    role = serializers.ChoiceField(choices=Role.choices)
    state = serializers.ChoiceField(choices=ACCOUNT_STATES)
    token_count = serializers.IntegerField(help_text="that are not revoked")
    last_used_at = serializers.DateTimeField(allow_null=True)
    created_by = serializers.CharField()
    created_at = serializers.DateTimeField()


class ServiceAccountCreateSerializer(Shape):
    """A new program; its tokens come next."""

    name = serializers.CharField(max_length=100)
    description = serializers.CharField(max_length=200, required=False, allow_blank=True, default="")
    role = serializers.ChoiceField(choices=ACCOUNT_ROLES)


class ServiceAccountUpdateSerializer(Shape):
    """What may be changed. While it is disabled, its tokens are refused."""

    name = serializers.CharField(max_length=100, required=False)
    description = serializers.CharField(max_length=200, required=False, allow_blank=True)
    role = serializers.ChoiceField(choices=ACCOUNT_ROLES, required=False)
    disabled = serializers.BooleanField(required=False)


class ApiTokenSerializer(Shape):
    """A token without its secret."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    public_id = serializers.CharField()
    role = serializers.ChoiceField(choices=Role.choices)
    scopes = serializers.ListField(child=serializers.CharField())
    service_account_id = serializers.UUIDField(allow_null=True, help_text="whose it is, if it is a program's")
    created_by = serializers.CharField()
    issuer = serializers.EmailField(
        source="issuer.email", default=None, allow_null=True, help_text="the person who issued it, by a token or not"
    )
    issuer_is_member = serializers.BooleanField(help_text="whether that person is a member of the tenant still")
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True)


class IssuedTokenSerializer(ApiTokenSerializer):
    """A new token. `token` is shown this once."""

    token = serializers.CharField()


class ApiTokenCreateSerializer(Shape):
    """What a new token may do. `days` is its life; null: it never expires."""

    name = serializers.CharField(max_length=100)
    role = serializers.ChoiceField(choices=Role.choices, default=Role.OPERATOR)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=[scope.value for scope in Scope]),
        default=[scope.value for scope in Scope],
        allow_empty=False,
        max_length=len(Scope),
    )
    days = serializers.IntegerField(
        min_value=1, max_value=3650, required=False, allow_null=True, default=DEFAULT_LIFE_DAYS
    )
    service_account_id = serializers.UUIDField(
        required=False, allow_null=True, default=None, help_text="the program that it is for; needs the role admin"
    )
    is_personal = serializers.BooleanField(
        default=False, help_text="it is yours and ends with your membership; else it is the tenant's"
    )


class AuditQuerySerializer(Shape):
    """Which events."""

    search = serializers.CharField(
        required=False, max_length=255, help_text="part of an actor, an action or a resource, or a request id"
    )
    since = serializers.DateTimeField(required=False)
    until = serializers.DateTimeField(required=False, help_text="events before this moment")


class AuditEventSerializer(Shape):
    """Who did what."""

    id = serializers.UUIDField()
    actor = serializers.CharField()
    action = serializers.CharField()
    resource = serializers.CharField()
    details = serializers.JSONField()
    request_id = serializers.CharField()
    address = serializers.IPAddressField(allow_null=True)
    created_at = serializers.DateTimeField()
    sequence = serializers.IntegerField(min_value=1, help_text="its number in the tenant's chain, from 1")
    hash = serializers.CharField(help_text="SHA-256, in hexadecimal, of the event and of its predecessor's hash")


class AuditChainSerializer(Shape):
    """Whether the newest events of the trail, at most 10,000, are as they were written."""

    is_intact = serializers.BooleanField()
    length = serializers.IntegerField(min_value=0, help_text="events in the chain")
    checked = serializers.IntegerField(
        min_value=0, help_text="events that were found to be right, the newest of the chain"
    )
    head = serializers.CharField(help_text="the hash of the newest event; note it elsewhere to hold the platform to it")
    broken_sequence = serializers.IntegerField(allow_null=True, help_text="number of the first event that is not right")
    broken_event = serializers.UUIDField(allow_null=True, help_text="its id, unless it is missing")
    reason = serializers.CharField(help_text="what is wrong with it; empty when nothing is")
