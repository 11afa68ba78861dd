"""Lines of a failover's timeline."""

from datetime import datetime

from django.utils import timezone

from controlplane.common.sentences import bounded, say
from controlplane.failover.models import Failover, FailoverStep

TITLES = {
    "detected": say("Master found dead"),
    "claim_blocked": say("Restarted master may not lead"),
    "requested": say("Requested"),
    "preflight": say("Pre-flight, epoch reserved"),
    "probing": say("Probe messages sent"),
    "fault": say("Leader taken away"),
    "sends_held": say("Sends held"),
    "drained": say("Candidate caught up"),
    "fenced": say("Fenced: no other replica leads"),
    "promoted": say("Candidate promoted"),
    "registered": say("Registered at the name servers"),
    "first_write": say("First write"),
    "topics": say("Topics sent to the new master"),
    "rejoining": say("Stopped replica started again"),
    "rejoined": say("Old master rejoined as slave"),
    "given_back": say("Returned to the old master"),
    "looked": say("Every replica checked"),
    "lost": say("Leader lost"),
    "noticed": say("Election detected"),
    "elected": say("Elected by the group"),
    "measured": say("Outage and losses measured"),
    "superseded": say("Another epoch began"),
}


def timeline_add(failover: Failover, name: str, detail: str, *, at: datetime | None = None) -> None:
    """Write one line, unless it is there: a step that is repeated keeps its first time."""
    FailoverStep.objects.get_or_create(
        failover=failover, name=name, defaults={"happened_at": at or timezone.now(), "detail": bounded(detail, 1024)}
    )
