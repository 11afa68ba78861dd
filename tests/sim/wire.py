"""What the simulation's own programs say, as frames of the remoting protocol: the broker and the name server hear real ones."""

from __future__ import annotations

from typing import Any
from zlib import crc32

from mqwire.bodies import GetBrokerMemberGroupResponseBody, ReplicaStatus, SubscriptionGroupConfig
from mqwire.codes import HighwaterRequestCode, PullSysFlag, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.errors import RemoteProtocolError
from mqwire.headers_broker import GetBrokerMemberGroupRequestHeader
from mqwire.headers_group import DeleteSubscriptionGroupRequestHeader
from mqwire.headers_offset import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from mqwire.headers_pull import PullMessageRequestHeader, PullMessageResponseHeader, QueryMessageRequestHeader
from mqwire.headers_replica import (
    ReplicaDemoteRequestHeader,
    ReplicaFreezeSendsRequestHeader,
    ReplicaMembersRequestHeader,
    ReplicaModeRequestHeader,
    ReplicaPromoteRequestHeader,
    ReplicaTransferRequestHeader,
)
from mqwire.headers_send import SendMessageRequestHeader, SendMessageResponseHeader
from mqwire.headers_topic import CreateTopicRequestHeader, DeleteTopicRequestHeader
from mqwire.message import BatchItem, decode_records, encode_batch_body, properties_to_string
from mqwire.names import PROPERTY_DELAY_TIME_LEVEL, PROPERTY_KEYS, PROPERTY_TAGS
from tests.sim.sim_requests import (
    Change,
    ChangeGroup,
    ChangeMembers,
    ChangeMode,
    ChangeTopic,
    CommitOffset,
    Demote,
    FindByKey,
    Freeze,
    Members,
    Promote,
    QueryOffset,
    Read,
    ReadAnswer,
    ResetOffset,
    RoleAnswer,
    Send,
    SendAnswer,
    Status,
    TransferTo,
)

CLUSTER = "simulated"
GROUP = "group-a"
TOPICS = ("orders", "payments")
QUEUES = 2  # of each topic
TAGS = ("even", "odd")
ALL_QUEUES = QUEUES * len(TOPICS)  # clients and the history number them: first those of the first topic
READ_GROUP = "readers"
DELAY_LEVELS = "1s 3s"  # each is looked at ten times a second
DELAY_MS = 1000  # of level 1
_LOOK_GROUP = "lookers"
_READ_MESSAGES = 16
_NO_TEMPLATE = "NO_TOPIC"
_MEMBER_CHANGES = {"add": "addVoter", "remove": "removeVoter", "prefer": "prefer"}
_UNCHANGED = (
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    ResponseCode.INVALID_PARAMETER,
)
SEND_CODES = {
    ResponseCode.SUCCESS: "SEND_OK",
    ResponseCode.FLUSH_DISK_TIMEOUT: "FLUSH_DISK_TIMEOUT",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "FLUSH_SLAVE_TIMEOUT",
    ResponseCode.SLAVE_NOT_AVAILABLE: "SLAVE_NOT_AVAILABLE",
    ResponseCode.SERVICE_NOT_AVAILABLE: "SERVICE_NOT_AVAILABLE",
}


def properties_of(body: bytes) -> dict[str, str]:
    """What every message says of itself beside its body: a key that no other has, and one of two tags."""
    return {PROPERTY_KEYS: body.partition(b".")[0].decode(), PROPERTY_TAGS: TAGS[crc32(body) % len(TAGS)]}


def _properties_of(request: Send) -> dict[str, str]:
    properties = properties_of(request.bodies[0]) if len(request.bodies) == 1 else {}
    return properties | {PROPERTY_DELAY_TIME_LEVEL: str(request.delay_level)} if request.delay_level else properties


def _attributes_of(request: ChangeTopic) -> str | None:
    limits = {"reserve.bytes": request.kept_bytes, "reserve.time": request.kept_hours}
    return ",".join(f"+{name}={value}" for name, value in limits.items() if value is not None) or None


def has_changed_nothing(reply: RemotingCommand) -> bool:
    """Whether an answer to a change of the tables says that it is not done, and will not be."""
    out_of_range = reply.code == ResponseCode.SYSTEM_ERROR and (reply.remark or "").startswith("Target offset ")
    return reply.code in _UNCHANGED or out_of_range


