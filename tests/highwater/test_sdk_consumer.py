"""What a consumer asks of brokers and what it answers them, against a scripted one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from highwater import AsyncPushConsumer, ConsumeFrom, MessageQueue, ReceivedMessage, RetryLater
from highwater._client import ClientInstance, ClientOptions
from highwater._offset_store import OffsetStore
from highwater._queue_locks import QueueLocks
from mqwire import bodies
from mqwire.codes import PullSysFlag, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)
from mqwire.headers_pull import PullMessageRequestHeader, PullMessageResponseHeader
from mqwire.headers_send import ConsumerSendMsgBackRequestHeader
from tests.highwater.scripted import Answer, ScriptedServer, route_script, scripted_server
from tests.highwater.scripted_broker import ScriptedBroker, scripted_cluster

pytestmark = pytest.mark.anyio

PULL = RequestCode.PULL_MESSAGE
QUEUE = MessageQueue("t", "a", 0)


class Got:
    """A handler that keeps what it gets; `react` may wait or raise."""

    def __init__(self, react: Callable[[ReceivedMessage], Awaitable[None]] | None = None) -> None:
        self.messages: list[ReceivedMessage] = []
        self._react = react
        self._changed = anyio.Event()

    async def __call__(self, message: ReceivedMessage) -> None:
        self.messages.append(message)
        self._changed.set()
        self._changed = anyio.Event()
        if self._react is not None:
            await self._react(message)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    async def wait(self, count: int) -> None:
        with anyio.fail_after(20):
            while len(self.messages) < count:
                await self._changed.wait()


def leads_from_now(name_server: ScriptedServer, successor: ScriptedServer) -> None:
    """The name server knows it as the broker of both topics."""
    routes = route_script({"a": successor.address}, queues=1, topics=("t", "%RETRY%g"))
    name_server.scripts[RequestCode.GET_ROUTEINFO_BY_TOPIC] = routes


@asynccontextmanager
async def consuming(
    name_server: ScriptedServer, got: Got, tags: str = "*", **options: Any
) -> AsyncIterator[AsyncPushConsumer]:
    settings = {"consume_from": ConsumeFrom.FIRST_OFFSET, "rebalance_interval_ms": 100, **options}
    consumer = AsyncPushConsumer(name_server.address, "g", **settings)
    consumer.subscribe("t", tags, handler=got)
    async with consumer:
        yield consumer


async def eventually(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not condition():  # noqa: ASYNC110  # what is awaited happens at the other end of a socket
            await anyio.sleep(0.01)


async def test_a_pull_asks_for_what_the_options_say() -> None:
    got = Got()
    async with scripted_cluster() as (name_server, broker), consuming(name_server, got, "a || b", pull_batch_size=7):
        broker.store(b"x", tags="a")
        await got.wait(1)
        pull = broker.pulls()[0]
        assert (pull.consumer_group, pull.queue_offset, pull.max_msg_nums, pull.subscription) == ("g", 0, 7, "a || b")
        assert pull.suspend_timeout_millis == 15_000
        assert pull.sys_flag & PullSysFlag.SUSPEND
        assert pull.sys_flag & PullSysFlag.SUBSCRIPTION


async def test_the_subscription_in_a_pull_is_the_heartbeats() -> None:
    got = Got()
    async with scripted_cluster() as (name_server, broker), consuming(name_server, got, "a"):
        broker.store(b"x", tags="a")
        await got.wait(1)
        heartbeat = bodies.HeartbeatData.from_json(broker.server.of_code(RequestCode.HEART_BEAT)[0].body)
        (data,) = heartbeat.consumer_data_set
        (mine,) = [one for one in data.subscription_data_set if one.topic == "t"]
        assert (mine.tags_set, mine.code_set) == (["a"], [97])
        assert mine.sub_version == broker.pulls()[0].sub_version
        assert (data.group_name, data.consume_type, data.message_model) == ("g", "CONSUME_PASSIVELY", "CLUSTERING")


async def test_pulling_begins_at_the_stored_offset() -> None:
    got = Got()
    async with scripted_cluster() as (name_server, broker):
        for number in range(5):
            broker.store(b"%d" % number)
        broker.offsets["t", 0] = 3
        async with consuming(name_server, got):
            await got.wait(2)
    assert sorted(got.bodies) == [b"3", b"4"]


async def test_an_offset_that_a_busy_broker_did_not_store_is_stored_before_the_consumer_ends() -> None:
    got = Got()
    async with scripted_cluster() as (name_server, broker):
        broker.store(b"x")
        refused = 2

        def busy_at_first(request: RemotingCommand) -> RemotingCommand:
            nonlocal refused
            if request.ext_fields["topic"] == "t" and refused:
                refused -= 1
                return request.reply(ResponseCode.SYSTEM_BUSY, "too many requests")
            return broker.update_offset(request)

        broker.server.scripts[RequestCode.UPDATE_CONSUMER_OFFSET] = busy_at_first
        async with consuming(name_server, got, persist_consumer_offset_interval_ms=60_000):
            await got.wait(1)
        assert (broker.offsets["t", 0], refused) == (1, 0)


async def test_a_topics_first_offset_at_a_broker_is_stored_alone() -> None:
    at_once = 0
    most_at_once: list[int] = []

    async def slow(request: RemotingCommand) -> RemotingCommand:
        nonlocal at_once
        at_once += 1
        most_at_once.append(at_once)
        await anyio.sleep(0.05)
        at_once -= 1
        return request.reply()

    async with scripted_server(UPDATE_CONSUMER_OFFSET=slow) as broker:
        routes = route_script({"a": broker.address}, queues=4, topics=("t",))
        async with scripted_server(GET_ROUTEINFO_BY_TOPIC=routes) as name_server:
            client = ClientInstance(ClientOptions(namesrv=(name_server.address,)))
            await client.start()
            try:
                offsets = OffsetStore(client, "g")
                for queue_id in range(4):
                    offsets.advance(MessageQueue("t", "a", queue_id), 1)
                await offsets.persist()
            finally:
                await client.stop()
    assert most_at_once[:2] == [1, 1]
    assert max(most_at_once) == 3


async def test_offsets_are_stored_while_consuming_and_with_every_pull() -> None:
    got = Got()
    async with (
        scripted_cluster() as (name_server, broker),
        consuming(name_server, got, persist_consumer_offset_interval_ms=20),
    ):
        broker.store(b"x")
        await got.wait(1)
        await eventually(lambda: broker.offsets.get(("t", 0)) == 1)
        broker.store(b"y")
        await got.wait(2)
        await eventually(lambda: broker.pulls()[-1].queue_offset == 2)
        last = broker.pulls()[-1]
        assert last.sys_flag & PullSysFlag.COMMIT_OFFSET
        assert last.commit_offset in (1, 2)


async def test_stopping_returns_which_offsets_it_could_not_store(caplog: pytest.LogCaptureFixture) -> None:
    async def never(request: RemotingCommand) -> RemotingCommand:
        await anyio.sleep_forever()
        return request.reply()

    got = Got()
    async with scripted_cluster() as (name_server, broker):
        broker.server.scripts[RequestCode.UPDATE_CONSUMER_OFFSET] = never
        with caplog.at_level("WARNING", logger="highwater"):
            async with consuming(name_server, got, timeout_ms=300):
                broker.store(b"x")
                await got.wait(1)
    assert [line for line in caplog.messages if line.startswith("offset 1 of ") and "was not stored" in line]


async def test_what_a_filter_passed_over_counts_as_consumed() -> None:
    got = Got()
    async with scripted_cluster() as (name_server, broker), consuming(name_server, got, "wanted"):
        for _ in range(3):
            broker.store(b"x", tags="other")
        await eventually(lambda: bool(broker.pulls()) and broker.pulls()[-1].queue_offset == 3)
    assert broker.offsets["t", 0] == 3
    assert got.bodies == []


async def test_what_a_filter_passed_over_is_looked_at_again_when_it_was_another_by_then() -> None:
    """A broker that holds a pull goes by the filter that came with it."""
    got = Got()
    async with scripted_cluster() as (name_server, broker):

        async def pull(request: RemotingCommand) -> RemotingCommand:
            header = request.header(PullMessageRequestHeader)
            if header.topic != "t" or header.subscription == "b":
                return await broker.pull(request)
            await eventually(lambda: len(broker.records) > header.queue_offset)
            end = len(broker.records)
            passed_over = PullMessageResponseHeader(
                suggest_which_broker_id=0, next_begin_offset=end, min_offset=0, max_offset=end
            )
            return request.reply(ResponseCode.PULL_RETRY_IMMEDIATELY, header=passed_over)

        broker.server.scripts[PULL] = pull
        async with consuming(name_server, got, "a") as consumer:
            await broker.server.seen(PULL, 2)  # also the retry topic's
            consumer.subscribe("t", "b", handler=got)
            broker.store(b"after subscribe", tags="b")
            await got.wait(1)
    assert broker.offsets["t", 0] == 1


async def test_a_topic_that_is_subscribed_to_again_loses_nothing_that_came_in_between() -> None:
    got = Got()
    async with scripted_cluster() as (name_server, broker):
        async with consuming(name_server, got, rebalance_interval_ms=20_000) as consumer:
            await broker.server.seen(PULL, 2)  # also the retry topic's

            async def slow(request: RemotingCommand) -> RemotingCommand:
                await anyio.sleep(0.5)  # what is unsubscribed is given up once the brokers have heard of it
                return broker.beat(request)

            broker.server.scripts[RequestCode.HEART_BEAT] = slow
            consumer.unsubscribe("t")
            broker.store(b"between")
            await anyio.sleep(0.1)
            consumer.subscribe("t", handler=got)
            broker.store(b"after")
            await got.wait(2)
    assert sorted(got.bodies) == [b"after", b"between"]


async def test_an_unfinished_message_holds_the_stored_offset_back() -> None:
    release = anyio.Event()

    async def hold_first(message: ReceivedMessage) -> None:
        if message.queue_offset == 0:
            await release.wait()

    got = Got(hold_first)
    async with (
        scripted_cluster() as (name_server, broker),
        consuming(name_server, got, persist_consumer_offset_interval_ms=20),
    ):
        for number in range(3):
            broker.store(b"%d" % number)
        await got.wait(3)
        await anyio.sleep(0.1)
        assert broker.offsets.get(("t", 0), 0) == 0
        release.set()
        await eventually(lambda: broker.offsets.get(("t", 0)) == 3)


async def test_a_full_window_stops_pulling_until_there_is_room() -> None:
    release = anyio.Event()

    async def hold(message: ReceivedMessage) -> None:
        await release.wait()

    got = Got(hold)
    async with (
        scripted_cluster() as (name_server, broker),
        consuming(name_server, got, pull_batch_size=4, pull_threshold_for_queue=8, consume_threads=2),
    ):
        for number in range(100):
            broker.store(b"%d" % number)
        await got.wait(2)
        await anyio.sleep(0.2)
        # Pulling stops above the threshold: after three pulls of four.
        assert len(broker.pulls()) == 3
        release.set()
        await got.wait(100)
    assert len(set(got.bodies)) == 100


async def test_no_more_handlers_run_at_once_than_were_asked_for() -> None:
    running, most = 0, 0

    async def count(message: ReceivedMessage) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.sleep(0.001)
        running -= 1

    got = Got(count)
    async with scripted_cluster() as (name_server, broker), consuming(name_server, got, consume_threads=3):
        for number in range(60):
            broker.store(b"%d" % number)
        await got.wait(60)
    assert most == 3


async def test_a_failed_message_is_given_back_with_its_place() -> None:
    async def fail(message: ReceivedMessage) -> None:
        raise RetryLater("later", delay_time_level=5)

    got = Got(fail)
    async with scripted_cluster() as (name_server, broker), consuming(name_server, got, max_reconsume_times=4):
        broker.store(b"ok")
        broker.store(b"x")
        requests = await broker.server.seen(RequestCode.CONSUMER_SEND_MSG_BACK, 2)
        header = max((one.header(ConsumerSendMsgBackRequestHeader) for one in requests), key=lambda one: one.offset)
        assert (header.group, header.offset, header.delay_level) == ("g", 100, 5)
        assert (header.origin_topic, header.max_reconsume_times, header.bname) == ("t", 4, "a")
        await eventually(lambda: (broker.pulls()[-1].queue_offset, len(got.messages)) == (2, 2))
    assert broker.offsets["t", 0] == 2


@pytest.mark.parametrize("orderly", [False, True])
def test_a_handler_that_awaited_a_task_which_was_cancelled_counts_as_failed(orderly: bool) -> None:
    """On asyncio alone one task's end is raised in another. It must not end the program that consumes either."""

    async def react(message: ReceivedMessage) -> None:
        if len(got.messages) == 1:
            other = asyncio.ensure_future(asyncio.sleep(60))
            other.cancel()
            await other

    got = Got(react)
    given_back: list[int] = []

    async def main() -> None:
        async with scripted_cluster() as (name_server, broker):
            options: dict[str, Any] = {
                "orderly": orderly, "consume_threads": 1, "suspend_current_queue_time_ms": 10,
            }  # fmt: skip
            async with consuming(name_server, got, **options) as consumer:
                broker.store(b"first")
                broker.store(b"second")
                await eventually(lambda: consumer._offsets.get(QUEUE) == 2)
                given_back.append(len(broker.server.of_code(RequestCode.CONSUMER_SEND_MSG_BACK)))

    anyio.run(main)
    assert given_back == [0 if orderly else 1]


