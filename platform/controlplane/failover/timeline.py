"""Lines of a failover's timeline."""

from datetime import datetime

from django.utils import timezone

from controlplane.failover.models import Failover, FailoverStep

TITLES = {
    "detected": "Master found dead",
    "claim_blocked": "Restarted master may not lead",
    "requested": "Requested",
    "preflight": "Pre-flight, epoch reserved",
    "probing": "Probe messages sent",
    "fault": "Leader's process stopped",
    "sends_held": "Sends held",
    "drained": "Candidate caught up",
    "fenced": "Fenced: no other replica leads",
    "promoted": "Candidate promoted",
    "registered": "Registered at the name servers",
    "first_write": "First write",
    "topics": "Topics sent to the new master",
    "rejoining": "Stopped replica started again",
    "rejoined": "Old master rejoined as slave",
    "given_back": "Returned to the old master",
    "looked": "Every replica checked",
    "lost": "Leader lost",
    "noticed": "Election detected",
    "elected": "Elected by the group",
    "measured": "Outage and losses measured",
    "superseded": "Another epoch began",
}


def timeline_add(failover: Failover, name: str, detail: str, *, at: datetime | None = None) -> None:
    """Write one line, unless it is there: a step that is repeated tells its first time."""
    FailoverStep.objects.get_or_create(
        failover=failover, name=name, defaults={"happened_at": at or timezone.now(), "detail": detail[:1024]}
    )
