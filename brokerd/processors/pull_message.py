"""PULL_MESSAGE: a slice of the log, as it lies there, or a pull that is held until there is one.

Source of the answers' codes: PullMessageProcessor, DefaultPullMessageResultHandler and protocol-notes.md.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sized
from typing import TYPE_CHECKING, Final, Protocol

from brokerd.acl import credential_of
from brokerd.acl_needs import TAGS_MAX
from brokerd.long_polling import ANSWERED_AT_ONCE, HeldPull
from brokerd.replies import Refusal
from brokerd.store import GetMessageStatus, GetResult, RecordDamagedError, StoreError
from brokerd.topic_validator import is_brokers_own
from mqwire.codes import PermName, PullSysFlag, ResponseCode
from mqwire.command import RemotingCommand, encode_frame_prefix
from mqwire.errors import RemoteProtocolError
from mqwire.field_layout import FieldLayouts
from mqwire.headers_pull import PullMessageRequestHeader
from mqwire.message import tags_code
from mqwire.names import AGE_LOOK_GROUP, MASTER_ID, RMQ_SYS_METERING

if TYPE_CHECKING:
    from brokerd.acl import AccessControl
    from brokerd.client_channel import Peer
    from brokerd.config import BrokerConfig
    from brokerd.consumer_manager import ConsumerManager
    from brokerd.consumer_offset import ConsumerOffsetManager
    from brokerd.long_polling import PullRequestHoldService
    from brokerd.processors.context import Clock, MetadataLog, Metering
    from brokerd.quotas import Quotas
    from brokerd.replica.read_split import ReadSplit
    from brokerd.replica.replica import Replica
    from brokerd.stats import BrokerStats
    from brokerd.store import MessageStore
    from brokerd.subscription_group import SubscriptionGroupManager
    from brokerd.topic_config import TopicConfigManager
    from brokerd.unproven_offsets import UnprovenOffsets
    from mqwire.bodies import SubscriptionGroupConfig

# A client may ask to be held for hours; no pull is held longer than this.
_MAX_SUSPEND_S: Final = 120.0
# Nor longer than this by a replica that does not know whether the offset exists: the leader may know by then.
_MAX_UNSURE_SUSPEND_S: Final = 0.5
# A client that was sent to a reset's offset and still pulls elsewhere this much later keeps offsets of its own.
_RESET_PATIENCE_S: Final = 60.0
_STOPPING: Final = "the broker is stopping; pull from another broker or again in a moment"

_CODES: Final = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
# After these the client goes on from where the answer says that it is.
_TELLS: Final = (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_NOT_FOUND)


class _Broker(Protocol):
    """What pulls use of the broker."""

    config: BrokerConfig
    store: MessageStore
    topic_configs: TopicConfigManager
    subscription_groups: SubscriptionGroupManager
    consumer_offsets: ConsumerOffsetManager
    unproven_offsets: UnprovenOffsets
    consumers: ConsumerManager
    acl: AccessControl | None
    stats: BrokerStats
    quotas: Quotas
    held_pulls: PullRequestHoldService
    replica: Replica
    read_split: ReadSplit

    @property
    def metadata_log(self) -> MetadataLog: ...

    @property
    def metering(self) -> Metering: ...

    @property
    def clock(self) -> Clock: ...


class PullMessageProcessor:
    """Answers pulls from the store."""

    def __init__(self, broker: _Broker) -> None:
        self._broker = broker
        self._layouts = FieldLayouts()
        # (topic, group, queue, how many resets there were, offset) -> when first sent. The number keeps a reset to an offset apart
        # from an earlier one to the same, which another one, or a failover, may have overtaken after it was sent.
        self._reset_sent_s: dict[tuple[str, str, int, int, int], float] = {}

    def process(self, peer: Peer, request: RemotingCommand) -> None:
        """Write the answer to `peer`, or hold the pull."""
        try:
            header = self._header(request)
            accept = self._check(header, request)
            self._check_quota(request, header)
        except RemoteProtocolError as error:
            peer.write(request.reply(ResponseCode.SYSTEM_ERROR, str(error)).encode())
            return
        except Refusal as refused:
            peer.write(request.reply(refused.code, refused.remark).encode())
            return
        broker = self._broker
        if broker.replica.leads:
            try:
                moved_to = self._follow_reset(header)
                if moved_to is None:
                    moved_to = self._go_back(peer, header)
            except StoreError as error:
                peer.write(request.reply(ResponseCode.SYSTEM_ERROR, str(error)).encode())
                return
            if moved_to is not None:
                self._answer_reset(peer, request, header, moved_to)
                return
        try:
            result = self._get(header, header.queue_offset, accept)
        except StoreError as error:
            self._answer_error(peer, request, header.queue_offset, error)
            return
        if result.count == 0 and header.sys_flag & PullSysFlag.SUSPEND and self._may_wait(header, result):
            self._hold(peer, request, header, accept)
        elif header.sys_flag & PullSysFlag.SUSPEND and self._must_not_move(header, result):
            self._hold(peer, request, header, accept, max_suspend_s=_MAX_UNSURE_SUSPEND_S)
        else:
            self._answer(peer, request, header, result)
        if header.sys_flag & PullSysFlag.COMMIT_OFFSET and not is_brokers_own(header.topic):
            self._commit(peer, header)

    def _commit(self, peer: Peer, header: PullMessageRequestHeader) -> None:
        broker = self._broker
        offsets = broker.consumer_offsets
        queue = (header.topic, header.consumer_group, header.queue_id)
        if not broker.replica.leads:
            offsets.hint(*queue, header.commit_offset)
            return
        # Past the end: see consumer_manage.update_consumer_offset.
        is_known = header.commit_offset <= (broker.store.queue_end_offset(header.topic, header.queue_id) or 0)
        if not broker.unproven_offsets.is_proven(*queue, header.commit_offset):
            broker.unproven_offsets.refused(*queue)
            return
        if offsets.refusal(header.topic, header.consumer_group, (header.queue_id,)) is not None:
            return
        if is_known and offsets.commit(*queue, header.commit_offset, peer.remote_address[0]):
            broker.metadata_log.offsets_changed()

    def _follow_reset(self, header: PullMessageRequestHeader) -> int | None:
        """Where a pending reset sends this pull; None when there is none, or this pull goes on from there and so ends it.

        RocketMQ ends it with the first pull that it answers so. Go's client, and Java's before 5.0, commit their old offset
        in the ten seconds that they take to follow: here no commit counts until they have.
        """
        broker = self._broker
        queue = (header.topic, header.consumer_group, header.queue_id)
        target = broker.consumer_offsets.pending_reset(*queue)
        if target is None:
            return None
        now_s = broker.clock.monotonic()
        sent = (*queue, broker.consumer_offsets.reset_count(*queue), target)
        sent_s = self._reset_sent_s.get(sent)
        if sent_s is None:
            # Even a pull from there: the client may have messages at hand that it must let go of.
            self._forget_resets_sent(now_s)
            self._reset_sent_s[sent] = now_s
            return target
        follows = header.queue_offset == target
        commits = bool(header.sys_flag & PullSysFlag.COMMIT_OFFSET)  # what it has read must not be taken for consumed
        if not follows and (commits or now_s - sent_s < _RESET_PATIENCE_S):
            return target
        broker.consumer_offsets.take_reset(*queue)
        broker.unproven_offsets.went_back(*queue, target, follows=follows)
        del self._reset_sent_s[sent]
        return None

    def _go_back(self, peer: Peer, header: PullMessageRequestHeader) -> int | None:
        """Where a member of a group goes back to that may have read what is lost; None where it need not."""
        return self._broker.unproven_offsets.goes_back_to(
            *(peer.id, header.topic, header.consumer_group, header.queue_id, header.queue_offset),
            commits=bool(header.sys_flag & PullSysFlag.COMMIT_OFFSET),
        )

    def _forget_resets_sent(self, now_s: float) -> None:
        """Of groups that have not pulled since."""
        for key in [key for key, sent_s in self._reset_sent_s.items() if now_s - sent_s >= 2 * _RESET_PATIENCE_S]:
            del self._reset_sent_s[key]

    def answer_resets(self, topic: str, group: str, queue_ids: Iterable[int]) -> list[Peer]:
        """Send the members of a group elsewhere that wait for messages of queues that were reset; returns the peers to flush."""
        broker = self._broker
        now_s = broker.clock.monotonic()
        peers: dict[int, Peer] = {}
        for pull in broker.held_pulls.take([(topic, queue_id) for queue_id in queue_ids]):
            target = broker.consumer_offsets.pending_reset(topic, group, pull.header.queue_id)
            if pull.header.consumer_group != group or target is None:
                broker.held_pulls.hold_on(pull)
                continue
            number = broker.consumer_offsets.reset_count(topic, group, pull.header.queue_id)
            self._reset_sent_s[topic, group, pull.header.queue_id, number, target] = now_s
            self._answer_reset(pull.peer, pull.request, pull.header, target)
            peers[pull.peer.id] = pull.peer
        return list(peers.values())

    def answer_arrivals(self, queues: Iterable[tuple[str, int]]) -> list[Peer]:
        """Answer the held pulls of queues that got messages, as many as in one turn; returns the peers to flush."""
        self._broker.held_pulls.wake(queues)
        return self.answer_woken()

    def answer_woken(self) -> list[Peer]:
        """Answer the next of them; returns the peers to flush."""
        peers: dict[int, Peer] = {}
        for pull in self._broker.held_pulls.take_woken(ANSWERED_AT_ONCE):
            if self._refuse(pull):
                peers[pull.peer.id] = pull.peer
                continue
            try:
                result = self._get(pull.header, pull.offset, pull.accept)
            except StoreError as error:
                self._answer_error(pull.peer, pull.request, pull.offset, error)
                peers[pull.peer.id] = pull.peer
                continue
            unsure = self._must_not_move(pull.header, result)
            if unsure or (
                result.count == 0
                and result.status in (GetMessageStatus.NO_MATCHED_MESSAGE, GetMessageStatus.OFFSET_OVERFLOW_ONE)
            ):
                # Nothing for this group's tags yet: look on from there when more comes.
                if not unsure:
                    pull.offset = max(pull.offset, result.next_begin_offset)
                self._broker.held_pulls.hold(pull)
                continue
            self._answer(pull.peer, pull.request, pull.header, result)
            peers[pull.peer.id] = pull.peer
        return list(peers.values())

    def answer_expired(self, now_s: float) -> list[Peer]:
        """Answer the held pulls whose time is over, as many as in one turn; returns the peers to flush."""
        peers: dict[int, Peer] = {}
        for pull in self._broker.held_pulls.expired(now_s, ANSWERED_AT_ONCE):
            peers[pull.peer.id] = pull.peer
            if self._refuse(pull):
                continue
            try:
                result = self._get(pull.header, pull.offset, pull.accept)
            except StoreError as error:
                self._answer_error(pull.peer, pull.request, pull.offset, error)
                continue
            self._answer(pull.peer, pull.request, pull.header, result)
        return list(peers.values())

    def answer_disallowed(self) -> list[Peer]:
        """The accounts have changed: refuse the held pulls that lost their right by that; returns the peers to flush."""
        acl, held_pulls = self._broker.acl, self._broker.held_pulls
        if acl is None:
            return []
        accounts = acl.accounts
        peers: dict[int, Peer] = {}
        for pull in held_pulls.take_where(lambda pull: accounts.get(pull.credential) is not pull.account):
            if pull.peer.closed:
                continue
            if self._refuse(pull):
                peers[pull.peer.id] = pull.peer
            else:
                held_pulls.hold_on(pull)
        return list(peers.values())

    def _refuse(self, pull: HeldPull) -> bool:
        """Answer a held pull as a new one would be where that is refused by now: its key, group, topic or broker has changed.

        No signature or body is looked at, and nothing is made: for one that may go on it costs a few look-ups.
        """
        broker, request, peer = self._broker, pull.request, pull.peer
        acl = broker.acl
        try:
            if acl is not None:
                remark = acl.check_again(
                    request, peer.remote_address, pull.account, has_certificate=peer.has_certificate
                )
                if remark is not None:
                    raise Refusal(ResponseCode.NO_PERMISSION, remark)
                pull.account = acl.accounts.get(pull.credential)
            self._check_broker(pull.header)
            group = broker.subscription_groups.find_or_imagine(pull.header.consumer_group, pull.credential)
            self._check_group_and_topic(pull.header, group)
        except Refusal as refused:
            peer.write(request.reply(refused.code, refused.remark).encode())
            return True
        return False

    def send_elsewhere(self, peers: Container[Peer]) -> None:
        """Answer the held pulls of connections that are about to be closed, because another broker leads.

        Go's client does not notice that a connection is closed on which it waits: it would wait for 30 s. With this code
        Java's asks again after 20 ms and Go's after 3 s; with an empty result it would ask at once, and meet the close.
        """
        for pull in self._broker.held_pulls.of_peers(peers):
            pull.peer.write(
                pull.request.reply(ResponseCode.FLOW_CONTROL, "the broker stopped being the master").encode()
            )

    def _header(self, request: RemotingCommand) -> PullMessageRequestHeader:
        raw = request.raw_ext_fields
        if raw is None:
            return request.header(PullMessageRequestHeader)
        return PullMessageRequestHeader.from_ext_fields(self._layouts.fields(raw))

    def _check(self, header: PullMessageRequestHeader, request: RemotingCommand) -> Callable[[int], bool] | None:
        """The tag filter of an allowed pull; raises Refusal."""
        broker = self._broker
        self._check_broker(header)
        group = broker.subscription_groups.select(header.consumer_group)
        if group is None:
            credential = credential_of(broker.acl, request)
            group = broker.subscription_groups.find_or_create(header.consumer_group, credential)
        self._check_group_and_topic(header, group)
        return self._filter(header)

    def _check_broker(self, header: PullMessageRequestHeader) -> None:
        broker = self._broker
        if not broker.config.broker_permission & PermName.READ:
            raise Refusal(ResponseCode.NO_PERMISSION, "the broker does not let anyone read: brokerPermission")
        if broker.metering.closed and header.topic != RMQ_SYS_METERING:
            raise Refusal(ResponseCode.NO_PERMISSION, "nothing is read any more: the cluster is being deleted")

    def _check_group_and_topic(self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig | None) -> None:
        if group is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist: create it, or set"
                " autoCreateSubscriptionGroup=true; a broker and an access key make a bounded number so",
            )
        if not group.consume_enable:
            raise Refusal(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {header.consumer_group}: it is disabled"
            )
        topic = self._broker.topic_configs.select(header.topic)
        if topic is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please!")
        if not topic.perm & PermName.READ:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the topic[{header.topic}] pulling message is forbidden")
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal: topic {header.topic} has {topic.read_queue_nums} read queues",
            )

    def _check_quota(self, request: RemotingCommand, header: PullMessageRequestHeader) -> None:
        quotas = self._broker.quotas
        if quotas.are_set:
            remark = quotas.pull_refusal(credential_of(self._broker.acl, request), header.topic)
            if remark is not None:
                raise Refusal(ResponseCode.SYSTEM_BUSY, remark)

    def _filter(self, header: PullMessageRequestHeader) -> Callable[[int], bool] | None:
        if header.sys_flag & PullSysFlag.SUBSCRIPTION:
            if header.expression_type not in (None, "", "TAG"):
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR,
                    f"The broker does not support consumer to filter message by {header.expression_type}; use tags",
                )
            expression = header.subscription or "*"
            if expression.count("||") >= TAGS_MAX:
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR,
                    f"the subscription names {expression.count('||') + 1} tags, at most {TAGS_MAX} are taken: name fewer, or *",
                )
            return tag_filter(expression)
        consumer = self._broker.consumers.find(header.consumer_group)
        if consumer is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's group info not exist: {header.consumer_group} has sent no heartbeat to this broker",
            )
        subscription = consumer.find_subscription(header.topic)
        if subscription is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist: group {header.consumer_group} does not subscribe to"
                f" {header.topic}; all members of a group must subscribe to the same topics",
            )
        if subscription.sub_version < header.sub_version:
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        if subscription.expression_type not in (None, "", "TAG"):
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {subscription.expression_type}; use tags",
            )
        if subscription.sub_string in ("*", "") or not subscription.code_set:
            return None
        return frozenset(subscription.code_set).__contains__

    def _get(self, header: PullMessageRequestHeader, offset: int, accept: Callable[[int], bool] | None) -> GetResult:
        broker = self._broker
        config = broker.config
        max_bytes = config.max_transfer_bytes_on_message_in_memory
        result = broker.store.get_messages(
            header.topic,
            header.queue_id,
            offset,
            min(header.max_msg_nums, config.max_transfer_count_on_message_in_memory),
            min(header.max_msg_bytes or max_bytes, max_bytes),
            accept=accept,
        )
        broker.stats.got(header.topic, header.consumer_group, result.count, result.size_bytes)
        return result

    @staticmethod
    def _may_wait(header: PullMessageRequestHeader, result: GetResult) -> bool:
        # A queue that holds nothing, or never held anything, waits only at its start: elsewhere the client's offset must be fixed
        # first. Answered at once, such pulls would come again and again.
        return result.status == GetMessageStatus.OFFSET_OVERFLOW_ONE or (
            result.status
            in (
                GetMessageStatus.NO_MESSAGE_IN_QUEUE,
                GetMessageStatus.OFFSET_FOUND_NULL,
                GetMessageStatus.NO_MATCHED_LOGIC_QUEUE,
            )
            and header.queue_offset == result.next_begin_offset
        )

    def _must_not_move(self, header: PullMessageRequestHeader, result: GetResult) -> bool:
        """Whether the answer would send the consumer to another offset, and this replica cannot know that it should.

        A follower may lag, or have deleted more than its leader; a new leader does not know yet which records it may show;
        one that is cut off may have been replaced; one whose tables are stale does not know what the group has committed.
        """
        if _code_of(header, result) is not ResponseCode.PULL_OFFSET_MOVED:
            return False
        broker = self._broker
        return broker.metadata_log.is_stale or not broker.replica.knows_group_end(broker.clock.monotonic())

    def _hold(
        self,
        peer: Peer,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        accept: Callable[[int], bool] | None,
        max_suspend_s: float = _MAX_SUSPEND_S,
    ) -> None:
        broker = self._broker
        if broker.held_pulls.full:
            self._answer(peer, request, header, self._get(header, header.queue_offset, accept))
            return
        credential = credential_of(broker.acl, request)
        remark = broker.quotas.hold_refusal(credential, header.topic, broker.held_pulls)
        if remark is not None:
            peer.write(request.reply(ResponseCode.SYSTEM_BUSY, remark).encode())
            return
        if broker.config.long_polling_enable:
            suspend_s = min(max(header.suspend_timeout_millis, 0) / 1000, max_suspend_s)
        else:
            suspend_s = min(broker.config.short_polling_time_ms / 1000, max_suspend_s)
        deadline_s = broker.clock.monotonic() + suspend_s
        account = None if broker.acl is None else broker.acl.accounts.get(credential)
        size_bytes = _size_of(request) + _size_of_filter(accept)
        broker.held_pulls.hold(
            HeldPull(peer, request, header, accept, header.queue_offset, deadline_s, credential, size_bytes, account)
        )

    def _answer(
        self, peer: Peer, request: RemotingCommand, header: PullMessageRequestHeader, result: GetResult
    ) -> None:
        if result.count and self._broker.metering.is_finished:
            # Java's client asks again after 20 ms, Go's after 3 s: the broker that is back, or another one.
            peer.write(request.reply(ResponseCode.FLOW_CONTROL, _STOPPING).encode())
            return
        code, next_begin_offset = _code_of(header, result), result.next_begin_offset
        if self._must_not_move(header, result):
            code, next_begin_offset = ResponseCode.PULL_RETRY_IMMEDIATELY, header.queue_offset
        elif result.status is GetMessageStatus.OFFSET_OVERFLOW_BADLY:
            next_begin_offset = self._resume_offset(header, result)
        if result.count and not peer.closed:
            credential = credential_of(self._broker.acl, request)
            if not self._is_look(header, credential):
                self._broker.metering.pulled(header.topic, header.consumer_group, credential, result)
            self._broker.quotas.pulled(credential, header.topic, result.count, result.size_bytes)
        suggested = self._broker.read_split.suggest(header.topic, header.queue_id, result)
        if self._broker.replica.leads:
            queue = (header.topic, header.consumer_group, header.queue_id)
            if code in _TELLS:
                self._broker.unproven_offsets.told(*queue, header.queue_offset, next_begin_offset)
            if self._broker.unproven_offsets.must_see(*queue):
                suggested = MASTER_ID
        self._write(
            peer, request, code, result.status.name, next_begin_offset, result.min_offset, result.max_offset,
            result.chunks, suggested,
        )  # fmt: skip

    def _is_look(self, header: PullMessageRequestHeader, credential: str) -> bool:
        """Whether the control plane looks how old a message is: nothing is delivered to anyone."""
        acl = self._broker.acl
        if header.consumer_group != AGE_LOOK_GROUP or acl is None:
            return False
        account = acl.accounts.get(credential)
        return account is not None and account.infrastructure

    def _resume_offset(self, header: PullMessageRequestHeader, result: GetResult) -> int:
        """Where a consumer goes on that asks for an offset past the end: where its group has committed, else at the end.

        It has read messages that a promotion truncated. Others may have their offsets by now: from the end on, RocketMQ's
        answer, it would miss them.
        """
        committed = self._broker.consumer_offsets.query(header.topic, header.consumer_group, header.queue_id)
        if committed < 0:
            return result.next_begin_offset
        return max(result.min_offset, min(committed, result.next_begin_offset))

    def _answer_error(self, peer: Peer, request: RemotingCommand, offset: int, error: StoreError) -> None:
        """A damaged message is fetched from a replica that has it whole, if there is one; without any change of the offset."""
        elsewhere = None
        if isinstance(error, RecordDamagedError):
            elsewhere = self._broker.read_split.with_whole_record(error.physical_offset)
        if elsewhere is None:
            peer.write(request.reply(ResponseCode.SYSTEM_ERROR, str(error)).encode())
        else:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
            self._write(peer, request, code, str(error), offset, 0, 0, (), elsewhere)

    def _answer_reset(
        self, peer: Peer, request: RemotingCommand, header: PullMessageRequestHeader, offset: int
    ) -> None:
        store = self._broker.store
        self._write(
            peer, request, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", offset,
            store.min_offset(header.topic, header.queue_id), store.max_offset(header.topic, header.queue_id), (),
        )  # fmt: skip

    def _write(
        self,
        peer: Peer,
        request: RemotingCommand,
        code: int,
        remark: str,
        next_begin_offset: int,
        min_offset: int,
        max_offset: int,
        chunks: Iterable[bytes],
        suggested_broker_id: int = MASTER_ID,
    ) -> None:
        body = b"".join(chunks)
        reply = RemotingCommand(
            code,
            opaque=request.opaque,
            flag=1,
            remark=remark,
            ext_fields={
                "suggestWhichBrokerId": str(suggested_broker_id),
                "nextBeginOffset": str(next_begin_offset),
                "minOffset": str(min_offset),
                "maxOffset": str(max_offset),
                "topicSysFlag": "0",
                "groupSysFlag": "0",
            },
            body=body,
            serialize_type=request.serialize_type,
        )
        peer.write(encode_frame_prefix(reply))
        if body:
            peer.write(body)


def _code_of(header: PullMessageRequestHeader, result: GetResult) -> ResponseCode:
    """RocketMQ's answer to what the store found."""
    code = _CODES.get(result.status)
    if code is None:  # nothing in the queue, or no such queue
        at_start = header.queue_offset == result.next_begin_offset
        code = ResponseCode.PULL_NOT_FOUND if at_start else ResponseCode.PULL_OFFSET_MOVED
    return code


def _size_of(request: RemotingCommand) -> int:
    """About how much memory a request keeps while it is held."""
    raw = request.raw_ext_fields
    fields = sum(map(len, request.ext_fields.values())) if raw is None else len(raw)
    return 1_000 + 2 * fields + len(request.body)


def _size_of_filter(accept: Callable[[int], bool] | None) -> int:
    """About how much memory a tag filter keeps: it looks codes up in a set of its own."""
    codes: Sized = getattr(accept, "__self__", ())
    return 100 * len(codes)


def tag_filter(expression: str) -> Callable[[int], bool] | None:
    """The filter for a tag expression ("a || b"); None takes everything (FilterAPI)."""
    if expression.strip() in ("*", ""):
        return None
    tags = [tag.strip() for tag in expression.split("||")]
    return frozenset(tags_code(tag) for tag in tags if tag).__contains__
