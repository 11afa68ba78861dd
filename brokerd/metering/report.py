"""What a replica hands to consumers while it follows is recorded by its leader: reported each meteringIntervalMs (METERING_REPORT).

A report that was not answered is sent again with its number. A former leader also reports what it recorded at the end of its log
and the new leader does not have, and what others had reported to it. Everything reported has an origin, which is in the record as
well: so it is taken once, no matter which replica reports it again or leads by then. What is unreported is in the journal
(journal.py).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from brokerd.metering.meter import Meter
from brokerd.metering.records import origins_recorded, pulls_recorded_from
from brokerd.services.remoting_client import RequestFailed
from mqwire.codes import HighwaterRequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.message import unpack_host
from mqwire.metering import OutRow, PullReport, encode_pull_report, report_origin
from mqwire.names import RMQ_SYS_METERING

if TYPE_CHECKING:
    from collections.abc import Callable

    from brokerd.replica.replica import Replica
    from brokerd.services.remoting_client import RemotingClient
    from brokerd.store import MessageStore

logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 3.0
_ROWS_MAX: Final = 5000  # of a report; what is more waits for the next one
_RECORDS_BACK: Final = 120  # of former leaders, that are looked through for origins: two hours of them
_ORIGINS_MAX: Final = 10_000
_CUT_RECORDS_MAX: Final = 1440  # that are reported again: a day of a leader that did not know that it was none any more


class PullReporter:
    """Keeps what this replica handed out while it did not lead."""

    def __init__(
        self,
        replica: Replica,
        store: MessageStore,
        store_host: bytes,
        client_of: Callable[[str], RemotingClient],
        *,
        first_number: int,
    ) -> None:
        self._replica = replica
        self._store = store
        self._store_host = store_host
        self._client_of = client_of
        self.meter = Meter()
        self._pending: PullReport | None = None
        self._number = first_number  # none of an earlier run
        # Origins, oldest first, of what is recorded or will be; None: not looked up since this replica leads.
        self._taken: dict[str, None] | None = None
        self._leads_from = 0  # the queue offset of this leadership's first record
        self._wake = trio.Event()

    # --- leading

    def move_to(self, meter: Meter) -> None:
        """This replica leads now: what it has not reported it records itself, but for what a former leader has recorded."""
        self._taken = None
        self._leads_from = self._store.queue_end_offset(RMQ_SYS_METERING, 0) or 0
        pending, self._pending = self._pending, None
        if pending is not None:
            self.take(pending, meter)
        rows = self.meter.take_out()
        meter.add_out(row for row in rows if not row.origin)
        self._take_new([row for row in rows if row.origin], meter)

    def take(self, report: PullReport, meter: Meter) -> None:
        """Count what a replica reports, once."""
        own = report_origin(report.replica_id, report.number)
        self._take_new(
            [row if row.origin else msgspec.structs.replace(row, origin=own) for row in report.messages_out], meter
        )

    def _take_new(self, rows: list[OutRow], meter: Meter) -> None:
        if not rows:
            return
        if self._taken is None:
            self._taken = dict.fromkeys(origins_recorded(self._store, self._leads_from, _RECORDS_BACK))
        new = [row for row in rows if row.origin not in self._taken]
        meter.add_out(new)
        self._taken.update(dict.fromkeys(row.origin for row in new))
        while len(self._taken) > _ORIGINS_MAX:
            del self._taken[next(iter(self._taken))]

    # --- following

    def unreported(self) -> tuple[OutRow, ...]:
        """What is not reported yet; what was reported and not answered has its report as its origin."""
        rows = self.meter.out_rows()
        pending = self._pending
        if pending is None:
            return rows
        own = report_origin(pending.replica_id, pending.number)
        reported = (row if row.origin else msgspec.structs.replace(row, origin=own) for row in pending.messages_out)
        return (*reported, *rows)

    def wake(self) -> None:
        """Report what there is now."""
        self._wake.set()

    async def pause(self, pause_s: float) -> None:
        """Wait, unless woken."""
        self._wake = trio.Event()
        with trio.move_on_after(pause_s):
            await self._wake.wait()

    def pulls_recorded_from(self, offset: int) -> list[OutRow]:
        """What this replica recorded as the leader from this offset of its log on, which is about to be truncated there."""
        return pulls_recorded_from(self._store, offset, unpack_host(self._store_host), _CUT_RECORDS_MAX)

    def prepare(self) -> bool:
        """Give what is new its number; whether there is a report to send."""
        if self._pending is None:
            rows = self.meter.take_out(_ROWS_MAX)
            if not rows:
                return False
            self._number += 1
            self._pending = PullReport(
                replica_id=self._replica.settings.replica_id, number=self._number, messages_out=rows
            )
        return True

    async def send(self) -> None:
        """Report to the leader what is new; what it does not take waits for the next time."""
        if not self.prepare() or self._pending is None:
            return
        report = self._pending
        address = self._replica.leader_address
        if address is None or self._replica.leads:
            return
        client = self._client_of(address)
        try:
            request = RemotingCommand.request(HighwaterRequestCode.METERING_REPORT, body=encode_pull_report(report))
            reply = await client.request(request, timeout_s=_TIMEOUT_S)
        except RequestFailed as error:
            logger.info(
                "the master at %s does not take what was read here, it is reported again later: %s", address, error
            )
            return
        finally:
            client.close()
        if reply.code != ResponseCode.SUCCESS:
            logger.info("the master at %s refuses what was read here: %s", address, reply.remark)
        elif self._pending is report:
            self._pending = None
