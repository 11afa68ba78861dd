"""REST, for operators: hosts with what is promised and used, where daemons are, and what else fits."""

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.accounts.operator_api import OperatorApi
from controlplane.clusters.models import Health
from controlplane.common.strictness import Shape
from controlplane.provisioning.hosts import capacities, crowded, fits, placements


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
    disk_promised_bytes = serializers.CharField(
        help_text="what the tenants' limits allow its brokers to store, together"
    )
    ports_free = serializers.IntegerField(help_text="of HIGHWATER_PORT_RANGE, leased by no daemon")
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
    binds = serializers.ChoiceField(
        [(one, one) for one in ("memory", "disk", "ports", "descriptors")],
        allow_null=True,
        help_text="what there is least room of",
    )
    rooms = serializers.DictField(
        child=serializers.IntegerField(allow_null=True),
        help_text="how many more the memory, disk, ports and descriptors allow for, each alone",
    )


class HostsSerializer(Shape):
    """All hosts, all daemons, and what else fits."""

    hosts = HostSerializer(many=True)
    placements = PlacementSerializer(many=True)
    crowded = CrowdedSerializer(many=True)
    fits = FitSerializer(many=True)


class HostsApi(OperatorApi):
    """Hosts of daemons."""

    @extend_schema(operation_id="hosts_get", responses=HostsSerializer, tags=["operator"])
    def get(self, request: Request) -> Response:
        """Return what hosts have, promise and use, where each daemon is, and how many more clusters fit."""
        placed = placements()
        hosts = capacities(placed)
        found = {"hosts": hosts, "placements": placed, "crowded": crowded(placed), "fits": fits(hosts)}
        return Response(HostsSerializer(found).data)
