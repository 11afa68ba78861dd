"""A machine of a group that may elect its leader: what the world knows of its disk and of the voters, also while it is down."""

from __future__ import annotations

from typing import Any

from brokerd.replica.voters import Members
from tests.sim.broker_process import BrokerProcess
from tests.sim.changing_process import ChangingProcess
from tests.sim.machine import Machine
from tests.sim.quorum_process import QuorumProcess


class QuorumMachine(Machine):
    """See the module."""

    process_type: type[BrokerProcess] = QuorumProcess

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.others: list[QuorumMachine] = []
        self.members: Members = self.settings.members  # as its log had them when it was looked at last
        self.joined = False
        self.blank = False  # its disk was replaced, and the group has not adopted the new one since

    def replace_disk(self) -> None:
        super().replace_disk()
        self.members, self.joined, self.blank = self.settings.members, False, True

    def start(self) -> None:
        super().start()
        self.disk.failing = "/commitlog/"


class ChangingMachine(QuorumMachine):
    """Of a group whose mode changes."""

    process_type = ChangingProcess
