"""A name server and broker on the loopback in one, which answers each request late: what a sick or hostile one does."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Sequence

from controlplane.clusters.models import Cluster, NameServer, Replica
from mqwire.bodies import BrokerData, ClusterInfo, ConsumeStats, SubscriptionGroupConfig, SubscriptionGroupWrapper
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.connection import Connection

LATE_S = 0.3


class LateDaemon:
    """Answers each request after 0.3 s, well; `requests` are the codes that came, in order."""

    def __init__(self, cluster: str, groups: Sequence[str] = ()) -> None:
        self.requests: list[int] = []
        self._cluster = cluster
        self._groups = groups
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections; those that there are end with their clients."""
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                stream, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(stream,), daemon=True).start()

    def _serve(self, stream: socket.socket) -> None:
        connection = Connection()
        with contextlib.suppress(OSError), stream:
            while data := stream.recv(65536):
                connection.receive_data(data)
                for request in connection.commands():
                    self.requests.append(request.code)
                    if not request.is_oneway:
                        time.sleep(LATE_S)
                        stream.sendall(self._answer(request).encode())

    def _answer(self, request: RemotingCommand) -> RemotingCommand:
        match request.code:
            case RequestCode.GET_BROKER_CLUSTER_INFO:
                broker = BrokerData(cluster=self._cluster, broker_name="broker-a", broker_addrs={0: self.address})
                body = ClusterInfo(
                    broker_addr_table={"broker-a": broker}, cluster_addr_table={self._cluster: ["broker-a"]}
                ).to_json()
            case RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
                groups = {name: SubscriptionGroupConfig(group_name=name) for name in self._groups}
                body = SubscriptionGroupWrapper(subscription_group_table=groups).to_json()
            case RequestCode.GET_CONSUME_STATS:
                body = ConsumeStats().to_json()
            case RequestCode.GET_ROUTEINFO_BY_TOPIC:
                return request.reply(ResponseCode.TOPIC_NOT_EXIST, "no such topic")
            case _:
                return request.reply()
        reply = request.reply()
        reply.body = body
        return reply


@contextlib.contextmanager
def late_daemon(cluster: Cluster, groups: Sequence[str] = ()) -> Iterator[LateDaemon]:
    """The only name server and the only broker of a cluster."""
    daemon = LateDaemon(cluster.slug, groups)
    NameServer.objects.filter(cluster=cluster).update(host="127.0.0.1", port=daemon.port)
    Replica.objects.filter(group__cluster=cluster).update(host="127.0.0.1", port=daemon.port)
    try:
        yield daemon
    finally:
        daemon.close()
