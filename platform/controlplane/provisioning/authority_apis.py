"""REST: the renewal of a cluster's certificate authority, one step at a time."""

from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.clusters.api_base import ClusterApi
from controlplane.clusters.certificates import Succession
from controlplane.clusters.selectors import operation_get
from controlplane.clusters.serializers import OperationSerializer
from controlplane.common.api import accepted
from controlplane.common.idempotency import idempotent
from controlplane.common.strictness import Shape
from controlplane.provisioning.authority import OVERLAP_DAYS, OVERLAP_DAYS_MAX, authority_renew


class AuthorityRenewSerializer(Shape):
    """The step to take now."""

    step = serializers.ChoiceField(
        choices=[(one.value, one.value) for one in Succession], help_text="the cluster's `tls_ca_next_step`"
    )
    overlap_days = serializers.IntegerField(
        required=False,
        default=OVERLAP_DAYS,
        min_value=1,
        max_value=OVERLAP_DAYS_MAX,
        help_text="with `trust_next`: after so many days the next CA signs, unless `sign_by_next` is asked for before",
    )
    confirm = serializers.CharField(
        required=False, default="", allow_blank=True, max_length=40, help_text="with `sign_by_next`: the cluster's slug"
    )


class AuthorityRenewApi(ClusterApi):
    """The next step of the CA's renewal."""

    permissions: ClassVar = {"POST": "cluster.renew_ca"}

    @extend_schema(
        operation_id="cluster_renew_ca",
        request=AuthorityRenewSerializer,
        responses={202: OperationSerializer},
        tags=["clusters"],
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str) -> Response:
        """Renew the cluster's certificate authority: take the next step of three now; no daemon is restarted.

        `trust_next` makes another CA, which every daemon trusts and `tls_ca` has beside the present one. `sign_by_next` lets it
        sign: programs need a `tls_ca` that has both. `drop_former` ends the trust in the former one. Each is taken only after every
        daemon has shown in a TLS handshake that it uses the files of the step before, and is taken by itself at
        `tls_ca_next_step_at`. 409 `ca_step_not_next` for another step, `confirmation_needed` without the slug in `confirm`.
        """
        form = AuthorityRenewSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        operation = authority_renew(actor=self.actor, cluster=self.cluster, **form.validated_data)
        return accepted(dict(OperationSerializer(operation_get(self.actor, operation.pk)).data))
