"""Pages of lag: a cluster's groups now, and one group with its history, queue by queue."""

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from urllib.parse import quote

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import get_language, gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST, require_safe

from controlplane.clusters.models import Cluster
from controlplane.clusters.selectors import cluster_get
from controlplane.common.errors import ApplicationError
from controlplane.common.sentences import in_words
from controlplane.common.zones import zone_of
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import Act, act_of, code_answer, wants_code
from controlplane.console.billing_forms import ThresholdsForm
from controlplane.console.charts import Chart, Curve
from controlplane.console.cluster_pages import cluster_context
from controlplane.console.pages import form_take_error, status_of, tell_done, tenant_render
from controlplane.console.templatetags.console import day_words, zone_mark
from controlplane.console.views.group_members import members_context
from controlplane.insight.availability import jobs_problem
from controlplane.insight.lists_as_csv import lag_csv
from controlplane.insight.live import group_names
from controlplane.insight.models import Job, LagWindow
from controlplane.insight.outlook import group_outlook, group_outlooks
from controlplane.insight.selectors import GroupHistory, counted, lag_history, lag_topics
from controlplane.insight.thresholds import thresholds_get, thresholds_set
from controlplane.insight.words import length_words
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_can

GROUPS_SHOWN_MAX = 200
SPANS = {
    "6h": (_("6 hours"), timedelta(hours=6)),
    "24h": (_("24 hours"), timedelta(days=1)),
    "7d": (_("7 days"), timedelta(days=7)),
}
_HEAT_COLUMNS = 12
_HEAT_LEVELS = 5