class Wordless(Exception):
    def __str__(self) -> str:
        raise ValueError


class Late(RetryLater):
    def __init__(self) -> None:
        """Not the base's, which sets what is read."""


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("error", [Wordless, Late])
async def test_a_handler_whose_exception_is_badly_written_counts_as_failed(
    orderly: bool, error: type[Exception]
) -> None:
    async def react(message: ReceivedMessage) -> None:
        if len(got.messages) == 1:
            raise error

    got = Got(react)
    async with scripted_cluster() as (name_server, broker):
        options: dict[str, Any] = {
            "orderly": orderly, "consume_threads": 1, "suspend_current_queue_time_ms": 10,
        }  # fmt: skip
        async with consuming(name_server, got, **options) as consumer:
            broker.store(b"first")
            broker.store(b"second")
            await eventually(lambda: consumer._offsets.get(QUEUE) == 2)


@pytest.mark.parametrize("orderly", [False, True])
async def test_what_was_pulled_of_a_topic_that_is_unsubscribed_stays_in_its_queue(orderly: bool) -> None:
    """Its queues are given back once the brokers have heard of it, which takes a moment."""

    async def react(message: ReceivedMessage) -> None:
        await anyio.sleep(0.02)

    got = Got(react)
    async with scripted_cluster() as (name_server, broker):
        for number in range(30):
            broker.store(b"%d" % number)

        async def slow(request: RemotingCommand) -> RemotingCommand:
            await anyio.sleep(0.5)
            return broker.beat(request)

        options: dict[str, Any] = {"orderly": orderly, "consume_threads": 1, "suspend_current_queue_time_ms": 10}
        async with consuming(name_server, got, **options) as consumer:
            await got.wait(3)
            broker.server.scripts[RequestCode.HEART_BEAT] = slow
            consumer.unsubscribe("t")
            await eventually(lambda: QUEUE not in consumer.assigned_queues())
        assert broker.server.of_code(RequestCode.CONSUMER_SEND_MSG_BACK) == []
        assert broker.offsets["t", 0] == len(got.messages) < 30


