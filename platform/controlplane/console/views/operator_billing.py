"""The operators' pages of billing: invoices that wait, and how far a cluster's metering got, with an end to agree on."""

import uuid

from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_safe

from controlplane.billing.invoices import invoices_waiting
from controlplane.common.errors import ApplicationError
from controlplane.console.access import ConsoleRequest
from controlplane.console.billing_forms import AgreeForm
from controlplane.console.curl import curl
from controlplane.console.pages import form_take_error, status_of, tell_done
from controlplane.console.views.operator import operator_page, operator_render
from controlplane.insight.bounds import cluster_loss_bound
from controlplane.insight.progress import cluster_by_id, cluster_end_agree, progress_get


@require_safe
@operator_page
def waiting_invoices(request: ConsoleRequest) -> HttpResponse:
    """Show the invoices that are due and wait, and for what."""
    context = {"waiting": invoices_waiting()}
    return operator_render(request, "console/operator/invoices.html", context, "invoices")


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page
def cluster_metering(request: ConsoleRequest, cluster: uuid.UUID) -> HttpResponse:
    """Show how far a cluster's metering got and what may be missing, and agree on an end."""
    found = cluster_by_id(cluster)
    progress = progress_get(found)
    form = AgreeForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            cluster_end_agree(actor=request.user, cluster=found, **form.cleaned_data)
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            tell_done(request, f"The end of {found.name} is agreed.")
            return redirect("console:operator-cluster-metering", found.pk)
    body = {"until": "2026-12-01T00:00:00Z", "reason": "Its disk is lost."}
    context = {
        "cluster": found,
        "progress": progress,
        "bound": cluster_loss_bound(found, progress.ingested_until),
        "form": form,
        "curl": curl("POST", f"/api/v1/operator/clusters/{found.pk}/metering/", body),
    }
    return operator_render(request, "console/operator/cluster_metering.html", context, "invoices", status_of(form))
