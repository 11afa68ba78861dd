"""Time zones for display, by their IANA names. What is stored and counted is UTC."""

from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from controlplane.common.errors import InvalidInput
from controlplane.common.sentences import say


@cache
def zone_names() -> tuple[str, ...]:
    """Return every name that a tenant may choose, sorted: places and UTC, without the tz database's own directories."""
    kept = (name for name in available_timezones() if "/" in name or name == "UTC")
    return tuple(sorted(name for name in kept if not name.startswith(("posix/", "right/", "Etc/", "SystemV/"))))


def zone_check(name: str) -> str:
    """Return the name; raises InvalidInput for one that the tz database doesn't know."""
    if name not in zone_names():
        raise InvalidInput.for_field(
            "time_zone",
            say("Use a name of the IANA time zone database, such as Europe/Berlin, or UTC."),
            "invalid_zone",
        )
    return name


def zone_of(name: str) -> ZoneInfo:
    """Return the zone; UTC for a name that this machine's tz database no longer knows, so that no page is lost to it."""
    return ZoneInfo(name if name in zone_names() else "UTC")
