"""A server on the loopback that answers as a test scripts it: real sockets and real frames, no broker behind them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import anyio
from anyio.abc import ByteStream, SocketAttribute

from mqwire.bodies import BrokerData, QueueData, TopicRouteData
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.connection import Connection
from mqwire.headers_send import SendMessageRequestHeaderV2, SendMessageResponseHeader

Answer = RemotingCommand | bytes | None
Script = Callable[[RemotingCommand], Answer | Awaitable[Answer]]


class ScriptedServer:
    """Answers by request code; bytes are sent as they are, None answers nothing. Unscripted codes get SUCCESS."""

    def __init__(self) -> None:
        self.scripts: dict[int, Script] = {}
        self.requests: list[RemotingCommand] = []
        self.responses: list[RemotingCommand] = []
        self.streams: list[ByteStream] = []
        self.connection_count = 0
        self.port = 0
        self._seen: dict[int, anyio.Event] = defaultdict(anyio.Event)
        self._sending = anyio.Lock()
        self._responded = anyio.Event()
        self._left = anyio.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def of_code(self, code: int) -> list[RemotingCommand]:
        """The requests of one code that have arrived."""
        return [request for request in self.requests if request.code == code]

    async def seen(self, code: int, count: int = 1) -> list[RemotingCommand]:
        """Waits until `count` requests of a code have arrived."""
        with anyio.fail_after(20):
            while len(self.of_code(code)) < count:
                self._seen[code] = anyio.Event()
                await self._seen[code].wait()
        return self.of_code(code)

    async def responded(self) -> None:
        """Waits until a client has answered a request that was pushed to it."""
        with anyio.fail_after(20):
            await self._responded.wait()

    async def all_gone(self) -> None:
        """Waits until no client is connected."""
        with anyio.fail_after(20):
            while self.streams:
                self._left = anyio.Event()
                await self._left.wait()

    async def send_to_all(self, command: RemotingCommand) -> None:
        """Pushes a request to every client."""
        async with self._sending:
            for stream in self.streams:
                await stream.send(command.encode())

    async def drop_connections(self) -> None:
        for stream in list(self.streams):
            await anyio.aclose_forcefully(stream)

    async def serve(self, stream: ByteStream) -> None:
        self.connection_count += 1
        self.streams.append(stream)
        connection = Connection()
        try:
            async with anyio.create_task_group() as tasks:
                async for data in stream:
                    connection.receive_data(data)
                    for command in connection.commands():
                        if command.is_response:
                            self.responses.append(command)
                            self._responded.set()
                        else:
                            tasks.start_soon(self._answer, stream, command)
                tasks.cancel_scope.cancel()
        except* (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the client, or the test, has gone
        finally:
            self.streams.remove(stream)
            self._left.set()

    async def _answer(self, stream: ByteStream, request: RemotingCommand) -> None:
        self.requests.append(request)
        script = self.scripts.get(request.code, _succeed)
        answer = script(request)
        self._seen[request.code].set()
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer is not None and not request.is_oneway:
            async with self._sending:
                await stream.send(answer if isinstance(answer, bytes) else answer.encode())


def _succeed(request: RemotingCommand) -> RemotingCommand:
    return request.reply()


@asynccontextmanager
async def scripted_server(**scripts: Script) -> AsyncIterator[ScriptedServer]:
    """A server whose scripts are given by RequestCode's names."""
    server = ScriptedServer()
    server.scripts = {RequestCode[name]: script for name, script in scripts.items()}
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    server.port = listener.extra(SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, server.serve)
        yield server
        tasks.cancel_scope.cancel()


def route_script(brokers: Mapping[str, str], *, queues: int = 2, topics: tuple[str, ...] = ("t",)) -> Script:
    """A name server that knows some topics on some brokers, name -> address, each with `queues` queues."""

    def answer(request: RemotingCommand) -> RemotingCommand:
        topic = request.ext_fields["topic"]
        if topic not in topics:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, f"no topic {topic}")
        body = TopicRouteData(
            queue_datas=[
                QueueData(broker_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=6) for name in brokers
            ],
            broker_datas=[
                BrokerData(cluster="c", broker_name=name, broker_addrs={0: address})
                for name, address in brokers.items()
            ],
        )
        return request.reply(body=body.to_json())

    return answer


def stored(request: RemotingCommand, *, code: int = ResponseCode.SUCCESS, offset: int = 0) -> RemotingCommand:
    """A broker's answer to a send that it took."""
    queue_id = request.header(SendMessageRequestHeaderV2).queue_id
    return request.reply(code, header=SendMessageResponseHeader(msg_id="AA", queue_id=queue_id, queue_offset=offset))


def refused(code: int, remark: str = "because") -> Script:
    """A broker that answers with this code whatever it is asked."""
    return lambda request: request.reply(code, remark)
