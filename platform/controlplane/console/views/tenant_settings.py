"""A tenant's settings: its name, the zone in which its pages show times, and whether it asks for second factors."""

from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from controlplane.common.errors import ApplicationError
from controlplane.common.sentences import say
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of, code_answer, form_values, wants_code
from controlplane.console.billing_forms import TenantSettingsForm
from controlplane.console.pages import form_take_error, status_of, tell_done, tenant_render
from controlplane.tenants.models import Tenant
from controlplane.tenants.services import tenant_update


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("tenant.update")
def tenant_settings(request: ConsoleRequest, tenant: Tenant) -> HttpResponse:
    """Change the name, the zone, or whether sensitive acts ask for the second factor."""
    initial = {
        "name": tenant.name,
        "time_zone": tenant.time_zone,
        "requires_second_factor": tenant.requires_second_factor,
        "wants_second_factor": tenant.wants_second_factor,
    }
    form = TenantSettingsForm(request.POST if request.method == "POST" else None, initial=initial)
    command = act_of("PATCH", tenant.path, form_values(form))
    if wants_code(request):
        return code_answer(command)
    if form.is_valid():
        try:
            tenant_update(actor=request.user, tenant=tenant, **form.changed())
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            tell_done(request, say("The settings are saved."))
            return redirect("console:tenant-settings", tenant.slug)
    context = {"form": form, "curl": command}
    return tenant_render(
        request, tenant, "console/tenant_settings.html", context, section="settings", status=status_of(form)
    )
