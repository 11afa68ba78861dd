"""What flows through a cluster, on its page: the newest figures and the curves of the last hours."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from controlplane.clusters.models import Cluster
from controlplane.clusters.selectors import cluster_get
from controlplane.common.sentences import say
from controlplane.common.zones import zone_of
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.charts import Chart, Curve
from controlplane.console.templatetags.console import byte_size, day_words, number, per_second, percent, zone_mark
from controlplane.insight.figures import POINTS_MAX, SAMPLE_EVERY_S, figures_history, figures_last_seen, figures_latest
from controlplane.insight.models import ClusterFigures
from controlplane.tenants.models import Tenant

SPANS = {"1h": (say("hour"), timedelta(hours=1)), "24h": (say("24 hours"), timedelta(days=1))}
_DEFAULT_SPAN = "1h"
# A curve breaks where more than two samples are missing.
_GAP = timedelta(seconds=3 * SAMPLE_EVERY_S)


@dataclass(frozen=True, slots=True)
class Live:
    """The newest figures, None when there are no fresh ones, and then why: `last_seen` is when there were some."""

    figures: ClusterFigures | None
    last_seen: datetime | None


@require_safe
@tenant_page("cluster.view")
def cluster_figures(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Return the newest figures alone; the overview asks for them every ten seconds."""
    found = cluster_get(tenant, cluster)
    context = {"tenant": tenant, "cluster": found, "live": live_of(found)}
    return render(request, "console/parts/figures.html", context)


@require_safe
@tenant_page("cluster.view")
def cluster_curves(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Return the curves alone; chart.js asks for them while the overview is open."""
    found = cluster_get(tenant, cluster)
    context = {"tenant": tenant, "cluster": found, **curves_context(request, found)}
    return render(request, "console/parts/curves.html", context)


def live_of(cluster: Cluster) -> Live:
    """Return the newest figures of a cluster."""
    figures = figures_latest([cluster]).get(cluster.pk)
    return Live(figures, None if figures is not None else figures_last_seen(cluster))


def curves_context(request: ConsoleRequest, cluster: Cluster) -> dict[str, object]:
    """Return what the curves need; the query names the span."""
    span = request.GET.get("span", _DEFAULT_SPAN)
    span = span if span in SPANS else _DEFAULT_SPAN
    until = timezone.now()
    since = until - SPANS[span][1]
    return {
        "charts": figures_charts(figures_history(cluster, since, until), cluster.tenant, (since, until)),
        "span": span,
        "spans": [(name, words) for name, (words, _) in SPANS.items()],
    }


def figures_charts(samples: list[ClusterFigures], tenant: Tenant, span: tuple[datetime, datetime]) -> list[Chart]:
    """Return the curves of these samples, broken where some are missing."""
    zone = zone_of(tenant.time_zone)
    step = max(_GAP, 3 * (span[1] - span[0]) / POINTS_MAX)
    rows: list[tuple[datetime, ClusterFigures | None]] = []
    for sample in samples:
        if rows and sample.sampled_at - rows[-1][0] > step:
            rows.append((rows[-1][0] + step / 2, None))
        rows.append((sample.sampled_at, sample))
    moments = [moment for moment, _ in rows]
    local = [moment.astimezone(zone) for moment in moments]
    labels = [f"{day_words(moment)} {moment:%H:%M:%S} {zone_mark(moment)}" for moment in local]
    ticks = [f"{moment:%H:%M}" for moment in local]

    def curve(name: str, field: str, scale: float = 1) -> Curve:
        values = [None if row is None else getattr(row, field) for _, row in rows]
        return Curve.of(name, [None if value is None else scale * value for value in values], _WORDS[field])

    def chart(chart_id: str, title: str, *curves: Curve) -> Chart:
        return Chart(chart_id, title, "lines", say("Time"), labels, ticks, moments, zone, list(curves), span)

    always = [
        chart(
            "figures-rates",
            say("Messages a second"),
            curve(say("In"), "in_per_second"),
            curve(say("Out"), "out_per_second"),
        ),
        chart("figures-backlog", say("Backlog in messages"), curve(say("Backlog"), "backlog_messages")),
    ]
    where_known = [
        chart(
            "figures-bytes",
            say("Bytes a second"),
            curve(say("In"), "in_bytes_per_second"),
            curve(say("Out"), "out_bytes_per_second"),
        ),
        chart(
            "figures-sends",
            say("Time that sends took in the brokers, in ms"),
            curve(say("Half of them"), "send_p50_ms"),
            curve(say("99 of 100"), "send_p99_ms"),
        ),
        chart("figures-answer", say("Answer time of the slowest leader in ms"), curve(say("Answer"), "answer_ms")),
        chart("figures-connections", say("Connections of programs"), curve(say("Connections"), "connections")),
        chart("figures-disk", say("Fullest disk, percent used"), curve(say("Used"), "disk_used", 100)),
        chart("figures-gap", say("Largest replication gap in bytes"), curve(say("Gap"), "replica_gap_bytes")),
    ]
    return always + [one for one in where_known if not one.is_empty]


def _rate(value: object) -> str:
    return str(per_second(float(str(value))))


def _byte_rate(value: object) -> str:
    return say("%(size)s a second", size=byte_size(round(float(str(value)))))


def _messages(value: object) -> str:
    return str(number(int(str(value))))


def _milliseconds(value: object) -> str:
    return say("%(milliseconds)s ms", milliseconds=f"{float(str(value)):.1f}")


def _percent(value: object) -> str:
    return str(percent(float(str(value)) / 100))


def _bytes(value: object) -> str:
    return str(byte_size(int(str(value))))


_WORDS = {
    "in_per_second": _rate,
    "out_per_second": _rate,
    "in_bytes_per_second": _byte_rate,
    "out_bytes_per_second": _byte_rate,
    "send_p50_ms": _milliseconds,
    "send_p99_ms": _milliseconds,
    "backlog_messages": _messages,
    "answer_ms": _milliseconds,
    "connections": _messages,
    "disk_used": _percent,
    "replica_gap_bytes": _bytes,
}
