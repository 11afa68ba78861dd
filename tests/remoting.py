"""Single requests to a broker or name server over a connection of their own, for setting tests up and looking inside.

This goes through mqwire alone, so that a fault of the SDK or of a stock client never decides what a test prepares.
"""

from __future__ import annotations

import socket

from mqwire.acl import SessionCredentials, sign
from mqwire.bodies.route import ClusterInfo, TopicRouteData
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.connection import Connection
from mqwire.headers_namesrv import GetRouteInfoRequestHeader
from mqwire.headers_offset import QueryConsumerOffsetRequestHeader
from mqwire.headers_topic import CreateTopicRequestHeader
from tests.processes import wait_until

RECEIVE_BYTES = 1024 * 1024
TIMEOUT_S = 15.0


class Refused(Exception):
    """A request was answered with another code than SUCCESS."""

    def __init__(self, request: RemotingCommand, response: RemotingCommand) -> None:
        super().__init__(f"request {request.code} was answered with {response.code}: {response.remark}")
        self.code = response.code
        self.remark = response.remark


def connect(address: str, *, timeout_s: float = TIMEOUT_S) -> socket.socket:
    """A connection to ``HOST:PORT`` without Nagle's delay. Raises OSError."""
    host, _, port = address.rpartition(":")
    connected = socket.create_connection((host, int(port)), timeout=timeout_s)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def signed(command: RemotingCommand, credentials: SessionCredentials | None) -> RemotingCommand:
    """``command`` with the access key and signature of ACL version 1, where there are credentials."""
    if credentials is not None:
        command.ext_fields["AccessKey"] = credentials.access_key
        command.ext_fields["Signature"] = sign(credentials.secret_key, command.ext_fields, bytes(command.body))
    return command


def exchange(stream: socket.socket, command: RemotingCommand) -> RemotingCommand:
    """Sends one request over ``stream`` and returns its response whatever its code. Raises OSError."""
    stream.sendall(command.encode())
    connection = Connection()
    while True:
        data = stream.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionError(f"the connection was closed instead of answering code {command.code}")
        connection.receive_data(data)
        for response in connection.commands():
            if response.is_response and response.opaque == command.opaque:
                return response


def call(address: str, command: RemotingCommand, credentials: SessionCredentials | None = None) -> RemotingCommand:
    """One request over a connection of its own; raises Refused unless it succeeds, and OSError."""
    with connect(address) as stream:
        response = exchange(stream, signed(command, credentials))
    if response.code != ResponseCode.SUCCESS:
        raise Refused(command, response)
    return response


def cluster_info(namesrv: str) -> ClusterInfo:
    """What the name server knows of clusters and brokers."""
    response = call(namesrv, RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO))
    return ClusterInfo.from_json(bytes(response.body))


def topic_route(namesrv: str, topic: str) -> TopicRouteData | None:
    """The topic's route, None when the name server has none."""
    command = RemotingCommand.request(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
    )
    try:
        return TopicRouteData.from_json(bytes(call(namesrv, command).body))
    except Refused as refused:
        if refused.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        raise


def wait_for_registration(namesrv: str, broker_name: str, timeout_s: float = 60.0) -> None:
    """Returns once the name server knows the broker: brokers say that they are ready before that."""
    wait_until(
        lambda: broker_name in cluster_info(namesrv).broker_addr_table,
        timeout_s=timeout_s,
        what=f"{broker_name} registers with {namesrv}",
    )


def create_topic(
    address: str,
    topic: str,
    *,
    queues: int,
    credentials: SessionCredentials | None = None,
    namesrv: str | None = None,
) -> None:
    """Creates or updates a topic on one broker; with ``namesrv``, waits until its route shows there. Raises Refused.

    A master that has not taken over yet is asked again. That its slaves are not in sync yet does not matter here.
    """
    header = CreateTopicRequestHeader(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
    )

    refusals: list[Refused] = []

    def created() -> bool:
        try:
            call(address, RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header), credentials)
        except Refused as refused:
            refusals[:] = [refused]
            if refused.code in (ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT):
                return True
            if refused.code != ResponseCode.SERVICE_NOT_AVAILABLE:
                raise
            return False
        return True

    try:
        wait_until(created, timeout_s=60.0, what=f"the broker at {address} takes topic {topic}")
    except AssertionError as error:
        raise AssertionError(f"{error}; it last answered: {refusals}") from None
    if namesrv is not None:
        wait_until(
            lambda: topic_route(namesrv, topic) is not None, timeout_s=60.0, what=f"a route for {topic} at {namesrv}"
        )


def committed_messages(namesrv: str, topic: str, group: str, credentials: SessionCredentials | None = None) -> int:
    """The sum of a group's committed offsets over a topic's queues; queues without an offset count as 0."""
    route = topic_route(namesrv, topic)
    assert route is not None, f"{topic} has no route"
    addresses = {broker.broker_name: broker.broker_addrs[0] for broker in route.broker_datas}
    total = 0
    for queues in route.queue_datas:
        for queue_id in range(queues.read_queue_nums):
            header = QueryConsumerOffsetRequestHeader(
                consumer_group=group, topic=topic, queue_id=queue_id, set_zero_if_not_found=False
            )
            command = RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
            try:
                total += int(call(addresses[queues.broker_name], command, credentials).ext_fields["offset"])
            except Refused as refused:
                if refused.code != ResponseCode.QUERY_NOT_FOUND:
                    raise
    return total


def wait_for_commits(
    namesrv: str, topic: str, group: str, count: int, credentials: SessionCredentials | None = None
) -> None:
    """Returns once a group has committed ``count`` messages of a topic.

    Clients commit with one-way requests, so that a consumer that comes back at once may be faster than its own commit.
    """
    wait_until(
        lambda: committed_messages(namesrv, topic, group, credentials) >= count,
        timeout_s=60.0,
        what=f"{group} commits {count} messages of {topic}",
    )
