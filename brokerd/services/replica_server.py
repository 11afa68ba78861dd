"""The leader's side of replication: answers followers' pulls, at once or when there is something to say.

A pull with nothing to send is held like a consumer's, without a task of its own, and woken by an append or by a moved
confirmOffset (replication.md, "Pull").
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
import trio

from brokerd.replica.pull_protocol import Diverged, Fenced, ReplicaPull, SendBytes, TooOld
from brokerd.replica.voters import Members
from brokerd.store import StoreError
from mqwire.codes import ResponseCode
from mqwire.command import encode_frame_prefix
from mqwire.headers_replica import ReplicaPullRequestHeader, ReplicaPullResponseHeader

if TYPE_CHECKING:
    from brokerd.client_channel import Peer
    from brokerd.clock import SystemClock
    from brokerd.replica.replica import Replica
    from brokerd.services.acknowledgement import PendingAcknowledgements
    from brokerd.services.delay_level import ScheduleMessageService
    from brokerd.store import MessageStore
    from mqwire.command import RemotingCommand

logger = logging.getLogger(__name__)

_MAX_WAIT_MS: Final = 5_000
_MAX_BYTES: Final = 4 * 1024 * 1024
# Where no sender waits for a follower, few large answers cost both sides a fraction of what many small ones do.
_LINGER_S: Final = 0.005
_WORTH_AN_ANSWER_BYTES: Final = 256 * 1024


class _Broker(Protocol):
    """What the leader of followers uses of the broker."""

    clock: SystemClock
    store: MessageStore
    replica: Replica
    schedule: ScheduleMessageService
    acknowledgements: PendingAcknowledgements
    nursery: trio.Nursery | None

    def held_changed(self) -> None: ...

    def role_changed(self) -> None: ...


@dataclass(slots=True)
class _HeldPull:
    peer: Peer
    request: RemotingCommand
    from_offset: int
    max_bytes: int
    sent_confirm_offset: int
    deadline_s: float


class ReplicaServer:
    """Held replica pulls, at most one of each follower."""

    def __init__(self, broker: _Broker) -> None:
        self._broker = broker
        self._held: dict[int, _HeldPull] = {}
        self._sent_confirm_offset: dict[int, int] = {}
        self._sent_from: dict[int, int] = {}  # what a follower asks for again it may have refused: it is checked then
        self._lingering = False
        self._answered: dict[int, tuple[Peer, float]] = {}  # by replica: its connection, and when
        self._asked_on: dict[int, Peer] = {}  # by replica: the connection of its last pull

    def pull(self, peer: Peer, request: RemotingCommand) -> None:
        """Answer one pull, or hold it."""
        header = request.header(ReplicaPullRequestHeader)
        broker = self._broker
        now_s = broker.clock.monotonic()
        led = broker.replica.leads
        self._asked_on[header.replica_id] = peer
        asked, answered_s = self._answered.get(header.replica_id, (None, -math.inf))
        decision = broker.replica.pulled(
            ReplicaPull(
                group=header.group,
                replica_id=header.replica_id,
                leader_epoch=header.leader_epoch,
                end_offset=header.end_offset,
                last_epoch=header.last_epoch,
                durable_offset=header.durable_offset,
                max_bytes=header.max_bytes,
                max_wait_ms=header.max_wait_millis,
                joined=header.joined,
                incarnation=header.incarnation,
                disk_full=header.disk_full,
                mode=header.mode,
                syncs=header.syncs,
            ),
            header.address,
            now_s,
            answered_s if asked is peer else -math.inf,
        )
        if led and not broker.replica.leads:
            broker.role_changed()
        if not isinstance(decision, SendBytes):
            self._refuse(peer, request, decision)
            return
        broker.held_changed()  # its report may have confirmed something
        # A reconnected follower's old pull has no one to answer. But it may be that one which arrives now, late.
        if header.replica_id in self._held:
            self._answer_held(header.replica_id, self._held[header.replica_id])
        held = _HeldPull(
            peer,
            request,
            decision.from_offset,
            max(1, min(header.max_bytes, _MAX_BYTES)),
            self._sent_confirm_offset.get(header.replica_id, -1),
            now_s + min(max(header.max_wait_millis, 0), _MAX_WAIT_MS) / 1000,
        )
        if not self._has_news(held):
            self._held[header.replica_id] = held
        elif self._may_linger and broker.store.end_offset - held.from_offset < _WORTH_AN_ANSWER_BYTES:
            self._held[header.replica_id] = held
            self._wake_later()
        else:
            self._answer(header.replica_id, held)

    def wake(self) -> None:
        """The log grew or confirmOffset moved: answer the pulls that wait for that, soon."""
        if self._held:
            if self._may_linger:
                self._wake_later()
            else:
                self._wake_now()

    @property
    def _may_linger(self) -> bool:
        broker = self._broker
        return broker.replica.settings.mode.leader_is_enough and broker.nursery is not None

    def _wake_later(self) -> None:
        nursery = self._broker.nursery
        if not self._lingering and nursery is not None:
            self._lingering = True
            nursery.start_soon(self._linger)

    async def _linger(self) -> None:
        try:
            await trio.sleep(_LINGER_S)
        finally:
            self._lingering = False
        self._wake_now()

    def _wake_now(self) -> None:
        if self._held:
            for replica_id, held in list(self._held.items()):
                if self._has_news(held):
                    self._answer_held(replica_id, held)

    def answer_expired(self, now_s: float) -> None:
        """Answer pulls that have waited long enough, with nothing: the next one is the follower's heartbeat."""
        for replica_id, held in list(self._held.items()):
            if held.deadline_s <= now_s or held.peer.closed:
                self._answer_held(replica_id, held)

    def stopped_leading(self) -> None:
        """Answer every waiting follower at once."""
        replica = self._broker.replica
        for held in self._held.values():
            self._refuse(held.peer, held.request, Fenced(replica.epoch, replica.leader_address, "it stopped leading"))
            held.peer.flush()
        self._held.clear()
        self._sent_confirm_offset.clear()

    def forget(self, replica_id: int) -> None:
        """It has left the group: a pull of before it was stopped, which arrives now, would have it back on the list."""
        peer = self._asked_on.pop(replica_id, None)
        if peer is not None:
            peer.close()

    def _has_news(self, held: _HeldPull) -> bool:
        broker = self._broker
        if broker.store.end_offset > held.from_offset:
            return True
        # While senders wait, the next records are on their way and carry confirmOffset too: an answer less per flush.
        return not len(broker.acknowledgements) and broker.replica.confirm_offset > held.sent_confirm_offset

    def _answer_held(self, replica_id: int, held: _HeldPull) -> None:
        self._held.pop(replica_id, None)
        if not held.peer.closed:
            self._answer(replica_id, held)
            held.peer.flush()

    def _answer(self, replica_id: int, held: _HeldPull) -> None:
        broker = self._broker
        replica = broker.replica
        try:
            asked_again = self._sent_from.get(replica_id) == held.from_offset
            data = broker.store.read_raw(held.from_offset, held.max_bytes, check=asked_again)
        except (StoreError, OSError) as error:
            # The caller that woke us, a send perhaps, must not fail for that.
            logger.error("the log cannot be read for replica %d at %d: %s", replica_id, held.from_offset, error)
            held.peer.write(held.request.reply(ResponseCode.SYSTEM_ERROR, f"reading failed: {error}").encode())
            return
        if data:
            self._sent_from[replica_id] = held.from_offset
        self._answered[replica_id] = (held.peer, broker.clock.monotonic())
        self._sent_confirm_offset[replica_id] = replica.confirm_offset
        in_sync = replica.in_sync
        follower = None if in_sync is None else in_sync.followers.get(replica_id)
        lease_s = 0.0 if in_sync is None else in_sync.lease_s(replica_id)
        header = ReplicaPullResponseHeader(
            answer="bytes",
            checked=asked_again,
            epoch=replica.epoch,
            end_offset=broker.store.end_offset,
            confirm_offset=replica.confirm_offset,
            min_offset=broker.store.min_physical_offset,
            leader_address=replica.settings.address,
            in_sync=follower is not None and follower.in_sync,
            in_sync_for_millis=int(lease_s * 1000),
            delay_offsets=broker.schedule.table_at(held.from_offset + len(data)),
            replicas=_replicas_text({replica.settings.replica_id: replica.settings.address, **replica.known_replicas}),
        )
        reply = held.request.reply(header=header, body=data)
        held.peer.write(encode_frame_prefix(reply))
        if data:
            held.peer.write(data)

    def _refuse(self, peer: Peer, request: RemotingCommand, decision: Diverged | TooOld | Fenced) -> None:
        replica = self._broker.replica
        if isinstance(decision, Diverged):
            header = ReplicaPullResponseHeader(
                answer="diverged",
                epoch=replica.epoch,
                diverged_epoch=decision.divergence.epoch,
                diverged_end_offset=decision.divergence.end_offset,
            )
            reply = request.reply(header=header)
        elif isinstance(decision, TooOld):
            members = replica.members if replica.elections is not None else Members(())
            policy = replica.modes.without_record()
            header = ReplicaPullResponseHeader(
                answer="too_old",
                epoch=replica.epoch,
                min_offset=decision.min_offset,
                diverged_epoch=decision.epoch,
                parts_epoch=None if decision.divergence is None else decision.divergence.epoch,
                parts_end_offset=None if decision.divergence is None else decision.divergence.end_offset,
                # The records that say so may be among those that retention has deleted.
                voters=";".join(map(str, members.voters)),
                incarnations=_replicas_text(dict(members.incarnations)),
                mode="" if policy is None else policy.mode,
                in_sync_replicas=1 if policy is None else policy.in_sync_replicas,
                min_in_sync_replicas=1 if policy is None else policy.min_in_sync_replicas,
            )
            body = msgspec.json.encode(self._broker.store.queues_without_messages())
            reply = request.reply(header=header, body=body)
        else:
            header = ReplicaPullResponseHeader(
                answer="fenced", epoch=decision.epoch, leader_address=decision.leader_address
            )
            reply = request.reply(ResponseCode.SUCCESS, decision.reason, header=header)
        peer.write(reply.encode())


def _replicas_text(replicas: dict[int, str]) -> str:
    return ";".join(f"{replica_id}={address}" for replica_id, address in sorted(replicas.items()))


def parse_replicas(text: str) -> dict[int, str]:
    """The replicas that a leader names; what cannot be read is left out."""
    found: dict[int, str] = {}
    for part in text.split(";"):
        replica_id, separator, address = part.partition("=")
        if separator and replica_id.isdigit() and address:
            found[int(replica_id)] = address
    return found
