"""What tests of metering ask of a whole broker, and what its records say."""

from __future__ import annotations

import itertools
from pathlib import Path

import trio

from mqwire.acl import SessionCredentials, sign_request
from mqwire.codes import PullSysFlag, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.connection import Connection
from mqwire.headers_offset import UpdateConsumerOffsetRequestHeader
from mqwire.headers_pull import PullMessageRequestHeader
from mqwire.headers_send import SendMessageRequestHeader
from mqwire.metering import MeteringRecord, decode_metering_record
from mqwire.names import RMQ_SYS_METERING
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker, RecordingPeer

MINUTE_S = 60
ALICE = SessionCredentials("alice-app", "alice-secret")
BILLER = SessionCredentials("biller-app", "biller-secret")
OPERATOR = SessionCredentials("operator", "operator-secret")
ACCOUNTS = """
accounts:
  - {accessKey: operator, secretKey: operator-secret, admin: true}
  - {accessKey: biller-app, secretKey: biller-secret, topicPerms: [RMQ_SYS_METERING=SUB], defaultGroupPerm: SUB}
  - {accessKey: alice-app, secretKey: alice-secret, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}
"""


def send_request(
    topic: str = "orders",
    body: bytes = b"body",
    *,
    properties: str = "",
    batch: bool = False,
    signed_as: SessionCredentials | None = None,
) -> RemotingCommand:
    header = SendMessageRequestHeader(
        producer_group="p",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        properties=properties,
        batch=batch,
    )
    code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
    request = RemotingCommand.request(code, header.to_v2(), body=body)
    if signed_as is not None:
        sign_request(request, signed_as)
    return request


def dispatch(broker: BrokerUnderTest, peer: RecordingPeer, *requests: RemotingCommand) -> list[RemotingCommand]:
    """All in one wake-up, as a connection delivers them."""
    connection = Connection()
    connection.receive_data(b"".join(request.encode() for request in requests))
    broker.dispatch(peer, connection.commands())
    return peer.take()


def send(
    broker: BrokerUnderTest,
    topic: str = "orders",
    body: bytes = b"body",
    *,
    properties: str = "",
    batch: bool = False,
    signed_as: SessionCredentials | None = None,
) -> None:
    """One request, which is taken."""
    request = send_request(topic, body, properties=properties, batch=batch, signed_as=signed_as)
    (answer,) = dispatch(broker, RecordingPeer(), request)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def pull_header(topic: str = "orders", *, offset: int = 0, group: str = "g") -> PullMessageRequestHeader:
    return PullMessageRequestHeader(
        consumer_group=group,
        topic=topic,
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=PullSysFlag.SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
    )


def pull(
    broker: BrokerUnderTest,
    topic: str = "orders",
    *,
    offset: int = 0,
    group: str = "g",
    signed_as: SessionCredentials | None = None,
) -> RemotingCommand:
    header = pull_header(topic, offset=offset, group=group)
    return broker.ask(RequestCode.PULL_MESSAGE, header, signed_as=signed_as)


def commit(broker: BrokerUnderTest, offset: int) -> None:
    broker.create_group("g")
    header = UpdateConsumerOffsetRequestHeader(consumer_group="g", topic="orders", queue_id=0, commit_offset=offset)
    answer = broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def look(broker: BrokerUnderTest) -> None:
    """Metering takes one look, as it does again and again by itself."""
    broker.broker.held_changed()
    trio.run(broker.broker.metering.look)


def next_interval(broker: BrokerUnderTest) -> None:
    broker.clock.advance(MINUTE_S)
    look(broker)


def records(broker: BrokerUnderTest) -> list[MeteringRecord]:
    return [decode_metering_record(message.body) for message in broker.messages(RMQ_SYS_METERING)]


def sums(found: list[MeteringRecord]) -> dict[tuple[str, str], tuple[int, int, int]]:
    """What all records together say: (topic, kind) -> (messages, bytes, units)."""
    total: dict[tuple[str, str], tuple[int, int, int]] = {}
    for row in (row for record in found for row in record.messages_in):
        known = total.get((row.topic, row.kind), (0, 0, 0))
        total[row.topic, row.kind] = (known[0] + row.messages, known[1] + row.bytes, known[2] + row.units)
    return total


def assert_tiled(found: list[MeteringRecord]) -> None:
    assert all(before.end_offset == after.start_offset for before, after in itertools.pairwise(found))
    assert len({record.key for record in found}) == len(found)


def with_accounts(make_broker: MakeBroker, folder: Path) -> BrokerUnderTest:
    """A broker that knows ALICE, BILLER and OPERATOR."""
    accounts = folder / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    return make_broker(aclEnable="true", aclConfigFile=str(accounts))
