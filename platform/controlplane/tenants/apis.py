"""REST: tenants, members, invitations, tokens and the audit trail."""

import uuid
from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.accounts.actors import TokenActor
from controlplane.accounts.models import User
from controlplane.common.api import Api
from controlplane.common.audit_chain import CHECKED_IN_REQUEST_MAX, chain_check
from controlplane.common.errors import InvalidInput, NotAllowed
from controlplane.common.idempotency import idempotent
from controlplane.common.pagination import ByName, CursorPagination, NewestFirst, paginated
from controlplane.tenants.api_base import TenantApi, actor_of
from controlplane.tenants.audit_trail import audit_events
from controlplane.tenants.invitation_services import (
    invitation_accept,
    invitation_create,
    invitation_decline,
    invitation_get,
    invitation_list,
    invitation_revoke,
)
from controlplane.tenants.selectors import membership_get, membership_list, tenant_list
from controlplane.tenants.serializers import (
    ApiTokenCreateSerializer,
    ApiTokenSerializer,
    AuditChainSerializer,
    AuditEventSerializer,
    AuditQuerySerializer,
    InvitationAnswerSerializer,
    InvitationCreateSerializer,
    InvitationSerializer,
    IssuedInvitationSerializer,
    IssuedTokenSerializer,
    KnownSecretQuerySerializer,
    KnownSecretsSerializer,
    MembershipRemoveSerializer,
    MembershipSerializer,
    MembershipUpdateSerializer,
    ServiceAccountCreateSerializer,
    ServiceAccountSerializer,
    ServiceAccountUpdateSerializer,
    TenantCreateSerializer,
    TenantSerializer,
    TenantUpdateSerializer,
)
from controlplane.tenants.service_account_services import (
    service_account_create,
    service_account_delete,
    service_account_get,
    service_account_list,
    service_account_update,
)
from controlplane.tenants.services import (
    member_secrets,
    membership_remove,
    membership_update,
    tenant_create,
    tenant_update,
)
from controlplane.tenants.token_services import api_token_get, api_token_issue, api_token_list, api_token_revoke