async def test_a_handler_that_takes_too_long_counts_as_failed() -> None:
    async def hang(message: ReceivedMessage) -> None:
        await anyio.sleep_forever()

    got = Got(hang)
    async with (
        scripted_cluster() as (name_server, broker),
        consuming(name_server, got, consume_timeout_min=0.05 / 60),
    ):
        broker.store(b"x")
        await broker.server.seen(RequestCode.CONSUMER_SEND_MSG_BACK)


async def test_the_next_pull_goes_to_the_replica_that_was_suggested() -> None:
    got = Got()
    async with scripted_cluster() as (name_server, broker), scripted_server(PULL_MESSAGE=broker.pull) as slave:

        def with_slave(request: RemotingCommand) -> RemotingCommand:
            answer = route_script({"a": broker.server.address}, queues=1, topics=("t", "%RETRY%g"))(request)
            assert isinstance(answer, RemotingCommand)
            data = bodies.TopicRouteData.from_json(answer.body)
            replicas = {0: broker.server.address, 1: slave.address}
            both = bodies.BrokerData(cluster="c", broker_name="a", broker_addrs=replicas)
            body = bodies.TopicRouteData(queue_datas=data.queue_datas, broker_datas=[both])
            return request.reply(body=body.to_json())

        name_server.scripts[RequestCode.GET_ROUTEINFO_BY_TOPIC] = with_slave
        broker.suggested_broker_id = 1
        async with consuming(name_server, got):
            broker.store(b"x")
            pulls = await slave.seen(PULL)
            header = pulls[0].header(PullMessageRequestHeader)
            assert header.queue_offset == 1
            # A slave keeps no offsets of groups.
            assert not header.sys_flag & PullSysFlag.COMMIT_OFFSET


