"""REST, for operators: which clusters take most of a host."""

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.accounts.operator_api import OperatorApi
from controlplane.common.strictness import Shape
from controlplane.insight.neighbours import WINDOWS_S, shared_hosts


class NeighbourSerializer(Shape):
    """What a cluster's daemons took on a host. Null: not known."""

    tenant = serializers.CharField(source="taken.cluster.tenant.slug")
    cluster = serializers.CharField(source="taken.cluster.slug")
    cpu = serializers.FloatField(source="taken.cpu", allow_null=True, help_text="share of the host's processor, 0 to 1")
    memory_bytes = serializers.CharField(source="taken.memory_bytes", allow_null=True, help_text="now")
    read_per_s = serializers.IntegerField(source="taken.read_per_s", allow_null=True, help_text="bytes from disk")
    written_per_s = serializers.IntegerField(source="taken.written_per_s", allow_null=True, help_text="bytes to disk")
    in_per_second = serializers.FloatField(allow_null=True, help_text="messages sent to it")
    out_per_second = serializers.FloatField(allow_null=True, help_text="messages consumed from it")
    is_noisy = serializers.BooleanField(
        source="taken.is_noisy", help_text="more than its share of a processor for which others wait"
    )


class HostTakenSerializer(Shape):
    """A host's clusters, most of the processor first."""

    host = serializers.CharField()
    cpu_used = serializers.FloatField(allow_null=True)
    clusters = NeighbourSerializer(many=True)


class TakenQuerySerializer(Shape):
    """Over which time."""

    window = serializers.ChoiceField(choices=list(WINDOWS_S), default="1h")


class HostsTakenApi(OperatorApi):
    """Which clusters take most."""

    pagination_class = None  # type: ignore[assignment]  # a bare list, as it was from the beginning; the description reads this

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
        return Response(HostTakenSerializer(shared_hosts(query.validated_data["window"]), many=True).data)
