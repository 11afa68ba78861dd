"""REST: consumer lag of a cluster, live and as history; runs of the jobs, for operators."""

import uuid
from datetime import timedelta
from typing import ClassVar
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.gzip import gzip_page
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.accounts.operator_api import OperatorApi
from controlplane.clusters.api_base import ClusterApi
from controlplane.clusters.selectors import cluster_get, cluster_list
from controlplane.common.errors import InvalidInput
from controlplane.common.idempotency import idempotent
from controlplane.common.pagination import CursorPagination, NewestFirst, paginated
from controlplane.common.sentences import say
from controlplane.insight.figures import figures_history, figures_latest
from controlplane.insight.live import group_names
from controlplane.insight.models import Job
from controlplane.insight.outlook import group_outlook, group_outlooks
from controlplane.insight.progress import cluster_by_id, cluster_end_agree, progress_get
from controlplane.insight.prometheus import CONTENT_TYPE, clusters_metrics
from controlplane.insight.selectors import counted, job_run_get, job_run_list, lag_history
from controlplane.insight.serializers import (
    AgreedEndSetSerializer,
    FiguresQuerySerializer,
    FiguresSerializer,
    GroupLagDetailSerializer,
    GroupLagPageSerializer,
    GroupLagSerializer,
    JobRunCreateSerializer,
    JobRunQuerySerializer,
    JobRunSerializer,
    LagHistoryQuerySerializer,
    LagHistorySerializer,
    ProgressSerializer,
    ThresholdsSerializer,
)
from controlplane.insight.services import job_run_acknowledge, job_run_queue, job_run_replay, job_run_retry
from controlplane.insight.thresholds import thresholds_get, thresholds_set
from controlplane.insight.trace_serializers import TraceQuerySerializer, WhereaboutsSerializer
from controlplane.insight.whereabouts import message_whereabouts
from controlplane.tenants.api_base import TenantApi

_PAGE = [
    OpenApiParameter("limit", int, description="1 to 200 groups."),
    OpenApiParameter("cursor", str, description="From `next`."),
]


class FiguresApi(ClusterApi):
    """What flows through a cluster."""

    permissions: ClassVar = {"GET": "cluster.view"}

    @extend_schema(
        operation_id="cluster_figures",
        parameters=[FiguresQuerySerializer],
        responses=FiguresSerializer,
        tags=["clusters"],
    )
    def get(self, request: Request, tenant: str, cluster: str) -> Response:
        """Return messages in and out a second, backlog and disk: now, and every 15 seconds of the last day at most."""
        query = FiguresQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        until = query.validated_data.get("until") or timezone.now()
        since = query.validated_data.get("since") or until - timedelta(hours=1)
        if since > until:
            raise InvalidInput.for_field("since", say("This is after the end."), "invalid")
        data = {
            "now": figures_latest([self.cluster]).get(self.cluster.pk),
            "since": since,
            "until": until,
            "samples": figures_history(self.cluster, since, until),
        }
        return Response(FiguresSerializer(data).data)


@gzip_page
def _compressed(request: HttpRequest, text: bytes) -> HttpResponse:
    """For a scraper that takes gzip, as Prometheus does: it is long, and no secret is in it. Problems go as they are."""
    return HttpResponse(text, content_type=CONTENT_TYPE)


class MetricsApi(TenantApi):
    """A tenant's clusters for Prometheus."""

    permissions: ClassVar = {"GET": "lag.view"}

    @extend_schema(
        operation_id="metrics",
        parameters=[OpenApiParameter("cluster", str, description="The slug of one cluster.")],
        responses={(200, "text/plain"): OpenApiTypes.STR},
        tags=["metrics"],
    )
    def get(self, request: Request, tenant: str) -> HttpResponse:
        """Return the metrics of all clusters, or of one, in Prometheus' text format; a token with the scope `read` is enough to
        scrape it. What is not known has no sample.
        """
        slug = request.query_params.get("cluster")
        clusters = [cluster_get(self.tenant, slug)] if slug else list(cluster_list(self.tenant))
        return _compressed(request._request, clusters_metrics(clusters))


