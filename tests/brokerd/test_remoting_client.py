"""What a broker is answered by another one."""

from __future__ import annotations

from typing import Any, cast

import pytest

from brokerd.environment import OsNetwork
from brokerd.services.remoting_client import RemotingClient, RequestFailed
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


async def _answered(body: bytes, *, takes_records: bool) -> bytes:
    """The body that a client makes of an answer with this one."""
    request = RemotingCommand.request(20_000)
    answer = request.reply(body=body).encode()

    async def connect(host: str, port: int) -> Any:
        return Answering(answer)

    client = RemotingClient(
        "10.0.0.1:10911", sign=lambda command: None, connect=cast("Any", connect), takes_records=takes_records
    )
    reply = await client.request(request, timeout_s=30)
    return bytes(reply.body)


@pytest.mark.trio
@pytest.mark.parametrize("mebibytes", [1, 20])
async def test_a_record_comes_whole_however_long_the_leader_takes_messages(mebibytes: int) -> None:
    body = b"x" * (mebibytes * 2**20)
    assert await _answered(body, takes_records=True) == body


@pytest.mark.trio
async def test_an_answer_of_20_mebibytes_is_refused_where_no_records_are_asked_for() -> None:
    with pytest.raises(RequestFailed, match="frame"):
        await _answered(b"x" * (20 * 2**20), takes_records=False)


@pytest.mark.trio
@pytest.mark.parametrize("address", ["10.0.0.5", "10.0.0.5:", "localhost:http", "localhost:123456", "a..b:10911"])
async def test_what_is_no_address_is_one_where_no_one_answers(address: str) -> None:
    """An operator had given a replica's address without its port: it ended each replica that led, and asked there."""
    client = RemotingClient(address, sign=lambda command: None, connect=OsNetwork().connect)
    with pytest.raises(RequestFailed):
        await client.request(RemotingCommand.request(20_000), timeout_s=5)