async def test_a_broker_that_is_gone_is_looked_for_elsewhere_at_once() -> None:
    got = Got()
    async with scripted_cluster() as (name_server, broker), scripted_server() as successor:
        successor.scripts = dict(broker.server.scripts)
        async with consuming(name_server, got):
            await broker.server.seen(PULL, 2)  # also the retry topic's
            leads_from_now(name_server, successor)

            async def gone(request: RemotingCommand) -> None:
                await broker.server.drop_connections()

            broker.server.scripts = dict.fromkeys(RequestCode, gone)
            await broker.server.drop_connections()
            broker.store(b"after")
            with anyio.fail_after(10):  # without a look after half a minute, with the next poll of the routes
                await got.wait(1)


async def test_the_first_offset_is_asked_at_once_of_the_broker_that_leads_instead() -> None:
    got = Got()
    async with scripted_cluster() as (name_server, broker), scripted_server() as successor:
        successor.scripts = dict(broker.server.scripts)

        def leads_no_more(request: RemotingCommand) -> RemotingCommand:
            leads_from_now(name_server, successor)
            return request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, "this replica is a slave")

        broker.server.scripts[RequestCode.QUERY_CONSUMER_OFFSET] = leads_no_more
        broker.store(b"after")
        async with consuming(name_server, got):
            with anyio.fail_after(10):  # without a look after half a minute, with the next poll of the routes
                await got.wait(1)


