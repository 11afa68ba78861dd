"""A machine of a group whose mode changes."""

from __future__ import annotations

from tests.sim.changing_process import ChangingProcess
from tests.sim.quorum_machine import QuorumMachine


class ChangingMachine(QuorumMachine):
    """See the module."""

    process_type = ChangingProcess
