"""The operators' pages of billing: invoices that wait, and how far a cluster's metering got, with an end to agree on."""

import uuid

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.billing.invoices import invoices_waiting
from controlplane.billing.reproductions import (
    invoice_by_number,
    issued_invoices,
    reproduction_queue,
    reproductions_mark_lost,
)
from controlplane.common.errors import ApplicationError
from controlplane.console.access import ConsoleRequest
from controlplane.console.acts import act_of, code_answer, wants_code
from controlplane.console.billing_forms import AgreeForm
from controlplane.console.pages import form_take_error, status_of, tell_done, tell_error
from controlplane.console.views.operator import operator_page, operator_render
from controlplane.insight.bounds import cluster_loss_bound
from controlplane.insight.progress import cluster_by_id, cluster_end_agree, progress_get

_PER_PAGE = 50


@require_safe
@operator_page
def waiting_invoices(request: ConsoleRequest) -> HttpResponse:
    """Show the invoices that are due and wait, and for what; and those that were issued, each to be made again."""
    reproductions_mark_lost()
    issued = Paginator(issued_invoices(), _PER_PAGE).get_page(request.GET.get("page"))
    first = next((invoice for invoice in issued.object_list if invoice.snapshot_id), None)
    context = {
        "waiting": invoices_waiting(),
        "issued": issued,
        "query": "",
        "reproduce_act": first and act_of("POST", f"/api/v1/operator/invoices/{first.number_text}/reproductions/"),
    }
    return operator_render(request, "console/operator/invoices.html", context, "invoices")


@require_POST
@operator_page
def invoice_reproduce(request: ConsoleRequest, invoice: str) -> HttpResponse:
    """Have an issued bill made again from its snapshot."""
    found = invoice_by_number(invoice)
    try:
        reproduction_queue(actor=request.user, invoice=found)
    except ApplicationError as error:
        tell_error(request, error)
    else:
        words = gettext("%(invoice)s is being made again. It takes about a minute; this page shows the result.")
        tell_done(request, words % {"invoice": found.number_text})
    return redirect("console:operator-invoices")


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page
def cluster_metering(request: ConsoleRequest, cluster: uuid.UUID) -> HttpResponse:
    """Show how far a cluster's metering got and what may be missing, and agree on an end."""
    found = cluster_by_id(cluster)
    progress = progress_get(found)
    form = AgreeForm(request.POST if request.method == "POST" else None)
    command = act_of("POST", f"/api/v1/operator/clusters/{found.pk}/metering/", form.body())
    if wants_code(request):
        return code_answer(command)
    if form.is_valid():
        try:
            cluster_end_agree(actor=request.user, cluster=found, **form.cleaned_data)
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            tell_done(request, gettext("The end of %(name)s is agreed.") % {"name": found.name})
            return redirect("console:operator-cluster-metering", found.pk)
    context = {
        "cluster": found,
        "progress": progress,
        "bound": cluster_loss_bound(found, progress.ingested_until),
        "form": form,
        "curl": command,
    }
    return operator_render(request, "console/operator/cluster_metering.html", context, "invoices", status_of(form))
