"""The root of API views below a cluster."""

from typing import Any

from rest_framework.request import Request

from controlplane.clusters.models import Cluster
from controlplane.clusters.selectors import cluster_get
from controlplane.tenants.api_base import TenantApi


class ClusterApi(TenantApi):
    """A view with `tenant` and `cluster` in its address: there is no default cluster, so nothing can reach another
    than the one named.
    """

    cluster: Cluster

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Find the cluster after the tenant's checks."""
        super().initial(request, *args, **kwargs)
        self.cluster = cluster_get(self.tenant, kwargs["cluster"])
