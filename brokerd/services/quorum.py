"""Elections over the network: ticks, letters out, answers in. Nothing is decided here; see brokerd/replica/quorum.py."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

import trio

from brokerd.quorum_commands import answer_in, command_of
from brokerd.replica.elections import Outcome
from brokerd.replica.quorum_messages import Answer, Message, Request
from brokerd.services.remoting_client import RequestFailed
from mqwire.codes import ResponseCode
from mqwire.errors import RemoteProtocolError

if TYPE_CHECKING:
    from brokerd.clock import SystemClock
    from brokerd.replica.replica import Replica
    from brokerd.services.acknowledgement import PendingAcknowledgements
    from brokerd.services.remoting_client import RemotingClient
    from brokerd.services.store_gate import StoreGate

logger = logging.getLogger(__name__)

_TICK_S: Final = 0.05
_IDLE_S: Final = 0.5
# Longer than a vote takes to be written; a later answer is of a round that is over.
_ANSWER_TIMEOUT_S: Final = 1.0
_STOP_TIMEOUT_S: Final = 1.0
_LOOK_S: Final = 0.02


class _Broker(Protocol):
    """What the elections uses of the broker."""

    clock: SystemClock
    replica: Replica
    store_gate: StoreGate
    acknowledgements: PendingAcknowledgements

    def client_of(self, address: str) -> RemotingClient: ...

    def leader_changed(self) -> None: ...

    def log_grew(self) -> None: ...

    def role_changed(self) -> None: ...


class QuorumService:
    """Does nothing in a group whose leader is assigned."""

    def __init__(self, broker: _Broker) -> None:
        self._broker = broker
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Tick until cancelled."""
        broker = self._broker
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            while True:
                elections = broker.replica.elections  # they come and go with the mode
                if (
                    elections is not None and not broker.store_gate.closed
                ):  # else the log is being truncated in a thread
                    clock = broker.clock
                    self.take(elections.tick(clock.monotonic(), clock.time_ms()))
                await trio.sleep(_TICK_S if elections is not None else _IDLE_S)

    def answer(self, message: Request) -> Answer | None:
        """What this replica answers to a request of another one; None when it can promise nothing any more."""
        return self._step(message).reply

    def take(self, outcome: Outcome) -> None:
        """Do what is left to do."""
        broker = self._broker
        replica = broker.replica
        if outcome.why is not None:
            logger.warning("group %s: leading no more: %s", replica.settings.group, outcome.why)
        if outcome.failure is not None:
            logger.error("group %s: no vote and no lead until it can be: %s", replica.settings.group, outcome.failure)
        if outcome.trusts:
            logger.error(
                "group %s: its machine went down, and no majority of others answers: electing with what this log still has;"
                " acknowledged messages that were in memory only may be gone",
                replica.settings.group,
            )
        if outcome.log_grew:
            broker.log_grew()
        if outcome.role_changed:
            broker.role_changed()
        elif outcome.leader_changed:
            logger.info(
                "group %s: epoch %d, the leader is %s",
                *(replica.settings.group, replica.epoch, replica.leader_address or "not known"),
            )
            broker.leader_changed()
        assert self._nursery is not None or not outcome.messages, "it runs while others ask"
        for replica_id, message in outcome.messages:
            if self._nursery is not None:
                self._nursery.start_soon(self._send, replica_id, message)

    async def hand_over_and_stop(self) -> None:
        """Before a stop: let the last sends be confirmed, resign, and wait until a successor knows."""
        broker = self._broker
        elections = broker.replica.elections
        if elections is None or not broker.replica.leads:
            return
        with trio.move_on_after(_STOP_TIMEOUT_S):
            while len(broker.acknowledgements):  # noqa: ASYNC110 - once, at a stop: not worth an event for every send
                await trio.sleep(_LOOK_S)
        with trio.move_on_after(_STOP_TIMEOUT_S):
            outcome = elections.resign("the broker stops", broker.clock.monotonic())
            messages, outcome.messages = outcome.messages, []
            self.take(outcome)
            async with trio.open_nursery() as nursery:
                for replica_id, message in messages:
                    nursery.start_soon(self._send, replica_id, message)

    def _step(self, message: Message) -> Outcome:
        broker = self._broker
        elections = broker.replica.elections
        if elections is None:  # the mode was changed while the answer was under way
            return Outcome()
        outcome = elections.step(message, broker.clock.monotonic(), broker.clock.time_ms())
        self.take(outcome)
        return outcome

    async def _send(self, replica_id: int, message: Request) -> None:
        broker = self._broker
        address = broker.replica.address_of(replica_id)
        if address is None:
            logger.warning("replica %d counts, but no one has said where it is: dLegerPeers here lacks it", replica_id)
            return
        client = broker.client_of(address)
        try:
            reply = await client.request(command_of(message), timeout_s=_ANSWER_TIMEOUT_S)
            if reply.code != ResponseCode.SUCCESS:
                raise RequestFailed(f"code {reply.code}: {reply.remark}")
            answer = answer_in(reply, message)
        except (RequestFailed, RemoteProtocolError) as error:
            logger.debug("replica %d at %s: %s", replica_id, address, error)
            return
        finally:
            client.close()
        if not broker.store_gate.closed:
            self._step(answer)
