"""REST, for operators: hosts with what is promised and used, where daemons are, and which clusters take most."""

from datetime import timedelta
from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.accounts.operator_api import OperatorApi
from controlplane.clusters.models import Health
from controlplane.common.strictness import Shape
from controlplane.provisioning.hosts import HostCapacity, capacities, crowded, fits, placements, taken

WINDOWS_S = {"15m": 900, "1h": 3600, "24h": 86_400}


class HostSerializer(Shape):
    """A host of daemons. Null: not known, or not bounded."""

    host = serializers.CharField()
    sampled_at = serializers.DateTimeField(source="sample.sampled_at", allow_null=True, default=None)
    daemons = serializers.IntegerField()
    cores = serializers.IntegerField(source="sample.cores", allow_null=True, default=None)
    cpu_used = serializers.FloatField(allow_null=True, help_text="share of all cores, over the last minute, 0 to 1")
    memory_bytes = serializers.CharField(source="sample.memory_bytes", allow_null=True, default=None)
    memory_used_bytes = serializers.CharField(allow_null=True)
    memory_promised_bytes = serializers.CharField(
        allow_null=True, help_text="the limits of the daemons placed there together; null: they have none"
    )
    disk_bytes = serializers.CharField(source="sample.disk_bytes", allow_null=True, default=None)
    disk_used_bytes = serializers.CharField(allow_null=True)
    descriptors = serializers.CharField(source="sample.descriptors", allow_null=True, default=None)
    descriptors_max = serializers.CharField(source="sample.descriptors_max", allow_null=True, default=None)


class PlacementSerializer(Shape):
    """Where a daemon is."""

    tenant = serializers.CharField(source="cluster.tenant.slug")
    cluster = serializers.CharField(source="cluster.slug")
    daemon = serializers.CharField(source="title")
    process = serializers.CharField()
    host = serializers.CharField()
    health = serializers.ChoiceField(source="row.health", choices=Health.choices)
    memory_bytes = serializers.CharField(source="usage.memory_bytes", allow_null=True, default=None)
    descriptors = serializers.CharField(source="usage.descriptors", allow_null=True, default=None)


class CrowdedSerializer(Shape):
    """Replicas of one group on one host: they fail together."""

    tenant = serializers.CharField(source="cluster.tenant.slug")
    cluster = serializers.CharField(source="cluster.slug")
    group = serializers.CharField()
    host = serializers.CharField()
    replicas = serializers.ListField(child=serializers.IntegerField())


class FitSerializer(Shape):
    """How many more clusters of a mode, the least that it allows, there is room for; null: not known, or not checked."""

    mode = serializers.CharField()
    daemons = serializers.IntegerField()
    more = serializers.IntegerField(allow_null=True)


class HostsSerializer(Shape):
    """All hosts, all daemons, and what else fits."""

    hosts = HostSerializer(many=True)
    placements = PlacementSerializer(many=True)
    crowded = CrowdedSerializer(many=True)
    fits = FitSerializer(many=True)


class TakenSerializer(Shape):
    """What a cluster's daemons took on a host. Null: not known."""

    tenant = serializers.CharField(source="cluster.tenant.slug")
    cluster = serializers.CharField(source="cluster.slug")
    cpu = serializers.FloatField(allow_null=True, help_text="share of the host's processor, 0 to 1")
    memory_bytes = serializers.CharField(allow_null=True, help_text="now")
    read_per_s = serializers.IntegerField(allow_null=True, help_text="bytes from disk")
    written_per_s = serializers.IntegerField(allow_null=True, help_text="bytes to disk")
    is_noisy = serializers.BooleanField(help_text="more than its share of a processor for which others wait")


class HostTakenSerializer(Shape):
    """A host's clusters, most of the processor first."""

    host = serializers.CharField()
    cpu_used = serializers.FloatField(allow_null=True)
    clusters = serializers.SerializerMethodField()

    @extend_schema_field(TakenSerializer(many=True))
    def get_clusters(self, found: dict[str, Any]) -> Any:
        """Return the clusters."""
        return TakenSerializer(found["clusters"], many=True).data


class TakenQuerySerializer(Shape):
    """Over which time."""

    window = serializers.ChoiceField(choices=list(WINDOWS_S), default="1h")


class HostsApi(OperatorApi):
    """Hosts of daemons."""

    @extend_schema(operation_id="hosts_get", responses=HostsSerializer, tags=["operator"])
    def get(self, request: Request) -> Response:
        """Return what hosts have, promise and use, where each daemon is, and how many more clusters fit."""
        placed = placements()
        hosts = capacities(placed)
        found = {"hosts": hosts, "placements": placed, "crowded": crowded(placed), "fits": fits(hosts)}
        return Response(HostsSerializer(found).data)


class HostsTakenApi(OperatorApi):
    """Which clusters take most."""

    @extend_schema(
        operation_id="hosts_taken",
        parameters=[TakenQuerySerializer],
        responses=HostTakenSerializer(many=True),
        tags=["operator"],
    )
    def get(self, request: Request) -> Response:
        """Return what each cluster took on each host over a window, and who took more than its share."""
        query = TakenQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        window = timedelta(seconds=WINDOWS_S[query.validated_data["window"]])
        placed = placements()
        found = [_taken(host, placed, window) for host in capacities(placed)]
        return Response(HostTakenSerializer(found, many=True).data)


def _taken(host: HostCapacity, placed: Any, window: timedelta) -> dict[str, Any]:
    clusters, used = taken(host.host, placed, window)
    return {"host": host.host, "cpu_used": used, "clusters": clusters}
