"""The modes of a broker group, one name each for brokers, control plane and SDK: who decides the leader, and when a send
is acknowledged (architecture.md, section 1).
"""

from __future__ import annotations

import enum


class Mode(enum.StrEnum):
    """One name per mode, in memory, in records, in requests and in the status."""

    SINGLE = "single"  # one replica, in a cluster of one group or of several
    ASYNC = "async"  # assigned leader; acknowledged when the leader holds it
    SYNC = "sync"  # assigned leader; held by all in-sync replicas, of which there must be inSyncReplicas
    DLEDGER = (
        "dledger"  # elected leader; held by a majority of the voters, once that covers the epoch's own first record
    )

    @property
    def leader_is_enough(self) -> bool:
        """Whether a send is acknowledged without any other replica."""
        return self in (Mode.SINGLE, Mode.ASYNC)
