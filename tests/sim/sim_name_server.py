"""A name server in the simulation: the real request processor and registry behind simulated connections."""

from __future__ import annotations

import contextlib

from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.connection import Connection
from mqwire.headers_namesrv import RegisterBrokerRequestHeader
from mqwire.names import MASTER_ID
from namesrvd.config import NamesrvConfig
from namesrvd.kv_config import KVConfigManager
from namesrvd.processor import Processor
from namesrvd.route_info import RouteInfoManager
from tests.sim.event_loop import EventLoop
from tests.sim.history import Violation
from tests.sim.network import Endpoint, Network

_PORT = 9876


class NameServer:
    """Forgets everything when it restarts, as the real one does."""

    def __init__(self, loop: EventLoop, network: Network, number: int) -> None:
        self.name = f"ns{number}"
        self.address = f"10.0.1.{number + 1}:{_PORT}"
        self._loop = loop
        self._network = network
        network.add_host(self.name, f"10.0.1.{number + 1}")
        network.add_program(self.address, self)
        network.addresses[self.name] = self.address
        self._start()

    def restart(self) -> None:
        self._network.process_ended(self.name)
        self._start()

    def _start(self) -> None:
        began_s = self._loop.now_s
        self._newest_epoch = 0

        def clock_ms() -> float:
            return (self._loop.now_s - began_s) * 1000

        self._routes = RouteInfoManager(clock_ms)
        self._processor = Processor(NamesrvConfig(), self._routes, KVConfigManager(), accounts=None, clock_ms=clock_ms)

    def accept(self, endpoint: Endpoint) -> None:
        """A client connected."""
        decoder = Connection()
        routes, processor = self._routes, self._processor

        def received(data: bytes) -> None:
            decoder.receive_data(data)
            for command in decoder.commands():
                outcome = processor.process(endpoint, command)
                if outcome is not None and outcome.reply is not None:
                    self._judge_registration(command, outcome.reply)
                    with contextlib.suppress(ConnectionResetError):
                        endpoint.send(outcome.reply.encode())

        def closed() -> None:
            routes.on_channel_closed(endpoint)

        endpoint.on_data = received
        endpoint.on_closed = closed

    def _judge_registration(self, request: RemotingCommand, reply: RemotingCommand) -> None:
        """No client is to be sent to a leader of the past: raises Violation where one is registered as the master."""
        if request.code != RequestCode.REGISTER_BROKER or reply.code != ResponseCode.SUCCESS:
            return
        header = request.header(RegisterBrokerRequestHeader)
        epoch = header.epoch or 0
        if header.broker_id == MASTER_ID and epoch < self._newest_epoch:
            raise Violation(
                f"{self.name} lists {header.broker_addr} as the master, which leads in epoch {epoch}:"
                f" it has heard of epoch {self._newest_epoch}"
            )
        self._newest_epoch = max(epoch, self._newest_epoch)