@require_safe
@tenant_page("lag.view")
def lag_page(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Show every group with its lag; with htmx only the list, which asks for itself again."""
    found = cluster_get(tenant, cluster)
    context = {**cluster_context(request, found), **_groups(request, found), "curl": act_of("GET", f"{found.path}lag/")}
    if request.htmx:
        return render(request, "console/parts/lag_groups.html", {"tenant": tenant, **context})
    return tenant_render(request, tenant, "console/lag.html", context, section="clusters", page="lag")


@require_safe
@tenant_page("lag.view")
def lag_file(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Return the lag of each group in each of its topics as CSV; a search narrows them down.

    Raises Conflict, BrokerUnreachable, … where the groups are not known.
    """
    found = cluster_get(tenant, cluster)
    return lag_csv(found, request.GET.get("q", ""))


@require_POST
@tenant_page("topic.update")
def lag_thresholds_set(request: ConsoleRequest, tenant: Tenant, cluster: str, group: str) -> HttpResponse:
    """Set from which backlog and growth on the group is said to never catch up."""
    found = cluster_get(tenant, cluster)
    form = ThresholdsForm(request.POST)
    if wants_code(request):
        return code_answer(_thresholds_act(found, group, form))
    if form.is_valid():
        try:
            thresholds_set(actor=request.user, cluster=found, group=group, **form.cleaned_data)
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            tell_done(request, gettext("The thresholds are set."))
            return redirect("console:lag-group", tenant.slug, found.slug, group)
    return _group_render(request, found, group, form)


@require_safe
@tenant_page("lag.view")
def lag_group_page(request: ConsoleRequest, tenant: Tenant, cluster: str, group: str) -> HttpResponse:
    """Show one group: live by queue, and the history of one of its topics."""
    found = cluster_get(tenant, cluster)
    return _group_render(request, found, group, ThresholdsForm(initial=asdict(thresholds_get(found, group))))


def _group_render(request: ConsoleRequest, found: Cluster, group: str, thresholds: ThresholdsForm) -> HttpResponse:
    tenant = found.tenant
    outlook = group_outlook(found, group)
    topics = sorted({*lag_topics(found, group), *outlook.live.topics})
    topic = request.GET.get("topic") or next((name for name in topics if not name.startswith("%")), "")
    span = request.GET.get("span", "24h")
    until = timezone.now()
    since = until - SPANS.get(span, SPANS["24h"])[1]
    history = lag_history(found, group, topic, since, until)
    path = f"{found.path}lag/{quote(group, safe='')}/"
    context = {
        **cluster_context(request, found),
        "group": outlook,
        "queues": [queue for queue in outlook.live.queues or () if queue.topic == topic],
        "topics": topics,
        "topic": topic,
        "span": span if span in SPANS else "24h",
        "spans": [(name, words) for name, (words, _) in SPANS.items()],
        "charts": _charts(history, tenant, (since, until)),
        "heat": heat_of(history, since, until, tenant),
        "outlook": next((one for one in outlook.outlook if one.window.topic == topic), None),
        **_counted(),
        "thresholds_form": thresholds,
        "thresholds_curl": _thresholds_act(found, group, thresholds),
        **members_context(request, found, group),
        "can_set_thresholds": actor_can(request.user, "topic.update", tenant),
        "curl": act_of("GET", path) if not topic else act_of("GET", f"{path}history/?topic={quote(topic, safe='')}"),
    }
    return tenant_render(
        request,
        tenant,
        "console/lag_group.html",
        context,
        section="clusters",
        page="lag",
        status=status_of(thresholds),
    )


def _thresholds_act(cluster: Cluster, group: str, form: ThresholdsForm) -> Act:
    return act_of("PUT", f"{cluster.path}lag/{quote(group, safe='')}/thresholds/", form.body())


@dataclass(frozen=True, slots=True)
class HeatCell:
    """The highest lag of a queue in a span of time; `level` 0 to 5, None where nothing is known."""

    lag_messages: int | None
    level: int | None


@dataclass(frozen=True, slots=True)
class Heat:
    """Lag by queue and time. `columns` are the spans' begins in words."""

    columns: list[str]
    rows: list[tuple[str, list[HeatCell]]]


def heat_of(history: GroupHistory, since: datetime, until: datetime, tenant: Tenant) -> Heat:
    """Return the heat map of the queues: a cell's level is its share of the highest lag on the map."""
    zone = zone_of(tenant.time_zone)
    width = (until - since) / _HEAT_COLUMNS
    begins = [since + width * column for column in range(_HEAT_COLUMNS)]
    highest = max((window.lag_messages_max for windows in history.queues.values() for window in windows), default=0)
    several = len({broker for broker, _ in history.queues}) > 1
    rows = []
    for (broker, queue_id), windows in history.queues.items():
        peaks: list[int | None] = [None] * _HEAT_COLUMNS
        for window in windows:
            column = min(_HEAT_COLUMNS - 1, int((window.window_start - since) / width))
            peaks[column] = max(peaks[column] or 0, window.lag_messages_max)
        rows.append(
            (
                f"{broker} / {queue_id}" if several else gettext("Queue %(queue_id)s") % {"queue_id": queue_id},
                [_cell(peak, highest) for peak in peaks],
            )
        )
    local = [begin.astimezone(zone) for begin in begins]
    if until - since <= timedelta(days=1):
        return Heat([f"{begin:%H:%M}" for begin in local], rows)
    day = "%m-%d" if get_language() == "zh-hans" else "%d %b"
    return Heat([f"{begin:{day} %H:%M}" for begin in local], rows)


def _cell(peak: int | None, highest: int) -> HeatCell:
    if peak is None:
        return HeatCell(None, None)
    return HeatCell(peak, 0 if highest == 0 else -(-peak * _HEAT_LEVELS // highest))


def _groups(request: ConsoleRequest, cluster: Cluster) -> dict[str, object]:
    """The groups, or why they are not known; a search narrows them down."""
    search = request.GET.get("q", "").strip()
    try:
        names = [name for name in group_names(cluster) if search.lower() in name.lower()]
    except ApplicationError as error:
        return {"groups": None, "problem": error.message, "search": search, "as_of": timezone.now()}
    shown = names[:GROUPS_SHOWN_MAX]
    return {
        "groups": group_outlooks(cluster, shown),
        "left_out": len(names) - len(shown),
        "search": search,
        "as_of": timezone.now(),
        **_counted(),
    }


def _counted() -> dict[str, object]:
    """Until when lag is counted, and where it never was, why."""
    found = counted(Job.LAG_ANALYTICS)
    return {"counted": found, "jobs_problem": "" if found.until else jobs_problem()}


def _charts(history: GroupHistory, tenant: Tenant, span: tuple[datetime, datetime]) -> list[Chart]:
    zone = zone_of(tenant.time_zone)
    windows = _with_gaps(history.whole)
    moments = [moment for moment, _ in windows]
    local = [moment.astimezone(zone) for moment in moments]
    labels = [f"{day_words(moment)} {moment:%H:%M} {zone_mark(moment)}" for moment in local]
    ticks = [f"{moment:%H:%M}" for moment in local]
    messages = [
        Curve.of(gettext("Highest"), [None if one is None else one.lag_messages_max for _, one in windows], _messages),
        Curve.of(gettext("Median"), [None if one is None else one.lag_messages_p50 for _, one in windows], _messages),
    ]
    seconds = [
        Curve.of(gettext("Highest"), [_seconds(one, "lag_ms_max") for _, one in windows], _length),
        Curve.of(gettext("Median"), [_seconds(one, "lag_ms_p50") for _, one in windows], _length),
    ]
    return [
        Chart(
            "lag-messages",
            gettext("Backlog in messages"),
            "lines",
            gettext("Time"),
            labels,
            ticks,
            moments,
            zone,
            messages,
            span,
        ),
        Chart(
            "lag-seconds",
            gettext("Age of the oldest message, in seconds"),
            "lines",
            gettext("Time"),
            labels,
            ticks,
            moments,
            zone,
            seconds,
            span,
        ),
    ]


def _with_gaps(windows: list[LagWindow]) -> list[tuple[datetime, LagWindow | None]]:
    """The windows with a None where some are missing in between: the curve breaks there."""
    found: list[tuple[datetime, LagWindow | None]] = []
    for window in windows:
        if found:
            before = found[-1][1]
            assert before is not None
            expected = before.window_start + timedelta(seconds=before.window_seconds)
            if window.window_start > expected:
                found.append((expected, None))
        found.append((window.window_start, window))
    return found


def _seconds(window: LagWindow | None, name: str) -> float | None:
    value: int | None = None if window is None else getattr(window, name)
    return None if value is None else value / 1000


def _messages(value: object) -> str:
    return f"{int(str(value)):,}".replace(",", "\u202f")


def _length(value: object) -> str:
    return in_words(length_words(timedelta(seconds=float(str(value)))))
