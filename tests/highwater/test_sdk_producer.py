"""What a producer sends and how it tries again, against scripted name servers and brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import anyio
import pytest

from highwater import AsyncProducer, Credentials, Message, SendStatus, errors
from mqwire.acl import signature_2
from mqwire.codes import MessageSysFlag, RequestCode, ResponseCode, SerializeType
from mqwire.command import RemotingCommand
from mqwire.compression import decompress
from mqwire.headers_send import SendMessageRequestHeaderV2
from mqwire.message import decode_batch_body, string_to_properties
from tests.highwater.scripted import Answer, ScriptedServer, refused, route_script, scripted_server, stored

pytestmark = pytest.mark.anyio

SEND = RequestCode.SEND_MESSAGE_V2
UNREACHABLE = "127.0.0.1:1"


@dataclass
class Cluster:
    """A scripted name server and two scripted brokers, a and b."""

    name_server: ScriptedServer
    a: ScriptedServer
    b: ScriptedServer

    def sends(self) -> int:
        return len(self.a.of_code(SEND)) + len(self.b.of_code(SEND))


@asynccontextmanager
async def cluster(*, queues: int = 2) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(scripted_server(SEND_MESSAGE_V2=stored, SEND_BATCH_MESSAGE=stored))
        b = await stack.enter_async_context(scripted_server(SEND_MESSAGE_V2=stored, SEND_BATCH_MESSAGE=stored))
        routes = route_script({"a": a.address, "b": b.address}, queues=queues)
        name_server = await stack.enter_async_context(scripted_server(GET_ROUTEINFO_BY_TOPIC=routes))
        yield Cluster(name_server, a, b)


async def first_send(server: ScriptedServer, code: int = SEND) -> tuple[RemotingCommand, SendMessageRequestHeaderV2]:
    request = (await server.seen(code))[0]
    return request, request.header(SendMessageRequestHeaderV2)


async def test_a_message_is_sent_with_rocketmqs_short_header() -> None:
    async with cluster() as brokers, AsyncProducer(brokers.name_server.address, "g") as producer:
        queue = (await producer.publish_queues("t"))[0]
        result = await producer.send(Message("t", b"body", tags="paid", keys=["o-1"], flag=7), queue=queue)
        request, header = await first_send(brokers.a)
        assert bytes(request.body) == b"body"
        assert (header.producer_group, header.topic, header.queue_id, header.flag) == ("g", "t", 0, 7)
        assert (header.default_topic, header.default_topic_queue_nums) == ("TBW102", 4)
        assert (header.broker_name, header.batch, header.reconsume_times) == ("a", False, 0)
        properties = string_to_properties(header.properties or "")
        assert properties == {"TAGS": "paid", "KEYS": "o-1", "WAIT": "true", "UNIQ_KEY": result.message_id}
        assert (result.status, result.queue, result.offset_message_id) == (SendStatus.SEND_OK, queue, "AA")


@pytest.mark.parametrize("kind", ["ROCKETMQ", "JSON"])
async def test_the_header_is_written_in_the_kind_that_was_chosen(kind: str) -> None:
    async with cluster() as brokers, AsyncProducer(brokers.name_server.address, serialize_type=kind) as producer:
        queue = (await producer.publish_queues("t"))[0]
        await producer.send(Message("t", b"body"), queue=queue)
        assert (await first_send(brokers.a))[0].serialize_type == SerializeType[kind]


async def test_queues_take_turns_over_all_brokers() -> None:
    async with cluster() as brokers, AsyncProducer(brokers.name_server.address) as producer:
        for _ in range(8):
            await producer.send(Message("t", b"body"))
        assert (len(brokers.a.of_code(SEND)), len(brokers.b.of_code(SEND))) == (4, 4)


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE])
async def test_a_broker_that_cannot_is_followed_by_another(code: int) -> None:
    async with cluster() as brokers, AsyncProducer(brokers.name_server.address) as producer:
        brokers.a.scripts[SEND] = refused(code)
        for _ in range(4):
            result = await producer.send(Message("t", b"body"))
            assert result.queue.broker_name == "b"


async def test_a_broker_that_failed_is_left_alone_by_the_next_sends() -> None:
    async with cluster() as brokers, AsyncProducer(brokers.name_server.address) as producer:
        brokers.a.scripts[SEND] = refused(ResponseCode.SYSTEM_BUSY)
        for _ in range(10):
            await producer.send(Message("t", b"body"))
        assert len(brokers.a.of_code(SEND)) == 1


async def test_a_broker_that_is_away_is_followed_by_another() -> None:
    async with cluster() as brokers, AsyncProducer(brokers.name_server.address) as producer:
        routes = route_script({"a": UNREACHABLE, "b": brokers.b.address})
        brokers.name_server.scripts[RequestCode.GET_ROUTEINFO_BY_TOPIC] = routes
        for _ in range(4):
            assert (await producer.send(Message("t", b"body"))).queue.broker_name == "b"


@pytest.mark.parametrize("code", [ResponseCode.NO_PERMISSION, ResponseCode.MESSAGE_ILLEGAL])
async def test_a_refusal_that_no_retry_changes_is_raised_at_once(code: int) -> None:
    async with cluster() as brokers, AsyncProducer(brokers.name_server.address) as producer:
        brokers.a.scripts[SEND] = brokers.b.scripts[SEND] = refused(code, "never")
        with pytest.raises(errors.BrokerError, match="never") as caught:
            await producer.send(Message("t", b"body"))
        assert caught.value.response_code == code
        assert brokers.sends() == 1


async def test_after_the_last_try_the_last_error_is_raised() -> None:
    async with cluster() as brokers, AsyncProducer(brokers.name_server.address) as producer:
        brokers.a.scripts[SEND] = brokers.b.scripts[SEND] = refused(ResponseCode.SYSTEM_BUSY, "full")
        with pytest.raises(errors.BusyError, match="full"):
            await producer.send(Message("t", b"body"))
        assert brokers.sends() == 3


async def test_without_retries_there_is_one_try() -> None:
    async with (
        cluster() as brokers,
        AsyncProducer(brokers.name_server.address, retry_times_when_send_failed=0) as producer,
    ):
        brokers.a.scripts[SEND] = brokers.b.scripts[SEND] = refused(ResponseCode.SYSTEM_BUSY)
        with pytest.raises(errors.BusyError):
            await producer.send(Message("t", b"body"))
        assert brokers.sends() == 1


async def test_the_timeout_is_for_all_tries_together() -> None:
    async with cluster() as brokers, AsyncProducer(brokers.name_server.address) as producer:
        brokers.a.scripts[SEND] = brokers.b.scripts[SEND] = lambda request: None
        with anyio.fail_after(5), pytest.raises(errors.RequestTimeoutError):
            await producer.send(Message("t", b"body"), timeout_ms=200)


async def test_a_silent_broker_leaves_time_for_another_when_a_try_is_limited() -> None:
    async with (
        cluster() as brokers,
        AsyncProducer(
            brokers.name_server.address, timeout_ms=10_000, send_msg_max_timeout_per_request_ms=100
        ) as producer,
    ):
        brokers.a.scripts[SEND] = lambda request: None
        for _ in range(3):
            assert (await producer.send(Message("t", b"body"))).queue.broker_name == "b"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
async def test_appended_but_not_proven_is_a_result_and_no_error(code: int, status: SendStatus) -> None:
    async with cluster() as brokers, AsyncProducer(brokers.name_server.address) as producer:
        script = brokers.a.scripts[SEND] = brokers.b.scripts[SEND] = lambda request: stored(request, code=code)
        assert callable(script)
        assert (await producer.send(Message("t", b"body"))).status is status
        assert brokers.sends() == 1


async def test_on_request_what_is_not_proven_is_sent_to_another_broker() -> None:
    async with (
        cluster() as brokers,
        AsyncProducer(brokers.name_server.address, retry_another_broker_when_not_store_ok=True) as producer,
    ):
        brokers.a.scripts[SEND] = lambda request: stored(request, code=ResponseCode.FLUSH_SLAVE_TIMEOUT)
        for _ in range(4):
            assert (await producer.send(Message("t", b"body"))).status is SendStatus.SEND_OK


async def test_a_large_body_is_compressed_and_a_small_one_is_not() -> None:
    async with cluster() as brokers, AsyncProducer(brokers.name_server.address) as producer:
        queue = (await producer.publish_queues("t"))[0]
        for size in (4096, 4097):
            await producer.send(Message("t", b"x" * size), queue=queue)
        small, large = await brokers.a.seen(SEND, 2)
        assert (small.header(SendMessageRequestHeaderV2).sys_flag, len(small.body)) == (0, 4096)
        sys_flag = large.header(SendMessageRequestHeaderV2).sys_flag
        assert sys_flag == MessageSysFlag.COMPRESSED | MessageSysFlag.COMPRESSION_ZLIB
        assert decompress(bytes(large.body), sys_flag) == b"x" * 4097


@pytest.mark.parametrize("kind", ["ZLIB", "LZ4", "ZSTD"])
async def test_the_way_of_compressing_can_be_chosen(kind: str) -> None:
    async with cluster() as brokers, AsyncProducer(brokers.name_server.address, compress_type=kind) as producer:
        queue = (await producer.publish_queues("t"))[0]
        await producer.send(Message("t", b"x" * 5000), queue=queue)
        request, header = await first_send(brokers.a)
        assert header.sys_flag == MessageSysFlag.COMPRESSED | getattr(MessageSysFlag, f"COMPRESSION_{kind}")
        assert decompress(bytes(request.body), header.sys_flag) == b"x" * 5000


async def test_a_batch_is_one_request_with_every_message_inside() -> None:
    async with cluster() as brokers, AsyncProducer(brokers.name_server.address) as producer:
        queue = (await producer.publish_queues("t"))[0]
        messages = [Message("t", b"m%d" % number, tags=f"tag{number}") for number in range(3)]
        result = await producer.send_batch(messages, queue=queue)
        request, header = await first_send(brokers.a, RequestCode.SEND_BATCH_MESSAGE)
        items = decode_batch_body(request.body)
        properties = [string_to_properties(item.properties.decode()) for item in items]
        assert header.batch is True
        assert [item.body for item in items] == [b"m0", b"m1", b"m2"]
        assert [one["TAGS"] for one in properties] == ["tag0", "tag1", "tag2"]
        assert tuple(one["UNIQ_KEY"] for one in properties) == result.message_ids


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [Message("t", b"x"), Message("u", b"x")],
        [Message("t", b"x", delay_time_level=1)],
        [Message("t", b"x"), Message("t", b"x", wait_store_msg_ok=False)],
        [Message("t", bytes(3_000_000)), Message("t", bytes(3_000_000))],
    ],
    ids=["empty", "two topics", "delayed", "unlike guarantees", "too large together"],
)
async def test_messages_that_do_not_make_a_batch_are_refused(messages: list[Message]) -> None:
    async with AsyncProducer(UNREACHABLE) as producer:
        with pytest.raises(errors.MessageIllegalError):
            await producer.send_batch(messages)


async def test_a_one_way_send_asks_for_no_answer() -> None:
    async with cluster() as brokers, AsyncProducer(brokers.name_server.address) as producer:
        queue = (await producer.publish_queues("t"))[0]
        await producer.send_oneway(Message("t", b"body"), queue=queue)
        assert (await first_send(brokers.a))[0].is_oneway


async def test_messages_of_one_sharding_key_go_to_one_queue_and_carry_their_key() -> None:
    async with cluster(queues=8) as brokers, AsyncProducer(brokers.name_server.address) as producer:
        results = [await producer.send_ordered(Message("t", b"body"), "order-17") for _ in range(4)]
        assert len({result.queue for result in results}) == 1
        broker = brokers.a if results[0].queue.broker_name == "a" else brokers.b
        _, header = await first_send(broker)
        assert string_to_properties(header.properties or "")["__SHARDINGKEY"] == "order-17"


async def test_an_ordered_message_is_tried_again_on_its_own_queue() -> None:
    async with cluster() as brokers, AsyncProducer(brokers.name_server.address) as producer:
        attempts = 0

        def once_busy(request: RemotingCommand) -> Answer:
            nonlocal attempts
            attempts += 1
            return request.reply(ResponseCode.SYSTEM_BUSY) if attempts == 1 else stored(request)

        brokers.a.scripts[SEND] = brokers.b.scripts[SEND] = once_busy
        await producer.send_ordered(Message("t", b"body"), "key")
        both = [*brokers.a.of_code(SEND), *brokers.b.of_code(SEND)]
        assert len({(one.ext_fields["n"], one.ext_fields["e"]) for one in both}) == 1
        assert len(both) == 2


async def test_an_ordered_send_without_a_key_is_refused() -> None:
    async with AsyncProducer(UNREACHABLE) as producer:
        with pytest.raises(errors.MessageIllegalError, match="sharding key"):
            await producer.send_ordered(Message("t", b"body"))


async def test_a_selector_chooses_the_queue() -> None:
    async with cluster() as brokers, AsyncProducer(brokers.name_server.address) as producer:
        result = await producer.send(Message("t", b"body"), queue_selector=lambda queues, message: queues[-1])
        assert (result.queue.broker_name, result.queue.queue_id) == ("b", 1)


# -- routes


async def test_a_topic_that_does_not_exist_is_sent_to_the_templates_queues() -> None:
    async with cluster() as brokers, AsyncProducer(brokers.name_server.address) as producer:
        script = route_script({"a": brokers.a.address}, topics=("TBW102",), queues=8)
        brokers.name_server.scripts[RequestCode.GET_ROUTEINFO_BY_TOPIC] = script
        queues = {(await producer.send(Message("new", b"body"))).queue for _ in range(8)}
        assert [(queue.topic, queue.queue_id) for queue in sorted(queues)] == [("new", number) for number in range(4)]


async def test_a_topic_that_no_one_knows_and_no_one_may_create_is_an_error() -> None:
    async with cluster() as brokers, AsyncProducer(brokers.name_server.address) as producer:
        with pytest.raises(errors.NoRouteError, match="topic nowhere"):
            await producer.send(Message("nowhere", b"body"))


async def test_when_a_name_server_is_away_the_next_one_is_asked() -> None:
    async with cluster() as brokers:
        addresses = [UNREACHABLE, brokers.name_server.address]
        for _ in range(3):
            async with AsyncProducer(addresses) as producer:
                await producer.send(Message("t", b"body"))


async def test_when_a_name_server_is_away_all_who_ask_at_once_are_answered_by_the_next_one() -> None:
    topics = tuple(f"t{number}" for number in range(4))
    async with cluster() as brokers:
        routes = route_script({"a": brokers.a.address}, topics=topics)
        brokers.name_server.scripts[RequestCode.GET_ROUTEINFO_BY_TOPIC] = routes
        for _ in range(3):
            async with AsyncProducer([UNREACHABLE, brokers.name_server.address]) as producer:
                async with anyio.create_task_group() as tasks:
                    for topic in topics:
                        tasks.start_soon(producer.send, Message(topic, b"body"))


async def test_a_name_server_that_does_not_know_the_topic_does_not_have_the_last_word() -> None:
    async with cluster() as brokers, scripted_server(GET_ROUTEINFO_BY_TOPIC=route_script({}, topics=())) as young:
        for _ in range(4):
            async with AsyncProducer([young.address, brokers.name_server.address]) as producer:
                await producer.send(Message("t", b"body"))


async def test_when_no_name_server_answers_the_error_says_so() -> None:
    async with AsyncProducer([UNREACHABLE, "127.0.0.1:2"]) as producer:
        with pytest.raises(errors.ConnectError):
            await producer.send(Message("t", b"body"))


async def test_a_broker_that_joins_is_used_after_the_next_refresh() -> None:
    async with cluster() as brokers:
        alone = route_script({"a": brokers.a.address})
        both = brokers.name_server.scripts[RequestCode.GET_ROUTEINFO_BY_TOPIC]
        brokers.name_server.scripts[RequestCode.GET_ROUTEINFO_BY_TOPIC] = alone
        async with AsyncProducer(brokers.name_server.address, poll_name_server_interval_ms=20) as producer:
            await producer.send(Message("t", b"body"))
            brokers.name_server.scripts[RequestCode.GET_ROUTEINFO_BY_TOPIC] = both
            with anyio.fail_after(10):
                while not brokers.b.of_code(SEND):
                    await producer.send(Message("t", b"body"))


async def test_a_name_server_that_forgets_a_topic_does_not_stop_the_producer() -> None:
    async with cluster() as brokers:
        async with AsyncProducer(brokers.name_server.address, poll_name_server_interval_ms=10) as producer:
            await producer.send(Message("t", b"body"))
            brokers.name_server.scripts[RequestCode.GET_ROUTEINFO_BY_TOPIC] = route_script({}, topics=())
            asked = len(brokers.name_server.requests)
            await brokers.name_server.seen(RequestCode.GET_ROUTEINFO_BY_TOPIC, asked + 3)
            await producer.send(Message("t", b"body"))


# -- being known


async def test_brokers_hear_of_the_producer_when_it_connects_and_when_it_leaves() -> None:
    async with cluster() as brokers:
        async with AsyncProducer(brokers.name_server.address, "g") as producer:
            queue = (await producer.publish_queues("t"))[0]
            await producer.send(Message("t", b"body"), queue=queue)
            heartbeat = (await brokers.a.seen(RequestCode.HEART_BEAT))[0]
            assert b'"groupName":"g"' in bytes(heartbeat.body)
        left = (await brokers.a.seen(RequestCode.UNREGISTER_CLIENT))[0]
        assert left.ext_fields["producerGroup"] == "g"
        assert not brokers.b.requests


async def test_every_request_is_signed_those_to_name_servers_too() -> None:
    async with cluster() as brokers:
        async with AsyncProducer(brokers.name_server.address, credentials=Credentials("key", "secret")) as producer:
            await producer.send(Message("t", b"body"))
            await producer.send_batch([Message("t", b"body")])
            await producer.send_oneway(Message("t", b"body"))
        everything = [*brokers.name_server.requests, *brokers.a.requests, *brokers.b.requests]
        assert {request.code for request in everything} >= {SEND, RequestCode.GET_ROUTEINFO_BY_TOPIC}
        assert all(signature_2(request, "secret") == request.ext_fields["Signature"] for request in everything)


async def test_a_broker_that_stands_still_is_left_alone_for_a_while() -> None:
    """By the defaults one try has the whole time, and its end is the send's."""
    async with cluster() as brokers, AsyncProducer(brokers.name_server.address, timeout_ms=300) as producer:
        brokers.a.scripts[SEND] = lambda request: None
        failed = 0
        for _ in range(12):
            try:
                await producer.send(Message("t", b"x"))
            except errors.RequestTimeoutError:
                failed += 1
    assert failed == 1


