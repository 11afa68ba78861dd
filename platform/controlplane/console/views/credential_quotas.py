"""The page of a key pair's own quotas, with their use."""

from dataclasses import dataclass

from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from controlplane.clusters.credential_quotas import credential_update, credential_uses
from controlplane.clusters.models import Credential
from controlplane.clusters.replica_remoting import BrokerQuota
from controlplane.clusters.selectors import cluster_get, credential_get
from controlplane.common.errors import ApplicationError
from controlplane.common.sentences import say
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of, code_answer, wants_code
from controlplane.console.cluster_pages import cluster_context
from controlplane.console.credential_forms import CredentialQuotasForm
from controlplane.console.pages import form_take_error, status_of, tell_done, tenant_render
from controlplane.console.views.limits import QuotaRow, quota_rows
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_can, actor_require

_DIRECTIONS = {"send": say("Sends"), "pull": say("Pulls")}


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """One quota at one broker; `row` is None where nothing is known of it. `direction`: of what a rate is."""

    broker: str
    row: QuotaRow | None
    direction: str = ""
    is_answered: bool = True


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("credential.view")
def credential_quotas_page(request: ConsoleRequest, tenant: Tenant, cluster: str, access_key: str) -> HttpResponse:
    """Show what limits a key pair at each broker, with its use, and change its own quotas."""
    found = cluster_get(tenant, cluster)
    credential = credential_get(found, access_key)
    form = CredentialQuotasForm(request.POST if request.method == "POST" else None, credential=credential)
    if request.method == "POST":
        actor_require(request.user, "credential.update", tenant)
    act = act_of("PATCH", f"{found.path}credentials/{credential.access_key}/", form.body())
    if wants_code(request):
        return code_answer(act)
    if form.is_valid():
        try:
            changed = credential_update(actor=request.user, credential=credential, quotas=form.changed())
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            words = say("The quotas of “%(name)s” count from now on.", name=credential.name)
            if changed.missing_daemons:
                late = say("These did not confirm it yet: %(late)s.", late=", ".join(changed.missing_daemons))
                words = say("%(first)s %(rest)s", first=words, rest=late)
            tell_done(request, words)
            return redirect("console:credential-quotas", tenant.slug, found.slug, credential.access_key)
    context = {
        **cluster_context(request, found),
        "credential": credential,
        "form": form,
        "uses": _uses(credential),
        "can_update_credential": actor_can(request.user, "credential.update", tenant),
        "curl": act,
        "curl_use": act_of("GET", f"{found.path}credentials/{credential.access_key}/quotas/"),
    }
    return tenant_render(
        request,
        tenant,
        "console/credential_quotas.html",
        context,
        section="clusters",
        page="credentials",
        status=status_of(form),
    )


def _uses(credential: Credential) -> list[BrokerRow]:
    found = []
    for use in credential_uses(credential):
        rows = quota_rows(use.quotas or ())
        found += [BrokerRow(use.broker, row, _direction(row.quota)) for row in rows]
        if not rows:
            found.append(BrokerRow(use.broker, None, is_answered=use.quotas is not None))
    return found


def _direction(quota: BrokerQuota) -> str:
    """Return of what a rate is: a broker writes it after the key."""
    return next((words for name, words in _DIRECTIONS.items() if quota.name.endswith(f" ({name})")), "")
