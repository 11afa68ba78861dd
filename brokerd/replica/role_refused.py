"""What a replica says to whoever wants another role for it."""

from __future__ import annotations


class RoleRefused(Exception):
    """A promotion, demotion, claim or transfer that this replica does not take; the text says why."""
