"""REST: the role map."""

from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.clusters.api_base import ClusterApi
from controlplane.failover.promotion.serializers import GroupListSerializer
from controlplane.failover.role_map import group_rows


class GroupListApi(ClusterApi):
    """Broker groups with their roles."""

    permissions: ClassVar = {"GET": "cluster.view"}

    @extend_schema(operation_id="group_list", responses=GroupListSerializer, tags=["failover"])
    def get(self, request: Request, tenant: str, cluster: str) -> Response:
        """Return the role map, as of the last sample: who leads, who follows how closely, what that means."""
        return Response(GroupListSerializer({"results": group_rows(self.cluster)}).data)
