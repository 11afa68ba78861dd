"""What a scripted broker does to a group's push consumer is in the history, and found by the judge where it is wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import cycle

import anyio
import msgspec
import pytest

from highwater import AsyncPushConsumer, ConsumeFrom, ReceivedMessage
from mqwire.bodies import BrokerData, QueueData, ReplicaStatus, TopicRouteData
from mqwire.codes import HighwaterRequestCode, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_pull import PullMessageRequestHeader, PullMessageResponseHeader
from tests.highwater.scripted import ScriptedServer
from tests.highwater.scripted_broker import ScriptedBroker, scripted_cluster
from tests.nemesis.judge import End, History, violations
from tests.nemesis.overheard import overheard

pytestmark = pytest.mark.anyio

CODES = [ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY]
LEADER = ReplicaStatus(
    cluster="c",
    group="a",
    replica_id=0,
    advertised_broker_id=0,
    address="10.0.0.1:10911",
    role="master",
    mode="sync",
    epoch=4,
    log_epoch=4,
    epoch_map=[(4, 0)],
    min_offset=0,
    end_offset=900,
    durable_offset=900,
    held_offset=900,
    confirm_offset=900,
    flush_disk_type="ASYNC_FLUSH",
    in_sync_replicas=2,
    min_in_sync_replicas=2,
    in_sync=[0, 1],
    accepts_sends=True,
    promotable=True,
)
FOLLOWER = msgspec.structs.replace(LEADER, role="slave", accepts_sends=False)
NEXT_LEADER = msgspec.structs.replace(LEADER, epoch=8)
ALONE = msgspec.structs.replace(LEADER, accepts_sends=False)


async def take(message: ReceivedMessage) -> None:
    pass


@asynccontextmanager
async def consuming(history: History, name_server: ScriptedServer, broker: ScriptedBroker) -> AsyncIterator[None]:
    """The group's only member."""
    broker.members.clear()
    with overheard(history, "g", "t", lambda address: 0):
        consumer = AsyncPushConsumer(name_server.address, "g", consume_from=ConsumeFrom.FIRST_OFFSET)
        consumer.subscribe("t", handler=take)
        async with consumer:
            yield


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(20):
        while not condition():  # noqa: ASYNC110  # what is awaited happens in another task's answers
            await anyio.sleep(0.01)


async def answers(history: History, count: int) -> None:
    """Waits until the group was answered so many offsets."""
    await until(lambda: len(history.offset_answers) >= count)


def sends_back(broker: ScriptedBroker, code: ResponseCode, *, asked: int, answered: int) -> None:
    """It answers a pull of the one offset with the other."""

    async def pull(request: RemotingCommand) -> RemotingCommand:
        if request.header(PullMessageRequestHeader).queue_offset != asked or request.ext_fields["topic"] != "t":
            return await broker.pull(request)
        header = PullMessageResponseHeader(
            suggest_which_broker_id=0, next_begin_offset=answered, min_offset=0, max_offset=asked
        )
        return request.reply(code, header=header)

    broker.server.scripts[RequestCode.PULL_MESSAGE] = pull


def reports(broker: ScriptedBroker, *statuses: ReplicaStatus) -> None:
    """It says these of itself, one after the other, again and again."""
    said = cycle(statuses)
    broker.server.scripts[HighwaterRequestCode.REPLICA_STATUS] = lambda request: request.reply(
        body=next(said).to_json()
    )


@pytest.mark.parametrize("code", CODES)
async def test_a_push_consumer_that_is_sent_back_is_found_by_whatever_code(code: ResponseCode) -> None:
    history = History()
    async with scripted_cluster() as (name_server, broker):
        reports(broker, LEADER)
        broker.store(b"0")
        broker.store(b"1")
        sends_back(broker, code, asked=2, answered=1)
        async with consuming(history, name_server, broker):
            await until(lambda: history.sent_back)
    assert f"replica 0 sent group g back in queue 0: 2 -> 1 by {code.name}" in violations(history, End())


async def test_a_push_consumer_that_goes_back_from_what_it_had_finished_is_found() -> None:
    history = History()
    async with scripted_cluster() as (name_server, broker):
        reports(broker, LEADER)
        broker.store(b"0")
        broker.store(b"1")
        sends_back(broker, ResponseCode.PULL_OFFSET_MOVED, asked=2, answered=1)
        async with consuming(history, name_server, broker):
            await until(lambda: history.went_back)
    assert "a consumer of group g went back in queue 0: 2 -> 1" in violations(history, End())


async def test_what_a_push_consumer_commits_may_not_fall() -> None:
    history = History()
    async with scripted_cluster() as (name_server, broker):
        reports(broker, LEADER)
        broker.store(b"0")
        broker.store(b"1")
        async with consuming(history, name_server, broker):
            await until(lambda: broker.pulls() and broker.pulls()[-1].queue_offset == 2)
        broker.offsets["t", 0] = 1
        async with consuming(history, name_server, broker):
            await answers(history, 2)
    assert "group g had committed 2 in queue 0; replica 0 answered 1" in violations(history, End())


async def test_what_a_leader_answered_a_push_consumer_may_not_fall() -> None:
    history = History()
    async with scripted_cluster() as (name_server, broker):
        reports(broker, LEADER)
        await begin_at(history, name_server, broker, 5, 4)
    assert "group g had been answered 5 in queue 0; replica 0 answered 4" in violations(history, End())


@pytest.mark.parametrize("said", [[FOLLOWER], [ALONE], [LEADER, NEXT_LEADER]], ids=["follows", "alone", "led again"])
async def test_what_a_push_consumer_was_answered_by_who_may_be_alone_with_it_may_fall(
    said: list[ReplicaStatus],
) -> None:
    history = History()
    async with scripted_cluster() as (name_server, broker):
        reports(broker, *said)
        await begin_at(history, name_server, broker, 5, 4)
    assert violations(history, End()) == []


async def test_a_replica_that_a_push_consumer_asks_for_want_of_a_master_may_have_less() -> None:
    history = History()
    async with scripted_cluster() as (name_server, broker):
        reports(broker, LEADER)
        name_server.scripts[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda request: request.reply(
            body=TopicRouteData(
                queue_datas=[QueueData(broker_name="a", read_queue_nums=1, write_queue_nums=1, perm=6)],
                broker_datas=[BrokerData(cluster="c", broker_name="a", broker_addrs={1: broker.server.address})],
            ).to_json()
        )
        broker.store(b"0")
        async with consuming(history, name_server, broker):
            await until(broker.pulls)
    assert broker.server.of_code(RequestCode.QUERY_CONSUMER_OFFSET)
    assert history.offset_answers == []


async def begin_at(history: History, name_server: ScriptedServer, broker: ScriptedBroker, *offsets: int) -> None:
    """One consumer after the other is told these offsets, and commits none."""
    broker.server.scripts[RequestCode.UPDATE_CONSUMER_OFFSET] = lambda request: request.reply(remark="not taken")
    for count, offset in enumerate(offsets, 1):
        broker.offsets["t", 0] = offset
        async with consuming(history, name_server, broker):
            await answers(history, count)
