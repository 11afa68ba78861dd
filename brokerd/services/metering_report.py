"""What a replica hands to consumers while it follows is recorded by its leader: told each meteringIntervalMs (METERING_REPORT).

A report that was not answered is sent again with its number, and taken once by one leader. One that an old leader has
recorded and a new one gets again counts twice; a crash of this replica loses what it has not told.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from brokerd.metering import Meter
from brokerd.services.remoting_client import RemotingClient, RequestFailed
from mqwire.codes import HighwaterRequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.metering import PullReport, encode_pull_report

if TYPE_CHECKING:
    from brokerd.broker import Broker

logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 3.0


class PullReporter:
    """Keeps what this replica handed out while it did not lead."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.meter = Meter()
        self._pending: PullReport | None = None
        self._number = broker.clock.time_ms()  # no number of an earlier run
        self._taken: dict[int, int] = {}  # replica id -> the last report's number, while this replica leads

    def move_to(self, meter: Meter) -> None:
        """This replica leads now: what it has not told it records itself."""
        if self._pending is not None:
            meter.add_out(self._pending.messages_out)
            self._pending = None
        meter.add_out(self.meter.take_out())

    def is_new(self, report: PullReport) -> bool:
        """Whether a follower's report is not one that was taken before."""
        return self._taken.get(report.replica_id) != report.number

    def took(self, report: PullReport) -> None:
        """It is in the leader's meter."""
        self._taken[report.replica_id] = report.number

    async def send(self) -> None:
        """Tell the leader what is new; what it does not take waits for the next time."""
        broker = self._broker
        if self._pending is None:
            rows = self.meter.take_out()
            if not rows:
                return
            self._number += 1
            self._pending = PullReport(
                replica_id=broker.replica.settings.replica_id, number=self._number, messages_out=rows
            )
        report = self._pending
        address = broker.replica.leader_address
        if address is None or broker.replica.leads:
            return
        client = RemotingClient(address, sign=broker.sign)
        try:
            request = RemotingCommand.request(HighwaterRequestCode.METERING_REPORT, body=encode_pull_report(report))
            reply = await client.request(request, timeout_s=_TIMEOUT_S)
        except RequestFailed as error:
            logger.info("the master at %s does not take what was read here, it is told again later: %s", address, error)
            return
        finally:
            client.close()
        if reply.code != ResponseCode.SUCCESS:
            logger.info("the master at %s refuses what was read here: %s", address, reply.remark)
        elif self._pending is report:
            self._pending = None
