"""A name server that knows of a newer leader refuses the registration of an older one, and says how much newer."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio

from brokerd.services.remoting_client import RemotingClient, RequestFailed
from mqwire.codes import ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_namesrv import RegisterBrokerResponseHeader
from tests.brokerd.broker_under_test import MakeBroker


class NameServer:
    """A client whose other end has heard of a higher epoch."""

    address = "192.0.2.1:9876"

    def __init__(self, epoch: int | None) -> None:
        self._header = RegisterBrokerResponseHeader(epoch=epoch)

    async def request(self, request: RemotingCommand, *, timeout_s: float) -> RemotingCommand:
        await trio.lowlevel.checkpoint()
        return request.reply(ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, "another one leads", header=self._header)


@pytest.mark.trio
@pytest.mark.parametrize(("named", "seen"), [(60251, 60251), (None, 2)])
async def test_a_leader_that_is_refused_asks_to_lead_again_above_all_that_began(
    make_broker: MakeBroker, named: int | None, seen: int
) -> None:
    """One at a time it took a leadership, with its records, for each epoch that a promotion by hand had passed over."""
    broker = make_broker()
    registration: Any = broker.broker.registration
    assert broker.broker.replica.epoch == 1
    with pytest.raises(RequestFailed, match="another one leads"):
        await registration._register(cast("RemotingClient", NameServer(named)), 0)
    assert (broker.broker.replica.leads, broker.broker.replica.epoch) == (False, seen)
