"""Alerts in sentences. Pure."""

from controlplane.alerts.kinds import KINDS
from controlplane.common.sentences import say, say_all, say_count

_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def amount(unit: str, value: float) -> str:
    """Return a value with its unit as people read it."""
    if unit == "bytes":
        for size, name in _UNITS:
            if value >= size:
                return f"{value / size:.1f} {name}"
        return say("%(value)s bytes", value=f"{value:.0f}")
    if unit == "percent":
        return say("%(percent)s %%", percent=f"{value:.0f}")
    if unit == "seconds":
        return _span(value)
    if unit == "messages":
        return say_count("%(messages)s message", "%(messages)s messages", round(value), messages=f"{value:,.0f}")
    if unit in ("hours", "days"):
        number = f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"
        count = 1 if number == "1" else 2
        if unit == "hours":
            return say_count("%(number)s hour", "%(number)s hours", count, number=number)
        return say_count("%(number)s day", "%(number)s days", count, number=number)
    return ""


def sentence(kind: str, subject: str, value: float, detail: str = "") -> str:
    """Return what is wrong in one sentence, or two with what was reported of it."""
    if kind == "daemon_down" and detail:
        return detail
    what = amount(KINDS[kind].unit, value)
    group, _, topic = subject.partition(" on ")
    text = {
        "leader_missing": say("%(subject)s has no leader that answers.", subject=subject),
        "daemon_down": say("%(subject)s is down.", subject=subject[:1].upper() + subject[1:]),
        "replica_behind": say("%(subject)s is %(what)s behind its leader.", subject=subject, what=what),
        "disk_used": say("The fullest disk of the cluster is %(what)s full.", what=what),
        "lag_seconds": say("%(group)s is %(what)s behind on %(topic)s.", group=group, what=what, topic=topic),
        "group_stuck": say("%(group)s has a backlog on %(topic)s and consumes nothing.", group=group, topic=topic),
        "loss_ahead": (
            say("%(group)s loses messages of %(topic)s unread now.", group=group, topic=topic)
            if value <= 0
            else say(
                "%(group)s will lose messages of %(topic)s unread in %(what)s.", group=group, topic=topic, what=what
            )
        ),
        "no_consumers": say("%(subject)s has a backlog, and no consumer of it is connected.", subject=subject),
        "dead_letters": say("Within the last hour %(what)s became dead letters.", what=what),
        "quota_used": say("A limit of the cluster’s brokers is %(what)s used.", what=what),
        "ca_changes": say(
            "Another CA signs in %(what)s: give your programs the file ca.pem again, which has both.", what=what
        ),
        "certificate_old": say("The certificates should have been renewed %(what)s ago.", what=what),
    }[kind]
    return say_all(text, detail)


def _span(seconds: float) -> str:
    whole = round(seconds)
    if whole < 120:
        return say("%(whole)s s", whole=whole)
    if whole < 7200:
        return say("%(whole)s min", whole=whole // 60)
    return (
        say("%(whole)s h", whole=f"{whole / 3600:.1f}")
        if whole < 2 * 86_400
        else say("%(whole)s days", whole=f"{whole / 86400:.1f}")
    )