async def test_members_are_asked_for_at_once_where_the_successor_of_a_broker_is() -> None:
    got = Got()
    async with scripted_cluster() as (name_server, broker), scripted_server() as successor:
        successor.scripts = dict(broker.server.scripts)

        async def gone(request: RemotingCommand) -> None:
            leads_from_now(name_server, successor)
            await broker.server.drop_connections()

        broker.server.scripts[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = gone
        broker.store(b"after")
        async with consuming(name_server, got):
            with anyio.fail_after(10):  # without a look after half a minute, with the next poll of the routes
                await got.wait(1)


async def test_an_offset_that_the_broker_does_not_have_is_left_for_the_one_it_names() -> None:
    got = Got()
    async with scripted_cluster() as (name_server, broker):
        broker.offsets["t", 0] = 1000

        async def pull(request: RemotingCommand) -> Answer:
            if request.header(PullMessageRequestHeader).queue_offset == 1000:
                header = PullMessageResponseHeader(
                    suggest_which_broker_id=0, next_begin_offset=1, min_offset=0, max_offset=2
                )
                return request.reply(ResponseCode.PULL_OFFSET_MOVED, header=header)
            return await broker.pull(request)

        broker.server.scripts[PULL] = pull
        broker.store(b"0")
        broker.store(b"1")
        async with consuming(name_server, got):
            await got.wait(1)
    assert got.bodies == [b"1"]
    assert broker.offsets["t", 0] == 2


async def test_a_broker_that_forgot_the_subscription_gets_it_again() -> None:
    got = Got()
    async with scripted_cluster() as (name_server, broker):
        forgetful = True

        async def pull(request: RemotingCommand) -> Answer:
            nonlocal forgetful
            if forgetful and request.ext_fields["topic"] == "t":
                forgetful = False
                broker.server.requests.clear()
                return request.reply(ResponseCode.SUBSCRIPTION_NOT_EXIST, "who are you?")
            return await broker.pull(request)

        broker.server.scripts[PULL] = pull
        broker.store(b"x")
        async with consuming(name_server, got):
            await got.wait(1)
            assert broker.server.of_code(RequestCode.HEART_BEAT)


async def test_a_member_that_the_broker_does_not_list_keeps_its_queues() -> None:
    got = Got()
    async with scripted_cluster() as (name_server, broker), consuming(name_server, got) as consumer:
        await eventually(lambda: QUEUE in consumer.assigned_queues())
        broker.members.clear()
        broker.server.scripts[RequestCode.HEART_BEAT] = lambda request: request.reply()
        asked = len(broker.server.of_code(RequestCode.GET_CONSUMER_LIST_BY_GROUP))
        await broker.server.seen(RequestCode.GET_CONSUMER_LIST_BY_GROUP, asked + 3)
        assert QUEUE in consumer.assigned_queues()


async def test_a_notification_rebalances_at_once() -> None:
    got = Got()
    async with scripted_cluster() as (name_server, broker):
        async with consuming(name_server, got, rebalance_interval_ms=3_600_000) as consumer:
            await eventually(lambda: QUEUE in consumer.assigned_queues())
            broker.members.insert(0, "!another member, which sorts first")
            header = NotifyConsumerIdsChangedRequestHeader(consumer_group="g")
            await broker.server.send_to_all(
                RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, oneway=True)
            )
            await eventually(lambda: QUEUE not in consumer.assigned_queues())


