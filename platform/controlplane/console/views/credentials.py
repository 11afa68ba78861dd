"""Pages of key pairs: list and create, reveal, delete."""

from dataclasses import dataclass

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.clusters.credential_services import (
    Permissions,
    credential_create,
    credential_delete,
    credential_reveal,
    credential_rotate,
)
from controlplane.clusters.models import Cluster, Credential, CredentialRole
from controlplane.clusters.selectors import cluster_get, credential_get, credential_list
from controlplane.common.errors import ApplicationError
from controlplane.common.sentences import say, say_count
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import Act, act_of, code_answer, wants_code
from controlplane.console.cluster_pages import cluster_context
from controlplane.console.forms import ConfirmForm, CredentialForm, CredentialRotateForm
from controlplane.console.pages import form_take_error, never_store, status_of, tell_done, tenant_render
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_can, actor_require


@dataclass(frozen=True, slots=True)
class CredentialRow:
    """A key pair as shown. `secret_key` is empty unless it was just revealed."""

    credential: Credential
    rights: str
    secret_key: str = ""

    @property
    def is_admin(self) -> bool:
        """Whether its secret is shown to operators and owners only."""
        return self.credential.role == CredentialRole.ADMIN

    @property
    def access_id(self) -> str:
        """The AccessKey's id on the page."""
        return f"access-{self.credential.access_key}"

    @property
    def secret_id(self) -> str:
        """The SecretKey's id on the page."""
        return f"value-{self.credential.access_key}"


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("credential.view")
def credential_list_page(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Show the key pairs, and make a new one."""
    found = cluster_get(tenant, cluster)
    form = CredentialForm(request.POST if request.method == "POST" else None)
    if request.method == "POST":
        actor_require(request.user, "credential.create", tenant)
    if wants_code(request):
        return code_answer(_create_curl(found, form))
    if form.is_valid():
        role, topic_perm, group_perm = form.role_and_perms()
        try:
            created = credential_create(
                actor=request.user,
                cluster=found,
                name=form.cleaned_data["name"],
                role=role,
                permissions=Permissions(default_topic_perm=topic_perm, default_group_perm=group_perm),
            )
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            late = ", ".join(created.missing_daemons)
            name = created.credential.name
            tell_done(
                request,
                say(
                    "The key pair “%(name)s” works from now on, but not yet at %(late)s, which did not confirm it.",
                    name=name,
                    late=late,
                )
                if late
                else say("The key pair “%(name)s” works from now on.", name=name),
            )
            return redirect("console:credential-list", tenant.slug, found.slug)
    return _list(request, found, form)


@require_POST
@tenant_page("credential.reveal")
def credential_reveal_page(request: ConsoleRequest, tenant: Tenant, cluster: str, access_key: str) -> HttpResponse:
    """Show one secret. A POST, because each look is written into the audit trail."""
    found = cluster_get(tenant, cluster)
    credential = credential_get(found, access_key)
    secret_key = credential_reveal(actor=request.user, credential=credential)
    if request.htmx:
        row = CredentialRow(credential, _rights(credential), secret_key)
        return never_store(
            render(request, "console/parts/secret.html", {"row": row, "tenant": tenant, "cluster": found})
        )
    return never_store(_list(request, found, CredentialForm(), revealed={access_key: secret_key}))


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("credential.delete")
def credential_delete_page(request: ConsoleRequest, tenant: Tenant, cluster: str, access_key: str) -> HttpResponse:
    """Delete a key pair after a second look."""
    found = cluster_get(tenant, cluster)
    credential = credential_get(found, access_key)
    back = reverse("console:credential-list", args=[tenant.slug, found.slug])
    form = ConfirmForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            credential_delete(actor=request.user, credential=credential)
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            tell_done(
                request,
                say(
                    "The key pair “%(credential)s” is deleted. Programs that use it are refused.",
                    credential=credential.name,
                ),
            )
            return redirect(back)
    context = {
        "form": form,
        "heading": say("Delete the key pair “%(credential)s”?", credential=credential.name),
        "consequence": say(
            "Programs that use %(access_key)s are refused from the next request on. This can’t be undone.",
            access_key=credential.access_key,
        ),
        "verb": say("Delete"),
        "button": say("Delete key pair"),
        "back": back,
        "crumbs": [{"url": back, "words": say("Credentials")}],
        "curl": act_of("DELETE", f"{found.path}credentials/{credential.access_key}/"),
    }
    return tenant_render(request, tenant, "console/confirm.html", context, section="clusters", status=status_of(form))


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("credential.create")
def credential_rotate_page(request: ConsoleRequest, tenant: Tenant, cluster: str, access_key: str) -> HttpResponse:
    """Replace a key pair by a new one of the same rights."""
    found = cluster_get(tenant, cluster)
    credential = credential_get(found, access_key)
    back = reverse("console:credential-list", args=[tenant.slug, found.slug])
    form = CredentialRotateForm(request.POST if request.method == "POST" else None)
    act = act_of("POST", f"{found.path}credentials/{credential.access_key}/rotate/", form.body())
    if wants_code(request):
        return code_answer(act)
    if form.is_valid():
        try:
            made = credential_rotate(
                actor=request.user, credential=credential, overlap_hours=form.cleaned_data["overlap_hours"]
            )
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            words = say(
                "There is a new key pair “%(name)s”: %(key)s.", name=credential.name, key=made.credential.access_key
            )
            if made.missing_daemons:
                late = say("These did not confirm it yet: %(late)s.", late=", ".join(made.missing_daemons))
                words = say("%(first)s %(rest)s", first=words, rest=late)
            tell_done(request, words)
            return redirect(back)
    context = {
        "form": form,
        "heading": say("Replace the key pair “%(credential)s”?", credential=credential.name),
        "consequence": say(
            "A new key pair with the same rights is made. Once the time is over, %(access_key)s is refused everywhere, and"
            " deleted.",
            access_key=credential.access_key,
        ),
        "verb": say("Replace"),
        "button": say("Replace key pair"),
        "back": back,
        "crumbs": [{"url": back, "words": say("Credentials")}],
        "curl": act,
    }
    return tenant_render(
        request, tenant, "console/credential_rotate.html", context, section="clusters", status=status_of(form)
    )


def _list(
    request: ConsoleRequest, cluster: Cluster, form: CredentialForm, revealed: dict[str, str] | None = None
) -> HttpResponse:
    tenant = cluster.tenant
    rows = [
        CredentialRow(credential, _rights(credential), (revealed or {}).get(credential.access_key, ""))
        for credential in credential_list(cluster).order_by("created_at")
    ]
    can_reveal = actor_can(request.user, "credential.reveal", tenant)
    can_create = actor_can(request.user, "credential.create", tenant)
    hidden = (
        row.credential for row in rows if not row.secret_key and (can_create or (can_reveal and not row.is_admin))
    )
    first = next(hidden, None)
    context = {
        **cluster_context(request, cluster),
        "seen_again_at": reverse("console:credential-list", args=[tenant.slug, cluster.slug]),
        "form": form,
        "credentials": rows,
        "can_reveal": can_reveal,
        "can_create_credential": can_create,
        "reveal_act": first and act_of("POST", f"{cluster.path}credentials/{first.access_key}/reveal/"),
        "can_delete_credential": actor_can(request.user, "credential.delete", tenant),
        "curl": _create_curl(cluster, form),
    }
    return tenant_render(
        request,
        tenant,
        "console/credentials.html",
        context,
        section="clusters",
        page="credentials",
        status=status_of(form),
    )


def _create_curl(cluster: Cluster, form: CredentialForm) -> Act:
    return act_of("POST", f"{cluster.path}credentials/", form.body())


_RIGHTS = {
    ("PUB|SUB", "SUB"): say("Sends and receives"),
    ("PUB", "DENY"): say("Only sends"),
    ("SUB", "SUB"): say("Only receives"),
}


def _rights(credential: Credential) -> str:
    """Return the credential's permissions in words; unusual ones in RocketMQ's."""
    if credential.role == CredentialRole.ADMIN:
        return say("Administers")
    topic, group = credential.default_topic_perm, credential.default_group_perm
    words = _RIGHTS.get((topic, group), say("Topics %(topic)s, groups %(group)s", topic=topic, group=group))
    exceptions = len(credential.topic_perms) + len(credential.group_perms)
    if not exceptions:
        return words
    return say_count("%(rights)s, %(count)s exception", "%(rights)s, %(count)s exceptions", exceptions, rights=words)
