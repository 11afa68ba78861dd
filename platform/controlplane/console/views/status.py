"""The platform's status, for everyone: the page and the feed. It names no tenant and no cluster."""

from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING

from django.contrib.syndication.views import Feed
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse_lazy
from django.utils import timezone
from django.utils.feedgenerator import Atom1Feed
from django.views.decorators.http import require_safe

from controlplane.common.throttling import pages_of_strangers
from controlplane.status.models import IncidentUpdate
from controlplane.status.selectors import HISTORY, incident_history, status_now

_FEED_MAX = 100

# Generic in its type hints only.
if TYPE_CHECKING:
    _Feed = Feed[IncidentUpdate, None]
else:
    _Feed = Feed


@require_safe
@pages_of_strangers
def status_page(request: HttpRequest) -> HttpResponse:
    """Show how the parts are, what is said of incidents and maintenance, and the incidents of 90 days by day."""
    past = incident_history().exclude(resolved_at=None)
    context = {
        "status": status_now(),
        "days": [(day, list(group)) for day, group in groupby(past, lambda incident: incident.created_at.date())],
        "history_days": HISTORY.days,
    }
    response = render(request, "console/status.html", context)
    response.headers["Cache-Control"] = "private, no-cache"
    return response


class StatusFeed(_Feed):
    """What was said of incidents within 90 days, as Atom."""

    feed_type = Atom1Feed
    title = "Highwater: platform status"
    subtitle = "Incidents of the platform, and what is new of them."
    link = reverse_lazy("console:status")

    def items(self) -> QuerySet[IncidentUpdate]:
        """Return the updates, the newest first."""
        recent = IncidentUpdate.objects.filter(created_at__gte=timezone.now() - HISTORY)
        return recent.select_related("incident").order_by("-created_at")[:_FEED_MAX]

    def item_title(self, item: IncidentUpdate) -> str:
        return f"{item.incident.title} ({item.state})"

    def item_description(self, item: IncidentUpdate) -> str:
        return item.text

    def item_link(self, item: IncidentUpdate) -> str:
        return f"{self.link}#incident-{item.incident_id}"

    def item_guid(self, item: IncidentUpdate) -> str:
        return f"urn:uuid:{item.pk}"

    def item_pubdate(self, item: IncidentUpdate) -> datetime:
        return item.created_at

    def item_updateddate(self, item: IncidentUpdate) -> datetime:
        return item.created_at
