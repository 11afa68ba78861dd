"""A scripted broker with one topic: enough of a broker for a consumer, and every request on record."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from mqwire import bodies
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_offset import QueryConsumerOffsetResponseHeader
from mqwire.headers_pull import PullMessageRequestHeader, PullMessageResponseHeader
from mqwire.message import encode_record, pack_host, properties_to_string
from tests.highwater.scripted import ScriptedServer, route_script, scripted_server

HOST = pack_host("127.0.0.1", 10911)
PULL_BATCH = 32


@dataclass
class ScriptedBroker:
    """Holds records of topic `t`, queue 0, and the offsets of its consumers; everyone who beats is in the group."""

    server: ScriptedServer
    records: list[bytes] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    suggested_broker_id: int = 0
    arrived: anyio.Event = field(default_factory=anyio.Event)

    def store(self, body: bytes, *, tags: str | None = None, reconsume_times: int = 0) -> None:
        offset = len(self.records)
        properties = {"UNIQ_KEY": f"key{offset}", **({"TAGS": tags} if tags else {})}
        self.records.append(
            encode_record(
                topic="t",
                queue_id=0,
                queue_offset=offset,
                physical_offset=offset * 100,
                body=body,
                properties=properties_to_string(properties).encode(),
                born_host=HOST,
                store_host=HOST,
                born_timestamp_ms=1,
                store_timestamp_ms=2,
                reconsume_times=reconsume_times,
            )
        )
        self.arrived.set()
        self.arrived = anyio.Event()

    def beat(self, request: RemotingCommand) -> RemotingCommand:
        client_id = bodies.HeartbeatData.from_json(request.body).client_id
        if client_id not in self.members:
            self.members.append(client_id)
        return request.reply()

    def list_members(self, request: RemotingCommand) -> RemotingCommand:
        return request.reply(body=bodies.GetConsumerListByGroupResponseBody(consumer_id_list=self.members).to_json())

    def query_offset(self, request: RemotingCommand) -> RemotingCommand:
        offset = self.offsets.get((request.ext_fields["topic"], int(request.ext_fields["queueId"])))
        if offset is None:
            return request.reply(ResponseCode.QUERY_NOT_FOUND, "none")
        return request.reply(header=QueryConsumerOffsetResponseHeader(offset=offset))

    def update_offset(self, request: RemotingCommand) -> RemotingCommand:
        fields = request.ext_fields
        self.offsets[fields["topic"], int(fields["queueId"])] = int(fields["commitOffset"])
        return request.reply()

    async def pull(self, request: RemotingCommand) -> RemotingCommand:
        header = request.header(PullMessageRequestHeader)
        if header.topic != "t" or header.queue_id != 0:
            await anyio.sleep_forever()
        while header.queue_offset >= len(self.records):
            await self.arrived.wait()
        end = min(len(self.records), header.queue_offset + min(header.max_msg_nums, PULL_BATCH))
        return request.reply(
            header=PullMessageResponseHeader(
                suggest_which_broker_id=self.suggested_broker_id,
                next_begin_offset=end,
                min_offset=0,
                max_offset=len(self.records),
            ),
            body=b"".join(self.records[header.queue_offset : end]),
        )

    def lock(self, request: RemotingCommand) -> RemotingCommand:
        wanted = bodies.LockBatchRequestBody.from_json(request.body).mq_set
        return request.reply(body=bodies.LockBatchResponseBody(lock_ok_mq_set=wanted).to_json())

    def pulls(self) -> list[PullMessageRequestHeader]:
        """The pulls of topic t's queue 0 that have arrived."""
        headers = [one.header(PullMessageRequestHeader) for one in self.server.of_code(RequestCode.PULL_MESSAGE)]
        return [header for header in headers if (header.topic, header.queue_id) == ("t", 0)]


@asynccontextmanager
async def scripted_cluster(group: str = "g") -> AsyncIterator[tuple[ScriptedServer, ScriptedBroker]]:
    """A name server that knows topic t and the group's retry topic, each with one queue on one broker."""
    async with scripted_server() as server:
        broker = ScriptedBroker(server)
        server.scripts = {
            RequestCode.HEART_BEAT: broker.beat,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: broker.list_members,
            RequestCode.QUERY_CONSUMER_OFFSET: broker.query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: broker.update_offset,
            RequestCode.PULL_MESSAGE: broker.pull,
            RequestCode.LOCK_BATCH_MQ: broker.lock,
        }
        routes = route_script({"a": server.address}, queues=1, topics=("t", f"%RETRY%{group}"))
        async with scripted_server(GET_ROUTEINFO_BY_TOPIC=routes) as name_server:
            yield name_server, broker
