"""Topics, groups and offsets are records of the log: replicated, confirmed and truncated with the messages around them."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from unittest.mock import Mock, patch

import pytest
import trio

from brokerd.broker import open_store
from brokerd.consumer_offset import NO_OFFSET
from brokerd.environment import Environment
from brokerd.metadata_record import MetadataRecord, base_records, joined
from brokerd.replica.epoch_file import EpochFile
from brokerd.services.metadata_log import OFFSETS_PERIOD_S
from brokerd.store import AppendResult, Disk, DiskFullError, MessageStore, MessageToStore, StoreError
from mqwire.bodies import SubscriptionGroupConfig, TopicConfig
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_offset import (
    QueryConsumerOffsetRequestHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from mqwire.headers_topic import CreateTopicRequestHeader, DeleteTopicRequestHeader
from mqwire.names import RMQ_SYS_METADATA
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker, RecordingPeer
from tests.brokerd.replicated_broker import ADDRESSES, lead_again, pair, promote, replicate
from tests.sim.store_harness import message


def creation(topic: str, queues: int = 4) -> CreateTopicRequestHeader:
    return CreateTopicRequestHeader(
        topic=topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=6,
        topic_filter_type="SINGLE_TAG", order=False,
    )  # fmt: skip


def create(broker: BrokerUnderTest, topic: str = "orders") -> RemotingCommand:
    return broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, creation(topic))


def delete(broker: BrokerUnderTest, topic: str = "orders") -> RemotingCommand:
    return broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic))


def commitment(offset: int, queue_id: int = 0) -> UpdateConsumerOffsetRequestHeader:
    return UpdateConsumerOffsetRequestHeader(
        consumer_group="g", topic="orders", queue_id=queue_id, commit_offset=offset
    )


def commit(broker: BrokerUnderTest, offset: int) -> RemotingCommand:
    return broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commitment(offset))


def reset(broker: BrokerUnderTest, offset: int) -> RemotingCommand:
    header = ResetOffsetRequestHeader(topic="orders", group="g", queue_id=0, offset=offset, timestamp=-1)
    return broker.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)


def offset_of(broker: BrokerUnderTest) -> int:
    return broker.broker.consumer_offsets.query("orders", "g", 0)


def knows(broker: BrokerUnderTest, topic: str = "orders") -> bool:
    return broker.broker.topic_configs.select(topic) is not None


def send(broker: BrokerUnderTest, count: int, topic: str = "orders") -> None:
    for number in range(count):
        broker.store_message(topic, b"%d" % number)


@pytest.fixture
def brokers(make_broker: MakeBroker) -> tuple[BrokerUnderTest, BrokerUnderTest]:
    """A leader and its follower: topic `orders` with 10 messages in queue 0, group `g` at offset 4."""
    leader, follower = pair(make_broker)
    create(leader)
    leader.create_group("g")
    send(leader, 10)
    assert commit(leader, 4).code == ResponseCode.SUCCESS
    replicate(leader, follower)
    return leader, follower


def needed_from_when_flushed(leader: BrokerUnderTest, follower: BrokerUnderTest) -> int:
    """Where both read their tables from at the next start, when both have all on their disks."""
    for broker in (leader, follower):
        replicate(leader, follower)
        broker.store.flush()
    replicate(leader, follower)
    needed_from = leader.broker.metadata_log.needed_from
    assert needed_from
    assert follower.broker.metadata_log.needed_from == needed_from
    return needed_from


# --- following ---


def test_a_follower_has_what_its_log_says(brokers: tuple[BrokerUnderTest, BrokerUnderTest]) -> None:
    _, follower = brokers
    assert knows(follower)
    assert follower.broker.subscription_groups.select("g") is not None
    assert offset_of(follower) == 4


def test_a_follower_knows_from_where_on_its_tables_are_read_at_the_next_start(
    brokers: tuple[BrokerUnderTest, BrokerUnderTest],
) -> None:
    leader, follower = brokers
    first = needed_from_when_flushed(leader, follower)
    leader.broker.metadata_log.write_base()
    assert needed_from_when_flushed(leader, follower) > first
    follower.restart()
    replicate(leader, follower)
    assert follower.broker.metadata_log.needed_from == leader.broker.metadata_log.needed_from


def test_a_change_that_is_truncated_never_was(brokers: tuple[BrokerUnderTest, BrokerUnderTest]) -> None:
    former, leader = brokers
    create(former, "lost")
    delete(former, "orders")
    promote(leader, former)
    replicate(leader, former)
    assert not knows(former, "lost")
    assert knows(former, "orders")
    assert offset_of(former) == 4


def test_a_reset_that_reached_only_a_dying_leader_does_not_come_back(
    brokers: tuple[BrokerUnderTest, BrokerUnderTest],
) -> None:
    first, second = brokers
    assert reset(first, 0).code == ResponseCode.SUCCESS
    assert first.broker.consumer_offsets.take_reset("orders", "g", 0) == 0
    promote(second, first)
    send(second, 40)
    assert commit(second, 50).code == ResponseCode.SUCCESS
    replicate(second, first)
    assert offset_of(first) == 50
    promote(first, second)
    replicate(first, second)
    assert (offset_of(first), offset_of(second)) == (50, 50)


def test_a_reset_reaches_the_follower_and_so_does_its_end(brokers: tuple[BrokerUnderTest, BrokerUnderTest]) -> None:
    leader, follower = brokers
    reset(leader, 2)
    replicate(leader, follower)
    assert follower.broker.consumer_offsets.has_reset("orders", "g", 0)
    assert offset_of(follower) == 2
    leader.broker.consumer_offsets.take_reset("orders", "g", 0)
    replicate(leader, follower)
    assert not follower.broker.consumer_offsets.has_reset("orders", "g", 0)


def test_a_topic_deleted_and_made_again_keeps_its_new_messages_on_a_follower(
    brokers: tuple[BrokerUnderTest, BrokerUnderTest],
) -> None:
    leader, follower = brokers
    delete(leader)
    create(leader)
    leader.store_message("orders", b"new")
    replicate(leader, follower)
    assert [message.body for message in follower.messages("orders")] == [b"new"]
    assert [message.queue_offset for message in leader.messages("orders")] == [
        message.queue_offset for message in follower.messages("orders")
    ]
    assert offset_of(follower) == -1


def test_a_laggard_that_is_promoted_and_its_former_leader_agree_on_a_topic_that_was_deleted_meanwhile(
    brokers: tuple[BrokerUnderTest, BrokerUnderTest],
) -> None:
    """Neither a tail without its topic, nor a topic that hides on one of them what is in both logs."""
    former, laggard = brokers
    seen = [message.body for message in laggard.messages("orders")]
    former.store_message("orders", b"the laggard never had it")
    delete(former)
    create(former)
    former.store_message("orders", b"of the topic that was made again")
    promote(laggard, former)
    laggard.store_message("orders", b"next")
    replicate(laggard, former)
    laggard.store_message("orders", b"after that")  # by which the follower learns what is confirmed
    replicate(laggard, former)
    for broker in (laggard, former):
        found = [(message.queue_offset, message.body) for message in broker.messages("orders")]
        assert found[: len(seen) + 1] == list(enumerate([*seen, b"next"]))
        broker.restart()
        assert knows(broker)
        assert [message.body for message in broker.messages("orders")][: len(seen)] == seen


def test_a_laggard_that_is_promoted_before_the_deletion_reached_it_may_delete_the_topic_itself(
    brokers: tuple[BrokerUnderTest, BrokerUnderTest],
) -> None:
    former, laggard = brokers
    delete(former)
    promote(laggard, former)
    delete(laggard)
    replicate(laggard, former)
    create(laggard)
    laggard.store_message("orders", b"new")
    replicate(laggard, former)
    assert [message.body for message in former.messages("orders")] == [b"new"]
    assert [one.queue_offset for one in former.messages("orders")] == [
        one.queue_offset for one in laggard.messages("orders")
    ]


def test_what_a_leader_did_not_write_down_is_gone_when_it_follows(
    brokers: tuple[BrokerUnderTest, BrokerUnderTest],
) -> None:
    leader, follower = brokers
    leader.broker.consumer_offsets.commit("orders", "g", 0, 9)
    promote(follower, leader)
    replicate(follower, leader)
    assert offset_of(leader) == 4


# --- answers ---


@pytest.fixture
def sync_pair(make_broker: MakeBroker) -> tuple[BrokerUnderTest, BrokerUnderTest]:
    """With inSyncReplicas=2: an answer needs both."""
    leader = make_broker(brokerRole="SYNC_MASTER", inSyncReplicas="2")
    follower = make_broker(brokerRole="SLAVE", brokerId="1", totalReplicas="2", inSyncReplicas="2")
    replicate(leader, follower)
    return leader, follower


def test_a_topic_and_an_offset_are_answered_when_the_follower_holds_them(
    sync_pair: tuple[BrokerUnderTest, BrokerUnderTest],
) -> None:
    leader, follower = sync_pair
    peer = RecordingPeer()
    assert leader.request(RequestCode.UPDATE_AND_CREATE_TOPIC, creation("orders"), peer=peer) == []
    assert leader.request(RequestCode.UPDATE_AND_CREATE_TOPIC, creation("orders"), peer=peer) == [], (
        "nor is a repetition"
    )
    replicate(leader, follower)
    assert [reply.code for reply in peer.take()] == [ResponseCode.SUCCESS] * 2
    leader.create_group("g")
    send(leader, 10)
    replicate(leader, follower)
    assert leader.request(RequestCode.UPDATE_CONSUMER_OFFSET, commitment(4), peer=peer) == []
    replicate(leader, follower)
    assert [reply.code for reply in peer.take()] == [ResponseCode.SUCCESS]
    assert offset_of(follower) == 4


def test_an_offset_that_was_committed_without_an_answer_is_reported_when_the_follower_holds_it(
    sync_pair: tuple[BrokerUnderTest, BrokerUnderTest],
) -> None:
    leader, follower = sync_pair
    leader.create_topic("orders")
    leader.create_group("g")
    send(leader, 10)
    replicate(leader, follower)
    leader.request(RequestCode.UPDATE_CONSUMER_OFFSET, commitment(7), oneway=True)
    peer = RecordingPeer()
    header = QueryConsumerOffsetRequestHeader(consumer_group="g", topic="orders", queue_id=0)
    assert leader.request(RequestCode.QUERY_CONSUMER_OFFSET, header, peer=peer) == []
    replicate(leader, follower)
    (reply,) = peer.take()
    assert (reply.code, reply.ext_fields["offset"]) == (ResponseCode.SUCCESS, "7")
    assert offset_of(follower) == 7


def test_commits_without_an_answer_share_one_record_each_half_second(broker: BrokerUnderTest) -> None:
    broker.create_topic("orders")
    broker.create_group("g")
    send(broker, 10)
    before = broker.store.max_offset(RMQ_SYS_METADATA, 0)
    for offset in range(1, 9):
        broker.request(RequestCode.UPDATE_CONSUMER_OFFSET, commitment(offset), oneway=True)
    assert broker.store.max_offset(RMQ_SYS_METADATA, 0) == before
    broker.broker.metadata_log.write_offsets()
    assert broker.store.max_offset(RMQ_SYS_METADATA, 0) == before + 1
    assert OFFSETS_PERIOD_S <= 0.5


def test_a_lone_answered_commit_waits_for_no_other_and_those_right_after_it_share_a_record(
    broker: BrokerUnderTest,
) -> None:
    broker.create_topic("orders")
    broker.create_group("g")
    send(broker, 10)
    before = broker.store.max_offset(RMQ_SYS_METADATA, 0)
    peer = RecordingPeer()

    async def commit_four_times() -> None:
        async with trio.open_nursery() as nursery:
            broker.broker.nursery = nursery
            for offset in range(1, 5):
                answered.append(len(broker.request(RequestCode.UPDATE_CONSUMER_OFFSET, commitment(offset), peer=peer)))
        answered.append(len(peer.take()))

    answered: list[int] = []
    trio.run(commit_four_times)
    broker.broker.nursery = None
    assert answered == [1, 0, 0, 0, 3]
    assert broker.store.max_offset(RMQ_SYS_METADATA, 0) == before + 2


def test_answered_commits_that_wait_for_one_flush_share_a_record(make_broker: MakeBroker) -> None:
    broker = make_broker(flushDiskType="SYNC_FLUSH")
    broker.create_topic("orders")
    broker.create_group("g")
    send(broker, 10)
    before = broker.store.queue_end_offset(RMQ_SYS_METADATA, 0)
    assert before is not None
    peer = RecordingPeer()
    answers: list[RemotingCommand] = []

    async def commit_four_times() -> None:
        async with trio.open_nursery() as nursery:
            broker.broker.nursery = nursery
            nursery.start_soon(broker.broker.flush_service.run)
            for offset in range(1, 5):
                request = RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, commitment(offset))
                broker.broker.dispatcher.dispatch(peer, [request])
            with trio.fail_after(60):
                while len(answers) < 4:
                    await trio.sleep(0.001)
                    answers.extend(peer.take())
            nursery.cancel_scope.cancel()

    trio.run(commit_four_times)
    broker.broker.nursery = None
    assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * 4
    assert broker.store.queue_end_offset(RMQ_SYS_METADATA, 0) == before + 1
    assert broker.store.durable_offset == broker.store.end_offset


def test_a_commit_that_waits_for_a_flush_is_refused_when_the_disk_fails(make_broker: MakeBroker) -> None:
    broker = make_broker(flushDiskType="SYNC_FLUSH")
    broker.create_topic("orders")
    broker.create_group("g")
    send(broker, 10)
    peer = RecordingPeer()

    async def commit_and_fail() -> None:
        async with trio.open_nursery() as nursery:
            broker.broker.nursery = nursery
            request = RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, commitment(1))
            broker.broker.dispatcher.dispatch(peer, [request])
            assert peer.take() == []
            broker.broker.flush_failed("the disk fails")

    trio.run(commit_and_fail)
    broker.broker.nursery = None
    assert [answer.code for answer in peer.take()] == [ResponseCode.SERVICE_NOT_AVAILABLE]


def test_a_commit_that_waits_for_a_flush_is_refused_when_the_leadership_ends_though_it_begins_again_at_once(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(flushDiskType="SYNC_FLUSH")
    broker.create_topic("orders")
    broker.create_group("g")
    send(broker, 10)
    peer = RecordingPeer()
    answers: list[RemotingCommand] = []
    replica = broker.broker.replica

    async def commit_and_lead_again() -> None:
        async with trio.open_nursery() as nursery:
            broker.broker.nursery = nursery
            request = RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, commitment(1))
            broker.broker.dispatcher.dispatch(peer, [request])
            fence = replica.epoch + 1
            replica.step_down(fence, None)
            broker.broker.role_changed()
            replica.promote(fence, fence + 1, broker.clock.monotonic(), broker.clock.time_ms())
            broker.broker.role_changed()
            nursery.start_soon(broker.broker.flush_service.run)
            with trio.fail_after(60):
                while not answers:
                    await trio.sleep(0.001)
                    answers.extend(peer.take())
            nursery.cancel_scope.cancel()

    trio.run(commit_and_lead_again)
    broker.broker.nursery = None
    assert [answer.code for answer in answers] == [ResponseCode.SERVICE_NOT_AVAILABLE]
    assert offset_of(broker) == NO_OFFSET


def test_tables_that_could_not_be_read_are_read_once_they_can_be_though_this_replica_leads_by_then(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(broker)
    broker.create_group("g")
    send(broker, 10)
    log = broker.broker.metadata_log

    def cannot_open(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(type(log), "_find_base", cannot_open)
        lead_again(broker)
        log.keep_base_near()
        assert commit(broker, 4).code == ResponseCode.SERVICE_NOT_AVAILABLE
    log.keep_base_near()
    assert commit(broker, 4).code == ResponseCode.SUCCESS
    assert offset_of(broker) == 4


def test_topics_that_are_in_the_log_alone_are_made_once_there_is_room(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of RocketMQ's log, say; the broker did not start."""
    broker.stop()
    shutil.rmtree(broker.folder / "store")
    store, _report = open_store(broker.config, broker.broker.store_host, Environment(clock=broker.clock))
    store.append([message(topic="orders", queue_id=2)])
    store.close()
    with monkeypatch.context() as patch:
        patch.setattr(MessageStore, "used_ratio", lambda _: 1.1)
        broker.start()
        assert not knows(broker)
        broker.clock.advance(5)
    broker.broker.metadata_log.keep_base_near()
    assert broker.topic_config("orders").write_queue_nums == 3