async def test_a_caller_who_gives_up_says_nothing_of_the_broker() -> None:
    async with cluster() as brokers, AsyncProducer(brokers.name_server.address, timeout_ms=60_000) as producer:
        brokers.a.scripts[SEND] = lambda request: None
        brokers.b.scripts[SEND] = lambda request: None
        with anyio.move_on_after(0.2):
            await producer.send(Message("t", b"x"))
        brokers.a.scripts[SEND] = brokers.b.scripts[SEND] = stored
        used = {(await producer.send(Message("t", b"x"))).queue.broker_name for _ in range(4)}
    assert used == {"a", "b"}


async def test_sends_that_fail_together_look_for_one_master_together() -> None:
    async with cluster() as brokers, AsyncProducer(brokers.name_server.address, timeout_ms=200) as producer:
        await producer.publish_queues("t")
        for server in (brokers.a, brokers.b):
            server.scripts[SEND] = lambda request: None
        brokers.name_server.scripts[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda request: None
        looks: list[str] = []
        look_for_master = producer._client.look_for_master

        async def look(topic: str, error: errors.HighwaterError, **options: bool) -> None:
            looks.append(topic)
            await look_for_master(topic, error, **options)

        producer._client.look_for_master = look  # type: ignore[method-assign] # counted

        async def send() -> None:
            with pytest.raises(errors.HighwaterError):
                await producer.send(Message("t", b"x"))

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(send)
        await anyio.sleep(0.05)
    assert looks == ["t"]
