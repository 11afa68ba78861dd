"""The configuration of a cluster's brokers: choose, see what changes for whom, then save; what brokers have, and the history."""

from typing import Any

from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.clusters.configuration import (
    Configuration,
    Plan,
    change_lines,
    change_list,
    configuration_apply,
    configuration_change,
    configuration_get,
    configuration_plan,
    values_before,
)
from controlplane.clusters.models import Cluster
from controlplane.clusters.selectors import cluster_get
from controlplane.common.errors import ApplicationError
from controlplane.common.sentences import say, say_all
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import Act, act_of, code_answer, wants_code
from controlplane.console.cluster_pages import cluster_context
from controlplane.console.configuration_forms import ConfigurationForm
from controlplane.console.pages import form_take_error, status_of, tell_done, tell_error, tenant_render
from controlplane.failover.rolling.services import rolling_start
from controlplane.provisioning.drivers import get_driver
from controlplane.tenants.models import Tenant

_HISTORY = 20


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("cluster.update")
def cluster_configuration(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """A POST shows what it would change, and with `act=save` changes it; `?put_back=` begins with a former change's values."""
    found = cluster_get(tenant, cluster)
    configuration = configuration_get(found)
    form = _form(request, found, configuration)
    command = _command(found, form)
    if wants_code(request):
        return code_answer(command)
    plan = None
    if form.is_bound and form.is_valid() and request.POST.get("act") != "edit":
        version, put_back = form.cleaned_data["version"], form.cleaned_data["put_back"] or 0
        try:
            if request.POST.get("act") in ("save", "save_and_restart"):
                saved = configuration_change(
                    actor=request.user, cluster=found, values=form.values(), version=version, put_back=put_back
                )
                tell_done(request, _saved_words(saved.plan, saved.missing))
                if request.POST["act"] == "save_and_restart":
                    return _restart(request, found)
                return redirect("console:cluster-configuration", tenant.slug, found.slug)
            plan = configuration_plan(found, form.values())
        except ApplicationError as error:
            form_take_error(form, error)
        if plan is not None and not plan.changes:
            form.add_error(None, say("Nothing is different from what is wanted now."))
            plan = None
    return _page(request, found, configuration, form, plan, command)


@require_POST
@tenant_page("cluster.update")
def cluster_configuration_apply(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Have the brokers take again what they take without a restart."""
    found = cluster_get(tenant, cluster)
    try:
        missing = configuration_apply(actor=request.user, cluster=found)
    except ApplicationError as error:
        tell_error(request, error)
    else:
        tell_done(request, say_all(say("The new configuration was sent to every broker."), _missing_words(missing)))
    return redirect("console:cluster-configuration", tenant.slug, found.slug)


def _restart(request: ConsoleRequest, cluster: Cluster) -> HttpResponse:
    """Start the restart that the saved values wait for, and show its progress, or why it can't begin now."""
    try:
        operation = rolling_start(actor=request.user, cluster=cluster, driver=get_driver())
    except ApplicationError as error:
        tell_error(request, error)
        return redirect("console:cluster-rolling", cluster.tenant.slug, cluster.slug)
    return redirect("console:operation", cluster.tenant.slug, operation.pk)


def _form(request: ConsoleRequest, cluster: Cluster, configuration: Configuration) -> ConfigurationForm:
    if request.method == "POST":
        return ConfigurationForm(request.POST, configuration=configuration)
    number = request.GET.get("put_back", "")
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        return ConfigurationForm(configuration=configuration)
    wanted: dict[str, Any] = {state.key.name: state.wanted for state in configuration.keys}
    before = {name: value for name, value in values_before(cluster, int(number)).items() if name in wanted}
    data = {**wanted, **before, "version": configuration.version, "put_back": int(number)}
    return ConfigurationForm(data, configuration=configuration)


def _command(cluster: Cluster, form: ConfigurationForm) -> Act:
    return act_of("PATCH", f"{cluster.path}configuration/", {"values": form.changes(), "dry_run": True})


def _page(
    request: ConsoleRequest,
    cluster: Cluster,
    configuration: Configuration,
    form: ConfigurationForm,
    plan: Plan | None,
    command: Act,
) -> HttpResponse:
    newest = list(change_list(cluster)[:_HISTORY])
    context = {
        **cluster_context(request, cluster),
        "configuration": configuration,
        "form": form,
        "plan": plan,
        "history": [(change, change_lines(change)) for change in newest],
        "curl": command,
        "curl_save": act_of(
            "PATCH", f"{cluster.path}configuration/", {"values": form.changes(), "version": configuration.version}
        ),
        "curl_restart": act_of("POST", f"{cluster.path}restart/", {}),
        "curl_apply": act_of("POST", f"{cluster.path}configuration/apply/"),
    }
    return tenant_render(
        request,
        cluster.tenant,
        "console/configuration.html",
        context,
        section="clusters",
        page="settings",
        status=200 if plan is not None else status_of(form),
    )


def _saved_words(plan: Plan, missing: tuple[str, ...]) -> str:
    if not plan.changes:
        return say("Nothing is different from what is wanted now.")
    saved = say("The configuration is saved.")
    later = say("What needs a restart counts when each broker is restarted.") if plan.needs_restart else ""
    return say_all(saved, later, _missing_words(missing))


def _missing_words(missing: tuple[str, ...]) -> str:
    if not missing:
        return ""
    return say("These did not answer, and differ until they are asked again: %(brokers)s.", brokers=", ".join(missing))
