"""Where a tenant's alerts are sent, and what was sent."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.alerts.channels import (
    EMAIL_NAME,
    address_shown,
    channel_create,
    channel_delete,
    channel_get,
    channel_list,
    channel_update,
)
from controlplane.alerts.deliveries import channel_test, delivery_again, delivery_get, delivery_list
from controlplane.alerts.messages import title_words
from controlplane.alerts.models import AlertChannel, AlertDelivery, ChannelKind
from controlplane.common.errors import ApplicationError
from controlplane.common.sentences import say
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import Act, act_of, code_answer, form_values, wants_code
from controlplane.console.channel_forms import ChannelForm
from controlplane.console.pages import form_take_error, never_store, status_of, tell_done, tell_error, tenant_render
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_can

ROWS_PER_PAGE = 50
_EXAMPLE = {"kind": "webhook", "name": "pager", "address": "https://example.com/hook"}


def channel_words(channel: AlertChannel) -> str:
    """Return a channel's name: e-mail's, which no one typed, as a sentence."""
    return EMAIL_NAME if channel.name == EMAIL_NAME else channel.name


# As Prometheus reads it; the token lies in a file beside it.
_SCRAPE_CONFIG = """\
scrape_configs:
  - job_name: highwater
    scrape_interval: 30s
    scheme: {scheme}
    metrics_path: {path}
    authorization: {{credentials_file: highwater.token}}
    static_configs: [{{targets: ["{host}"]}}]
"""


@dataclass(frozen=True, slots=True)
class ChannelRow:
    """A channel with the host that it leads to."""

    channel: AlertChannel

    @property
    def name(self) -> str:
        return channel_words(self.channel)

    @property
    def address(self) -> str:
        return address_shown(self.channel)

    @property
    def state(self) -> str:
        """`active` or `off`."""
        return "active" if self.channel.is_on else "off"

    @property
    def is_email(self) -> bool:
        """Whether it can only be switched off."""
        return self.channel.kind == ChannelKind.EMAIL


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """A message in a line."""

    delivery: AlertDelivery

    @property
    def channel_name(self) -> str:
        return channel_words(self.delivery.channel)

    @property
    def title(self) -> str:
        return title_words(self.delivery.payload)


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("alert.view")
def channels_page(request: ConsoleRequest, tenant: Tenant) -> HttpResponse:
    """Show the channels and the log; a POST makes a channel. A webhook's secret is in the answer to it and nowhere else."""
    form = ChannelForm(request.POST if request.method == "POST" else None)
    typed = {**_EXAMPLE, **form_values(form)}
    command = act_of("POST", f"{tenant.path}alert-channels/", typed)
    if wants_code(request):
        return code_answer(command)
    created = ""
    if form.is_valid():
        try:
            channel, created = channel_create(actor=request.user, tenant=tenant, **form.cleaned_data)
        except ApplicationError as error:
            form_take_error(form, error, {"name_taken": "name"})
        else:
            if not created:
                tell_done(request, say("“%(channel)s” is created. Send it a test.", channel=channel.name))
                return redirect("console:alert-channels", tenant.slug)
            form = ChannelForm()
    rows = Paginator(delivery_list(tenant), ROWS_PER_PAGE).get_page(request.GET.get("page"))
    channels = [ChannelRow(channel) for channel in channel_list(tenant)]
    can_manage = actor_can(request.user, "alert.manage", tenant)
    newest = next(iter(rows.object_list), None)
    context = {
        "form": form,
        "created": created,
        "channels": channels,
        "acts": _acts([row.channel for row in channels]),
        "again_act": act_of("POST", f"{newest.path}again/") if can_manage and newest is not None else None,
        "rows": rows,
        "deliveries": [DeliveryRow(delivery) for delivery in rows.object_list],
        "can_manage": can_manage,
        "curl": command,
        "scrape_config": _SCRAPE_CONFIG.format(
            scheme=request.scheme, path=f"{tenant.path}metrics/", host=request.get_host()
        ),
        "curl_log": act_of("GET", f"{tenant.path}alert-deliveries/"),
    }
    page = tenant_render(
        request, tenant, "console/alert_channels.html", context, section="alerts", status=status_of(form)
    )
    return never_store(page)


def _acts(channels: Sequence[AlertChannel]) -> dict[str, Act]:
    """Return what the buttons of the list do, for the first channel that has each; each tenant has e-mail, and keeps it."""
    first = channels[0]
    acts = {
        "test": act_of("POST", f"{first.path}test/"),
        "switch": act_of("PATCH", first.path, {"is_on": not first.is_on}),
        "critical": act_of("PATCH", first.path, {"critical_only": not first.critical_only}),
    }
    made = next((channel for channel in channels if channel.kind != ChannelKind.EMAIL), None)
    return acts if made is None else {**acts, "delete": act_of("DELETE", made.path)}


@require_POST
@tenant_page("alert.manage")
def channel_change(request: ConsoleRequest, tenant: Tenant, channel: uuid.UUID) -> HttpResponse:
    """Do what the pressed button says: switch on or off, all or critical alerts only, test, delete."""
    try:
        found = channel_get(tenant, channel)
        name = channel_words(found)
        match request.POST.get("act"):
            case "on" | "off" as act:
                channel_update(actor=request.user, channel=found, is_on=act == "on")
                words = say("“%(name)s” is on.", name=name) if act == "on" else say("“%(name)s” is off.", name=name)
                tell_done(request, words)
            case "critical" | "all" as act:
                channel_update(actor=request.user, channel=found, critical_only=act == "critical")
                tell_done(
                    request,
                    say("“%(name)s” gets critical alerts only.", name=name)
                    if act == "critical"
                    else say("“%(name)s” gets all alerts.", name=name),
                )
            case "delete":
                channel_delete(actor=request.user, channel=found)
                tell_done(request, say("“%(found)s” is deleted.", found=name))
            case _:
                channel_test(actor=request.user, channel=found)
                tell_done(
                    request,
                    say("A test is on its way to “%(found)s”. The log below says how it went.", found=name),
                )
    except ApplicationError as error:
        tell_error(request, error)
    return redirect("console:alert-channels", tenant.slug)


@require_POST
@tenant_page("alert.manage")
def delivery_again_page(request: ConsoleRequest, tenant: Tenant, delivery: uuid.UUID) -> HttpResponse:
    """Send a message again."""
    try:
        delivery_again(actor=request.user, delivery=delivery_get(tenant, delivery))
    except ApplicationError as error:
        tell_error(request, error)
    else:
        tell_done(request, say("It is on its way again."))
    return redirect("console:alert-channels", tenant.slug)
