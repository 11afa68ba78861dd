"""A follower's life: find the leader, pull its log, and what belongs to it; a restarted leader's is in replica_reclaim.py.

One loop, which looks at the replica's role each round, so that a promotion or a demotion needs no restart. Nothing is
decided here: brokerd/replica/replica.py says what an answer means.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec
import trio

from brokerd.replica.diverged import KEPT_MAX_BYTES
from brokerd.replica.epoch_map import Divergence
from brokerd.replica.epoch_record import Policy
from brokerd.replica.pull_protocol import Empty, Halt, Truncate, leased_wait_ms
from brokerd.replica.replica import RoleRefused
from brokerd.replica.voters import Members
from brokerd.services.peer_repair import repair_from_peers
from brokerd.services.remoting_client import ConnectionLost, RemotingClient, RequestFailed
from brokerd.services.replica_lookup import own_address_at, registered_members
from brokerd.services.replica_metadata import MetadataFollower
from brokerd.services.replica_reclaim import LeaderReclaim
from brokerd.services.replica_server import parse_replicas
from brokerd.store import DiskFullError, StoreDamagedError, StoreError, UnprovenRecordsError
from mqwire.codes import HighwaterRequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.errors import RemoteProtocolError
from mqwire.headers_replica import (
    ReplicaDemoteRequestHeader,
    ReplicaPullRequestHeader,
    ReplicaPullResponseHeader,
)
from mqwire.mode import Mode
from mqwire.names import MASTER_ID

if TYPE_CHECKING:
    from random import Random

    from brokerd.clock import SystemClock
    from brokerd.config import BrokerConfig
    from brokerd.consumer_offset import ConsumerOffsetManager
    from brokerd.environment import Threads
    from brokerd.replica.diverged import DivergedMessages
    from brokerd.replica.replica import Replica
    from brokerd.services.delay_level import ScheduleMessageService
    from brokerd.services.flush import FlushService
    from brokerd.services.metadata_log import MetadataLog
    from brokerd.services.remoting_client import RemotingClient
    from brokerd.services.store_gate import StoreGate
    from brokerd.store import MessageStore
    from brokerd.unproven_offsets import UnprovenOffsets
    from mqwire.metering import OutRow

logger = logging.getLogger(__name__)

_PASSING: Final = (RequestFailed, RoleRefused, RemoteProtocolError, ValueError)
_PULL_BYTES: Final = 1024 * 1024
_REQUEST_TIMEOUT_S: Final = 3.0
_FIRST_RETRY_S: Final = 0.1
_MAX_RETRY_S: Final = 2.0
_MAX_HINTS: Final = 3
_ANNOUNCE_PERIOD_S: Final = 2.0
_MAX_DOUBLINGS: Final = 30  # of the first pause between two attempts
_MAX_WAIT_MS: Final = 5_000
_MAX_ELECTED_WAIT_MS: Final = 500
_FLUSH_PATIENCE_S: Final = 0.5
_MAX_ELECTED_RETRY_S: Final = 0.4
_UNFORESEEN_S: Final = 5.0


class _Metering(Protocol):
    def pulls_recorded_from(self, offset: int) -> list[OutRow]: ...

    def log_was_truncated(self, pulls: list[OutRow]) -> None: ...


class _Broker(Protocol):
    """What a follower uses of the broker."""

    config: BrokerConfig
    clock: SystemClock
    threads: Threads
    random: Random
    store: MessageStore
    store_gate: StoreGate
    replica: Replica
    diverged: DivergedMessages
    metadata_log: MetadataLog
    flush_service: FlushService
    advertised_address: str
    consumer_offsets: ConsumerOffsetManager
    unproven_offsets: UnprovenOffsets
    schedule: ScheduleMessageService

    @property
    def metering(self) -> _Metering: ...

    def client_of(self, address: str, *, takes_records: bool = False) -> RemotingClient: ...

    def leader_changed(self) -> None: ...

    def log_was_truncated(self) -> None: ...

    def replicated(self, *, has_data: bool) -> None: ...

    def role_changed(self) -> None: ...

    def saw_epoch(self, epoch: int, leader_address: str | None) -> None: ...


class NotLeadingError(RequestFailed):
    """The replica that was asked does not lead, and names none that does."""


class _Cut(NamedTuple):
    """From where on a log's records are to go, and what was metered in them."""

    from_offset: int
    pulls: list[OutRow]


