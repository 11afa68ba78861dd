"""The audit trail of a tenant: who changed what, when and from where; as a page and as CSV."""

import json
from dataclasses import dataclass
from datetime import timedelta

from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpResponse, QueryDict
from django.views.decorators.http import require_safe

from controlplane.common.audit_chain import CHECKED_IN_REQUEST_MAX, chain_check
from controlplane.common.downloads import as_download
from controlplane.common.models import AuditEvent
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of
from controlplane.console.audit_forms import AuditSearchForm
from controlplane.console.pages import status_of, tenant_render
from controlplane.tenants.audit_trail import audit_csv, audit_events
from controlplane.tenants.models import Tenant

EVENTS_PER_PAGE = 50


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event, with its details in words."""

    event: AuditEvent

    @property
    def details(self) -> list[tuple[str, str]]:
        """Name and value of each detail; of what was changed, what it was before, too."""
        details = dict(self.event.details)
        changes = details.pop("changes", {})
        words = {name: _words(value) for name, value in details.items()}
        words |= {name: f"{_words(old)} → {_words(new)}" for name, (old, new) in changes.items()}
        return [(name.replace("_", " "), value) for name, value in words.items()]


@require_safe
@tenant_page("audit.view")
def audit_page(request: ConsoleRequest, tenant: Tenant) -> HttpResponse:
    """Show the events that match, newest first."""
    return _page(request, tenant, AuditSearchForm(request.GET))


def _page(request: ConsoleRequest, tenant: Tenant, form: AuditSearchForm) -> HttpResponse:
    query = _query(request)
    rows = Paginator(_events(tenant, form), EVENTS_PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "form": form,
        "chain": chain_check(tenant.pk, newest=CHECKED_IN_REQUEST_MAX) if "check" in request.GET else None,
        "is_search": bool(query),
        "rows": rows,
        "events": [EventRow(event) for event in rows.object_list],
        "query": query,
        "curl": act_of("GET", f"{tenant.path}audit-events/{'?' if query else ''}{query}"),
    }
    return tenant_render(request, tenant, "console/audit.html", context, section="audit", status=status_of(form))


@require_safe
@tenant_page("audit.view")
def audit_file(request: ConsoleRequest, tenant: Tenant) -> HttpResponse:
    """Return the events that match as CSV; a search that can't be made is the page, which says why: an empty file would say that
    nothing was done.
    """
    form = AuditSearchForm(request.GET)
    if not form.is_valid():
        return _page(request, tenant, form)
    content = audit_csv(_events(tenant, form))
    response = HttpResponse(content, content_type="text/csv; charset=utf-8")
    return as_download(response, f"audit-{tenant.slug}", "csv")


def _events(tenant: Tenant, form: AuditSearchForm) -> QuerySet[AuditEvent]:
    if not form.is_valid():
        return AuditEvent.objects.none()
    values = form.cleaned_data
    until = values["until"]
    # The field says minutes: the whole of the last one is meant.
    end = None if until is None else until + timedelta(minutes=1)
    return audit_events(tenant, search=values["search"], since=values["since"], until=end)


def _words(value: object) -> str:
    if value in (None, "", {}):
        return "–"
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _query(request: ConsoleRequest) -> str:
    query = QueryDict(mutable=True)
    for name in ("search", "since", "until"):
        if request.GET.get(name):
            query[name] = request.GET[name]
    return query.urlencode()
