"""METERING_REPORT: a slave reports what it handed to consumers, for the master to record.

METERING_CLOSE: the cluster is being deleted. Clients are served no more, and what was counted is recorded; sent again and again,
until the answer says that nothing is left to record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from brokerd.processors.context import Handler, Peer
from brokerd.replies import Reply
from mqwire.codes import HighwaterRequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.metering import decode_pull_report

if TYPE_CHECKING:
    from brokerd.processors.context import Metering


class _Broker(Protocol):
    """What these processors use of the broker."""

    @property
    def metering(self) -> Metering: ...


def take_report(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """Taken once: a slave that missed the answer sends it again."""
    report = decode_pull_report(request.body)
    if not broker.metering.take_report(report):
        return request.reply(
            ResponseCode.ILLEGAL_OPERATION, "this replica records nothing now: it does not lead, or stops"
        )
    return request.reply()


def close(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """The field `recorded` is `true` when nothing is left to record."""
    recorded = broker.metering.close()
    return request.reply(ext_fields={"recorded": "true" if recorded else "false"})


HANDLERS: dict[int, Handler] = {
    HighwaterRequestCode.METERING_REPORT: take_report,
    HighwaterRequestCode.METERING_CLOSE: close,
}
