"""The console's addresses. Whatever belongs to a tenant is below /t/<tenant>/, whatever to a cluster below its cluster."""

from django.urls import URLPattern, URLResolver, include, path

from controlplane.console.views import (
    cluster_settings,
    clusters,
    connect,
    credentials,
    failover,
    figures,
    front,
    invoices,
    lag,
    limits,
    members,
    messages,
    mode,
    operations,
    operator,
    operator_billing,
    quorum,
    tenant_settings,
    tokens,
    topics,
    usage,
)

app_name = "console"

_topic: list[URLPattern | URLResolver] = [
    path("", topics.topic_page, name="topic"),
    path("retry/", topics.topic_retry, name="topic-retry"),
    path("delete/", topics.topic_delete_page, name="topic-delete"),
    path("queues/", topics.topic_queues, name="topic-queues"),
    path("send/", messages.message_send_page, name="message-send"),
    path("messages/", messages.message_list, name="message-list"),
    path("messages/search/", messages.message_search, name="message-search"),
    path("messages/<str:broker>/<int:queue_id>/<int:queue_offset>/", messages.message_page, name="message"),
]

_cluster: list[URLPattern | URLResolver] = [
    path("", clusters.cluster_page, name="cluster"),
    path("ca.pem", clusters.cluster_ca, name="cluster-ca"),
    path("health/", clusters.cluster_health, name="cluster-health"),
    path("roles/", failover.cluster_roles, name="cluster-roles"),
    path("groups/<str:group>/promote/", failover.group_promote, name="group-promote"),
    path("groups/<str:group>/switchover/", failover.group_switchover, name="group-switchover"),
    path("groups/<str:group>/transfer/", quorum.group_transfer, name="group-transfer"),
    path("groups/<str:group>/prefer/", quorum.group_prefer, name="group-prefer"),
    path("groups/<str:group>/recover/", quorum.group_recover, name="group-recover"),
    path("groups/<str:group>/replace/", quorum.group_replace, name="group-replace"),
    path("groups/<str:group>/resize/", quorum.group_resize, name="group-resize"),
    path("failovers/", failover.failover_list_page, name="failover-list"),
    path("failovers/<uuid:failover>/", failover.failover_page, name="failover"),
    path("failovers/<uuid:failover>/timeline/", failover.failover_timeline, name="failover-timeline"),
    path("lag/", lag.lag_page, name="lag"),
    path("lag/<str:group>/", lag.lag_group_page, name="lag-group"),
    path("lag/<str:group>/thresholds/", lag.lag_thresholds_set, name="lag-thresholds"),
    path("figures/", figures.cluster_figures, name="cluster-figures"),
    path("curves/", figures.cluster_curves, name="cluster-curves"),
    path("connect/", connect.cluster_connect, name="cluster-connect"),
    path("connect/reveal/", connect.cluster_reveal, name="cluster-reveal"),
    path("settings/", cluster_settings.cluster_settings, name="cluster-settings"),
    path("settings/policy/", cluster_settings.cluster_policy, name="cluster-policy"),
    path("settings/mode/", mode.cluster_mode, name="cluster-mode"),
    path("settings/grow/", cluster_settings.cluster_grow_page, name="cluster-grow"),
    path("credentials/", credentials.credential_list_page, name="credential-list"),
    path("credentials/<str:access_key>/reveal/", credentials.credential_reveal_page, name="credential-reveal"),
    path("credentials/<str:access_key>/delete/", credentials.credential_delete_page, name="credential-delete"),
    path("topics/", topics.topic_list_page, name="topic-list"),
    # Not below topics/, where a topic may be called `new`.
    path("new-topic/", topics.topic_new, name="topic-new"),
    path("topics/<str:topic>/", include(_topic)),
]

_tenant: list[URLPattern | URLResolver] = [
    path("", clusters.cluster_list_page, name="cluster-list"),
    path("new-cluster/", clusters.cluster_new, name="cluster-new"),
    path("clusters/<str:cluster>/", include(_cluster)),
    path("operations/<uuid:operation>/", operations.operation_page, name="operation"),
    path("operations/<uuid:operation>/progress/", operations.operation_progress, name="operation-progress"),
    path("operations/<uuid:operation>/retry/", operations.operation_retry_page, name="operation-retry"),
    path("usage/", usage.usage_page, name="usage"),
    path("usage/export/<slug:kind>/", usage.usage_export, name="usage-export"),
    path("usage/records/", usage.usage_records, name="usage-records"),
    path("budget/", usage.budget_page, name="budget"),
    path("invoices/", invoices.invoice_list_page, name="invoice-list"),
    path("invoices/<str:invoice>/", invoices.invoice_page, name="invoice"),
    path("invoices/<str:invoice>/pdf/", invoices.invoice_pdf_page, name="invoice-pdf"),
    path("invoices/<str:invoice>/csv/", invoices.invoice_csv_page, name="invoice-csv"),
    path("invoices/<str:invoice>/lines/<int:position>/", invoices.invoice_line_page, name="invoice-line"),
    path("limits/", limits.limits_page, name="limits"),
    path("settings/", tenant_settings.tenant_settings, name="tenant-settings"),
    path("members/", members.member_list, name="member-list"),
    path("members/<uuid:membership>/", members.member_update, name="member-update"),
    path("members/<uuid:membership>/remove/", members.member_remove, name="member-remove"),
    path("tokens/", tokens.token_list, name="token-list"),
    path("tokens/<uuid:token>/revoke/", tokens.token_revoke, name="token-revoke"),
]

_operator: list[URLPattern | URLResolver] = [
    path("", operator.plans, name="operator-plans"),
    path("plans/<str:plan>/", operator.plan_page, name="operator-plan"),
    path("plans/<str:plan>/prices/<uuid:price>/", operator.price_page, name="operator-price"),
    path("subscriptions/", operator.subscriptions, name="operator-subscriptions"),
    path("jobs/", operator.jobs, name="operator-jobs"),
    path("jobs/<uuid:run>/", operator.job_page, name="operator-job"),
    path("jobs/<uuid:run>/retry/", operator.job_retry, name="operator-job-retry"),
    path("jobs/<uuid:run>/replay/", operator.job_replay, name="operator-job-replay"),
    path("invoices/", operator_billing.waiting_invoices, name="operator-invoices"),
    path("invoices/<str:invoice>/reproduce/", operator_billing.invoice_reproduce, name="operator-invoice-reproduce"),
    path("clusters/<uuid:cluster>/metering/", operator_billing.cluster_metering, name="operator-cluster-metering"),
    path("jobs/<uuid:run>/acknowledge/", operator.job_acknowledge, name="operator-job-acknowledge"),
]

urlpatterns: list[URLPattern | URLResolver] = [
    path("", front.home, name="home"),
    path("theme/", front.theme, name="theme"),
    path("tenants/", front.tenant_list, name="tenant-list"),
    path("tenants/new/", front.tenant_new, name="tenant-new"),
    path("t/<str:tenant>/", include(_tenant)),
    path("operator/", include(_operator)),
]
