"""REST: clusters, credentials and operations."""

import uuid
from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.clusters.api_base import ClusterApi
from controlplane.clusters.credential_quotas import credential_update, credential_uses
from controlplane.clusters.credential_services import (
    CreatedCredential,
    Permissions,
    credential_create,
    credential_delete,
    credential_reveal,
    credential_rotate,
)
from controlplane.clusters.labels import labelled
from controlplane.clusters.lifecycle import (
    cluster_delete,
    cluster_purge,
    cluster_restore,
    cluster_resume,
    cluster_suspend,
)
from controlplane.clusters.limits import broker_uses, limit_uses
from controlplane.clusters.models import Cluster, Operation
from controlplane.clusters.operations import operation_cancel, operation_retry
from controlplane.clusters.selectors import (
    cluster_get,
    cluster_list,
    credential_get,
    credential_list,
    operation_get,
    operation_list,
)
from controlplane.clusters.serializers import (
    ClusterCreateSerializer,
    ClusterGrowSerializer,
    ClusterPurgeSerializer,
    ClusterSerializer,
    ClusterSuspendSerializer,
    ClusterUpdateSerializer,
    CredentialChangedSerializer,
    CredentialCreateSerializer,
    CredentialQuotasSerializer,
    CredentialRotateSerializer,
    CredentialSecretSerializer,
    CredentialSerializer,
    CredentialUpdateSerializer,
    CredentialWithSecretSerializer,
    LimitsSerializer,
    OperationSerializer,
)
from controlplane.clusters.services import cluster_create, cluster_grow, cluster_update
from controlplane.common.api import Api, accepted
from controlplane.common.etags import etag_response, require_match
from controlplane.common.idempotency import idempotent
from controlplane.common.pagination import CursorPagination, NewestFirst, paginated
from controlplane.tenants.api_base import TenantApi, actor_of
from controlplane.tenants.rules import actor_require

_IF_MATCH = OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, description="The ETag that was read.")
_IF_NONE_MATCH = OpenApiParameter("If-None-Match", str, OpenApiParameter.HEADER, description="The ETag that is known.")


