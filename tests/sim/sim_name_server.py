"""A name server in the simulation: the real registry behind simulated packets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqwire.bodies import DataVersion, TopicConfig, TopicConfigAndMappingSerializeWrapper
from mqwire.codes import ResponseCode
from namesrvd.route_info import BrokerIdentity, RegistrationRefused, RouteInfoManager
from tests.sim.event_loop import EventLoop
from tests.sim.network import Answer
from tests.sim.sim_requests import Fenced, Members, Register, Unregister

CLUSTER = "simulated"
GROUP = "group-a"
_TOPICS = TopicConfigAndMappingSerializeWrapper(
    topic_config_table={name: TopicConfig(topic_name=name) for name in ("orders", "payments")},
    data_version=DataVersion(counter=1),
)


class NameServer:
    """Forgets everything when it restarts, as the real one does."""

    def __init__(self, loop: EventLoop, name: str) -> None:
        self.name = name
        self._loop = loop
        self.restart()

    def restart(self) -> None:
        self._routes = RouteInfoManager(lambda: self._loop.now_s * 1000)

    def arrive(self, action: Callable[[], None]) -> None:
        action()

    def connection_lost(self, address: str) -> None:
        """The process at that address ended."""
        self._routes.on_channel_closed(address)

    def handle(self, request: Any, answer: Answer) -> None:
        if isinstance(request, Register):
            broker = BrokerIdentity(CLUSTER, GROUP, request.broker_id, request.address)
            try:
                self._routes.register_broker(broker, _TOPICS, channel=request.address, epoch=request.epoch)
            except RegistrationRefused as refused:
                fenced = refused.code == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
                answer(Fenced() if fenced else str(refused))
            else:
                answer("")
        elif isinstance(request, Unregister):
            self._routes.unregister_broker(BrokerIdentity(CLUSTER, GROUP, request.broker_id, request.address))
            answer("")
        elif isinstance(request, Members):
            answer(self._routes.broker_member_group(CLUSTER, GROUP).broker_addrs)
        else:
            raise TypeError(f"a name server does not know {request!r}")
