"""The word and the tone for each state that the console shows. One table, so that a state looks the same on every page."""

from typing import Literal, NamedTuple

from controlplane.common.sentences import say, say_as

Tone = Literal["good", "busy", "warn", "bad", "plain"]


class Pill(NamedTuple):
    """A state as shown: `tone` picks shape and colour, `words` says it, `state` is the machine's word."""

    tone: Tone
    words: str
    state: str


_PILLS: dict[str, tuple[Tone, str]] = {
    # clusters
    "requested": ("busy", say("Queued")),
    "provisioning": ("busy", say("Being created")),
    "running": ("good", say("Running")),
    "suspending": ("busy", say("Being suspended")),
    "suspended": ("plain", say("Suspended")),
    "resuming": ("busy", say("Starting again")),
    "deletion_pending": ("warn", say("Will be deleted")),
    "failed": ("bad", say("Failed")),
    "deleting": ("busy", say("Being deleted")),
    "deleted": ("plain", say("Deleted")),
    # health of a daemon
    "unknown": ("plain", say("Not known")),
    "healthy": ("good", say("Healthy")),
    "down": ("bad", say("Down")),
    # broker groups and replicas
    "degraded": ("warn", say("Degraded")),
    "no_master": ("bad", say("No master")),
    "master": ("good", say("Master")),
    "slave": ("plain", say("Slave")),
    "leader": ("good", say("Leader")),
    "follower": ("plain", say("Follower")),
    "observer": ("busy", say("Observer")),
    "pre-candidate": ("warn", say("Asks for votes")),
    "candidate": ("warn", say("Candidate")),
    "unattached": ("warn", say("No leader known")),
    # operations and their steps
    "in_progress": ("busy", say("In progress")),
    "completed": ("good", say("Done")),
    "pending": ("plain", say("Waiting")),
    # runs of jobs, invoices, lag
    "queued": ("plain", say("Queued")),
    "planned": ("busy", say("Planned")),
    "past": ("plain", say("Past")),
    "draft": ("plain", say("Draft")),
    "issued": ("good", say_as("state", "Issued")),
    "equal": ("good", say("Equal")),
    "differs": ("bad", say("Differs")),
    "stuck": ("bad", say("Stuck")),
    "loses_data": ("bad", say("Will lose data")),
    "never_drains": ("warn", say("Never catches up")),
    "skewed": ("warn", say("Uneven")),
    "live": ("good", say("Live")),
    # failover drills
    "passed": ("good", say("Passed")),
    "lost": ("bad", say("Messages lost")),
    "not_measured": ("warn", say("Not measured")),
    "started": ("good", say("Begun")),
    # replays
    "stopped": ("warn", say("Stopped")),
    "cancelled": ("plain", say("Cancelled")),
    "skipped": ("plain", say("Skipped")),
    # who takes more than a share of a host
    "noisy": ("warn", say("More than its share")),
    # diverged messages
    "done": ("good", say("Done")),
    "open": ("warn", say_as("state", "Open")),
    "missing": ("bad", say("Missing")),
    "present": ("good", say("Present")),
    # where a message is
    "holds": ("good", say("Holds it")),
    "lacks": ("warn", say("Not yet")),
    "consumed": ("good", say("Consumed")),
    "waiting": ("busy", say("Not consumed yet")),
    "retrying": ("warn", say("Is retried")),
    "dead_letter": ("bad", say("Dead letter")),
    "filtered": ("plain", say("Passed over")),
    "not_started": ("plain", say("Not started")),
    # the platform's status
    "operational": ("good", say("Operational")),
    "maintenance": ("busy", say("Maintenance")),
    "scheduled": ("busy", say("Scheduled")),
    "investigating": ("warn", say("Investigating")),
    "identified": ("warn", say("Identified")),
    "monitoring": ("busy", say("Monitoring")),
    # deliveries, by their consumers' word
    "success": ("good", say("Success")),
    "time_out": ("warn", say("Timed out")),
    "exception": ("bad", say("Exception")),
    "returned_null": ("warn", say("Returned nothing")),
    # topics and credentials
    "creating": ("busy", say("Being created")),
    "active": ("good", say("Active")),
    # alerts and their rules
    "critical": ("bad", say("Critical")),
    "warning": ("warn", say("Warning")),
    "acknowledged": ("busy", say("Acknowledged")),
    "silenced": ("plain", say("Silenced")),
    "resolved": ("good", say("Ended")),
    "off": ("plain", say("Off")),
    "delivered": ("good", say_as("state", "Delivered")),
    # tokens
    "disabled": ("warn", say("Disabled")),
    "revoked": ("plain", say("Revoked")),
    "expired": ("warn", say("Expired")),
}


def pill_of(state: str) -> Pill:
    """Return how `state` is shown; a state that this table doesn't know is shown as its own word, in no colour."""
    tone, words = _PILLS.get(state, ("plain", state.replace("_", " ").capitalize()))
    return Pill(tone, words, state)
