"""METERING_REPORT: a slave tells what it handed to consumers, for the master to record.

METERING_CLOSE: the cluster is being deleted. Clients are served no more, and what was counted is recorded; sent again and again,
until the answer says that nothing is left to record.
"""

from __future__ import annotations

from brokerd.dispatch_types import Handler, Reply
from brokerd.processors.context import Broker, Peer
from mqwire.codes import HighwaterRequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.metering import decode_pull_report


def take_report(broker: Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """Taken once: a slave that missed the answer sends it again."""
    report = decode_pull_report(request.body)
    if not broker.metering.take_report(report):
        return request.reply(ResponseCode.ILLEGAL_OPERATION, "this replica records nothing now: it does not lead")
    return request.reply()


def close(broker: Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """The field `recorded` is `true` when nothing is left to record."""
    recorded = broker.metering.close()
    return request.reply(ext_fields={"recorded": "true" if recorded else "false"})


HANDLERS: dict[int, Handler] = {
    HighwaterRequestCode.METERING_REPORT: take_report,
    HighwaterRequestCode.METERING_CLOSE: close,
}
