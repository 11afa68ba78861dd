"""The mails of a platform that has no mail server, for its operators."""

from pathlib import Path

from django.conf import settings
from django.http import HttpResponse
from django.views.decorators.http import require_safe

from controlplane.common.kept_mails import mails_kept
from controlplane.console.access import ConsoleRequest
from controlplane.console.views.operator import operator_page, operator_render

_SHOWN_MAX = 50


@require_safe
@operator_page
def mails(request: ConsoleRequest) -> HttpResponse:
    """Show the newest mails that lie in files; where a server takes them, there are none to show."""
    folder: str | None = getattr(settings, "EMAIL_FILE_PATH", None)
    context = {"folder": folder, "mails": mails_kept(Path(folder), _SHOWN_MAX) if folder else []}
    return operator_render(request, "console/operator/mail.html", context, "mail")
