"""A whole broker whose log is damaged runs as far as it can, until another replica's records have put that right."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Awaitable, Callable
from typing import Any, cast
from unittest.mock import Mock

import pytest
import trio

from brokerd import broker as broker_module
from brokerd.replica.epoch_file import EpochFile
from brokerd.services import replica_follower
from brokerd.services.remoting_client import RequestFailed
from brokerd.services.replica_follower import FollowerService
from brokerd.store import MessageStore, StoreDamagedError
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_replica import ReplicaPullRequestHeader, ReplicaPullResponseHeader
from mqwire.headers_topic import CreateTopicRequestHeader, DeleteTopicRequestHeader
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker, RecordingPeer
from tests.brokerd.metered_broker import pull_header
from tests.brokerd.replicated_broker import ADDRESSES, pair, promote, replicate
from tests.sim.store_harness import read_queue


@pytest.fixture
def brokers(make_broker: MakeBroker) -> tuple[BrokerUnderTest, BrokerUnderTest]:
    """A leader and its follower, which holds its log: topic `orders`, group `g` at offset 4."""
    leader, follower = pair(make_broker)
    follower.broker.replica.learn_replicas({0: ADDRESSES[0]})
    create(leader, "orders")
    leader.broker.consumer_offsets.commit("orders", "g", 0, 4)
    leader.broker.metadata_log.write_offsets()
    replicate(leader, follower)
    return leader, follower


def create(broker: BrokerUnderTest, topic: str) -> None:
    header = CreateTopicRequestHeader(
        topic=topic, default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=6,
        topic_filter_type="SINGLE_TAG", order=False,
    )  # fmt: skip
    broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


def damaged_message(leader: BrokerUnderTest, follower: BrokerUnderTest) -> int:
    """The follower is started with a message damaged that has another one after it; returns where it begins."""
    damaged_from = leader.store_message("lasting").physical_offset
    leader.store_message("lasting")
    replicate(leader, follower)
    follower.store.close(clean=False)
    damage(follower, damaged_from)
    follower.start()
    return damaged_from


def damage(broker: BrokerUnderTest, physical_offset: int) -> None:
    """Flip a bit of the record that begins there, as a disk does."""
    (log_file,) = (broker.folder / "store" / "commitlog").iterdir()
    data = bytearray(log_file.read_bytes())
    data[physical_offset + 60] ^= 1
    log_file.write_bytes(data)


def repair(leader: BrokerUnderTest, follower: BrokerUnderTest) -> None:
    """With what the leader answers to the follower's next pull."""
    pull = follower.broker.replica.next_pull(max_bytes=1 << 20, max_wait_ms=0)
    follower.broker.replica.repair(leader.store.read_raw(pull.end_offset, pull.max_bytes), of_leader=True)
    follower.broker.log_was_truncated()


def test_it_starts_though_a_deletion_may_be_left_to_finish(brokers: tuple[BrokerUnderTest, BrokerUnderTest]) -> None:
    leader, follower = brokers
    leader.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="orders"))
    damaged_from = damaged_message(leader, follower)
    assert follower.store.damaged_from == damaged_from
    repair(leader, follower)
    assert follower.broker.topic_configs.select("orders") is None


@pytest.mark.parametrize("found_by", ["recovery", "a reader"])
def test_it_starts_without_the_tables_that_it_cannot_read_and_has_them_once_it_is_repaired(
    brokers: tuple[BrokerUnderTest, BrokerUnderTest], found_by: str
) -> None:
    leader, follower = brokers
    damaged_from = leader.store.end_offset
    leader.broker.metadata_log.write_base()
    create(leader, "payments")
    replicate(leader, follower)
    follower.broker.persist()
    if found_by == "recovery":
        follower.store.close(clean=False)
    else:
        follower.stop()
    damage(follower, damaged_from)
    shutil.rmtree(follower.folder / "store" / "config")
    follower.start()
    assert follower.store.damaged_from == damaged_from
    repair(leader, follower)
    assert follower.broker.topic_configs.select("payments") is not None
    assert follower.broker.consumer_offsets.query("orders", "g", 0) == 4