class LimitsApi(TenantApi):
    """What a tenant may have."""

    permissions: ClassVar = {"GET": "tenant.view"}

    @extend_schema(operation_id="limits_get", responses=LimitsSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        """Return limits with their use: what is counted here, and what each broker keeps, as it says now."""
        found = {"limits": limit_uses(self.tenant), "brokers": broker_uses(self.tenant)}
        return Response(LimitsSerializer(found).data)


class ClusterListApi(TenantApi):
    """Clusters of a tenant."""

    permissions: ClassVar = {"GET": "cluster.view", "POST": "cluster.create"}

    @extend_schema(
        operation_id="cluster_list",
        parameters=[
            OpenApiParameter(
                "label",
                str,
                many=True,
                description="`key=value`, or a key for any value; of several, clusters have all.",
            )
        ],
        responses=ClusterSerializer(many=True),
    )
    def get(self, request: Request, tenant: str) -> Response:
        """List the clusters, those with all labels that are asked for."""
        found = labelled(cluster_list(self.tenant), request.query_params.getlist("label"))
        return paginated(self, request, found, ClusterSerializer)

    @extend_schema(operation_id="cluster_create", request=ClusterCreateSerializer, responses={202: OperationSerializer})
    @idempotent
    def post(self, request: Request, tenant: str) -> Response:
        """Create a cluster. The answer is the operation that provisions it; its `resource` is the cluster's path."""
        form = ClusterCreateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        _, operation = cluster_create(actor=self.actor, tenant=self.tenant, **form.validated_data)
        return accepted(_operation(operation))


class ClusterDetailApi(ClusterApi):
    """One cluster."""

    permissions: ClassVar = {"GET": "cluster.view", "PATCH": "cluster.update", "DELETE": "cluster.delete"}
    problems: ClassVar = {"PATCH": (412,), "DELETE": (409,)}
    tagged: ClassVar = ("GET", "PATCH")

    @extend_schema(
        operation_id="cluster_get", parameters=[_IF_NONE_MATCH], responses={200: ClusterSerializer, 304: None}
    )
    def get(self, request: Request, tenant: str, cluster: str) -> Response:
        """Return the cluster, with an ETag."""
        return etag_response(request, _cluster(self.cluster))

    @extend_schema(
        operation_id="cluster_update",
        parameters=[_IF_MATCH],
        request=ClusterUpdateSerializer,
        responses=ClusterSerializer,
    )
    def patch(self, request: Request, tenant: str, cluster: str) -> Response:
        """Change the display name, the failover policy or the labels; with If-Match only if no one changed the cluster since."""
        require_match(request, _cluster(self.cluster))
        form = ClusterUpdateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        cluster_update(actor=self.actor, cluster=self.cluster, **form.validated_data)
        return etag_response(request, _cluster(cluster_get(self.tenant, cluster)))

    @extend_schema(operation_id="cluster_delete", responses={202: OperationSerializer})
    def delete(self, request: Request, tenant: str, cluster: str) -> Response:
        """Delete the cluster with all its messages. It is stopped now, and removed for good at `stopped.delete_at`; until then
        `restore/` takes the deletion back. The answer is the operation.
        """
        return accepted(_operation(cluster_delete(actor=self.actor, cluster=self.cluster)))


class ClusterSuspendApi(ClusterApi):
    """A cluster that is stopped for a while."""

    permissions: ClassVar = {"POST": "cluster.suspend"}

    @extend_schema(
        operation_id="cluster_suspend",
        request=ClusterSuspendSerializer,
        responses={202: OperationSerializer},
        tags=["clusters"],
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str) -> Response:
        """Stop the cluster's daemons and keep its data, keys and addresses: clients are refused until it is resumed.

        The answer is the operation.
        """
        form = ClusterSuspendSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        reason = form.validated_data["reason"]
        return accepted(_operation(cluster_suspend(actor=self.actor, cluster=self.cluster, reason=reason)))


class ClusterResumeApi(ClusterApi):
    """A suspended cluster that is started again."""

    permissions: ClassVar = {"POST": "cluster.resume"}

    @extend_schema(operation_id="cluster_resume", request=None, responses={202: OperationSerializer}, tags=["clusters"])
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str) -> Response:
        """Start a suspended cluster again, with its data, at its addresses. The answer is the operation."""
        return accepted(_operation(cluster_resume(actor=self.actor, cluster=self.cluster)))


class ClusterRestoreApi(ClusterApi):
    """A deletion that is taken back."""

    permissions: ClassVar = {"POST": "cluster.resume"}

    @extend_schema(
        operation_id="cluster_restore", request=None, responses={202: OperationSerializer}, tags=["clusters"]
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str) -> Response:
        """Take the deletion back, until `stopped.delete_at`: the cluster starts again, with its data, at its addresses.

        The answer is the operation.
        """
        return accepted(_operation(cluster_restore(actor=self.actor, cluster=self.cluster)))


class ClusterPurgeApi(ClusterApi):
    """The end of a deletion, before its time."""

    permissions: ClassVar = {"POST": "cluster.delete"}

    @extend_schema(
        operation_id="cluster_purge",
        request=ClusterPurgeSerializer,
        responses={202: OperationSerializer},
        tags=["clusters"],
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str) -> Response:
        """Remove a deleted cluster for good, now. The answer is the operation."""
        form = ClusterPurgeSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        confirm = form.validated_data["confirm"]
        return accepted(_operation(cluster_purge(actor=self.actor, cluster=self.cluster, confirm=confirm)))


class ClusterGrowApi(ClusterApi):
    """More broker groups, or more replicas."""

    permissions: ClassVar = {"POST": "cluster.grow"}

    @extend_schema(
        operation_id="cluster_grow",
        request=ClusterGrowSerializer,
        responses={202: OperationSerializer},
        tags=["clusters"],
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str) -> Response:
        """Add a broker group like the others, to which the topics' queues are spread, or a slave to every group.

        The answer is the operation.
        """
        form = ClusterGrowSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        return accepted(_operation(cluster_grow(actor=self.actor, cluster=self.cluster, by=form.validated_data["by"])))