def test_while_the_tables_cannot_be_read_retention_keeps_all_that_they_may_be_read_from(
    brokers: tuple[BrokerUnderTest, BrokerUnderTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knew of no base that is needed, and deleted the last one."""
    leader, follower = brokers
    log = follower.broker.metadata_log
    begins_at = needed_from_when_flushed(leader, follower)

    def cannot_open(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(follower.store, "index_entries", cannot_open)
        log.rebuild_or_note()
    assert log.needed_from == 0
    log.rebuild_or_note()
    assert log.needed_from == begins_at
    with monkeypatch.context() as patched:
        patched.setattr(follower.store, "index_entries", cannot_open)
        log.rebuild_or_note()
    leader.broker.metadata_log.write_base()
    assert needed_from_when_flushed(leader, follower) > begins_at, "its leader has sent another base"


def test_retention_keeps_the_last_base_that_a_power_cut_cannot_take(broker: BrokerUnderTest) -> None:
    """A file went whose base was the last one on the disk: topics, groups and offsets were gone."""
    broker.store.flush()
    broker.broker.held_changed()
    log = broker.broker.metadata_log
    first = log.needed_from
    assert first
    log.write_base()
    log.write_base()
    assert log.needed_from == first, "the newer ones are in memory only"
    broker.store.flush()
    broker.broker.held_changed()
    assert log.needed_from is not None
    assert log.needed_from > first


def test_retention_keeps_the_last_base_that_no_other_leader_truncates(
    brokers: tuple[BrokerUnderTest, BrokerUnderTest],
) -> None:
    leader, follower = brokers
    first = needed_from_when_flushed(leader, follower)
    leader.broker.metadata_log.write_base()
    following = follower.broker.replica
    end, confirmed, epoch = follower.store.end_offset, following.confirm_offset, leader.broker.replica.epoch
    follower.broker.metadata_log.receive(
        leader.store.read_raw(end, 1 << 20),
        lambda piece: following.received(piece, follower.store.end_offset, epoch, confirmed),
    )
    follower.store.flush()
    assert follower.store.durable_offset > end
    assert follower.broker.metadata_log.needed_from == first
    assert needed_from_when_flushed(leader, follower) > first


@contextmanager
def no_room_to_delete(broker: BrokerUnderTest) -> Iterator[None]:
    """The disk has no room for what a deletion of a topic's messages writes."""
    full = OSError(errno.ENOSPC, "No space left on device")
    with patch.object(type(broker.store), "delete_topic", side_effect=full):
        yield


def test_a_deleted_topic_is_not_made_again_at_a_follower_that_still_has_its_messages(
    brokers: tuple[BrokerUnderTest, BrokerUnderTest],
) -> None:
    leader, follower = brokers
    old = follower.store.max_offset("orders", 0)
    assert old > 0
    delete(leader)
    with no_room_to_delete(follower):
        with pytest.raises(OSError, match="No space left"):
            replicate(leader, follower)
        create(leader)
        leader.store_message("orders")
        with pytest.raises(OSError, match="No space left"):
            replicate(leader, follower)
    replicate(leader, follower)
    for each in leader, follower:
        assert (each.store.min_offset("orders", 0), each.store.max_offset("orders", 0)) == (old, old + 1)


def test_a_follower_deletes_a_topic_by_a_record_that_it_stored_though_its_epoch_file_had_no_room(
    brokers: tuple[BrokerUnderTest, BrokerUnderTest],
) -> None:
    leader, follower = brokers
    lead_again(leader)
    delete(leader)
    follower.broker.saw_epoch(leader.broker.replica.epoch, ADDRESSES[0])
    full = OSError(errno.ENOSPC, "No space left on device")
    with patch.object(EpochFile, "save", side_effect=full), pytest.raises(OSError, match="No space left"):
        replicate(leader, follower)
    assert follower.store.end_offset == leader.store.end_offset, "what is stored is not sent again"
    replicate(leader, follower)
    assert not knows(follower)
    assert "orders" not in follower.store.topics()


def test_a_deleted_topic_is_not_made_again_while_the_leader_still_has_its_messages(
    broker: BrokerUnderTest,
) -> None:
    create(broker)
    send(broker, 10)
    with no_room_to_delete(broker):
        assert "cannot be made again" in (delete(broker).remark or "")
        again = create(broker)
        assert again.code != ResponseCode.SUCCESS
        assert "No space left" in (again.remark or "")
        assert create(broker, "payments").code == ResponseCode.SUCCESS
    assert create(broker).code == ResponseCode.SUCCESS
    assert broker.store_message("orders").queue_offset == broker.store.min_offset("orders", 0) > 0


@pytest.mark.parametrize("first", ["topic", "group"])
def test_a_deletion_that_is_refused_does_not_come_with_the_base_in_front_of_it(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """The base is written though more of the disk is used than messages may take, and the record is not."""
    create(broker)
    broker.create_group("g")

    def full(message: MessageToStore) -> AppendResult:
        raise DiskFullError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(broker.store, "append_needed", full)
        broker.broker.metadata_log.write_base()
    with monkeypatch.context() as patch:
        patch.setattr(broker.store, "used_ratio", lambda: 1.1)
        broker.clock.advance(5)
        delete_topic, delete_group = (
            partial(broker.broker.topic_configs.delete, ["orders"]),
            partial(broker.broker.subscription_groups.delete, "g"),
        )
        with pytest.raises(DiskFullError):
            (delete_topic if first == "topic" else delete_group)()
    for _ in ("now", "after a restart"):
        assert knows(broker)
        assert broker.broker.subscription_groups.select("g") is not None
        broker.restart()


def test_a_deletion_that_a_base_follows_before_it_is_done_is_done_at_the_next_start(
    broker: BrokerUnderTest,
) -> None:
    create(broker)
    send(broker, 10)
    with no_room_to_delete(broker):
        delete(broker)
        broker.broker.metadata_log.write_base()
        broker.crash()
        assert "orders" in broker.store.topics()
        assert create(broker).code == ResponseCode.SERVICE_NOT_AVAILABLE
    broker.crash()
    assert "orders" not in broker.store.topics()
    assert create(broker).code == ResponseCode.SUCCESS
    assert broker.store_message("orders").queue_offset == broker.store.min_offset("orders", 0) > 0


CHANGES = [
    (RequestCode.UPDATE_AND_CREATE_TOPIC, creation("new"), b""),
    (RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="orders"), b""),
    (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, SubscriptionGroupConfig(group_name="h").to_json()),
    (RequestCode.UPDATE_CONSUMER_OFFSET, commitment(5), b""),
    (
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        ResetOffsetRequestHeader(topic="orders", group="g", queue_id=0, offset=1, timestamp=-1),
        b"",
    ),
]


@pytest.mark.parametrize(("code", "header", "body"), CHANGES)
def test_a_follower_refuses_changes_and_names_the_master(
    brokers: tuple[BrokerUnderTest, BrokerUnderTest],
    code: RequestCode,
    header: CreateTopicRequestHeader | None,
    body: bytes,
) -> None:
    _, follower = brokers
    follower.broker.follower.hears_leader = True
    end_offset = follower.store.end_offset
    reply = follower.ask(code, header, body=body)
    assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "the master is 10.0.0.1:10911" in (reply.remark or "")
    assert (knows(follower), offset_of(follower), follower.store.end_offset) == (True, 4, end_offset)


# --- commits at a follower while the leader is away ---


def test_commits_at_a_follower_without_a_leader_are_kept_and_merged(
    brokers: tuple[BrokerUnderTest, BrokerUnderTest],
) -> None:
    leader, follower = brokers
    follower.request(RequestCode.UPDATE_CONSUMER_OFFSET, commitment(8), oneway=True)
    assert offset_of(follower) == 8
    leader.broker.consumer_offsets.merge(
        follower.broker.consumer_offsets.to_wrapper(), leader.broker.unproven_offsets.is_proven
    )
    assert offset_of(leader) == 8


def test_what_was_committed_at_a_follower_before_a_reset_does_not_undo_it(
    brokers: tuple[BrokerUnderTest, BrokerUnderTest],
) -> None:
    leader, follower = brokers
    follower.request(RequestCode.UPDATE_CONSUMER_OFFSET, commitment(8), oneway=True)
    reset(leader, 1)
    leader.broker.consumer_offsets.take_reset("orders", "g", 0)
    leader.broker.consumer_offsets.merge(
        follower.broker.consumer_offsets.to_wrapper(), leader.broker.unproven_offsets.is_proven
    )
    assert offset_of(leader) == 1
    replicate(leader, follower)
    assert offset_of(follower) == 1
    assert not follower.broker.consumer_offsets.has_hints


def test_a_promoted_follower_has_what_was_committed_there(brokers: tuple[BrokerUnderTest, BrokerUnderTest]) -> None:
    former, leader = brokers
    leader.request(RequestCode.UPDATE_CONSUMER_OFFSET, commitment(8), oneway=True)
    promote(leader, former)
    replicate(leader, former)
    assert (offset_of(leader), offset_of(former)) == (8, 8)


# --- restarts and bases ---


def test_the_tables_are_rebuilt_from_the_log_alone(broker: BrokerUnderTest) -> None:
    create(broker)
    broker.create_group("g")
    send(broker, 10)
    commit(broker, 6)
    reset(broker, 3)
    broker.broker.persist()
    broker.store.close(clean=False)
    shutil.rmtree(broker.folder / "store" / "config")
    broker.start()
    assert knows(broker)
    assert broker.broker.subscription_groups.select("g") is not None
    assert offset_of(broker) == 3
    assert broker.broker.consumer_offsets.has_reset("orders", "g", 0)


def test_a_table_that_an_operator_or_rocketmq_wrote_counts_more_than_the_log(broker: BrokerUnderTest) -> None:
    create(broker)
    broker.stop()
    (broker.folder / "store" / "config" / "topics.json").write_text(
        '{"dataVersion":{"counter":9},"topicConfigTable":{"mine":{"topicName":"mine","perm":6}}}'
    )
    broker.start()
    assert (knows(broker, "mine"), knows(broker, "orders")) == (True, False)
    broker.crash()
    assert (knows(broker, "mine"), knows(broker, "orders")) == (True, False)


def test_a_deletion_whose_messages_were_not_removed_is_finished_at_the_start(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(broker)
    send(broker, 3)
    with monkeypatch.context() as patched:
        patched.setattr(broker.store, "delete_topic", lambda _topic: None)
        delete(broker)
    broker.crash()
    create(broker)
    assert broker.messages("orders") == []


@pytest.mark.parametrize("keys", [{"maxMessageSize": "2048"}, {"mappedFileSizeCommitLog": "4096"}])
def test_small_messages_or_files_split_a_base_which_is_found_and_read_whole(
    make_broker: MakeBroker, keys: dict[str, str]
) -> None:
    broker = make_broker(**keys)
    for number in range(60):
        broker.create_topic(f"topic-{number}")
    broker.broker.metadata_log.write_base()
    broker.broker.persist()
    broker.store.close(clean=False)
    shutil.rmtree(broker.folder / "store" / "config")
    broker.start()
    assert all(knows(broker, f"topic-{number}") for number in range(60))


def test_more_offsets_than_a_record_has_room_for_are_written_as_several(make_broker: MakeBroker) -> None:
    broker = make_broker(maxMessageSize="1024")
    broker.create_topic("orders", queues=200)
    broker.create_group("g")
    for queue_id in range(200):
        broker.broker.consumer_offsets.commit("orders", "g", queue_id, 10**12)
    broker.broker.metadata_log.write_offsets()
    assert not broker.broker.consumer_offsets.has_unwritten
    broker.crash()
    assert broker.broker.consumer_offsets.query_all("orders", "g") == dict.fromkeys(range(200), 10**12)


def test_many_changes_do_not_make_the_last_base_distant(broker: BrokerUnderTest) -> None:
    broker.create_topic("orders")
    broker.create_group("g")
    send(broker, 1)
    log = broker.broker.metadata_log
    for number in range(1000):
        broker.broker.consumer_offsets.commit("orders", "g", 0, number)
        log.write_offsets()
        log.keep_base_near()
    broker.store.flush()
    broker.broker.held_changed()
    base_at = log.needed_from
    assert base_at
    assert log.end_offset - base_at < 256 * 1024


def test_a_base_of_any_size_is_joined_from_its_records() -> None:
    topics = {f"t{number}": TopicConfig(topic_name=f"t{number}") for number in range(300)}
    offsets = {f"t{number}@g": {queue: queue * 7 for queue in range(200)} for number in range(5)}
    groups = {"g": SubscriptionGroupConfig(group_name="g")}
    records = base_records(
        topics, groups, {}, offsets, {"t0@g": {1: 2}}, {"t0@g": {1: 1}}, {"t0": {0: 5}}, max_bytes=4000
    )
    assert len(records) > 10
    assert joined(records) == MetadataRecord(
        part=0, parts=1, topics=topics, groups=groups, offsets=offsets, resets={"t0@g": {1: 2}},
        reset_counts={"t0@g": {1: 1}}, kept_from={"t0": {0: 5}},
    )  # fmt: skip


def test_a_base_that_is_not_whole_changes_nothing(
    brokers: tuple[BrokerUnderTest, BrokerUnderTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, follower = brokers
    for number in range(60):
        leader.create_topic(f"topic-{number}")
    append_needed = leader.store.append_needed
    appended: list[AppendResult] = []

    def failing(message: MessageToStore) -> AppendResult:
        if appended:
            raise DiskFullError("no room is left")
        appended.append(append_needed(message))
        return appended[0]

    with monkeypatch.context() as patched:
        patched.setattr(leader.store, "append_needed", failing)
        patched.setattr("brokerd.metadata_record._MAX_BYTES", 2048)
        leader.broker.metadata_log.write_base()
    assert len(appended) == 1
    replicate(leader, follower)
    assert knows(follower, "topic-0")
    follower.crash()
    assert knows(follower, "topic-0")
    assert offset_of(follower) == 4


def test_messages_of_a_topic_that_is_in_no_table_are_deleted_on_every_replica(
    brokers: tuple[BrokerUnderTest, BrokerUnderTest],
) -> None:
    """A delayed one may come when its topic is deleted already: deleted again, it went at the leader alone."""
    leader, follower = brokers
    delete(leader)
    replicate(leader, follower)
    leader.store_message("orders", b"late")
    replicate(leader, follower)
    delete(leader)
    replicate(leader, follower)
    assert leader.store.queue_end_offset("orders", 0) is None
    assert follower.store.queue_end_offset("orders", 0) is None


def test_a_deletion_that_failed_half_way_is_done_whole(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time it found no queue, and left the files, and what had expired of the topic before."""
    create(broker)
    broker.store_message("orders", b"expired")
    broker.store.flush_consume_queues()
    broker.store.keep_from("orders", 0, 1)
    disk = broker.store._disk
    listdir = type(disk).listdir

    def failing(self: Disk, path: str) -> list[str]:
        if path.endswith("consumequeue/orders"):
            raise OSError(errno.EMFILE, "Too many open files")
        return listdir(self, path)

    with monkeypatch.context() as patched:
        patched.setattr(type(disk), "listdir", failing)
        assert delete(broker).code == ResponseCode.SYSTEM_ERROR
    broker.broker.metadata_log.finish_deletions()
    assert not (broker.folder / "store" / "consumequeue" / "orders").exists()
    assert broker.store._kept_from == {}


def test_a_follower_whose_disk_cannot_read_its_tables_follows_on_to_the_next_base(
    brokers: tuple[BrokerUnderTest, BrokerUnderTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No one puts a bad sector right: it would have followed no more, and said nothing."""
    leader, follower = brokers
    metadata = follower.broker.metadata_log
    with monkeypatch.context() as patched:
        patched.setattr(metadata, "rebuild", Mock(side_effect=StoreError("Input/output error")))
        metadata.rebuild_or_note()
        create(leader, "payments")
        replicate(leader, follower)
        assert follower.store.end_offset == leader.store.end_offset
        assert metadata.is_stale
    leader.broker.metadata_log.write_base()
    with monkeypatch.context() as patched:
        patched.setattr(metadata, "_read_what_can_be_read", Mock())
        replicate(leader, follower)
    assert not metadata.is_stale
    assert knows(follower, "payments")
