"""What an operator can do about records that a run refused, or found to be missing: actions of `manage.py lake`. Pure."""

from controlplane.insight.models import JobRun

_COMMANDS = {
    "reread": "manage.py lake reread",
    "accept": 'manage.py lake accept --reason "..."',
    "requeue": "manage.py lake requeue",
}


def repairs_of(run: JobRun) -> list[tuple[str, str]]:
    """Return the actions that can help, each with its command; empty for a run about which there is nothing to repair."""
    # The jobs name what helps in their errors; what was quarantined is no failure.
    wanted = [action for action in ("reread", "accept") if f"lake {action}" in run.error]
    if run.rows_quarantined:
        wanted.append("requeue")
    return [(action, _COMMANDS[action]) for action in wanted]
