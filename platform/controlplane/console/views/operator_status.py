"""The operators' page of what the platform's status shows: incidents with their updates, and maintenance."""

import uuid

from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.common.errors import ApplicationError
from controlplane.common.sentences import say
from controlplane.console.access import ConsoleRequest
from controlplane.console.acts import act_of, code_answer, wants_code
from controlplane.console.pages import form_take_error, status_of, tell_done, tell_error
from controlplane.console.status_forms import IncidentForm, IncidentUpdateForm, MaintenanceForm
from controlplane.console.views.operator import operator_page, operator_render
from controlplane.status.models import IncidentState
from controlplane.status.selectors import incident_get, incident_history, maintenance_ahead, maintenance_get
from controlplane.status.services import (
    TITLE_LENGTH_MAX,
    incident_open,
    incident_update,
    maintenance_cancel,
    maintenance_plan,
)


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page
def incidents(request: ConsoleRequest) -> HttpResponse:
    """Show incidents and maintenance; open an incident, or plan a window."""
    plans = request.method == "POST" and request.POST.get("what") == "maintenance"
    opens = request.method == "POST" and not plans
    initial = {"title": request.GET.get("title", "")[:TITLE_LENGTH_MAX]}
    incident_form = IncidentForm(request.POST if opens else None, prefix="incident", initial=initial)
    window_form = MaintenanceForm(request.POST if plans else None, prefix="maintenance")
    incident_curl = act_of("POST", "/api/v1/operator/incidents/", incident_form.body())
    window_curl = act_of("POST", "/api/v1/operator/maintenance/", window_form.body())
    if wants_code(request):
        return code_answer(window_curl if plans else incident_curl)
    if incident_form.is_valid():
        try:
            incident = incident_open(actor=request.user, **incident_form.cleaned_data)
        except ApplicationError as error:
            form_take_error(incident_form, error)
        else:
            tell_done(request, say("Everyone sees the incident now."))
            return redirect("console:operator-incident", incident.pk)
    if window_form.is_valid():
        try:
            maintenance_plan(actor=request.user, **window_form.cleaned_data)
        except ApplicationError as error:
            form_take_error(window_form, error)
        else:
            tell_done(request, say("The maintenance is announced."))
            return redirect("console:operator-status")
    windows = list(maintenance_ahead(timezone.now()))
    context = {
        "incidents": incident_history(),
        "windows": windows,
        "cancel_act": act_of("DELETE", windows[0].path) if windows else None,
        "incident_form": incident_form,
        "window_form": window_form,
        "incident_curl": incident_curl,
        "window_curl": window_curl,
    }
    status = max(status_of(incident_form), status_of(window_form))
    return operator_render(request, "console/operator/status.html", context, "status", status)


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page
def incident_page(request: ConsoleRequest, incident: uuid.UUID) -> HttpResponse:
    """Show an incident with all that was said of it, and say more."""
    found = incident_get(incident)
    form = IncidentUpdateForm(request.POST if request.method == "POST" else None, initial={"state": found.state})
    command = act_of("POST", f"{found.path}updates/", form.body())
    if wants_code(request):
        return code_answer(command)
    if form.is_valid():
        try:
            incident_update(actor=request.user, incident=found, **form.cleaned_data)
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            is_over = form.cleaned_data["state"] == IncidentState.RESOLVED
            tell_done(request, say("The incident is resolved.") if is_over else say("Everyone sees the update now."))
            return redirect("console:operator-incident", found.pk)
    context = {"incident": found, "form": form, "curl": command}
    return operator_render(request, "console/operator/incident.html", context, "status", status_of(form))


@require_POST
@operator_page
def maintenance_end(request: ConsoleRequest, maintenance: uuid.UUID) -> HttpResponse:
    """Cancel a window, or end it early."""
    try:
        maintenance_cancel(actor=request.user, maintenance=maintenance_get(maintenance))
    except ApplicationError as error:
        tell_error(request, error)
    else:
        tell_done(request, say("The maintenance is cancelled."))
    return redirect("console:operator-status")
