"""The time that several clients together wait for answers, good ones, too."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from contextlib import ExitStack, suppress

import anyio
import pytest

from highwater import TimeSpentError, WaitBudget
from highwater._remoting import RemotingClient
from highwater.errors import HighwaterError
from mqwire.codes import RequestCode
from mqwire.command import RemotingCommand
from tests.highwater.scripted import scripted_server

pytestmark = pytest.mark.anyio


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def budget(total_ms: float) -> tuple[WaitBudget, Clock]:
    clock = Clock()
    return WaitBudget(total_ms, monotonic=clock), clock


def test_what_was_waited_for_is_taken_off_whether_it_ended_well_or_not() -> None:
    found, clock = budget(1000)
    with found.waiting("a", 5000) as allowed_ms:
        clock.now_s += 0.25
    assert allowed_ms == 1000
    with suppress(KeyError), found.waiting("b", 300) as allowed_ms:
        clock.now_s += 0.5
        raise KeyError
    assert allowed_ms == 300
    assert found.left_ms == 250


def test_who_comes_when_nothing_is_left_is_not_asked() -> None:
    found, clock = budget(1000)
    with found.waiting("a", 5000):
        clock.now_s += 1
        assert found.is_spent
    with pytest.raises(TimeSpentError, match="b was not asked"), found.waiting("b", 5000):
        raise AssertionError


def test_waits_at_once_count_once_in_whatever_order_they_end() -> None:
    found, clock = budget(1000)
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(found.waiting("a", 5000))
        clock.now_s += 0.25
        assert second.enter_context(found.waiting("b", 5000)) == 750
        clock.now_s += 0.25
        first.close()
        clock.now_s += 0.25
        second.close()
    clock.now_s += 10  # no one waits
    assert found.left_ms == 250


async def test_two_clients_that_share_a_budget_ask_a_server_that_is_always_late_a_few_times_in_all() -> None:
    async def late(request: RemotingCommand) -> RemotingCommand:
        await anyio.sleep(0.2)
        return request.reply()

    def answer(request: RemotingCommand) -> Awaitable[RemotingCommand]:
        return late(request)

    shared = WaitBudget(500)
    refused = 0
    began_s = time.monotonic()
    async with scripted_server(GET_BROKER_CONFIG=answer) as server, anyio.create_task_group() as tasks:
        for client in [RemotingClient(tasks, wait_budget=shared) for _ in range(2)]:
            for _ in range(10):
                try:
                    await client.invoke(server.address, RemotingCommand.request(RequestCode.GET_BROKER_CONFIG), 5000)
                except TimeSpentError:
                    refused += 1
                except HighwaterError:  # the last one, whose time was short
                    continue
            await client.aclose()
        tasks.cancel_scope.cancel()
        assert 1 <= len(server.requests) <= 3
    assert refused >= 17
    assert time.monotonic() - began_s < 5
