"""What administration says while a broker group has no master."""

from __future__ import annotations

import pytest

from highwater import AsyncAdmin, NoRouteError
from mqwire.bodies import BrokerData, QueueData, TopicRouteData
from mqwire.command import RemotingCommand
from tests.highwater.scripted import scripted_server

pytestmark = pytest.mark.anyio


async def test_a_reset_is_refused_while_no_one_could_do_it_for_all_queues() -> None:
    async with scripted_server() as slave:

        def route(request: RemotingCommand) -> RemotingCommand:
            data = TopicRouteData(
                queue_datas=[QueueData(broker_name="a", read_queue_nums=2, write_queue_nums=2, perm=6)],
                broker_datas=[BrokerData(cluster="c", broker_name="a", broker_addrs={1: slave.address})],
            )
            return request.reply(body=data.to_json())

        async with (
            scripted_server(GET_ROUTEINFO_BY_TOPIC=route) as name_server,
            AsyncAdmin(name_server.address) as admin,
        ):
            with pytest.raises(NoRouteError):
                await admin.reset_offset_by_time("g", "t", 0)
    assert not slave.requests