class GroupLagListApi(ClusterApi):
    """Consumer groups with their lag."""

    permissions: ClassVar = {"GET": "lag.view"}
    problems: ClassVar = {"GET": (409, 502, 503)}

    @extend_schema(operation_id="lag_list", parameters=_PAGE, responses=GroupLagPageSerializer, tags=["lag"])
    def get(self, request: Request, tenant: str, cluster: str) -> Response:
        """List the groups by name, with their lag as the brokers report it now and the outlook that Spark counted."""
        limit = self.pagination_class().get_page_size(request)
        after = request.query_params.get("cursor", "")
        names = [name for name in group_names(self.cluster) if name > after]
        outlooks = group_outlooks(self.cluster, names[:limit])
        following = None
        if len(names) > limit:
            query = urlencode({"cursor": names[limit - 1], "limit": limit})
            following = f"{request.build_absolute_uri(request.path)}?{query}"
        results = GroupLagSerializer(outlooks, many=True).data
        return Response({"results": results, "next": following, "previous": None})


class GroupLagDetailApi(ClusterApi):
    """One group's lag."""

    permissions: ClassVar = {"GET": "lag.view"}
    problems: ClassVar = {"GET": (409, 502, 503)}

    @extend_schema(operation_id="lag_get", responses=GroupLagDetailSerializer, tags=["lag"])
    def get(self, request: Request, tenant: str, cluster: str, group: str) -> Response:
        """Return the group's lag, queue by queue, as the brokers report it now."""
        return Response(GroupLagDetailSerializer(group_outlook(self.cluster, group)).data)


class LagThresholdsApi(ClusterApi):
    """From which backlog and growth on a group is said to never catch up."""

    permissions: ClassVar = {"GET": "lag.view", "PUT": "topic.update"}
    problems: ClassVar = {"PUT": (409,)}

    @extend_schema(operation_id="lag_thresholds_get", responses=ThresholdsSerializer, tags=["lag"])
    def get(self, request: Request, tenant: str, cluster: str, group: str) -> Response:
        """Return the group's thresholds: the defaults where nothing was set."""
        return Response(ThresholdsSerializer(thresholds_get(self.cluster, group)).data)

    @extend_schema(
        operation_id="lag_thresholds_set", request=ThresholdsSerializer, responses=ThresholdsSerializer, tags=["lag"]
    )
    def put(self, request: Request, tenant: str, cluster: str, group: str) -> Response:
        """Set them for this group, in all of its topics; at most 1000 groups of a cluster have their own."""
        form = ThresholdsSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        found = thresholds_set(actor=self.actor, cluster=self.cluster, group=group, **form.validated_data)
        return Response(ThresholdsSerializer(found).data)


class LagHistoryApi(ClusterApi):
    """A group's history on one topic."""

    permissions: ClassVar = {"GET": "lag.view"}

    @extend_schema(
        operation_id="lag_history", parameters=[LagHistoryQuerySerializer], responses=LagHistorySerializer, tags=["lag"]
    )
    def get(self, request: Request, tenant: str, cluster: str, group: str) -> Response:
        """Return the windows that Spark counted, over all queues and queue by queue, oldest first."""
        query = LagHistoryQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        until = query.validated_data.get("until") or timezone.now()
        since = query.validated_data.get("since") or until - timedelta(days=1)
        topic = query.validated_data["topic"]
        history = lag_history(self.cluster, group, topic, since, until)
        data = {
            "group": group,
            "topic": topic,
            "since": since,
            "until": until,
            "counted_until": counted(Job.LAG_ANALYTICS).until,
            "windows": history.whole,
            "queues": [
                {"broker": broker, "queue_id": queue_id, "windows": windows}
                for (broker, queue_id), windows in history.queues.items()
            ],
        }
        return Response(LagHistorySerializer(data).data)


