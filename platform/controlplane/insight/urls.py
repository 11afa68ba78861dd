"""Addresses of the lag and the job API, below /api/v1/."""

from django.urls import path

from controlplane.consumers import names as names  # gives addresses the converter of a group's name
from controlplane.insight import apis
from controlplane.insight.csv_apis import LagCsvApi, TopicsCsvApi
from controlplane.insight.neighbour_apis import HostsTakenApi

_CLUSTER = "tenants/<slug:tenant>/clusters/<slug:cluster>/"
_LAG = f"{_CLUSTER}lag/"
_RUN = "operator/job-runs/<uuid:run_id>/"

urlpatterns = [
    path("operator/hosts/taken/", HostsTakenApi.as_view(), name="hosts-taken"),
    path("tenants/<slug:tenant>/metrics/", apis.MetricsApi.as_view(), name="metrics"),
    path(f"{_CLUSTER}figures/", apis.FiguresApi.as_view(), name="figures"),
    path(f"{_CLUSTER}message-trace/", apis.MessageTraceApi.as_view(), name="message-trace"),
    # Not below the lists: a topic or a group may have any name there.
    path(f"{_CLUSTER}topics-csv/", TopicsCsvApi.as_view(), name="topics-csv"),
    path(f"{_CLUSTER}lag-csv/", LagCsvApi.as_view(), name="lag-csv"),
    path(_LAG, apis.GroupLagListApi.as_view(), name="lag-list"),
    path(f"{_LAG}<consumer_group:group>/", apis.GroupLagDetailApi.as_view(), name="lag-detail"),
    path(f"{_LAG}<consumer_group:group>/history/", apis.LagHistoryApi.as_view(), name="lag-history"),
    path(f"{_LAG}<consumer_group:group>/thresholds/", apis.LagThresholdsApi.as_view(), name="lag-thresholds"),
    path("operator/job-runs/", apis.JobRunListApi.as_view(), name="job-run-list"),
    path(_RUN, apis.JobRunDetailApi.as_view(), name="job-run-detail"),
    path(f"{_RUN}retry/", apis.JobRunRetryApi.as_view(), name="job-run-retry"),
    path(f"{_RUN}replay/", apis.JobRunReplayApi.as_view(), name="job-run-replay"),
    path("operator/clusters/<uuid:cluster_id>/metering/", apis.ClusterProgressApi.as_view(), name="cluster-progress"),
    path(f"{_RUN}acknowledge/", apis.JobRunAcknowledgeApi.as_view(), name="job-run-acknowledge"),
]
