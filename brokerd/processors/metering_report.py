"""METERING_REPORT: a slave tells what it handed to consumers, for the master to record."""

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


HANDLERS: dict[int, Handler] = {HighwaterRequestCode.METERING_REPORT: take_report}
