"""One run of a broker: the real replica core and the real store, with the steps of brokerd's trio shells around them.

The order of the steps is that of brokerd/broker.py, services/{flush,replica_server,replica_follower,registration}.py and
processors/replica_admin.py; each method names its model. What those shells decide must be decided here in the same way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brokerd.replica import epoch_file as epoch_files
from brokerd.replica import replica as replicas
from brokerd.replica.diverged import DivergedMessages
from brokerd.replica.epoch_map import EpochMap
from brokerd.replica.in_sync import SendVerdict
from brokerd.replica.pull_protocol import Diverged, Fenced, SendBytes, TooOld
from brokerd.replica.replica import ReplicaSettings, RoleRefused
from brokerd.store import GetMessageStatus, MessageStore, MessageToStore, StoreConfig, StoreError
from mqwire.message import decode_records, pack_host
from mqwire.names import MASTER_ID
from tests.sim.follower_loop import FollowerLoop
from tests.sim.history import Copy
from tests.sim.network import Answer
from tests.sim.sim_requests import (
    Claim,
    ClaimAnswer,
    Demote,
    Freeze,
    Promote,
    Pull,
    PullAnswer,
    Read,
    ReadAnswer,
    Register,
    RoleAnswer,
    Send,
    SendAnswer,
    Status,
    StatusAnswer,
    Unregister,
)
from tests.sim.sim_requests import Fenced as NameServerFenced

if TYPE_CHECKING:
    from tests.sim.machine import Machine

TOPIC = "orders"
FILE_BYTES = 4096
ROOT = "/store"
CLIENT_HOST = pack_host("192.0.2.8", 40000)
REGISTER_PERIOD_S = 2.0
EXPIRE_PERIOD_S = 0.5
FLUSH_INTERVAL_S = 0.5
CONSUME_QUEUE_INTERVAL_S = 1.0
CONFIRM_OFFSET_PERIOD_S = 1.0
ACKNOWLEDGE_TIMEOUT_S = 1.5
PROMOTION_REGISTER_TIMEOUT_S = 0.5


_BUSY: dict[type, Any] = {
    Send: SendAnswer("SERVICE_NOT_AVAILABLE"),
    Promote: RoleAnswer("it cuts its log", None),
    Demote: RoleAnswer("it cuts its log", None),
    Freeze: RoleAnswer("it cuts its log", None),
    Read: ReadAnswer(0, 0),
}


@dataclass(slots=True)
class _Waiting:
    end_offset: int
    deadline_s: float
    answer: Answer
    copy: Copy


@dataclass(slots=True)
class _HeldPull:
    from_offset: int
    max_bytes: int
    told_confirm_offset: int
    deadline_s: float
    answer: Answer


class BrokerProcess:
    """Dies by itself (Died, an error of the epoch file's disk) only through its machine, which catches what step() raises."""

    follower_type = FollowerLoop

    def __init__(self, machine: Machine, settings: ReplicaSettings) -> None:
        self.machine = machine
        self.loop = machine.loop
        self.history = machine.history
        self.name = machine.name
        self.settings = settings
        self.ended = False
        disk = machine.disk
        self.store = MessageStore(
            StoreConfig(
                root_dir=ROOT,
                mapped_file_size_commit_log_bytes=FILE_BYTES,
                mapped_file_size_consume_queue_bytes=20 * 16,
                allocate_ahead_bytes=1024,
            ),
            disk=disk,
            clock=machine,
            store_host=settings.store_host,
        )
        report = self.store.open()
        if report.damage:
            machine.violation(f"{self.name}: the store is damaged after a restart: {report.damage}")
        self.opened_end = report.end_offset
        self.diverged = DivergedMessages(disk, ROOT)
        self.replica = replicas.Replica(settings, self.store, epoch_files.EpochFile(disk, ROOT), machine.chance())
        self._waiting: deque[_Waiting] = deque()
        self._held: dict[int, _HeldPull] = {}
        self._told_confirm: dict[int, int] = {}
        self.flush_failed = False
        self._flushing = False
        self._flush_wanted = False
        self._registered_as: dict[str, int] = {}
        self._observed = (0, 0, 0)
        self.follower = self.follower_type(self)

    # --- life (brokerd/run.py)

    def start(self) -> None:
        """Find the role, then run."""
        self.replica.start(self.now_s, self.machine.now_ms())
        self.held_changed()
        self.every(EXPIRE_PERIOD_S, self._answer_expired)
        self.every(REGISTER_PERIOD_S, self._register)
        self.every(CONSUME_QUEUE_INTERVAL_S, self._write_consume_queues)
        if not self.settings.durable_counts:
            self.every(FLUSH_INTERVAL_S, self.flush_once)
        self.flush_soon()
        self._register()
        self.every(CONFIRM_OFFSET_PERIOD_S, self._remember_confirm_offset)
        self.follower.role_changed()

    def _remember_confirm_offset(self) -> None:
        if not self.replica.leads and not self.follower.cutting:
            self.replica.remember_confirm_offset()

    @property
    def now_s(self) -> float:
        return self.loop.now_s

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do it later, if this process still runs then."""
        self.loop.after(delay_s, lambda: self.machine.run(self, action))

    def every(self, period_s: float, action: Callable[[], object]) -> None:
        def again() -> None:
            action()
            self.later(period_s, again)

        self.later(period_s * self.loop.random.uniform(0.5, 1.0), again)

    def call(self, target: str, request: Any, on_answer: Callable[[Any], None], timeout_s: float) -> None:
        """A request of this process; its answer is for this process only."""

        def mine(answer: Any) -> None:
            if not self.ended:
                on_answer(answer)

        self.machine.network.call(self.machine, target, request, mine, timeout_s=timeout_s)

    def observe(self) -> None:
        """After each step: tell the observer what this process claims to be."""
        replica = self.replica
        in_sync = replica.in_sync
        self.history.told(self.name, replica.epoch)
        if in_sync is None:
            return
        epoch, confirmed = replica.epoch, in_sync.confirm_offset
        enough = in_sync.size >= replica.settings.surely_held_by
        safe = confirmed if enough else 0
        if self._observed == (epoch, confirmed, safe):
            return
        before_epoch, before_confirmed, before_safe = self._observed
        history = self.history
        history.leads(epoch, f"{self.name}#{self.machine.runs}")
        history.confirm_offset(self.name, epoch, confirmed)
        if before_epoch != epoch:
            before_confirmed = before_safe = self.store.min_physical_offset
        begin = min(before_confirmed, before_safe) if enough else before_confirmed
        self._mark_confirmed(begin, confirmed, enough)
        self._observed = (epoch, confirmed, max(safe, before_safe if before_epoch == epoch else 0))

    def _mark_confirmed(self, begin: int, end: int, enough: bool) -> None:
        records = self.history.confirmed_records
        epochs = self.replica.epochs
        for record in self.records(begin, end):
            key = (epochs.epoch_at(record[0]), record[0])
            records[key] = enough or records.get(key, False)

    def records(self, begin: int, end: int) -> list[tuple[int, int]]:
        """(start, end) of the log's records between two offsets."""
        found: list[tuple[int, int]] = []
        while begin < end:
            data = self.store.read_raw(begin, 1 << 16)
            position = 0
            while position < len(data) and begin < end:
                size = int.from_bytes(data[position : position + 4], "big")
                if data[position + 4 : position + 8] == b"\xcb\xd4\x31\x94":
                    position += 8
                    begin += FILE_BYTES - begin % FILE_BYTES
                    continue
                found.append((begin, begin + size))
                position += size
                begin += size
            if not data:
                break
        return found

    # --- requests (brokerd/dispatch.py)

    def handle(self, request: Any, answer: Answer) -> None:
        if self.follower.cutting:  # the store is being reopened: SYSTEM_BUSY
            answer(_BUSY.get(type(request)))
        elif isinstance(request, Send):
            self._send(request, answer)
        elif isinstance(request, Pull):
            self._pull(request, answer)
        elif isinstance(request, Read):
            self._read(request, answer)
        elif isinstance(request, Status):
            answer(self.status())
        elif isinstance(request, Promote):
            self._promote(request, answer)
        elif isinstance(request, Demote):
            self._demote(request, answer)
        elif isinstance(request, Claim):
            self._claim(request, answer)
        elif isinstance(request, Freeze):
            self._freeze(request, answer)
        else:
            raise TypeError(f"a broker does not know {request!r}")

    # --- sends and reads (processors/send_message.py, broker.py)

    def _send(self, request: Send, answer: Answer) -> None:
        refusal = "the flush failed" if self.flush_failed else self.replica.refuses_sends(self.now_s)
        if refusal is not None:
            answer(SendAnswer("SERVICE_NOT_AVAILABLE"))
            return
        message = MessageToStore(
            TOPIC, request.queue_id, 0, 0, self.machine.now_ms(), CLIENT_HOST, 0, 0, request.body, b"", 0
        )
        try:
            (result,) = self.store.append([message])
        except StoreError:
            answer(SendAnswer("SYSTEM_ERROR"))
            return
        end_offset = result.physical_offset + result.size_bytes
        copy = Copy(self.name, self.replica.epoch, result.physical_offset, end_offset, result.queue_offset)
        self.history.appended(request.attempt, copy)
        if self.settings.durable_counts:
            self.flush_soon()
        else:
            self.held_changed()
        self._answer_when_held(copy, answer)

    def _answer_when_held(self, copy: Copy, answer: Answer) -> None:
        verdict = self.replica.verdict(copy.end_offset)
        if verdict is SendVerdict.SEND_OK and not self._waiting:
            self._acknowledge(answer, copy)
        elif verdict is SendVerdict.SLAVE_NOT_AVAILABLE:
            answer(SendAnswer("SLAVE_NOT_AVAILABLE"))
        else:
            self._waiting.append(_Waiting(copy.end_offset, self.now_s + ACKNOWLEDGE_TIMEOUT_S, answer, copy))

    def _acknowledge(self, answer: Answer, copy: Copy) -> None:
        self.history.acknowledged(self.replica.epoch, self.name, copy)
        answer(SendAnswer("SEND_OK", copy.queue_offset))

    def held_changed(self) -> None:
        """Broker.held_changed."""
        replica = self.replica
        replica.held_changed(self.now_s)
        confirmed = replica.confirm_offset
        self.store.confirm_offset = confirmed
        self._wake_held_pulls()
        if self._waiting:
            if replica.verdict(0) is SendVerdict.SLAVE_NOT_AVAILABLE:
                self._give_up("SLAVE_NOT_AVAILABLE")
            else:
                self._release(confirmed)

    def _release(self, confirmed: int) -> None:
        while self._waiting and self._waiting[0].end_offset <= confirmed:
            waiting = self._waiting.popleft()
            self._acknowledge(waiting.answer, waiting.copy)

    def _give_up(self, code: str) -> None:
        while self._waiting:
            self._waiting.popleft().answer(SendAnswer(code))

    def _answer_expired(self) -> None:
        """Broker.answer_expired."""
        self.held_changed()
        while self._waiting and self._waiting[0].deadline_s <= self.now_s:
            waiting = self._waiting.popleft()
            here = waiting.end_offset <= self.replica.held_offset
            waiting.answer(SendAnswer("FLUSH_SLAVE_TIMEOUT" if here else "FLUSH_DISK_TIMEOUT"))
        for replica_id, held in list(self._held.items()):
            if held.deadline_s <= self.now_s:
                self._answer_pull(replica_id, self._held.pop(replica_id))

    def _read(self, request: Read, answer: Answer) -> None:
        result = self.store.get_messages(TOPIC, request.queue_id, request.offset, 16, 65536)
        if result.status is not GetMessageStatus.FOUND:
            answer(ReadAnswer(0, result.next_begin_offset))
            return
        messages = decode_records(b"".join(result.chunks))
        for message in messages:
            attempt = self.history.by_body.get(message.body)
            if attempt is None:
                self.machine.violation(f"{self.name} showed a message that nobody sent")
            start = message.physical_offset
            self.history.read(
                self.name,
                attempt,
                message.queue_offset,
                self.replica.epochs.epoch_at(start),
                start,
                start + message.size_bytes,
            )
        answer(ReadAnswer(len(messages), result.next_begin_offset))

    # --- flushing (services/flush.py)

    def flush_soon(self) -> None:
        """With SYNC_FLUSH somebody waits; with ASYNC_FLUSH the interval does it."""
        if not self.settings.durable_counts:
            return
        self._flush_wanted = True
        if not self._flushing:
            self._begin_flush()

    def _begin_flush(self) -> None:
        self._flush_wanted = False
        self._flushing = True
        self.later(self.machine.sync_s(), self._flushed)

    def _flushed(self) -> None:
        self._flushing = False
        if self.flush_once() and self._flush_wanted:
            self._begin_flush()

    def flush_once(self) -> bool:
        """FlushService.flush_once."""
        if self.store.durable_offset < self.store.end_offset:
            try:
                self.store.flush()
            except StoreError:
                self.loop.note(f"{self.name} flush failed")
                self.flush_failed = True
                self._give_up("FLUSH_DISK_TIMEOUT")
                return False
        self.held_changed()
        return True

    def _write_consume_queues(self) -> None:
        if self.store.refusal is None:
            try:
                self.store.flush_consume_queues()
            except StoreError:
                self.loop.note(f"{self.name} cannot write its ConsumeQueues")

    # --- the leader's side of replication (services/replica_server.py)

    def _pull(self, request: Pull, answer: Answer) -> None:
        pull = request.pull
        led = self.replica.leads
        decision = self.replica.pulled(pull, request.address, self.now_s)
        if led and not self.replica.leads:
            self.role_changed()
        if not isinstance(decision, SendBytes):
            self._refuse_pull(answer, decision)
            return
        self.held_changed()
        self._held.pop(pull.replica_id, None)
        held = _HeldPull(
            decision.from_offset,
            pull.max_bytes,
            self._told_confirm.get(pull.replica_id, -1),
            self.now_s + pull.max_wait_ms / 1000,
            answer,
        )
        if self._has_news(held):
            self._answer_pull(pull.replica_id, held)
        else:
            self._held[pull.replica_id] = held

    def _wake_held_pulls(self) -> None:
        for replica_id, held in list(self._held.items()):
            if self._has_news(held):
                self._answer_pull(replica_id, self._held.pop(replica_id))

    def _has_news(self, held: _HeldPull) -> bool:
        return self.store.end_offset > held.from_offset or self.replica.confirm_offset > held.told_confirm_offset

    def _answer_pull(self, replica_id: int, held: _HeldPull) -> None:
        replica = self.replica
        data = self.store.read_raw(held.from_offset, held.max_bytes)
        self._told_confirm[replica_id] = replica.confirm_offset
        known = {self.settings.replica_id: self.settings.address, **replica.known_replicas}
        held.answer(
            PullAnswer(
                "bytes",
                replica.epoch,
                data=data,
                confirm_offset=replica.confirm_offset,
                min_offset=self.store.min_physical_offset,
                leader_address=self.settings.address,
                replicas=tuple(sorted(known.items())),
            )
        )

    def _refuse_pull(self, answer: Answer, decision: Diverged | TooOld | Fenced) -> None:
        epoch = self.replica.epoch
        if isinstance(decision, Diverged):
            divergence = decision.divergence
            answer(
                PullAnswer(
                    "diverged", epoch, diverged_epoch=divergence.epoch, diverged_end_offset=divergence.end_offset
                )
            )
        elif isinstance(decision, TooOld):
            answer(PullAnswer("too_old", epoch, min_offset=decision.min_offset))
        else:
            answer(PullAnswer("fenced", decision.epoch, leader_address=decision.leader_address))

    # --- roles (processors/replica_admin.py, broker.py)

    def status(self) -> StatusAnswer:
        replica = self.replica
        in_sync = replica.in_sync
        promotable = self.store.refusal is None and (replica.leads or self.follower.halted is None)
        return StatusAnswer(
            self.settings.replica_id,
            replica.epoch,
            replica.epochs.last_epoch,
            self.store.end_offset,
            replica.held_offset,
            replica.leads,
            promotable,
            () if in_sync is None else tuple(key for key, one in in_sync.followers.items() if one.in_sync),
            incarnation=replica.saved.incarnation,
            has_caught_up=replica.saved.joined,
            log_may_be_incomplete=replica.saved.log_may_be_incomplete or self.store.damaged_from is not None,
        )

    def _promote(self, request: Promote, answer: Answer) -> None:
        replica = self.replica
        led, epoch = replica.leads, replica.epoch
        log = (EpochMap(replica.epochs.entries), self.store.end_offset)
        try:
            replica.promote(request.expected_epoch, request.new_epoch, self.now_s, self.machine.now_ms())
        except (RoleRefused, StoreError) as refused:
            answer(RoleAnswer(str(refused), None))
            return
        if not led or replica.epoch != epoch:
            self.history.promoted(self.name, request.expected_epoch, epoch)
            self.loop.note(f"{self.name} promoted to epoch {replica.epoch} clean={request.clean} at {log[1]}")
            if not request.clean:
                self.history.unclean_promotion(replica.epoch, *log)
            self.role_changed()
        self._finish_promotion(answer)

    def _finish_promotion(self, answer: Answer) -> None:
        epoch = self.replica.epoch

        def finished() -> None:
            self.flush_once()
            if not self.replica.leads or self.replica.epoch != epoch:
                answer(RoleAnswer("the role moved on before the promotion was finished", None))
            else:
                answer(RoleAnswer(None, self.status()))

        self.later(self.machine.sync_s() + PROMOTION_REGISTER_TIMEOUT_S * self.loop.random.random(), finished)

    def _demote(self, request: Demote, answer: Answer) -> None:
        led = self.replica.leads
        try:
            self.replica.step_down(request.epoch, request.leader_address)
        except RoleRefused as refused:
            answer(RoleAnswer(str(refused), None))
            return
        if led:
            self.role_changed()
        else:
            self.leader_changed()
        answer(RoleAnswer(None, self.status()))

    def _claim(self, request: Claim, answer: Answer) -> None:
        granted, reason = True, ""
        before = (self.replica.leads, self.replica.must_claim)
        try:
            self.replica.grant_claim(
                replica_id=request.replica_id,
                epoch=request.epoch,
                last_epoch=request.last_epoch,
                end_offset=request.end_offset,
                address=request.address,
            )
        except RoleRefused as refused:
            granted, reason = False, str(refused)
        if granted:
            own = (self.replica.epochs.last_epoch, self.store.end_offset)
            self.history.granted(self.name, own, (request.last_epoch, request.end_offset))
        if granted or (self.replica.leads, self.replica.must_claim) != before:
            self.role_changed()
        answer(ClaimAnswer(granted, reason, self.replica.epoch))

    def _freeze(self, request: Freeze, answer: Answer) -> None:
        try:
            self.replica.freeze_sends(request.epoch, self.now_s + request.for_s)
        except RoleRefused as refused:
            answer(RoleAnswer(str(refused), None))
        else:
            answer(RoleAnswer(None, self.status()))

    def saw_epoch(self, epoch: int, leader_address: str | None) -> None:
        """Broker.saw_epoch."""
        if self.replica.saw_epoch(epoch, leader_address):
            self.role_changed()

    def role_changed(self) -> None:
        """Broker.role_changed."""
        replica = self.replica
        if replica.leads:
            self.loop.note(f"{self.name} leads in epoch {replica.epoch} from {self.store.end_offset}")
            self.held_changed()
            self.flush_soon()
        else:
            self.loop.note(f"{self.name} follows in epoch {replica.epoch}")
            self._release(replica.confirm_offset)
            self._give_up("FLUSH_SLAVE_TIMEOUT")
            for held in self._held.values():
                self._refuse_pull(held.answer, Fenced(replica.epoch, replica.leader_address, "it stopped leading"))
            self._held.clear()
            self._told_confirm.clear()
        self.leader_changed()

    def leader_changed(self) -> None:
        """Broker.leader_changed."""
        self.follower.role_changed()
        self.later(0.0, self._register)

    def replicated(self) -> None:
        """Broker.replicated."""
        self.store.confirm_offset = self.replica.confirm_offset

    # --- name servers (services/registration.py)

    @property
    def advertised_id(self) -> int | None:
        """Broker.advertised_id."""
        replica = self.replica
        if replica.leads:
            return MASTER_ID
        if self.settings.replica_id != MASTER_ID:
            return self.settings.replica_id
        if replica.must_claim:
            return None
        for replica_id, address in replica.known_replicas.items():
            if address == replica.leader_address:
                return replica_id
        return None

    def _register(self) -> None:
        broker_id = self.advertised_id
        if broker_id is None:
            return
        for server in self.machine.name_servers:
            before = self._registered_as.get(server)
            request = Register(broker_id, self.settings.address, self.replica.epoch)

            def registered(answer: object, server: str = server, request: Register = request) -> None:
                if answer == "":
                    self._registered_as[server] = request.broker_id
                elif isinstance(answer, NameServerFenced) and request.epoch == self.replica.epoch:
                    self.saw_epoch(self.replica.epoch + 1, None)

            if before is not None and before != broker_id:

                def taken_out(
                    answer: str | None, server: str = server, request: Register = request, done: Any = registered
                ) -> None:
                    if answer is not None:
                        self._registered_as.pop(server, None)
                        self.call(server, request, done, 1.0)

                self.call(server, Unregister(before, self.settings.address), taken_out, 1.0)
            else:
                self.call(server, request, registered, 1.0)