async def test_a_queue_that_is_given_up_is_no_longer_pulled_and_its_offset_is_stored() -> None:
    got = Got()
    async with scripted_cluster() as (name_server, broker), consuming(name_server, got) as consumer:
        broker.store(b"x")
        await got.wait(1)
        broker.members.insert(0, "!another member, which sorts first")
        await eventually(lambda: not consumer.assigned_queues())
        await eventually(lambda: broker.offsets.get(("t", 0)) == 1)
        broker.store(b"y")
        await anyio.sleep(0.1)
    assert got.bodies == [b"x"]


async def test_an_orderly_consumer_locks_its_queues_and_unlocks_them_when_it_leaves() -> None:
    got = Got()
    async with scripted_cluster() as (name_server, broker):
        async with consuming(name_server, got, orderly=True):
            broker.store(b"x")
            await got.wait(1)
        locked = bodies.LockBatchRequestBody.from_json(broker.server.of_code(RequestCode.LOCK_BATCH_MQ)[0].body)
        assert locked.consumer_group == "g"
        assert broker.server.of_code(RequestCode.UNLOCK_BATCH_MQ)


async def test_an_orderly_consumer_goes_on_when_a_broker_gives_no_answer_about_its_locks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("highwater._assignment.LOCK_RETRY_SECONDS", 0.1)
    got = Got()
    async with scripted_cluster() as (name_server, broker):
        async with consuming(name_server, got, orderly=True) as consumer:
            broker.store(b"before")
            await got.wait(1)
            asked: list[str] = []

            def busy_once(request: RemotingCommand) -> RemotingCommand:
                asked.append(bodies.LockBatchRequestBody.from_json(request.body).mq_set[0].topic)
                if asked.count("t") == 1 and asked[-1] == "t":
                    return request.reply(ResponseCode.SYSTEM_BUSY, "too many requests")
                return broker.lock(request)

            broker.server.scripts[RequestCode.LOCK_BATCH_MQ] = busy_once
            assert consumer._assignment is not None
            await consumer._assignment.renew_locks()
            assert asked.count("t") == 2
            broker.store(b"after")
            with anyio.fail_after(5):
                await got.wait(2)