def topic_of(queue: int) -> str:
    """The topic of a queue by its number."""
    return TOPICS[queue // QUEUES]


def queue_of(topic: str, queue_id: int) -> int:
    """A queue's number."""
    return TOPICS.index(topic) * QUEUES + queue_id


def command_of(request: Any, replica_id: int) -> RemotingCommand:
    """A request to the replica with that id, or to a name server."""
    match request:
        case Send():
            is_batch = len(request.bodies) > 1
            items = [BatchItem(0, body, properties_to_string(properties_of(body)).encode()) for body in request.bodies]
            return RemotingCommand.request(
                RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2,
                SendMessageRequestHeader(
                    producer_group="senders",
                    topic=request.topic or topic_of(request.queue),
                    default_topic=_NO_TEMPLATE if request.topic else "TBW102",
                    default_topic_queue_nums=QUEUES,
                    queue_id=request.queue % QUEUES,
                    sys_flag=0,
                    born_timestamp=1_700_000_000_000,
                    flag=0,
                    properties=properties_to_string(_properties_of(request)),
                    reconsume_times=0,
                    unit_mode=False,
                    batch=is_batch,
                ).to_v2(),
                body=encode_batch_body(items) if is_batch else request.bodies[0],
            )
        case Read():
            return RemotingCommand.request(
                RequestCode.PULL_MESSAGE,
                PullMessageRequestHeader(
                    consumer_group=READ_GROUP if request.commits else _LOOK_GROUP,
                    topic=topic_of(request.queue),
                    queue_id=request.queue % QUEUES,
                    queue_offset=request.offset,
                    max_msg_nums=_READ_MESSAGES,
                    sys_flag=PullSysFlag.SUBSCRIPTION
                    | (PullSysFlag.SUSPEND if request.waits_s else 0)
                    | (PullSysFlag.COMMIT_OFFSET if request.commit else 0),
                    commit_offset=request.commit,
                    suspend_timeout_millis=round(request.waits_s * 1000),
                    subscription=request.tag,
                    sub_version=0,
                    expression_type="TAG",
                ),
            )
        case QueryOffset():
            return RemotingCommand.request(
                RequestCode.QUERY_CONSUMER_OFFSET,
                QueryConsumerOffsetRequestHeader(
                    consumer_group=READ_GROUP, topic=topic_of(request.queue), queue_id=request.queue % QUEUES
                ),
            )
        case CommitOffset():
            return RemotingCommand.request(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                UpdateConsumerOffsetRequestHeader(
                    consumer_group=READ_GROUP,
                    topic=topic_of(request.queue),
                    queue_id=request.queue % QUEUES,
                    commit_offset=request.offset,
                ),
            )
        case ResetOffset():
            return RemotingCommand.request(
                RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
                ResetOffsetRequestHeader(
                    topic=topic_of(request.queue),
                    group=READ_GROUP,
                    queue_id=request.queue % QUEUES,
                    offset=request.offset,
                    timestamp=-1,
                    is_force=True,
                ),
            )
        case ChangeTopic(exists=True):
            return RemotingCommand.request(
                RequestCode.UPDATE_AND_CREATE_TOPIC,
                CreateTopicRequestHeader(
                    topic=request.topic,
                    default_topic="TBW102",
                    read_queue_nums=request.queues,
                    write_queue_nums=QUEUES,
                    perm=6,
                    topic_filter_type="SINGLE_TAG",
                    attributes=_attributes_of(request),
                ),
            )
        case ChangeGroup(retries=None):
            return RemotingCommand.request(
                RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupRequestHeader(group_name=request.group)
            )
        case ChangeGroup(retries=int(retries)):
            config = SubscriptionGroupConfig(group_name=request.group, retry_max_times=retries)
            return RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.to_json())
        case FindByKey():
            return RemotingCommand.request(
                RequestCode.QUERY_MESSAGE,
                QueryMessageRequestHeader(
                    topic=request.topic, key=request.key, max_num=32, begin_timestamp=0, end_timestamp=2**62
                ),
            )
        case ChangeTopic():
            return RemotingCommand.request(
                RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=request.topic)
            )
        case Status():
            return RemotingCommand.request(HighwaterRequestCode.REPLICA_STATUS)
        case Promote():
            return RemotingCommand.request(
                HighwaterRequestCode.REPLICA_PROMOTE,
                ReplicaPromoteRequestHeader(
                    group=GROUP,
                    replica_id=replica_id,
                    expected_epoch=request.expected_epoch,
                    new_epoch=request.new_epoch,
                    in_sync=";".join(map(str, request.in_sync)),
                    with_incomplete_log=request.with_incomplete_log,
                    lacks_an_epoch=request.lacks_an_epoch,
                ),
            )
        case Demote():
            return RemotingCommand.request(
                HighwaterRequestCode.REPLICA_DEMOTE,
                ReplicaDemoteRequestHeader(group=GROUP, epoch=request.epoch, leader_address=request.leader_address),
            )
        case Freeze():
            return RemotingCommand.request(
                HighwaterRequestCode.REPLICA_FREEZE_SENDS,
                ReplicaFreezeSendsRequestHeader(
                    group=GROUP, epoch=request.epoch, for_millis=round(request.for_s * 1000)
                ),
            )
        case ChangeMode():
            return RemotingCommand.request(
                HighwaterRequestCode.REPLICA_MODE,
                ReplicaModeRequestHeader(
                    group=GROUP,
                    mode=request.policy.mode,
                    in_sync_replicas=request.policy.in_sync_replicas,
                    min_in_sync_replicas=request.policy.min_in_sync_replicas,
                    epoch=request.leader.epoch,
                    end_offset=request.leader.end_offset,
                ),
            )
        case TransferTo(int(target)) | Change(kind="transfer", replica_id=int(target)):
            return RemotingCommand.request(
                HighwaterRequestCode.REPLICA_TRANSFER, ReplicaTransferRequestHeader(group=GROUP, target=target)
            )
        case Change():
            return RemotingCommand.request(
                HighwaterRequestCode.REPLICA_MEMBERS,
                ReplicaMembersRequestHeader(
                    group=GROUP, change=_MEMBER_CHANGES[request.kind], replica_id=request.replica_id
                ),
            )
        case ChangeMembers():
            return RemotingCommand.request(
                HighwaterRequestCode.REPLICA_MEMBERS,
                ReplicaMembersRequestHeader(
                    group=GROUP, change=request.change, replica_id=request.replica_id, address=request.address
                ),
            )
        case Members():
            return RemotingCommand.request(
                RequestCode.GET_BROKER_MEMBER_GROUP,
                GetBrokerMemberGroupRequestHeader(cluster_name=CLUSTER, broker_name=GROUP),
            )
    raise TypeError(f"no client asks {request!r}")


