"""The word and the tone for each state that the console shows. One table, so that a state looks the same on every page."""

from typing import Literal, NamedTuple

Tone = Literal["good", "busy", "warn", "bad", "plain"]


class Pill(NamedTuple):
    """A state as shown: `tone` picks shape and colour, `words` says it, `state` is the machine's word."""

    tone: Tone
    words: str
    state: str


_PILLS: dict[str, tuple[Tone, str]] = {
    # clusters
    "requested": ("busy", "Queued"),
    "provisioning": ("busy", "Being created"),
    "running": ("good", "Running"),
    "failed": ("bad", "Failed"),
    "deleting": ("busy", "Being deleted"),
    "deleted": ("plain", "Deleted"),
    # health of a daemon
    "unknown": ("plain", "Not known"),
    "healthy": ("good", "Healthy"),
    "down": ("bad", "Down"),
    # broker groups and replicas
    "degraded": ("warn", "Degraded"),
    "no_master": ("bad", "No master"),
    "master": ("good", "Master"),
    "slave": ("plain", "Slave"),
    "leader": ("good", "Leader"),
    "follower": ("plain", "Follower"),
    "observer": ("busy", "Observer"),
    "pre-candidate": ("warn", "Asks for votes"),
    "candidate": ("warn", "Candidate"),
    "unattached": ("warn", "No leader known"),
    # operations and their steps
    "in_progress": ("busy", "In progress"),
    "completed": ("good", "Done"),
    "pending": ("plain", "Waiting"),
    # runs of jobs, invoices, lag
    "queued": ("plain", "Queued"),
    "planned": ("busy", "Planned"),
    "past": ("plain", "Past"),
    "draft": ("plain", "Draft"),
    "issued": ("good", "Issued"),
    "equal": ("good", "Equal"),
    "differs": ("bad", "Differs"),
    "stuck": ("bad", "Stuck"),
    "loses_data": ("bad", "Will lose data"),
    "never_drains": ("warn", "Never catches up"),
    "skewed": ("warn", "Uneven"),
    "live": ("good", "Live"),
    # failover drills
    "passed": ("good", "Passed"),
    "lost": ("bad", "Messages lost"),
    "not_measured": ("warn", "Not measured"),
    # replays
    "stopped": ("warn", "Stopped"),
    "cancelled": ("plain", "Cancelled"),
    "skipped": ("plain", "Skipped"),
    # where a message is
    "holds": ("good", "Holds it"),
    "lacks": ("warn", "Not yet"),
    "consumed": ("good", "Consumed"),
    "waiting": ("busy", "Not consumed yet"),
    "retrying": ("warn", "Is retried"),
    "dead_letter": ("bad", "Dead letter"),
    "filtered": ("plain", "Passed over"),
    "not_started": ("plain", "Not started"),
    # topics and credentials
    "creating": ("busy", "Being created"),
    "active": ("good", "Active"),
    # alerts and their rules
    "critical": ("bad", "Critical"),
    "warning": ("warn", "Warning"),
    "acknowledged": ("busy", "Acknowledged"),
    "silenced": ("plain", "Silenced"),
    "resolved": ("good", "Ended"),
    "off": ("plain", "Off"),
    "delivered": ("good", "Delivered"),
    # tokens
    "revoked": ("plain", "Revoked"),
    "expired": ("warn", "Expired"),
}


def pill_of(state: str) -> Pill:
    """Return how `state` is shown; a state that this table doesn't know is shown as its own word, in no colour."""
    tone, words = _PILLS.get(state, ("plain", state.replace("_", " ").capitalize()))
    return Pill(tone, words, state)
