"""However many connections the same people have, they have one turn of the loop between two of everyone else's."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
import trio.testing

from mqwire.turns import SHARE_S, AnyShare, Rows, Shares


async def served_in_turns(waiting: Sequence[tuple[str, AnyShare]]) -> list[list[str]]:
    """Who was served in each turn of the loop, where each uses up its people's time."""
    for _, share in waiting:
        share.spend(2 * SHARE_S)
    turns: list[list[str]] = []

    async def serve(name: str, share: AnyShare) -> None:
        await share.turn()
        turns[-1].append(name)
        share.spend(2 * SHARE_S)

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            turns.append([])
            for name, share in waiting:
                nursery.start_soon(serve, name, share)
            while sum(map(len, turns)) < len(waiting):
                turns.append([])
                await trio.lowlevel.checkpoint()
    return [names for names in turns if names]


def shares() -> Shares:
    return Shares(trio.StrictFIFOLock, trio.lowlevel.checkpoint)


@pytest.mark.trio
async def test_connections_of_an_account_are_served_one_in_a_turn_of_the_loop() -> None:
    of_all = shares()
    same, other = of_all.of_account("a"), of_all.of_account("b")
    turns = await served_in_turns([("a1", same), ("a2", same), ("a3", same), ("b", other)])
    assert max(sum(name.startswith("a") for name in names) for names in turns) == 1
    assert "b" in turns[0] + turns[1]


@pytest.mark.trio
async def test_a_stranger_from_elsewhere_is_next_where_many_of_one_address_wait() -> None:
    of_all = shares()
    many, one = of_all.of_stranger("192.0.2.1"), of_all.of_stranger("192.0.2.2")
    turns = await served_in_turns([*((str(number), many) for number in range(20)), ("elsewhere", one)])
    order = [name for names in turns for name in names]
    assert order.index("elsewhere") < 3 < len(order)


@pytest.mark.trio
async def test_who_has_not_had_their_time_waits_for_nothing() -> None:
    share = shares().of_account("a")
    share.spend(SHARE_S / 2)
    with trio.CancelScope() as scope:
        scope.cancel()
        await share.turn()  # a wait would end here
    assert not scope.cancelled_caught


async def order_of(names: Sequence[str]) -> list[str]:
    """In which order they have their turns, who wait in one row since then."""
    rows, order = Rows(trio.StrictFIFOLock), list[str]()

    async def wait(name: str) -> None:
        async with rows.turn(name[0]):
            await trio.lowlevel.checkpoint()
            order.append(name)

    async with trio.open_nursery() as nursery:
        async with rows.turn("first"):
            for name in names:
                nursery.start_soon(wait, name)
                await trio.testing.wait_all_tasks_blocked()
    assert not rows._own  # nothing is kept of them
    return order


@pytest.mark.trio
async def test_in_one_row_many_of_the_same_have_their_turns_between_those_of_others() -> None:
    assert await order_of(["a1", "a2", "a3", "a4", "b1", "b2"]) == ["a1", "b1", "a2", "b2", "a3", "a4"]
