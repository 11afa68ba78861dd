"""What a broker is answered by another one."""

from __future__ import annotations

from typing import Any, cast

import pytest

from brokerd.services.remoting_client import RemotingClient
from mqwire.command import RemotingCommand


class Answering:
    """A connection on which one answer lies ready."""

    def __init__(self, answer: bytes) -> None:
        self._rest = memoryview(answer)

    async def send_all(self, data: bytes) -> None:
        pass

    async def receive_some(self, size: int) -> bytes:
        data, self._rest = bytes(self._rest[:size]), self._rest[size:]
        return data

    def close(self) -> None:
        pass


@pytest.mark.trio
@pytest.mark.parametrize("mebibytes", [1, 20])
async def test_a_record_comes_whole_however_long_the_leader_takes_messages(mebibytes: int) -> None:
    request = RemotingCommand.request(20_000)
    body = b"x" * (mebibytes * 2**20)
    answer = request.reply(body=body).encode()

    async def connect(host: str, port: int) -> Any:
        return Answering(answer)

    client = RemotingClient(
        "10.0.0.1:10911", sign=lambda command: None, connect=cast("Any", connect), takes_records=True
    )
    reply = await client.request(request, timeout_s=30)
    assert bytes(reply.body) == body