class FollowerService:
    """Runs whenever this replica does not lead."""

    def __init__(self, broker: _Broker) -> None:
        self._broker = broker
        self._role_changed = trio.Event()
        self._round = trio.CancelScope()
        is_proven = broker.unproven_offsets.is_proven
        self._metadata = MetadataFollower(broker.store, broker.consumer_offsets, is_proven, broker.client_of)
        self._reclaim = LeaderReclaim(broker, self._metadata)
        self._halted: str | None = None
        self._cut: _Cut | None = None  # until the log is truncated, and open again
        self._starting_over = False
        self.hears_leader = False  # whether its last pull was answered by the leader of its epoch
        self._flushed = trio.Event()
        self._list_may_be_old = False  # the pull under way was sent before a replica was forgotten
        self._hints = 0  # leaders named by replicas that do not lead, since the last answer from one that does
        self._failures = 0  # rounds without an answer from a leader, since the last one that had some

    @property
    def halted(self) -> str | None:
        """Why this follower should not be promoted, or does not go on by itself; None while all is well."""
        # A store that was opened again, to put damage right, say, takes what comes, and the follower has gone on.
        halted = None if self._broker.store.refusal is None else self._halted
        if halted is None and self._starting_over:
            return "it started over after the leader's retention, and has not caught up yet"
        return halted

    def role_changed(self) -> None:
        """Look at the role again now: what is under way with a former leader ends."""
        if self._broker.replica.elections is not None:
            self._failures = self._hints = 0  # it knows the leader, and need not ask around
        self._role_changed.set()
        self._round.cancel()

    def replica_forgotten(self) -> None:
        """The leader forgot it first, but may have answered the pull under way before that."""
        self._list_may_be_old = True

    async def run(self) -> None:
        """Follow, or wait to; until cancelled."""
        while True:
            with trio.CancelScope() as self._round:
                if self._broker.replica.leads:
                    self._role_changed = trio.Event()
                    if self._broker.replica.elections is None:  # an elected one notifies the others by itself
                        await self._announce()
                    await self._wait(_ANNOUNCE_PERIOD_S)
                else:
                    await self._one_round()

    async def _one_round(self) -> None:
        replica = self._broker.replica
        self._role_changed = trio.Event()
        try:
            if self._broker.store.wants_reopening:
                await self._reopen_store()
            if self._failures and self._broker.store.damaged_from is not None:
                await self._repair_without_leader(self._broker.store.damaged_from)
            if replica.must_reclaim:
                await self._reclaim.attempt()
                self._failures = 0
            else:
                await self._follow()
        except (*_PASSING, StoreError) as error:
            if isinstance(error, StoreError) and not self._may_pass(error):
                self._halted = str(error)
                logger.error("group %s: the follower stops: %s", replica.settings.group, error)
                await self._wait(None)
                return
            longest_s = _MAX_RETRY_S if replica.elections is None else _MAX_ELECTED_RETRY_S
            retry_s = min(_FIRST_RETRY_S * 2 ** min(self._failures, _MAX_DOUBLINGS), longest_s)
            self._failures += 1  # without end: it says whose turn it is to be asked
            logger.warning("group %s: %s; trying again in %.1f s", replica.settings.group, error, retry_s)
            await self._wait(retry_s * self._broker.random.uniform(0.7, 1.3))
        except Exception:
            # A follower that cannot go on must not take the broker and its readers with it.
            logger.exception("group %s: following failed, trying again in %g s", replica.settings.group, _UNFORESEEN_S)
            await self._wait(_UNFORESEEN_S)

    def _may_pass(self, error: StoreError) -> bool:
        """Damage is put right, room is made, and a disk that failed may go on; a store that takes no more needs a restart."""
        return isinstance(error, StoreDamagedError | DiskFullError) or self._broker.store.refusal is None

    async def _wait(self, seconds: float | None) -> None:
        with trio.move_on_after(float("inf") if seconds is None else seconds):
            await self._role_changed.wait()
        self._role_changed = trio.Event()

    # --- leading

    async def _announce(self) -> None:
        """Notify replicas that don't pull of the leader: a former master that was stopped or cut off ends its leadership then."""
        replica = self._broker.replica
        in_sync = replica.in_sync
        if in_sync is None:
            return
        silent_from_s = self._broker.clock.monotonic() - replica.settings.follower_timeout_s
        pulling = {key for key, follower in in_sync.followers.items() if follower.last_pull_s > silent_from_s}
        async with trio.open_nursery() as nursery:
            for replica_id, address in replica.known_replicas.items():
                if replica_id not in pulling:
                    nursery.start_soon(self._announce_to, address)

    async def _announce_to(self, address: str) -> None:
        replica = self._broker.replica
        header = ReplicaDemoteRequestHeader(
            group=replica.settings.group, epoch=replica.epoch, leader_address=replica.settings.address
        )
        client = self._broker.client_of(address)
        try:
            await client.request(
                RemotingCommand.request(HighwaterRequestCode.REPLICA_DEMOTE, header), timeout_s=_REQUEST_TIMEOUT_S
            )
        except RequestFailed as error:
            logger.debug("the replica at %s does not hear of the leader: %s", address, error)
        finally:
            client.close()

    # --- following

    async def _follow(self) -> None:
        address = await self._find_leader()
        client = self._broker.client_of(address, takes_records=True)
        failure: Exception | None = None
        try:
            async with trio.open_nursery() as nursery:
                try:
                    await self._pull_from(client, nursery)
                except (RequestFailed, RoleRefused, RemoteProtocolError, ValueError, StoreError) as error:
                    failure = error  # raised after the nursery, which would wrap it in a group
                nursery.cancel_scope.cancel()
        finally:
            self.hears_leader = False
            client.close()
        if failure is not None:
            elections = self._broker.replica.elections
            gone = isinstance(failure, (ConnectionLost, NotLeadingError))
            if gone and elections is not None and elections.leader_address == address:
                elections.leader_lost(self._broker.clock.monotonic())
            raise failure

    async def _pull_from(self, client: RemotingClient, nursery: trio.Nursery) -> None:
        """Pull until the role or the leader changes; raises RequestFailed when the leader does not answer."""
        broker = self._broker
        replica = broker.replica
        longest_ms = _MAX_WAIT_MS if replica.elections is None else _MAX_ELECTED_WAIT_MS  # pulls are the heartbeat
        longest_ms = min(longest_ms, broker.config.ha_send_heartbeat_interval_ms)
        leads = knows_deliveries = False
        self._flushed.set()
        while not replica.leads and not replica.must_reclaim:
            wait_ms = longest_ms
            if replica.settings.mode is Mode.SYNC:
                wait_ms = min(longest_ms, leased_wait_ms(replica.settings.max_time_not_level_s))
            # While a flush takes long the report of its end must not wait for the leader's next record; nor must what
            # was delivered, which comes with an answer.
            may_wait = self._flushed.is_set() and knows_deliveries
            pull = replica.next_pull(max_bytes=_PULL_BYTES, max_wait_ms=wait_ms if may_wait else 0)
            request = RemotingCommand.request(
                HighwaterRequestCode.REPLICA_PULL,
                ReplicaPullRequestHeader(
                    group=pull.group,
                    replica_id=pull.replica_id,
                    leader_epoch=pull.leader_epoch,
                    end_offset=pull.end_offset,
                    last_epoch=pull.last_epoch,
                    durable_offset=pull.durable_offset,
                    max_bytes=pull.max_bytes,
                    max_wait_millis=pull.max_wait_ms,
                    address=replica.settings.address,
                    joined=pull.joined,
                    incarnation=pull.incarnation,
                    disk_full=pull.disk_full,
                    mode=pull.mode,
                    syncs=pull.syncs,
                ),
            )
            sent_s = broker.clock.monotonic()
            self._list_may_be_old = False
            reply = await client.request(request, timeout_s=wait_ms / 1000 + _REQUEST_TIMEOUT_S)
            if reply.code != ResponseCode.SUCCESS:
                raise RequestFailed(f"{client.address} answered the pull with code {reply.code}: {reply.remark}")
            header = reply.header(ReplicaPullResponseHeader)
            knows_deliveries = False  # a log that is truncated shows fewer
            if header.answer != "fenced" and replica.elections is not None:
                replica.elections.heard_leader(header.epoch, broker.clock.monotonic())
            # Where the logs part in front of the damage, all from there on is kept aside, the damaged record and what follows it.
            if header.answer not in ("fenced", "diverged") and broker.store.damaged_from is not None:
                if pull.end_offset == broker.store.damaged_from:  # else it was asked before the damage was found
                    await self._repair(header, bytes(reply.body), pull.end_offset)
                self._failures = self._hints = 0
            elif header.answer == "bytes":
                await self._take(header, bytes(reply.body), pull.end_offset, nursery)
                replica.take_lease(header.epoch, sent_s, header.in_sync_for_millis / 1000)
                self.hears_leader = knows_deliveries = True
                self._failures = self._hints = 0
                if not leads:  # before that it may be anyone, with tables of any age
                    leads = True
                    nursery.start_soon(self._metadata.run, client.address)
            elif header.answer == "diverged":
                await self._truncate_to(header)
            elif header.answer == "too_old":
                await self._start_over(header, msgspec.json.decode(reply.body, type=list[tuple[str, int, int]]))
            else:
                broker.saw_epoch(header.epoch, header.leader_address)
                if header.epoch >= pull.leader_epoch and header.leader_address not in (None, client.address):
                    self._take_hint(client.address)
                    return  # follow that one
                if header.epoch <= pull.leader_epoch:
                    raise NotLeadingError(f"{client.address} does not lead: {reply.remark}")

    def _take_hint(self, address: str) -> None:
        """Ask at once the leader that was named, unless replicas send this one around in circles."""
        self._hints += 1
        if self._hints > _MAX_HINTS:
            self._hints = 0
            raise RequestFailed(f"{address} and others name each other as the leader")
        self._failures = 0

    async def _take(
        self, header: ReplicaPullResponseHeader, data: bytes, at_offset: int, nursery: trio.Nursery
    ) -> None:
        broker = self._broker
        replica = broker.replica
        if not self._list_may_be_old:
            replica.learn_replicas(parse_replicas(header.replicas))
        replica.saw_epoch(header.epoch, header.leader_address)

        def store(piece: bytes) -> None:
            nonlocal at_offset
            replica.received(piece, at_offset, header.epoch, header.confirm_offset, checked=header.checked)
            at_offset = broker.store.end_offset

        reached = at_offset + len(data)
        broker.metadata_log.receive(data, store)
        if broker.store.end_offset >= reached:  # it may have been truncated since the pull
            broker.schedule.take_over(header.delay_offsets)
        broker.replicated(has_data=bool(data))
        if replica.settings.durable_counts and (data or not self._flushed.is_set()):
            await self._flush(nursery)
        self._starting_over &= not header.in_sync
        self._metadata.leader_ends_at(header.end_offset)

    async def _flush(self, nursery: trio.Nursery) -> None:
        """Make what came durable before it is reported; pull meanwhile when that takes long, for pulls are the heartbeat."""
        if self._flushed.is_set():
            self._flushed = trio.Event()
            nursery.start_soon(self._flush_until_done, self._flushed)
        with trio.move_on_after(_FLUSH_PATIENCE_S):
            await self._flushed.wait()

    async def _flush_until_done(self, flushed: trio.Event) -> None:
        broker = self._broker
        try:
            while broker.store.durable_offset < broker.store.end_offset and broker.store.damaged_from is None:
                if broker.store.wants_reopening or not await broker.flush_service.flush_once():
                    return
        finally:
            flushed.set()

    async def _truncate_to(self, header: ReplicaPullResponseHeader) -> None:
        broker = self._broker
        replica = broker.replica
        self._check_epoch(header)
        decision = replica.diverged(Divergence(header.diverged_epoch or 0, header.diverged_end_offset or 0))
        if isinstance(decision, Halt):
            raise RequestFailed(decision.reason)
        async with self._alone_with_log():
            self._check_epoch(header)
            from_offset = decision.to_offset if isinstance(decision, Truncate) else broker.store.min_physical_offset
            size_bytes = broker.store.end_offset - from_offset
            if isinstance(decision, Empty):
                self._starting_over = True
            self._cut = _Cut(from_offset, await broker.threads.run(broker.metering.pulls_recorded_from, from_offset))
            name = await broker.threads.run(self._save_and_truncate, decision, from_offset)
        logger.warning(
            "the leader never had %d bytes from %d on: truncated, and %s kept in diverged/%s",
            size_bytes,
            from_offset,
            f"the first {KEPT_MAX_BYTES} of them" if size_bytes > KEPT_MAX_BYTES else "all",
            name,
        )

    @asynccontextmanager
    async def _alone_with_log(self) -> AsyncIterator[None]:
        """Be alone with the store, and have all that counts messages go by its new end afterwards: also where the log was
        truncated, and writing that down failed.
        """
        broker = self._broker
        store = broker.store
        before = (store.wants_reopening, store.min_physical_offset, store.end_offset)
        is_done = False
        try:
            async with broker.store_gate.alone():
                yield
            is_done = True
        finally:
            now = (store.wants_reopening, store.min_physical_offset, store.end_offset)
            if is_done or (not store.wants_reopening and now != before):
                broker.log_was_truncated()
                if self._cut is not None and not store.min_physical_offset <= self._cut.from_offset < store.end_offset:
                    broker.metering.log_was_truncated(self._cut.pulls)
            if not store.wants_reopening:  # else how much was truncated is known once it is open
                self._cut = None

    def _save_and_truncate(self, decision: Truncate | Empty, from_offset: int) -> str:
        broker = self._broker
        store, replica = broker.store, broker.replica
        name = broker.diverged.save(store, from_offset, replica.epochs.epoch_at(from_offset), broker.clock.time_ms())
        if isinstance(decision, Truncate):
            replica.truncate(decision.to_offset, lambda offset: _truncate(store, offset))
        else:
            replica.start_over(0, 0, lambda: store.start_over(0))
        return name

    def _save_and_truncate_damaged(self, damaged_from: int) -> str:
        """After the damage there may be records that the leader never had."""
        broker = self._broker
        epoch = broker.replica.epochs.epoch_at(damaged_from)
        name = broker.diverged.save(broker.store, damaged_from, epoch, broker.clock.time_ms())
        broker.replica.truncate_damaged()
        return name

    async def _repair_without_leader(self, damaged_from: int) -> bool:
        """None may lead before its log is whole: any replica that has the records is asked for them.

        Returns whether one gave some that nothing proves.
        """
        broker = self._broker
        unproven = False

        async def write(data: bytes) -> None:
            nonlocal unproven
            async with broker.store_gate.alone():
                if broker.store.damaged_from != damaged_from:
                    raise ValueError("it was put right or truncated meanwhile")
                try:
                    await broker.threads.run(partial(broker.replica.repair, data, of_leader=False))
                except UnprovenRecordsError:
                    unproven = True
                    raise
                finally:
                    self._read_again_if_repaired(damaged_from)

        await repair_from_peers(broker, damaged_from, write)
        return unproven

    async def _repair(self, header: ReplicaPullResponseHeader, data: bytes, damaged_from: int) -> None:
        """Put the damaged records right with the leader's, or with those of any replica that has the same log.

        Where none has: keep the log from there on aside, drop it, and fetch that again. Not while the leader's log is damaged
        right after these records: of what is damaged there this may be the only whole copy, and the leader asks for it.
        """
        try:
            await self._put_right(header, data, damaged_from)
        finally:
            self._read_again_if_repaired(damaged_from)

    def _read_again_if_repaired(self, damaged_from: int) -> None:
        """Have all go by the log as it is now, also where it was put right and writing that down failed."""
        store = self._broker.store
        if store.damaged_from != damaged_from and not store.wants_reopening:
            self._broker.log_was_truncated()

    async def _put_right(self, header: ReplicaPullResponseHeader, data: bytes, damaged_from: int) -> None:
        broker = self._broker
        if header.answer == "too_old" and await self._delete_damaged(header, data, damaged_from):
            return
        leader_lacks_next = waits = False
        if header.answer == "bytes" and data:
            async with broker.store_gate.alone():
                self._check_epoch(header)
                try:
                    await broker.threads.run(partial(broker.replica.repair, data, of_leader=True))
                except ValueError as error:
                    logger.warning("the damage at %d cannot be put right in place: %s", damaged_from, error)
                    leader_lacks_next = isinstance(error, UnprovenRecordsError) and error.end_offset < header.end_offset
                else:
                    logger.warning("the log is damaged from %d on: put right with the leader's records", damaged_from)
        if broker.store.damaged_from == damaged_from:
            waits = await self._repair_without_leader(damaged_from) and leader_lacks_next
        async with broker.store_gate.alone():
            if broker.store.damaged_from == damaged_from:
                self._check_epoch(header)
                if waits:
                    raise RequestFailed(f"the leader's log is damaged itself after the record at {damaged_from}")
                name = await broker.threads.run(self._save_and_truncate_damaged, damaged_from)
                logger.warning(
                    "the log is damaged from %d on: fetching that again from the leader; kept in diverged/%s",
                    *(damaged_from, name),
                )

    async def _delete_damaged(self, header: ReplicaPullResponseHeader, body: bytes, damaged_from: int) -> bool:
        """The leader's retention has deleted what is damaged here: delete it, too, and keep what follows. Returns whether it was.

        Of that this may be the only whole copy: another disk may have spoiled another record.
        """
        broker = self._broker
        queues = msgspec.json.decode(body, type=list[tuple[str, int, int]])
        async with broker.store_gate.alone():
            self._check_epoch(header)
            # Of tables without the base that they begin with nothing would be left.
            if broker.store.damaged_from != damaged_from or (broker.metadata_log.needed_from or 0) < header.min_offset:
                return False
            try:
                await broker.threads.run(broker.replica.delete_damaged, header.min_offset, queues)
            except ValueError as error:
                logger.info("the damage at %d is not deleted: %s", damaged_from, error)
                return False
        logger.warning(
            "the damage at %d is deleted with all in front of %d, where the leader's log begins",
            *(damaged_from, header.min_offset),
        )
        return True

    async def _reopen_store(self) -> None:
        """Go on where there was no descriptor to truncate the log, or to open it afterwards: how much was done is known then."""
        broker = self._broker
        async with self._alone_with_log():
            await broker.threads.run(broker.replica.reopen_store)
        logger.warning("the log was opened again, and ends at %d", broker.store.end_offset)

    async def _start_over(self, header: ReplicaPullResponseHeader, queues: list[tuple[str, int, int]]) -> None:
        """The leader's retention has deleted what this log lacks: forget it, and fetch all that the leader still has."""
        broker = self._broker
        min_offset = header.min_offset
        async with self._alone_with_log():
            self._check_epoch(header)
            logger.warning(
                "the leader's log begins at %d, this one ends at %d: starting over there",
                *(min_offset, broker.store.end_offset),
            )
            self._starting_over = True
            self._cut = await broker.threads.run(self._save_what_parts, header)
            await broker.threads.run(
                broker.replica.start_over,
                min_offset,
                header.diverged_epoch or 0,
                lambda: broker.store.start_over(min_offset, queues),
                _members_in(header),
                _policy_in(header),
            )

    def _save_what_parts(self, header: ReplicaPullResponseHeader) -> _Cut | None:
        """Keep aside what only this log has, of a leader of the past say, before it is emptied; return where that begins."""
        broker = self._broker
        store, epochs = broker.store, broker.replica.epochs
        if header.parts_epoch is None or header.parts_end_offset is None:
            return None
        parts_at = epochs.truncation_offset(Divergence(header.parts_epoch, header.parts_end_offset), store.end_offset)
        from_offset = max(parts_at, store.min_physical_offset)
        if from_offset >= store.end_offset:
            return None
        name = broker.diverged.save(store, from_offset, epochs.epoch_at(from_offset), broker.clock.time_ms())
        logger.warning("the leader never had what follows %d: kept in diverged/%s", from_offset, name)
        return _Cut(from_offset, broker.metering.pulls_recorded_from(from_offset))

    def _check_epoch(self, header: ReplicaPullResponseHeader) -> None:
        replica = self._broker.replica
        if replica.leads or header.epoch != replica.epoch:
            raise RoleRefused(f"an answer of epoch {header.epoch} comes too late: this is epoch {replica.epoch} by now")

    async def _find_leader(self) -> str:
        """Whom to ask: the leader as last known, and any other that may know it, in turn, once that one fails."""
        broker = self._broker
        replica = broker.replica
        known = replica.leader_address
        if known is not None and (not self._failures or replica.elections is not None):
            return known  # an elected one is replaced by an election only
        candidates = [
            await self._registered_master() if replica.elections is None else None,
            known,
            broker.config.ha_master_address or None,
            *replica.settings.peers.values(),
            *replica.known_replicas.values(),
        ]
        own = replica.settings.peers.get(replica.settings.replica_id)
        addresses = [one for one in dict.fromkeys(candidates) if one not in (None, own, replica.settings.address)]
        if not addresses:
            raise RequestFailed("no name server knows the group's master, and haMasterAddress is not set")
        found = addresses[max(0, self._failures - 1) % len(addresses)]
        assert found is not None, "None was left out"
        return found

    async def _registered_master(self) -> str | None:
        for members in await registered_members(self._broker):
            if MASTER_ID in members:
                found = await own_address_at(self._broker, members[MASTER_ID])
                if found is not None:
                    return found
        return None


def _members_in(header: ReplicaPullResponseHeader) -> Members:
    """The voters, as the leader has them."""
    voters = tuple(int(part) for part in header.voters.split(";") if part.isascii() and part.isdigit())
    return Members(voters, None, tuple(sorted(parse_replicas(header.incarnations).items())))


def _policy_in(header: ReplicaPullResponseHeader) -> Policy | None:
    """How the group acts, as far as the leader's log does not say so."""
    if not header.mode:
        return None
    return Policy(
        mode=Mode(header.mode),
        in_sync_replicas=header.in_sync_replicas,
        min_in_sync_replicas=header.min_in_sync_replicas,
    )


def _truncate(store: MessageStore, offset: int) -> None:
    report = store.truncate(offset)
    if report.end_offset != offset:
        raise ValueError(f"the log was to be truncated to {offset}, but ends at {report.end_offset}")
