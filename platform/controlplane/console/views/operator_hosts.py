"""The operators' pages of the hosts: capacity and placements, who takes most, and what is wrong now."""

from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.http import HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from controlplane.common.sentences import in_words, say
from controlplane.console.access import ConsoleRequest
from controlplane.console.acts import act_of
from controlplane.console.charts import Chart, Curve
from controlplane.console.views.operator import operator_page, operator_render
from controlplane.insight.neighbours import WINDOWS_S, shared_hosts
from controlplane.provisioning.hosts import Fit, capacities, crowded, fits, history, placements
from controlplane.status.troubles import Act, Trouble, troubles

# Hosts of which it is shown in full who takes most of them, with a chart of a day; and lines of daemons.
BUSIEST_MAX = 10
PLACED_MAX = 100
_WINDOWS = {"15m": say("15 minutes"), "1h": say("1 hour"), "24h": say("24 hours")}


@require_safe
@operator_page
def hosts(request: ConsoleRequest) -> HttpResponse:
    """Show what hosts have, promise and use, who takes most of them, and where each daemon is."""
    window = request.GET.get("window", "1h")
    window = window if window in WINDOWS_S else "1h"
    placed = placements()
    found = capacities(placed)
    busiest = sorted(found, key=lambda host: host.cpu_used or 0.0, reverse=True)[:BUSIEST_MAX]
    names = {host.host for host in busiest}
    context = {
        "hosts": found,
        "placed": placed[:PLACED_MAX],
        "placed_more": len(placed) - PLACED_MAX,
        "crowded": crowded(placed),
        "fits": [_fit_row(fit) for fit in fits(found)],
        "shared": shared_hosts(window, [one for one in placed if one.host in names], names),
        "charts": [_chart(number, host.host) for number, host in enumerate(busiest)],
        "hosts_left_out": len(found) - len(busiest),
        "window": window,
        "windows": list(_WINDOWS.items()),
        "curl": act_of("GET", "/api/v1/operator/hosts/"),
        "taken_curl": act_of("GET", f"/api/v1/operator/hosts/taken/?window={window}"),
    }
    return operator_render(request, "console/operator/hosts.html", context, "hosts")


@require_safe
@operator_page
def trouble_list(request: ConsoleRequest) -> HttpResponse:
    """Show what is wrong now over all tenants, each with since when and where to act."""
    context = {
        "troubles": [(one, _act_url(one), _incident_url(one)) for one in troubles()],
        "as_of": timezone.now(),
        "curl": act_of("GET", "/api/v1/operator/troubles/"),
    }
    return operator_render(request, "console/operator/troubles.html", context, "troubles")


def _fit_row(fit: Fit) -> dict[str, object]:
    shown = [
        {"words": words, "more": fit.rooms[what], "binds": what == fit.binds} for what, words in _ROOM_WORDS.items()
    ]
    return {"mode": fit.mode, "daemons": fit.daemons, "more": fit.more, "shown": shown}


_ROOM_WORDS = {
    "memory": say("By memory"),
    "disk": say("By disk"),
    "ports": say("By ports"),
    "descriptors": say("By open files"),
}


def _act_url(one: Trouble) -> str:
    match one.act:
        case Act.MACHINE:
            return reverse("console:operator-machine")
        case Act.JOB:
            return reverse("console:operator-job", args=[one.about])
    return reverse("console:operator-hosts") + (f"#cluster-{one.cluster.pk}" if one.cluster is not None else "")


def _incident_url(one: Trouble) -> str:
    # Strangers read incidents: the tenant is not named.
    return f"{reverse('console:operator-status')}?{urlencode({'title': in_words(_TITLES.get(one.kind, one.what))})}"


_TITLES = {
    "leader_missing": say("A cluster has no leader"),
    "daemon_down": say("A broker or name server is down"),
    "restarts": say("A broker or name server restarts over and over"),
    "replica_behind": say("A replica is behind"),
    "disk_used": say("A disk is nearly full"),
    "host_disk": say("A disk is nearly full"),
    "quota_used": say("A limit is nearly used"),
    "certificate_old": say("Certificates are about to end"),
    "operation_failed": say("A change of a cluster failed"),
    "operation_stuck": say("A change of a cluster does not go on"),
    "host_memory": say("A host is short of memory"),
    "host_silent": say("A host does not answer"),
    "job_failed": say("Usage is counted late"),
}


def _chart(number: int, host: str) -> Chart:
    day = history(host)
    zone = ZoneInfo("UTC")
    return Chart(
        f"host-{number}",
        say("Used over a day, in percent: %(host)s", host=host),
        "lines",
        say("Time"),
        [f"{moment:%Y-%m-%d %H:%M}" for moment, *_ in day],
        [f"{moment:%H:%M}" for moment, *_ in day],
        [moment for moment, *_ in day],
        zone,
        [
            Curve.of(say("Processor"), [None if cpu is None else 100 * cpu for _, cpu, _, _ in day], _percent),
            Curve.of(say("Memory"), [100 * memory for _, _, memory, _ in day], _percent),
            Curve.of(say("Disk"), [100 * disk for _, _, _, disk in day], _percent),
        ],
    )


def _percent(value: object) -> str:
    return in_words(say("%(percent)s %%", percent=f"{float(str(value)):.0f}"))