class JobRunListApi(OperatorApi):
    """Runs of Spark's jobs."""

    pagination_class: type[CursorPagination] = NewestFirst

    @extend_schema(
        operation_id="job_run_list",
        parameters=[JobRunQuerySerializer],
        responses=JobRunSerializer(many=True),
        tags=["operator"],
    )
    def get(self, request: Request) -> Response:
        """List the runs, newest first; of one job, or in one state."""
        query = JobRunQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        return paginated(self, request, job_run_list(**query.validated_data), JobRunSerializer)

    @extend_schema(
        operation_id="job_run_queue",
        request=JobRunCreateSerializer,
        responses={202: JobRunSerializer},
        tags=["operator"],
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Queue a run, or a backfill of a range."""
        form = JobRunCreateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        run = job_run_queue(actor=self.actor, **form.validated_data)
        return Response(JobRunSerializer(run).data, status=202, headers={"Location": run.path})


class JobRunDetailApi(OperatorApi):
    """One run."""

    @extend_schema(operation_id="job_run_get", responses=JobRunSerializer, tags=["operator"])
    def get(self, request: Request, run_id: uuid.UUID) -> Response:
        """Return the run."""
        return Response(JobRunSerializer(job_run_get(run_id)).data)


class JobRunRetryApi(OperatorApi):
    """A run that failed, again."""

    @extend_schema(operation_id="job_run_retry", request=None, responses={202: JobRunSerializer}, tags=["operator"])
    @idempotent
    def post(self, request: Request, run_id: uuid.UUID) -> Response:
        """Queue the same again, as a new run."""
        run = job_run_retry(actor=self.actor, run=job_run_get(run_id))
        return Response(JobRunSerializer(run).data, status=202, headers={"Location": run.path})


class JobRunReplayApi(OperatorApi):
    """What a run covered, counted again."""

    @extend_schema(operation_id="job_run_replay", request=None, responses={202: JobRunSerializer}, tags=["operator"])
    @idempotent
    def post(self, request: Request, run_id: uuid.UUID) -> Response:
        """Queue a backfill of the run's range."""
        run = job_run_replay(actor=self.actor, run=job_run_get(run_id))
        return Response(JobRunSerializer(run).data, status=202, headers={"Location": run.path})


class ClusterProgressApi(OperatorApi):
    """How far a cluster's metering got."""

    @extend_schema(operation_id="cluster_progress_get", responses=ProgressSerializer, tags=["operator"])
    def get(self, request: Request, cluster_id: uuid.UUID) -> Response:
        """Return how far it was ingested and checked."""
        return Response(ProgressSerializer(progress_get(cluster_by_id(cluster_id))).data)

    @extend_schema(
        operation_id="cluster_end_agree",
        request=AgreedEndSetSerializer,
        responses=ProgressSerializer,
        tags=["operator"],
    )
    @idempotent
    def post(self, request: Request, cluster_id: uuid.UUID) -> Response:
        """State up to when it is billed by what is known, and why: for metering that can't be read any more."""
        form = AgreedEndSetSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        progress = cluster_end_agree(actor=self.actor, cluster=cluster_by_id(cluster_id), **form.validated_data)
        return Response(ProgressSerializer(progress).data)


class JobRunAcknowledgeApi(OperatorApi):
    """A failure that was seen."""

    @extend_schema(operation_id="job_run_acknowledge", request=None, responses=JobRunSerializer, tags=["operator"])
    @idempotent
    def post(self, request: Request, run_id: uuid.UUID) -> Response:
        """Take the failure out of the operators' banner."""
        return Response(JobRunSerializer(job_run_acknowledge(actor=self.actor, run=job_run_get(run_id))).data)


class MessageTraceApi(ClusterApi):
    """Where is my message?"""

    permissions: ClassVar = {"GET": "message.browse"}
    problems: ClassVar = {"GET": (409, 502, 503)}

    @extend_schema(
        operation_id="message_trace",
        parameters=[TraceQuerySerializer],
        responses={200: WhereaboutsSerializer},
        tags=["messages"],
    )
    def get(self, request: Request, tenant: str, cluster: str) -> Response:
        """Find a message by any id or key: where it is stored, which replicas hold it, and where each group stands.

        `message` is null when none was found: `reasons` then say why, and what to try. Reading moves no consumer's offset.
        """
        query = TraceQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        values = query.validated_data
        found = message_whereabouts(
            actor=self.actor,
            cluster=self.cluster,
            text=values["q"],
            topic=values["topic"],
            trace_topic=values["trace_topic"],
            body_limit_bytes=values["body_limit_bytes"],
        )
        return Response(WhereaboutsSerializer(found).data)
