"""How long an agreement to a loss holds. Pure, without Django: the Celery steps (steps.py) and the simulation
(tests/sim/control_plane.py) both ask at the beginning of each step, and whenever they read the promotion's row again.
"""

from datetime import datetime, timedelta

# Who typed the group's name agreed to the loss that was shown: by then another leader may have taken sends.
AGREED_FOR = timedelta(minutes=5)


def agreement_holds(
    agreed_at: datetime, now: datetime, *, was_retried: bool, agreed_for: timedelta = AGREED_FOR
) -> bool:
    """Return whether a loss that someone agreed to may still happen; a retry begins at another moment than was shown."""
    return not was_retried and now - agreed_at <= agreed_for