def answer_of(request: Any, reply: RemotingCommand, names: dict[str, str]) -> Any:
    """What the reply says; None where it is no answer to work with. `names` has the replicas' by address."""
    refusal = None if reply.code == ResponseCode.SUCCESS else f"code {reply.code}: {reply.remark}"
    match request:
        case Send():
            code = SEND_CODES.get(ResponseCode(reply.code), "SYSTEM_ERROR")
            return SendAnswer(code, -1 if refusal else reply.header(SendMessageResponseHeader).queue_offset)
        case Read():
            try:
                header = reply.header(PullMessageResponseHeader)
            except RemoteProtocolError:
                return None
            bodies = tuple(message.body for message in decode_records(bytes(reply.body))) if refusal is None else ()
            moves = reply.code == ResponseCode.PULL_OFFSET_MOVED
            return ReadAnswer(len(bodies), header.next_begin_offset, bodies, moves, header.suggest_which_broker_id)
        case QueryOffset():
            if reply.code == ResponseCode.QUERY_NOT_FOUND:
                return -1
            return None if refusal else reply.header(QueryConsumerOffsetResponseHeader).offset
        case CommitOffset() | ResetOffset() | ChangeTopic() | ChangeGroup():
            return refusal is None and reply.remark is None  # a remark says that the master alone has it
        case FindByKey():
            return () if refusal else tuple(message.body for message in decode_records(bytes(reply.body)))
        case Status():
            return None if refusal else status_of(reply)
        case Promote() | Demote() | Freeze() | ChangeMode() | ChangeMembers() | TransferTo():
            return RoleAnswer(refusal, None if refusal else status_of(reply))
        case Change():
            return refusal
        case Members():
            if refusal:
                return None
            group = GetBrokerMemberGroupResponseBody.from_json(reply.body).broker_member_group
            return {key: names[address] for key, address in group.broker_addrs.items()} if group else {}
    raise TypeError(f"no client asks {request!r}")


def status_of(reply: RemotingCommand) -> ReplicaStatus:
    return ReplicaStatus.from_json(reply.body)
