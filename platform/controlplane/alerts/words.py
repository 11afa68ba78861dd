"""Alerts in sentences. Pure."""

from controlplane.alerts.kinds import KINDS

_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def amount(unit: str, value: float) -> str:
    """Return a value with its unit as people read it."""
    if unit == "bytes":
        for size, name in _UNITS:
            if value >= size:
                return f"{value / size:.1f} {name}"
        return f"{value:.0f} bytes"
    if unit == "percent":
        return f"{value:.0f} %"
    if unit == "seconds":
        return _span(value)
    if unit == "messages":
        return f"{value:,.0f} {'message' if value == 1 else 'messages'}"
    if unit in ("hours", "days"):
        number = f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"
        return f"{number} {unit[:-1] if number == '1' else unit}"
    return ""


def sentence(kind: str, subject: str, value: float, detail: str = "") -> str:
    """Return what is wrong in one sentence, or two with what was told of it."""
    if kind == "daemon_down" and detail:
        return detail
    what = amount(KINDS[kind].unit, value)
    group, _, topic = subject.partition(" on ")
    text = {
        "leader_missing": f"{subject} has no leader that answers.",
        "daemon_down": f"{subject[:1].upper()}{subject[1:]} is down.",
        "replica_behind": f"{subject} is {what} behind its leader.",
        "disk_used": f"The fullest disk of the cluster is {what} full.",
        "lag_seconds": f"{group} is {what} behind on {topic}.",
        "group_stuck": f"{group} has a backlog on {topic} and consumes nothing.",
        "loss_ahead": (
            f"{group} loses messages of {topic} unread now."
            if value <= 0
            else f"{group} will lose messages of {topic} unread in {what}."
        ),
        "no_consumers": f"{subject} has a backlog, and no consumer of it is connected.",
        "dead_letters": f"Within the last hour {what} became dead letters.",
        "quota_used": f"A limit of the cluster’s brokers is {what} used.",
        "certificate_old": f"The certificates should have been renewed {what} ago.",
    }[kind]
    return f"{text} {detail}".strip()


def _span(seconds: float) -> str:
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min"
    return f"{whole / 3600:.1f} h" if whole < 2 * 86_400 else f"{whole / 86_400:.1f} days"
