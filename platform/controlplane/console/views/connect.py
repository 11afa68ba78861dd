"""The page "Connect": the address, the keys and first programs, filled in."""

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from controlplane.clusters.certificates import authority_ends_at, next_signs_at
from controlplane.clusters.credential_services import credential_reveal
from controlplane.clusters.models import Cluster, Credential, CredentialState
from controlplane.clusters.selectors import cluster_get, credential_list
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of
from controlplane.console.cluster_pages import cluster_context
from controlplane.console.pages import never_store, tenant_render
from controlplane.console.snippets import (
    ACCESS_PLACEHOLDER,
    SECRET_PLACEHOLDER,
    TOPIC_PLACEHOLDER,
    Values,
    snippets_render,
)
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_can
from controlplane.topics.models import TopicState


@require_safe
@tenant_page("cluster.view")
def cluster_connect(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Show how programs connect."""
    found = cluster_get(tenant, cluster)
    context = _context(request, found, secret_key="")  # nosec B106  # the page shows none
    return tenant_render(request, tenant, "console/cluster_connect.html", context, section="clusters", page="connect")


@require_POST
@tenant_page("credential.reveal")
def cluster_reveal(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Show the same with the secret filled in. A POST, because each look is written into the audit trail."""
    found = cluster_get(tenant, cluster)
    credential = _first_credential(found)
    secret_key = "" if credential is None else credential_reveal(actor=request.user, credential=credential)
    context = _context(request, found, secret_key=secret_key)
    if request.htmx:
        return never_store(render(request, "console/parts/connect.html", {"tenant": tenant, **context}))
    return never_store(
        tenant_render(request, tenant, "console/cluster_connect.html", context, section="clusters", page="connect")
    )


def _context(request: ConsoleRequest, cluster: Cluster, *, secret_key: str) -> dict[str, object]:
    credential = _first_credential(cluster)
    topic = cluster.topics.filter(state=TopicState.ACTIVE).order_by("created_at").first()
    values = Values(
        namesrv_addr=cluster.namesrv_addr,
        access_key=credential.access_key if credential else ACCESS_PLACEHOLDER,
        secret_key=secret_key or SECRET_PLACEHOLDER,
        topic=topic.name if topic else TOPIC_PLACEHOLDER,
        tls_ca=cluster.tls_ca,
    )
    return {
        **cluster_context(request, cluster),
        "seen_again_at": reverse("console:cluster-connect", args=[cluster.tenant.slug, cluster.slug]),
        "tls_ca_ends_at": authority_ends_at(cluster.tls_ca) if cluster.tls_ca else None,
        "tls_ca_changes_at": next_signs_at(cluster.tls_ca, cluster.tls_ca_step_at) if cluster.tls_ca else None,
        "credential": credential,
        "secret_key": secret_key,
        "can_reveal": actor_can(request.user, "credential.reveal", cluster.tenant),
        "reveal_act": credential and act_of("POST", f"{cluster.path}credentials/{credential.access_key}/reveal/"),
        "can_create_credential": actor_can(request.user, "credential.create", cluster.tenant),
        "snippet_topic": topic,
        "snippets": snippets_render(values),
    }


def _first_credential(cluster: Cluster) -> Credential | None:
    """Return the key pair that is filled in: the oldest that programs can use, and that is not being replaced."""
    usable = credential_list(cluster).exclude(state=CredentialState.DELETING).filter(ends_at=None)
    return usable.filter(role="app").order_by("created_at").first() or usable.order_by("created_at").first()
