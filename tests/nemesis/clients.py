"""The clients of a disturbed group send, pull, commit, resume, ask for offsets, make and delete topics and groups, and note what
they are answered."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from random import Random

from highwater import (
    ConsumeFrom,
    HighwaterError,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SendStatus,
)
from mqwire.bodies import ReplicaStatus, SubscriptionGroupConfig
from mqwire.codes import HighwaterRequestCode, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_group import DeleteSubscriptionGroupRequestHeader
from mqwire.headers_offset import QueryConsumerOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from mqwire.headers_topic import CreateTopicRequestHeader, DeleteTopicRequestHeader
from mqwire.message import decode_records
from tests.daemons import ReplicaGroup
from tests.nemesis.judge import Acknowledged, History, OffsetAnswer, Table
from tests.nemesis.overheard import led_epoch, note_commit, note_pull, overheard
from tests.remoting import connect, exchange
from tests.replication.replicas import registered

TOPIC = "nemesis"
QUEUES = 3
PULL_GROUP, PUSH_GROUP = "pullers", "pushed"
_SEND_TIMEOUT_MS = 4000
_ASK_TIMEOUT_S = 2.0
_COMMIT_TIMEOUT_S = 5.0  # longer than a broker waits for its replicas
_PAUSE_S = 0.05
_RESUME_AFTER_S = (1.0, 5.0)
_CONSUMER_LIVES_S = (5.0, 20.0)
_DELETIONS = 0.3  # of all changes of topics and groups


class Clients:
    """Threads that run until the block ends; what they note is in `history`."""

    def __init__(self, group: ReplicaGroup, seed: int, send_pause_s: float = 0.0) -> None:
        """Each sender waits `send_pause_s` after every message that was acknowledged."""
        self.history = History()
        self._send_pause_s = send_pause_s
        self._group = group
        self._seed = seed
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """All of them, for the length of the block; raises what one of them did not expect."""
        with overheard(self.history, PUSH_GROUP, TOPIC, self._number_of):
            for queue in range(QUEUES):
                self._start(partial(self._send, queue))
            self._start(self._pull)
            self._start(self._ask)
            self._start(self._change_tables)
            self._start(self._push)
            try:
                yield
            finally:
                self._over.set()
                for thread in self._threads:
                    thread.join()
        if self._failures:
            raise self._failures[0]

    def _start(self, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self._failures.append(error)

        thread = threading.Thread(target=run)
        self._threads.append(thread)
        thread.start()

    def _push(self) -> None:
        """One push consumer after the other: each goes on where the group has committed."""
        random = Random(self._seed + 3)
        while not self._over.is_set():
            consumer = PushConsumer(
                self._group.namesrv,
                PUSH_GROUP,
                consume_from=ConsumeFrom.FIRST_OFFSET,
                poll_name_server_interval_ms=1000,
                persist_consumer_offset_interval_ms=500,
            )
            consumer.subscribe(TOPIC, handler=self._got)
            consumer.start()
            self.history.consumers += 1
            self._over.wait(random.uniform(*_CONSUMER_LIVES_S))
            consumer.stop()

    def _got(self, message: ReceivedMessage) -> None:
        self.history.seen[PUSH_GROUP].add(message.body.decode())

    def _send(self, queue_id: int) -> None:
        queue = MessageQueue(TOPIC, self._group.name, queue_id)
        with Producer(self._group.namesrv, f"senders-{queue_id}", retry_times_when_send_failed=0) as producer:
            number = 0
            while not self._over.is_set():
                number += 1
                key = f"{queue_id}-{number}"
                with contextlib.suppress(HighwaterError):
                    result = producer.send(Message(TOPIC, key.encode()), queue=queue, timeout_ms=_SEND_TIMEOUT_MS)
                    if result.status is SendStatus.SEND_OK:
                        self.history.acknowledged.append(Acknowledged(key, queue_id, result.queue_offset))
                        self._over.wait(self._send_pause_s)
                        continue
                self._over.wait(_PAUSE_S)

    # --- a consumer that reads from whichever replica, and commits to the leader

    def _pull(self) -> None:
        random = Random(self._seed + 1)
        while not self._over.is_set():
            positions = {queue: self._resume(queue, random) for queue in range(QUEUES)}
            until_s = time.monotonic() + random.uniform(*_RESUME_AFTER_S)
            while time.monotonic() < until_s and not self._over.is_set():
                for queue_id in positions:
                    replica = self._leader() if random.random() < 0.7 else random.randrange(len(self._group.replicas))
                    if replica is not None:
                        positions[queue_id] = self._pull_once(replica, queue_id, positions[queue_id])
                self._commit(positions)
                self._over.wait(_PAUSE_S)

    def _resume(self, queue_id: int, random: Random) -> int:
        while not self._over.is_set():
            replica = self._leader()
            if replica is not None:
                answer = self.ask_offset(replica, PULL_GROUP, queue_id)
                if answer is not None:
                    return answer.offset or 0
            self._over.wait(_PAUSE_S)
        return 0

    def _pull_once(self, replica: int, queue_id: int, offset: int) -> int:
        fields = {
            "consumerGroup": PULL_GROUP, "topic": TOPIC, "queueId": str(queue_id), "queueOffset": str(offset),
            "maxMsgNums": "64", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
            "subscription": "*", "subVersion": "0", "expressionType": "TAG",
        }  # fmt: skip
        request = RemotingCommand.request(RequestCode.PULL_MESSAGE, ext_fields=fields)
        asked_s = time.monotonic()
        reply = self._exchange(replica, request)
        if reply is None or "nextBeginOffset" not in reply.ext_fields:
            return offset
        note_pull(self.history, request, reply, asked_s, replica)
        if reply.code == ResponseCode.SUCCESS:
            for message in decode_records(bytes(reply.body)):
                self.history.seen[PULL_GROUP].add(message.body.decode())
        return int(reply.ext_fields["nextBeginOffset"])

    def _commit(self, positions: dict[int, int]) -> None:
        for queue_id, offset in positions.items():
            replica = self._leader()
            if replica is None:
                return
            header = UpdateConsumerOffsetRequestHeader(
                consumer_group=PULL_GROUP, topic=TOPIC, queue_id=queue_id, commit_offset=offset
            )
            request = RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
            reply = self._exchange(replica, request, _COMMIT_TIMEOUT_S)
            if reply is not None:
                note_commit(self.history, request, reply)

    # --- others

    def _ask(self) -> None:
        random = Random(self._seed + 2)
        while not self._over.is_set():
            replica = self._leader()
            if replica is not None:
                self.ask_offset(replica, random.choice((PULL_GROUP, PUSH_GROUP)), random.randrange(QUEUES))
            self._over.wait(_PAUSE_S)

    def ask_offset(self, replica: int, group: str, queue_id: int) -> OffsetAnswer | None:
        """What a replica says that the group has committed; None without an answer."""
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group, topic=TOPIC, queue_id=queue_id, set_zero_if_not_found=False
        )
        led = self._led_epoch(replica)
        asked_s = time.monotonic()
        request = RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        reply = self._exchange(replica, request, _COMMIT_TIMEOUT_S)
        if reply is None or reply.code not in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND):
            return None
        answered_s = time.monotonic()
        held = led is not None and led == self._led_epoch(replica)
        offset = int(reply.ext_fields["offset"]) if reply.code == ResponseCode.SUCCESS else None
        answer = OffsetAnswer(group, queue_id, offset, asked_s, answered_s, replica, held)
        self.history.offset_answers.append(answer)
        return answer

    def _led_epoch(self, replica: int) -> int | None:
        reply = self._exchange(replica, RemotingCommand.request(HighwaterRequestCode.REPLICA_STATUS))
        if reply is None or reply.code != ResponseCode.SUCCESS:
            return None
        return led_epoch(ReplicaStatus.from_json(bytes(reply.body)))

    def _change_tables(self) -> None:
        """Make a topic or a group, or delete one. One whose change is not answered is left alone: it may be done at any time."""
        random, made, number = Random(self._seed + 4), self.history.made, 0
        while not self._over.is_set():
            replica = self._leader()
            if replica is not None:
                existing = [key for key, is_made in made.items() if is_made]
                if existing and random.random() < _DELETIONS:
                    (table, name), makes = random.choice(existing), False
                else:
                    number += 1
                    table, name, makes = random.choice((Table.TOPIC, Table.GROUP)), f"made-{number}", True
                made.pop((table, name), None)
                reply = self._exchange(replica, _change(table, name, makes=makes), _COMMIT_TIMEOUT_S)
                if reply is not None and reply.code == ResponseCode.SUCCESS:
                    made[table, name] = makes
            self._over.wait(0.3)

    def _leader(self) -> int | None:
        """Whom the name server calls the master."""
        with contextlib.suppress(OSError):
            address = registered(self._group).get(0)
            for number, replica in enumerate(self._group.replicas):
                if replica.address == address:
                    return number
        self._over.wait(_PAUSE_S)
        return None

    def _number_of(self, address: str) -> int:
        return next(number for number, replica in enumerate(self._group.replicas) if replica.address == address)

    def _exchange(
        self, replica: int, request: RemotingCommand, timeout_s: float = _ASK_TIMEOUT_S
    ) -> RemotingCommand | None:
        try:
            with connect(self._group[replica].address, timeout_s=timeout_s) as stream:
                return exchange(stream, request)
        except (TimeoutError, OSError):
            return None


def _change(table: Table, name: str, *, makes: bool) -> RemotingCommand:
    if table is Table.GROUP and makes:
        config = SubscriptionGroupConfig(group_name=name)
        return RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.to_json())
    if table is Table.GROUP:
        header = DeleteSubscriptionGroupRequestHeader(group_name=name)
        return RemotingCommand.request(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
    if makes:
        topic = CreateTopicRequestHeader(
            topic=name, default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6,
            topic_filter_type="SINGLE_TAG",
        )  # fmt: skip
        return RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, topic)
    return RemotingCommand.request(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=name))
