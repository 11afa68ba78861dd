"""REST: the lists of topics and of groups' lag as CSV."""

from typing import ClassVar

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request

from controlplane.clusters.api_base import ClusterApi
from controlplane.common.downloads import OneAnswer
from controlplane.insight.lists_as_csv import lag_csv, topics_csv

_SEARCH = OpenApiParameter("q", str, description="A part of the names, in upper or lower case; all without it.")
_CSV = {(200, "text/csv"): OpenApiTypes.STR}


class TopicsCsvApi(ClusterApi):
    """The topics for spreadsheets."""

    permissions: ClassVar = {"GET": "topic.view"}
    content_negotiation_class = OneAnswer

    @extend_schema(operation_id="topics_csv", parameters=[_SEARCH], responses=_CSV, tags=["topics"])
    def get(self, request: Request, tenant: str, cluster: str) -> HttpResponse:
        """Return the topics as CSV by name, each with the group that has the largest backlog. What is not known is empty."""
        return topics_csv(self.cluster, request.query_params.get("q", ""))


class LagCsvApi(ClusterApi):
    """The groups' lag for spreadsheets."""

    permissions: ClassVar = {"GET": "lag.view"}
    problems: ClassVar = {"GET": (409, 502, 503)}
    content_negotiation_class = OneAnswer

    @extend_schema(operation_id="lag_csv", parameters=[_SEARCH], responses=_CSV, tags=["lag"])
    def get(self, request: Request, tenant: str, cluster: str) -> HttpResponse:
        """Return the lag of each group in each of its topics as CSV, as the brokers report it now. What is not known is empty."""
        return lag_csv(self.cluster, request.query_params.get("q", ""))
