"""Addresses of the tenants API, below /api/v1/tenants/."""

from django.urls import path

from controlplane.tenants import apis

urlpatterns = [
    path("", apis.TenantListApi.as_view(), name="tenant-list"),
    path("<slug:tenant>/", apis.TenantDetailApi.as_view(), name="tenant-detail"),
    path("<slug:tenant>/members/", apis.MembershipListApi.as_view(), name="member-list"),
    path("<slug:tenant>/members/<uuid:membership_id>/", apis.MembershipDetailApi.as_view(), name="member-detail"),
    path("<slug:tenant>/members/<uuid:membership_id>/secrets/", apis.KnownSecretsApi.as_view(), name="member-secrets"),
    path("<slug:tenant>/invitations/", apis.InvitationListApi.as_view(), name="invitation-list"),
    path(
        "<slug:tenant>/invitations/<uuid:invitation_id>/", apis.InvitationDetailApi.as_view(), name="invitation-detail"
    ),
    path("<slug:tenant>/service-accounts/", apis.ServiceAccountListApi.as_view(), name="service-account-list"),
    path(
        "<slug:tenant>/service-accounts/<uuid:account_id>/",
        apis.ServiceAccountDetailApi.as_view(),
        name="service-account-detail",
    ),
    path("<slug:tenant>/tokens/", apis.ApiTokenListApi.as_view(), name="token-list"),
    path("<slug:tenant>/tokens/<uuid:token_id>/", apis.ApiTokenDetailApi.as_view(), name="token-detail"),
    path("<slug:tenant>/audit-events/", apis.AuditEventListApi.as_view(), name="audit-event-list"),
    path("<slug:tenant>/audit-chain/", apis.AuditChainApi.as_view(), name="audit-chain"),
]