class CredentialListApi(ClusterApi):
    """Credentials of a cluster."""

    permissions: ClassVar = {"GET": "credential.view", "POST": "credential.create"}
    problems: ClassVar = {"POST": (503,)}

    @extend_schema(operation_id="credential_list", responses=CredentialSerializer(many=True))
    def get(self, request: Request, tenant: str, cluster: str) -> Response:
        """List the credentials, without their secrets."""
        return paginated(self, request, credential_list(self.cluster), CredentialSerializer)

    @extend_schema(
        operation_id="credential_create",
        request=CredentialCreateSerializer,
        responses={201: CredentialWithSecretSerializer},
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str) -> Response:
        """Create a credential on every broker and name server; the answer holds the secret."""
        form = CredentialCreateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        values: dict[str, Any] = dict(form.validated_data)
        name, role = values.pop("name"), values.pop("role")
        created = credential_create(
            actor=self.actor, cluster=self.cluster, name=name, role=role, permissions=Permissions(**values)
        )
        return _created(created)


def _created(created: CreatedCredential) -> Response:
    credential = created.credential
    data = {
        **CredentialSerializer(credential).data,
        "secret_key": created.secret_key,
        "missing_daemons": created.missing_daemons,
    }
    location = f"{credential.cluster.path}credentials/{credential.access_key}/"
    return Response(data, status=201, headers={"Location": location})


class CredentialDetailApi(ClusterApi):
    """One credential."""

    permissions: ClassVar = {
        "GET": "credential.view",
        "PATCH": "credential.update",
        "DELETE": "credential.delete",
    }
    problems: ClassVar = {"PATCH": (409, 503), "DELETE": (409, 503)}

    @extend_schema(operation_id="credential_get", responses=CredentialSerializer)
    def get(self, request: Request, tenant: str, cluster: str, access_key: str) -> Response:
        """Return the credential, without its secret."""
        return Response(CredentialSerializer(credential_get(self.cluster, access_key)).data)

    @extend_schema(
        operation_id="credential_update", request=CredentialUpdateSerializer, responses=CredentialChangedSerializer
    )
    def patch(self, request: Request, tenant: str, cluster: str, access_key: str) -> Response:
        """Change the credential's own quotas, which every broker keeps from then on. At most the tenant's limits; null takes
        a quota away. 503 when the cluster could not be told: it gets them as soon as it answers.
        """
        form = CredentialUpdateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        credential = credential_get(self.cluster, access_key)
        changed = credential_update(actor=self.actor, credential=credential, quotas=form.validated_data)
        credential = credential_get(self.cluster, access_key)
        return Response({**CredentialSerializer(credential).data, "missing_daemons": list(changed.missing_daemons)})

    @extend_schema(operation_id="credential_delete", responses={204: None})
    def delete(self, request: Request, tenant: str, cluster: str, access_key: str) -> Response:
        """Delete the credential from every broker and name server; 503 names those that have not confirmed it.

        A suspended cluster's daemons start without it.
        """
        credential_delete(actor=self.actor, credential=credential_get(self.cluster, access_key))
        return Response(status=204)


class CredentialQuotasApi(ClusterApi):
    """The use of a credential's quotas."""

    permissions: ClassVar = {"GET": "credential.view"}

    @extend_schema(operation_id="credential_quotas", responses=CredentialQuotasSerializer, tags=["credentials"])
    def get(self, request: Request, tenant: str, cluster: str, access_key: str) -> Response:
        """Return what limits the credential at each broker, and how much of it is used, as the brokers say now. Empty while the
        cluster does not run.
        """
        brokers = credential_uses(credential_get(self.cluster, access_key))
        return Response(CredentialQuotasSerializer({"brokers": brokers}).data)