async def test_a_reset_gives_no_lock_to_an_orderly_consumer_whose_lock_was_refused() -> None:
    """Another member has the queue: both would work on it."""
    got = Got()
    async with scripted_cluster() as (name_server, broker), consuming(name_server, got, orderly=True) as consumer:
        broker.store(b"before")
        await got.wait(1)
        assignment = consumer._assignment
        assert assignment is not None
        broker.server.scripts[RequestCode.LOCK_BATCH_MQ] = lambda request: request.reply(
            ResponseCode.SUCCESS, body=bodies.LockBatchResponseBody().to_json()
        )
        await assignment.renew_locks()
        await assignment.reset({window.queue: 0 for window in assignment.process_queues()})
        await anyio.sleep(0.3)
    assert got.bodies == [b"before"]


async def test_a_lock_that_an_orderly_consumer_gets_while_it_stops_is_given_back() -> None:
    """Its next owner would wait a minute for it."""
    got = Got()
    async with scripted_cluster() as (name_server, broker):

        async def slow(request: RemotingCommand) -> RemotingCommand:
            answer = broker.lock(request)
            await anyio.sleep(0.3)
            return answer

        broker.server.scripts[RequestCode.LOCK_BATCH_MQ] = slow
        async with consuming(name_server, got, orderly=True):
            locks = await broker.server.seen(RequestCode.LOCK_BATCH_MQ)
    asked, given_back = (
        {queue.topic for request in requests for queue in bodies.LockBatchRequestBody.from_json(request.body).mq_set}
        for requests in (locks, broker.server.of_code(RequestCode.UNLOCK_BATCH_MQ))
    )
    assert asked == given_back


async def test_a_lock_that_was_given_back_while_another_broker_kept_silent_is_not_asked_for_again() -> None:
    """One lock is asked for after the other, and locks are renewed while queues come and go."""
    other, kept, asked = MessageQueue("t", "b", 0), {MessageQueue("t", "b", 0), QUEUE}, []
    async with scripted_cluster() as (name_server, broker), scripted_server() as silent:

        def goes_meanwhile(request: RemotingCommand) -> RemotingCommand:
            kept.discard(QUEUE)
            return broker.lock(request)

        def asked_for(request: RemotingCommand) -> RemotingCommand:
            asked.append(request)
            return broker.lock(request)

        silent.scripts[RequestCode.LOCK_BATCH_MQ] = goes_meanwhile
        broker.server.scripts[RequestCode.LOCK_BATCH_MQ] = asked_for
        name_server.scripts[RequestCode.GET_ROUTEINFO_BY_TOPIC] = route_script(
            {"a": broker.server.address, "b": silent.address}, queues=1, topics=("t", "%RETRY%g")
        )
        client = ClientInstance(ClientOptions((name_server.address,)))
        await client.start()
        try:
            locked, _ = await QueueLocks(client, "g").lock([other, QUEUE], kept.__contains__)
        finally:
            await client.stop()
    assert (locked, asked) == ({other}, [])


async def test_an_orderly_consumer_does_not_touch_a_queue_whose_lock_it_does_not_get() -> None:
    got = Got()
    async with scripted_cluster() as (name_server, broker):
        refused = bodies.LockBatchResponseBody().to_json()
        broker.server.scripts[RequestCode.LOCK_BATCH_MQ] = lambda request: request.reply(body=refused)
        broker.store(b"x")
        async with consuming(name_server, got, orderly=True) as consumer:
            await broker.server.seen(RequestCode.LOCK_BATCH_MQ, 2)
            assert consumer.assigned_queues() == ()
            assert broker.pulls() == []
            broker.server.scripts[RequestCode.LOCK_BATCH_MQ] = broker.lock
            await got.wait(1)


# -- what brokers ask