class TenantListApi(Api):
    """The actor's tenants."""

    @extend_schema(operation_id="tenant_list", responses=TenantSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List the tenants that the caller belongs to."""
        return paginated(self, request, tenant_list(actor_of(request)), TenantSerializer)

    @extend_schema(operation_id="tenant_create", request=TenantCreateSerializer, responses={201: TenantSerializer})
    @idempotent
    def post(self, request: Request) -> Response:
        """Create a tenant; the caller becomes its owner. Tokens can't: they belong to a tenant."""
        actor = actor_of(request)
        if not isinstance(actor, User):
            raise NotAllowed("A token belongs to one tenant and can't create another.")
        form = TenantCreateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        tenant = tenant_create(actor=actor, **form.validated_data)
        return Response(TenantSerializer(tenant).data, status=201, headers={"Location": tenant.path})


class TenantDetailApi(TenantApi):
    """One tenant."""

    permissions: ClassVar = {"GET": "tenant.view", "PATCH": "tenant.update"}

    @extend_schema(operation_id="tenant_get", responses=TenantSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        """Return the tenant."""
        return Response(TenantSerializer(self.tenant).data)

    @extend_schema(operation_id="tenant_update", request=TenantUpdateSerializer, responses=TenantSerializer)
    def patch(self, request: Request, tenant: str) -> Response:
        """Change the display name, the time zone, or whether log-ins or sensitive acts ask for the second factor."""
        form = TenantUpdateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        updated = tenant_update(actor=self.actor, tenant=self.tenant, **form.validated_data)
        return Response(TenantSerializer(updated).data)


class MembershipListApi(TenantApi):
    """Members of a tenant. One becomes a member by accepting an invitation."""

    permissions: ClassVar = {"GET": "member.view"}

    @extend_schema(operation_id="member_list", responses=MembershipSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """List the members."""
        return paginated(self, request, membership_list(self.tenant), MembershipSerializer)


class MembershipDetailApi(TenantApi):
    """One member. Members may remove themselves, so that DELETE is decided by the service."""

    permissions: ClassVar = {"GET": "member.view", "PATCH": "member.manage", "DELETE": "tenant.view"}
    problems: ClassVar = {"PATCH": (409, 503), "DELETE": (409, 503)}

    @extend_schema(operation_id="member_get", responses=MembershipSerializer)
    def get(self, request: Request, tenant: str, membership_id: uuid.UUID) -> Response:
        """Return the member."""
        return Response(MembershipSerializer(membership_get(self.tenant, membership_id)).data)

    @extend_schema(operation_id="member_update", request=MembershipUpdateSerializer, responses=MembershipSerializer)
    def patch(self, request: Request, tenant: str, membership_id: uuid.UUID) -> Response:
        """Change the member's role. 503 names brokers that may let a revoked key in a while longer; the rest is done."""
        membership = membership_get(self.tenant, membership_id)
        form = MembershipUpdateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        updated = membership_update(actor=self.actor, membership=membership, **form.validated_data)
        return Response(MembershipSerializer(updated).data)

    @extend_schema(operation_id="member_remove", parameters=[MembershipRemoveSerializer], responses={204: None})
    def delete(self, request: Request, tenant: str, membership_id: uuid.UUID) -> Response:
        """Remove the member, with the tokens that they issued. What else they know goes on working unless `revoke` names it.

        503 names brokers that may let a revoked key in a while longer; the rest is done.
        """
        membership = membership_get(self.tenant, membership_id)
        query = MembershipRemoveSerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        chosen = [one.strip() for one in query.validated_data.get("revoke", "").split(",") if one.strip()]
        membership_remove(actor=self.actor, membership=membership, revoke=chosen)
        return Response(status=204)


class KnownSecretsApi(TenantApi):
    """Secrets that outlast a member. Members may ask about themselves, so that the service decides."""

    permissions: ClassVar = {"GET": "member.view"}

    @extend_schema(
        operation_id="member_secrets", parameters=[KnownSecretQuerySerializer], responses=KnownSecretsSerializer
    )
    def get(self, request: Request, tenant: str, membership_id: uuid.UUID) -> Response:
        """List what goes on working when the member leaves: tokens of service accounts that they issued, key pairs whose
        secrets they made or have seen, and channels that they made.
        """
        query = KnownSecretQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        membership = membership_get(self.tenant, membership_id)
        found = member_secrets(actor=self.actor, membership=membership, role=query.validated_data.get("role"))
        return Response(KnownSecretsSerializer({"secrets": found}).data)


class InvitationListApi(TenantApi):
    """Invitations of a tenant that were not answered yet."""

    permissions: ClassVar = {"GET": "member.manage", "POST": "member.manage"}
    pagination_class: type[CursorPagination] = NewestFirst

    @extend_schema(operation_id="invitation_list", responses=InvitationSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """List the open invitations, expired ones among them, without their links."""
        return paginated(self, request, invitation_list(self.tenant), InvitationSerializer)

    @extend_schema(
        operation_id="invitation_create",
        request=InvitationCreateSerializer,
        responses={201: IssuedInvitationSerializer},
    )
    @idempotent
    def post(self, request: Request, tenant: str) -> Response:
        """Invite a person by e-mail address. The link is mailed, and in this answer only."""
        form = InvitationCreateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        issued = invitation_create(actor=self.actor, tenant=self.tenant, **form.validated_data)
        data = {**InvitationSerializer(issued.invitation).data, "link": issued.link}
        return Response(data, status=201, headers={"Location": issued.invitation.path})


class InvitationDetailApi(TenantApi):
    """One invitation."""

    permissions: ClassVar = {"GET": "member.manage", "DELETE": "member.manage"}

    @extend_schema(operation_id="invitation_get", responses=InvitationSerializer)
    def get(self, request: Request, tenant: str, invitation_id: uuid.UUID) -> Response:
        """Return the invitation, without its link."""
        return Response(InvitationSerializer(invitation_get(self.tenant, invitation_id)).data)

    @extend_schema(operation_id="invitation_revoke", responses={204: None})
    def delete(self, request: Request, tenant: str, invitation_id: uuid.UUID) -> Response:
        """Revoke the invitation: its link is refused at once."""
        invitation_revoke(actor=self.actor, invitation=invitation_get(self.tenant, invitation_id))
        return Response(status=204)


class InvitationAcceptApi(Api):
    """Where an invited person becomes a member."""

    problems: ClassVar = {"POST": (404,)}

    @extend_schema(
        operation_id="invitation_accept", request=InvitationAnswerSerializer, responses={201: MembershipSerializer}
    )
    def post(self, request: Request) -> Response:
        """Accept an invitation. Tokens can't: they belong to a tenant."""
        user, secret = _invited(request)
        membership = invitation_accept(user=user, secret=secret)
        location = f"{membership.tenant.path}members/{membership.pk}/"
        return Response(MembershipSerializer(membership).data, status=201, headers={"Location": location})


class InvitationDeclineApi(Api):
    """Where an invited person says no."""

    problems: ClassVar = {"POST": (404,)}

    @extend_schema(operation_id="invitation_decline", request=InvitationAnswerSerializer, responses={204: None})
    def post(self, request: Request) -> Response:
        """Decline an invitation; its link ends."""
        user, secret = _invited(request)
        invitation_decline(user=user, secret=secret)
        return Response(status=204)


def _invited(request: Request) -> tuple[User, str]:
    actor = actor_of(request)
    if not isinstance(actor, User):
        raise NotAllowed("A token belongs to one tenant and can't answer an invitation. Log in and open its link.")
    form = InvitationAnswerSerializer(data=request.data)
    form.is_valid(raise_exception=True)
    return actor, form.validated_data["secret"]


class ServiceAccountListApi(TenantApi):
    """Programs of a tenant."""

    permissions: ClassVar = {"GET": "service_account.view", "POST": "service_account.manage"}
    pagination_class: type[CursorPagination] = ByName

    @extend_schema(operation_id="service_account_list", responses=ServiceAccountSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """List the service accounts by name."""
        return paginated(self, request, service_account_list(self.tenant), ServiceAccountSerializer)

    @extend_schema(
        operation_id="service_account_create",
        request=ServiceAccountCreateSerializer,
        responses={201: ServiceAccountSerializer},
    )
    @idempotent
    def post(self, request: Request, tenant: str) -> Response:
        """Make a service account; issue a token for it next."""
        form = ServiceAccountCreateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        account = service_account_create(actor=self.actor, tenant=self.tenant, **form.validated_data)
        return Response(ServiceAccountSerializer(account).data, status=201, headers={"Location": account.path})


class ServiceAccountDetailApi(TenantApi):
    """One program."""

    permissions: ClassVar = {
        "GET": "service_account.view",
        "PATCH": "service_account.manage",
        "DELETE": "service_account.manage",
    }
    problems: ClassVar = {"PATCH": (409,)}

    @extend_schema(operation_id="service_account_get", responses=ServiceAccountSerializer)
    def get(self, request: Request, tenant: str, account_id: uuid.UUID) -> Response:
        """Return the service account."""
        return Response(ServiceAccountSerializer(service_account_get(self.tenant, account_id)).data)

    @extend_schema(
        operation_id="service_account_update",
        request=ServiceAccountUpdateSerializer,
        responses=ServiceAccountSerializer,
    )
    def patch(self, request: Request, tenant: str, account_id: uuid.UUID) -> Response:
        """Change its name or role, or disable it."""
        account = service_account_get(self.tenant, account_id)
        form = ServiceAccountUpdateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        changed = service_account_update(actor=self.actor, account=account, **form.validated_data)
        return Response(ServiceAccountSerializer(changed).data)

    @extend_schema(operation_id="service_account_delete", responses={204: None})
    def delete(self, request: Request, tenant: str, account_id: uuid.UUID) -> Response:
        """Delete it with its tokens, which are refused at once."""
        service_account_delete(actor=self.actor, account=service_account_get(self.tenant, account_id))
        return Response(status=204)


class ApiTokenListApi(TenantApi):
    """Tokens of a tenant."""

    permissions: ClassVar = {"GET": "token.view", "POST": "token.manage"}

    @extend_schema(operation_id="token_list", responses=ApiTokenSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """List the tokens, without their secrets."""
        return paginated(self, request, api_token_list(self.tenant), ApiTokenSerializer)

    @extend_schema(operation_id="token_issue", request=ApiTokenCreateSerializer, responses={201: IssuedTokenSerializer})
    @idempotent
    def post(self, request: Request, tenant: str) -> Response:
        """Issue a token of the tenant, or of a service account. Its text is in this answer only."""
        form = ApiTokenCreateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        values = {**form.validated_data, "scopes": tuple(form.validated_data["scopes"])}
        account_id = values.pop("service_account_id")
        if values.pop("is_personal"):
            values["user"] = self._person(account_id)
        if account_id is not None:
            values["service_account"] = service_account_get(self.tenant, account_id)
        issued = api_token_issue(actor=self.actor, tenant=self.tenant, **values)
        token = api_token_get(self.tenant, issued.token.pk)
        data = {**ApiTokenSerializer(token).data, "token": issued.text}
        location = f"{self.tenant.path}tokens/{issued.token.pk}/"
        return Response(data, status=201, headers={"Location": location})

    def _person(self, account_id: uuid.UUID | None) -> User:
        """Return whose a personal token is; raises InvalidInput where no person asks for it, or for a program."""
        person = self.actor.token.user if isinstance(self.actor, TokenActor) else self.actor
        if not isinstance(person, User) or account_id is not None:
            raise InvalidInput.for_field(
                "is_personal", "Only a person, or a person's own token, issues a personal token.", "invalid"
            )
        return person


class ApiTokenDetailApi(TenantApi):
    """One token."""

    permissions: ClassVar = {"GET": "token.view", "DELETE": "token.manage"}

    @extend_schema(operation_id="token_get", responses=ApiTokenSerializer)
    def get(self, request: Request, tenant: str, token_id: uuid.UUID) -> Response:
        """Return the token, without its secret."""
        return Response(ApiTokenSerializer(api_token_get(self.tenant, token_id)).data)

    @extend_schema(operation_id="token_revoke", responses={204: None})
    def delete(self, request: Request, tenant: str, token_id: uuid.UUID) -> Response:
        """Revoke the token at once."""
        api_token_revoke(actor=self.actor, token=api_token_get(self.tenant, token_id))
        return Response(status=204)


class AuditEventListApi(TenantApi):
    """The audit trail of a tenant."""

    permissions: ClassVar = {"GET": "audit.view"}
    pagination_class: type[CursorPagination] = NewestFirst

    @extend_schema(
        operation_id="audit_event_list",
        parameters=[AuditQuerySerializer],
        responses=AuditEventSerializer(many=True),
    )
    def get(self, request: Request, tenant: str) -> Response:
        """List what was done, newest first."""
        query = AuditQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        return paginated(self, request, audit_events(self.tenant, **query.validated_data), AuditEventSerializer)


class AuditChainApi(TenantApi):
    """The chain of hashes that holds the audit trail together."""

    permissions: ClassVar = {"GET": "audit.view"}

    @extend_schema(operation_id="audit_chain_check", responses=AuditChainSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        """Check that the newest events were not changed, deleted, inserted or reordered since they were written."""
        check = chain_check(self.tenant.pk, newest=CHECKED_IN_REQUEST_MAX)
        return Response(AuditChainSerializer(check).data)