@pytest.fixture
def unfinished(
    brokers: tuple[BrokerUnderTest, BrokerUnderTest], monkeypatch: pytest.MonkeyPatch
) -> tuple[BrokerUnderTest, BrokerUnderTest]:
    """The follower had no room to delete a topic, and was started again with its tables damaged."""
    leader, follower = brokers
    damaged_from = leader.store.end_offset
    leader.broker.metadata_log.write_base()
    leader.store_message("orders", b"deleted")
    replicate(leader, follower)
    leader.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="orders"))
    with monkeypatch.context() as patched:
        patched.setattr(follower.store, "delete_topic", Mock(side_effect=OSError(errno.ENOSPC, "No space left")))
        with pytest.raises(OSError, match="No space left"):
            replicate(leader, follower)
    follower.kill()
    damage(follower, damaged_from)
    follower.start()
    assert follower.store.damaged_from == damaged_from
    return leader, follower


def test_a_deletion_is_finished_where_the_tables_are_put_right_and_that_cannot_be_written_down(
    unfinished: tuple[BrokerUnderTest, BrokerUnderTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repair had failed for its caller, who did not read the tables again."""
    leader, follower = unfinished
    damaged_from = follower.store.damaged_from
    assert damaged_from is not None
    records = leader.store.read_raw(damaged_from, 1 << 20)
    header = ReplicaPullResponseHeader(
        answer="bytes", epoch=leader.broker.replica.epoch, end_offset=leader.store.end_offset
    )
    following = FollowerService(cast("Any", follower.broker))
    with monkeypatch.context() as patched:
        patched.setattr(EpochFile, "save", Mock(side_effect=OSError(errno.ENOSPC, "No space left")))
        with pytest.raises(OSError, match="No space left"):
            trio.run(following._repair, header, records, damaged_from)
    assert follower.store.damaged_from is None
    assert follower.store.queue_end_offset("orders", 0) is None


def test_a_deletion_is_finished_before_anything_of_a_topic_of_the_same_name_comes(
    unfinished: tuple[BrokerUnderTest, BrokerUnderTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic was there again when the tables could be read, so that its deleted messages stayed."""
    leader, follower = unfinished
    damaged_from = follower.store.damaged_from
    assert damaged_from is not None
    follower.broker.replica.repair(leader.store.read_raw(damaged_from, 1 << 20), of_leader=True)
    create(leader, "orders")
    leader.store_message("orders", b"new")
    replicate(leader, follower)
    assert [message.body for message in read_queue(follower.store, "orders", 0)] == [b"new"]


def test_it_does_not_start_where_no_other_replica_can_help(broker: BrokerUnderTest) -> None:
    """Empty tables would send consumers to offset 0."""
    create(broker, "orders")
    damaged_from = broker.store.end_offset
    broker.broker.metadata_log.write_base()
    broker.stop()
    damage(broker, damaged_from)
    with pytest.raises(StoreDamagedError):
        broker.start()


def test_an_operator_may_have_a_broker_without_others_give_up_its_damaged_tail(broker: BrokerUnderTest) -> None:
    create(broker, "orders")
    broker.broker.metadata_log.write_base()
    broker.store.flush_consume_queues()
    kept = broker.store_message("orders").physical_offset
    damaged_from = broker.store_message("orders").physical_offset
    broker.store.close(clean=False)
    damage(broker, damaged_from)
    with pytest.raises(StoreDamagedError, match="truncateDamagedTail"):
        broker.start()
    broker.store.close(clean=False)
    with (broker.folder / "broker.conf").open("a") as conf:
        conf.write("truncateDamagedTail=true\n")
    broker.start()
    assert broker.store.damaged_from is None
    assert broker.store.message_at(kept) is not None
    assert broker.store_message("orders").queue_offset == 1


def test_it_flushes_nothing_and_takes_sends_again_once_it_is_repaired(
    brokers: tuple[BrokerUnderTest, BrokerUnderTest],
) -> None:
    leader, follower = brokers
    damaged_message(leader, follower)
    assert trio.run(follower.broker.flush_service.flush_once)
    repair(leader, follower)
    assert follower.store.durable_offset == follower.store.end_offset
    promote(follower, leader)
    assert follower.broker.refuses_sends() is None


def test_what_no_replica_puts_right_is_kept_aside_before_it_is_truncated(
    brokers: tuple[BrokerUnderTest, BrokerUnderTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the damage there may be records that the leader never had."""

    async def no_one(*_: object) -> bool:
        return False

    monkeypatch.setattr(replica_follower, "repair_from_peers", no_one)
    leader, follower = brokers
    damaged_from = damaged_message(leader, follower)
    header = ReplicaPullResponseHeader(answer="bytes", epoch=follower.broker.replica.epoch)
    trio.run(follower.broker.follower._repair, header, b"\xff" * 300, damaged_from)
    assert follower.store.end_offset == damaged_from
    (file,) = follower.broker.diverged.files()
    assert (file.begin_offset, file.topics) == (damaged_from, {"lasting": 1})


def test_a_follower_keeps_what_its_leader_has_damaged_right_after_its_own_damage(
    brokers: tuple[BrokerUnderTest, BrokerUnderTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only whole copy of that record went with the rest: neither replica had all then, and the group stood still."""
    leader, follower = brokers
    damaged_from, damaged_at_leader, _ = (leader.store_message("lasting").physical_offset for _ in range(3))
    replicate(leader, follower)
    follower.store.close(clean=False)
    damage(follower, damaged_from)
    follower.start()
    damage(leader, damaged_at_leader)

    async def asked(broker: object, offset: int, write: Callable[[bytes], Awaitable[None]]) -> bool:
        with pytest.raises(ValueError, match="says that both logs are the same"):
            await write(leader.store.records_and_next(offset, 1))
        return False

    monkeypatch.setattr(replica_follower, "repair_from_peers", asked)
    end_offset, epoch = leader.store.end_offset, follower.broker.replica.epoch
    header = ReplicaPullResponseHeader(answer="bytes", epoch=epoch, end_offset=end_offset)
    data = leader.store.read_raw(damaged_from, 1 << 20, check=True)
    with pytest.raises(RequestFailed, match="is damaged itself"):
        trio.run(follower.broker.follower._repair, header, data, damaged_from)
    assert follower.store.end_offset == end_offset
    follower.kill()  # a damaged log can't be flushed


@pytest.mark.parametrize("found", [True, False], ids=["a replica has it", "none answers"])
def test_a_leader_that_meets_damage_takes_messages_unless_no_replica_puts_it_right(
    brokers: tuple[BrokerUnderTest, BrokerUnderTest], monkeypatch: pytest.MonkeyPatch, found: bool
) -> None:
    leader, follower = brokers
    damaged_from = leader.store_message("lasting").physical_offset
    leader.store_message("lasting")
    replicate(leader, follower)

    async def asked(broker: object, offset: int, write: Callable[[bytes], Awaitable[None]]) -> bool:
        if found:
            await write(follower.store.records_and_next(offset, 1))
        return found

    monkeypatch.setattr(broker_module, "repair_from_peers", asked)
    damage(leader, damaged_from)
    trio.run(leader.broker._put_right, damaged_from)
    assert (leader.broker.refuses_sends() is None) is found
    assert (leader.store.locate_damage(damaged_from) is None) is found


def test_a_leader_whose_retention_deletes_the_damage_while_replicas_are_asked_goes_on(
    brokers: tuple[BrokerUnderTest, BrokerUnderTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No replica's records could be written where there is no file any more: it would take no message again."""
    leader, follower = brokers
    damaged_from = leader.store_message("lasting").physical_offset
    leader.store_message("lasting")
    replicate(leader, follower)

    async def asked(broker: object, offset: int, write: Callable[[bytes], Awaitable[None]]) -> bool:
        monkeypatch.setattr(MessageStore, "min_physical_offset", offset + 1)
        return False

    monkeypatch.setattr(broker_module, "repair_from_peers", asked)
    damage(leader, damaged_from)
    trio.run(leader.broker._put_right, damaged_from)
    assert leader.broker.refuses_sends() is None


def pulled_at_the_damage(broker: BrokerUnderTest) -> tuple[int, str | None, str | None]:
    """What a consumer is answered: the code, where it goes on, and at which broker."""
    broker.store._reader.trusted_from = (
        broker.store.end_offset
    )  # as after a restart: what it wrote itself it takes for whole
    answer = broker.ask(RequestCode.PULL_MESSAGE, pull_header("lasting"))
    return answer.code, answer.ext_fields.get("nextBeginOffset"), answer.ext_fields.get("suggestWhichBrokerId")


@pytest.mark.parametrize("slave_has_it", [True, False])
def test_a_reader_of_what_the_leader_has_damaged_is_sent_to_a_slave_that_has_it_whole(
    brokers: tuple[BrokerUnderTest, BrokerUnderTest], slave_has_it: bool
) -> None:
    leader, follower = brokers
    create(leader, "lasting")
    replicate(leader, follower)
    damaged_from = leader.store_message("lasting").physical_offset
    if slave_has_it:
        replicate(leader, follower)
    damage(leader, damaged_from)
    answered = pulled_at_the_damage(leader)
    if slave_has_it:
        assert answered == (ResponseCode.PULL_RETRY_IMMEDIATELY, "0", "1")
    else:
        assert answered == (ResponseCode.SYSTEM_ERROR, None, None)


def test_a_reader_of_what_a_slave_has_damaged_is_sent_to_the_leader(
    brokers: tuple[BrokerUnderTest, BrokerUnderTest],
) -> None:
    leader, follower = brokers
    create(leader, "lasting")
    damaged_from = leader.store_message("lasting").physical_offset
    replicate(leader, follower)
    damage(follower, damaged_from)
    assert pulled_at_the_damage(follower) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "0", "0")


class Link:
    """The follower's client of its leader, for two pulls. While the first answer is on its way a reader meets damage."""

    address = ADDRESSES[0]

    def __init__(self, leader: BrokerUnderTest, follower: BrokerUnderTest, damaged_from: int) -> None:
        self.leader, self.follower, self.damaged_from = leader, follower, damaged_from
        self.seen: list[tuple[int, int]] = []  # with each pull: from where it asks, and where the follower's log ends

    async def request(self, request: RemotingCommand, *, timeout_s: float) -> RemotingCommand:
        self.seen.append((request.header(ReplicaPullRequestHeader).end_offset, self.follower.store.end_offset))
        if len(self.seen) > 2:
            raise RequestFailed("the test is over")
        peer = RecordingPeer()
        self.leader.broker.replica_server.pull(peer, request)
        (reply,) = peer.take_answers(request.opaque)
        if len(self.seen) == 1:
            damage(self.follower, self.damaged_from)
            self.follower.store.declare_damaged(self.damaged_from)
        return reply


def test_an_answer_to_a_pull_of_before_the_damage_was_found_truncates_nothing(
    brokers: tuple[BrokerUnderTest, BrokerUnderTest],
) -> None:
    """It begins elsewhere, and says nothing of the damaged record; the next answer puts that right in place."""
    leader, follower = brokers
    damaged_from = leader.store_message("lasting").physical_offset
    leader.store_message("lasting")
    replicate(leader, follower)
    end_offset = follower.store.end_offset
    leader.store_message("lasting")
    link = Link(leader, follower, damaged_from)

    async def follow() -> None:
        async with trio.open_nursery() as nursery:
            with pytest.raises(RequestFailed):
                await follower.broker.follower._pull_from(link, nursery)  # type: ignore[arg-type] # it stands for a client

    trio.run(follow)
    assert link.seen == [(end_offset, end_offset), (damaged_from, end_offset), (end_offset, end_offset)]