async def push(broker: ScriptedBroker, request: RemotingCommand) -> RemotingCommand:
    await broker.server.send_to_all(request)
    await broker.server.responded()
    return broker.server.responses[0]


async def test_a_reset_that_a_broker_asks_for_is_followed() -> None:
    got = Got()
    async with scripted_cluster() as (name_server, broker), consuming(name_server, got):
        for number in range(3):
            broker.store(b"%d" % number)
        await got.wait(3)
        table = {bodies.MessageQueue(topic="t", broker_name="a", queue_id=0): 1}
        body = bodies.ResetOffsetBody(offset_table=table).to_json()
        await broker.server.send_to_all(
            RemotingCommand.request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, body=body, oneway=True)
        )
        await got.wait(5)
    assert sorted(got.bodies[:3]) == [b"0", b"1", b"2"]
    assert sorted(got.bodies[3:]) == [b"1", b"2"]


def running_info_request(group: str, *, stack: bool = False) -> RemotingCommand:
    header = GetConsumerRunningInfoRequestHeader(consumer_group=group, client_id="c", jstack_enable=stack)
    return RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)


async def test_a_consumer_reports_its_state() -> None:
    got = Got()
    async with scripted_cluster() as (name_server, broker), consuming(name_server, got):
        broker.store(b"x")
        await got.wait(1)
        answer = await push(broker, running_info_request("g"))
        info = bodies.ConsumerRunningInfo.from_json(answer.body)
        assert {one.topic for one in info.subscription_set} == {"t", "%RETRY%g"}
        assert bodies.MessageQueue(topic="t", broker_name="a", queue_id=0) in info.mq_table
        assert info.properties["PROP_CONSUMEORDERLY"] == "false"
        assert info.jstack is None


async def test_a_consumer_reports_where_its_handler_hangs() -> None:
    async def hang_here(message: ReceivedMessage) -> None:
        await anyio.sleep_forever()

    got = Got(hang_here)
    async with scripted_cluster() as (name_server, broker), consuming(name_server, got, drain_timeout_ms=1):
        broker.store(b"x")
        await got.wait(1)
        answer = await push(broker, running_info_request("g", stack=True))
    stack = bodies.ConsumerRunningInfo.from_json(answer.body).jstack
    assert stack is not None
    assert '"MainThread"' in stack
    assert "in hang_here" in stack


async def test_a_consumer_reports_nothing_of_another_group() -> None:
    got = Got()
    async with scripted_cluster() as (name_server, broker), consuming(name_server, got):
        await eventually(lambda: bool(broker.pulls()))
        answer = await push(broker, running_info_request("other"))
    assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_a_consumer_reports_its_offsets() -> None:
    got = Got()
    async with scripted_cluster() as (name_server, broker), consuming(name_server, got):
        broker.store(b"x")
        await got.wait(1)
        await eventually(lambda: broker.pulls()[-1].queue_offset == 1)
        request = RemotingCommand.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, ext_fields={"topic": "t"})
        answer = await push(broker, request)
        table = bodies.GetConsumerStatusBody.from_json(answer.body).message_queue_table
        assert table == {bodies.MessageQueue(topic="t", broker_name="a", queue_id=0): 1}


@pytest.mark.parametrize(("body", "outcome"), [(b"good", "CR_SUCCESS"), (b"bad", "CR_LATER")])
async def test_a_message_can_be_consumed_on_a_brokers_request(body: bytes, outcome: str) -> None:
    async def refuse_bad(message: ReceivedMessage) -> None:
        if message.body == b"bad":
            raise RuntimeError("bad")

    got = Got(refuse_bad)
    async with scripted_cluster() as (name_server, broker), consuming(name_server, got):
        await eventually(lambda: bool(broker.pulls()))
        header = ConsumeMessageDirectlyResultRequestHeader(consumer_group="g", broker_name="a")
        broker.records.clear()
        broker.store(body)
        record = broker.records.pop()
        answer = await push(broker, RemotingCommand.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, body=record))
        assert bodies.ConsumeMessageDirectlyResult.from_json(answer.body).consume_result == outcome
        assert body in got.bodies