class CredentialRotateApi(ClusterApi):
    """A new key pair for an old one."""

    permissions: ClassVar = {"POST": "credential.create"}
    problems: ClassVar = {"POST": (503,)}

    @extend_schema(
        operation_id="credential_rotate",
        request=CredentialRotateSerializer,
        responses={201: CredentialWithSecretSerializer},
        tags=["credentials"],
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str, access_key: str) -> Response:
        """Create a key pair of the same name and rights; the old one works on for `overlap_hours`, and is deleted then.

        The answer is the new pair, with its secret.
        """
        form = CredentialRotateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        credential = credential_get(self.cluster, access_key)
        return _created(
            credential_rotate(
                actor=self.actor, credential=credential, overlap_hours=form.validated_data["overlap_hours"]
            )
        )


class CredentialRevealApi(ClusterApi):
    """The secret of a credential."""

    permissions: ClassVar = {"POST": "credential.reveal"}

    @extend_schema(
        operation_id="credential_reveal", request=None, responses=CredentialSecretSerializer, tags=["credentials"]
    )
    def post(self, request: Request, tenant: str, cluster: str, access_key: str) -> Response:
        """Return the secret. Each look is written to the audit trail."""
        credential = credential_get(self.cluster, access_key)
        secret_key = credential_reveal(actor=self.actor, credential=credential)
        return Response({"access_key": credential.access_key, "secret_key": secret_key})


class TenantOperationListApi(TenantApi):
    """Operations of a tenant."""

    permissions: ClassVar = {"GET": "operation.view"}
    pagination_class: type[CursorPagination] = NewestFirst

    @extend_schema(
        operation_id="operation_list",
        parameters=[OpenApiParameter("cluster", str, description="The slug of one cluster.")],
        responses=OperationSerializer(many=True),
    )
    def get(self, request: Request, tenant: str) -> Response:
        """List the operations, newest first; of one cluster when `cluster` is given."""
        slug = request.query_params.get("cluster")
        cluster = cluster_get(self.tenant, slug) if slug else None
        return paginated(self, request, operation_list(self.tenant, cluster), OperationSerializer)


class OperationDetailApi(Api):
    """One operation."""

    problems: ClassVar = {"GET": (403,)}

    @extend_schema(operation_id="operation_get", responses=OperationSerializer)
    def get(self, request: Request, operation_id: uuid.UUID) -> Response:
        """Return the operation: poll it until `state` is not `in_progress`."""
        return Response(_operation(operation_get(actor_of(request), operation_id)))


class OperationRetryApi(Api):
    """The retry of an operation."""

    @extend_schema(
        operation_id="operation_retry", request=None, responses={202: OperationSerializer}, tags=["operations"]
    )
    @idempotent
    def post(self, request: Request, operation_id: uuid.UUID) -> Response:
        """Run a failed operation again."""
        actor = actor_of(request)
        operation = operation_get(actor, operation_id)
        actor_require(actor, "operation.retry", operation.tenant)
        operation_retry(actor=actor, operation=operation)
        return accepted(_operation(operation_get(actor, operation_id)))


class OperationCancelApi(Api):
    """The end of a rolling restart or upgrade before its time."""

    @extend_schema(
        operation_id="operation_cancel", request=None, responses={202: OperationSerializer}, tags=["operations"]
    )
    @idempotent
    def post(self, request: Request, operation_id: uuid.UUID) -> Response:
        """Cancel a rolling restart or upgrade: the daemon that is under way comes back first, the others are left as they are.

        `state` is `cancelled` then; `metadata.daemons` says of each whether it was restarted.
        """
        actor = actor_of(request)
        operation = operation_get(actor, operation_id)
        actor_require(actor, "operation.cancel", operation.tenant)
        operation_cancel(actor=actor, operation=operation)
        return accepted(_operation(operation_get(actor, operation_id)))


def _cluster(cluster: Cluster) -> dict[str, Any]:
    return dict(ClusterSerializer(cluster).data)


def _operation(operation: Operation) -> dict[str, Any]:
    return dict(OperationSerializer(operation).data)
