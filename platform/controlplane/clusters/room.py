"""Whether the hosts have room for more daemons: asked here, answered by whoever knows the hosts."""

from collections.abc import Callable

_checks: list[Callable[[], None]] = []


def room_check_register(check: Callable[[], None]) -> None:
    """Have `check` asked wherever daemons' rows were added; it raises LimitReached where they do not fit."""
    if check not in _checks:
        _checks.append(check)


def room_check() -> None:
    """Raise LimitReached when the daemons that there are rows of are more than the hosts have room for."""
    for check in _checks:
        check()
