"""A follower's loop, with the steps of brokerd/services/replica_follower.py: find the leader, pull, cut; or claim to lead again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from brokerd.replica.epoch_map import Divergence
from brokerd.replica.pull_protocol import Halt
from brokerd.replica.replica import RoleRefused
from brokerd.store import DiskFullError, StoreError
from mqwire.errors import RemoteProtocolError
from mqwire.names import MASTER_ID
from tests.sim.sim_requests import Claim, ClaimAnswer, Members, Pull, PullAnswer, Status, StatusAnswer

if TYPE_CHECKING:
    from tests.sim.broker_process import BrokerProcess

PULL_BYTES = 3000
PULL_WAIT_MS = 1000
REQUEST_TIMEOUT_S = 1.0
FIRST_RETRY_S = 0.1
MAX_RETRY_S = 1.0
MAX_HINTS = 3


class FollowerLoop:
    """One round of steps at a time; a change of the role ends the round: its answers come too late."""

    def __init__(self, process: BrokerProcess) -> None:
        self._process = process
        self._round = 0
        self._failures = 0
        self._hints = 0
        self.cutting = False
        self.halted: str | None = None

    def role_changed(self) -> None:
        """Look at the role again now. A cut under way is not given up: it runs in a thread."""
        self._round += 1
        self._process.replica.end_claim()
        if not self.cutting:
            self._next()

    def _next(self) -> None:
        replica = self._process.replica
        if replica.leads or self.halted is not None:
            return
        if not replica.must_claim:
            self._find_leader()
        else:
            self._look_before_claiming()

    def _in_round(self, step: Callable[[Any], None]) -> Callable[[Any], None]:
        """The step, unless the round has ended by then; its errors end the round."""
        here = self._round

        def in_round(answer: Any) -> None:
            if here != self._round:
                return
            try:
                step(answer)
            except (RoleRefused, RemoteProtocolError, DiskFullError, ValueError) as error:
                self._failed(str(error))
            except StoreError as error:
                self.halted = str(error)
                self._process.loop.note(f"{self._process.name} the follower stops: {error}")

        return in_round

    def _failed(self, reason: str) -> None:
        self._process.replica.end_claim()
        delay_s = min(FIRST_RETRY_S * 2**self._failures, MAX_RETRY_S) * self._process.loop.random.uniform(0.7, 1.3)
        self._failures = min(self._failures + 1, 30)
        again = self._in_round(lambda _: self._next())
        self._process.later(delay_s, lambda: again(None))

    def _call(self, target: str, request: Any, on_answer: Callable[[Any], None], timeout_s: float) -> None:
        self._process.call(target, request, self._in_round(on_answer), timeout_s)

    # --- following

    def _find_leader(self) -> None:
        known = self._process.replica.leader_address
        if known is not None and not self._failures:
            self._pull(known)
        else:
            self._ask_members(list(self._process.machine.name_servers), self._ask_in_turn)

    def _ask_members(self, servers: list[str], then: Callable[[list[dict[int, str]]], None]) -> None:
        """The group as each name server that answers has it."""
        found: list[dict[int, str]] = []

        def answered(answer: dict[int, str] | None) -> None:
            if answer is not None:
                found.append(dict(answer))
            if servers:
                self._call(servers.pop(0), Members(), answered, REQUEST_TIMEOUT_S)
            else:
                then(found)

        answered(None)

    def _ask_in_turn(self, members: list[dict[int, str]]) -> None:
        replica = self._process.replica
        masters = [group[MASTER_ID] for group in members if MASTER_ID in group]
        candidates = [*masters[:1], replica.leader_address, *replica.known_replicas.values()]
        addresses = [one for one in dict.fromkeys(candidates) if one not in (None, self._process.settings.address)]
        if not addresses:
            raise ValueError("no name server knows the group's master")
        address = addresses[max(0, self._failures - 1) % len(addresses)]
        assert address is not None, "None was left out"
        self._pull(address)

    def _pull(self, address: str) -> None:
        replica = self._process.replica
        if replica.leads or replica.must_claim:
            self._next()
            return
        pull = replica.next_pull(max_bytes=PULL_BYTES, max_wait_ms=PULL_WAIT_MS)

        def answered(answer: PullAnswer | None) -> None:
            if answer is None:
                raise ValueError(f"{address} did not answer")
            self._answered(address, answer, pull.end_offset, pull.leader_epoch)

        self._call(
            address, Pull(pull, self._process.settings.address), answered, PULL_WAIT_MS / 1000 + REQUEST_TIMEOUT_S
        )

    def _answered(self, address: str, answer: PullAnswer, at_offset: int, asked_epoch: int) -> None:
        if answer.answer == "bytes":
            self._take(address, answer, at_offset)
        elif answer.answer == "diverged":
            self._cut(address, answer)
        elif answer.answer == "too_old":
            raise ValueError("the leader's log begins behind this log's end")
        else:
            self._process.saw_epoch(answer.epoch, answer.leader_address)
            if answer.epoch >= asked_epoch and answer.leader_address not in (None, address):
                self._take_hint(address)
                self._next()
            elif answer.epoch <= asked_epoch:
                raise ValueError(f"{address} does not lead")
            else:
                self._pull(address)

    def _take_hint(self, address: str) -> None:
        self._hints += 1
        if self._hints > MAX_HINTS:
            self._hints = 0
            raise ValueError(f"{address} and others name each other as the leader")
        self._failures = 0

    def _take(self, address: str, answer: PullAnswer, at_offset: int) -> None:
        process = self._process
        replica = process.replica
        own_id = process.settings.replica_id
        replica.told_of_replicas({key: value for key, value in answer.replicas if key != own_id})
        replica.saw_epoch(answer.epoch, answer.leader_address)
        replica.received(answer.data, at_offset, answer.epoch, answer.confirm_offset)
        here = self._round
        process.replicated()
        self._failures = self._hints = 0
        if here != self._round:
            return  # another mode is in force: the next round has begun
        if not (answer.data and process.settings.durable_counts):
            self._pull(address)
            return

        def flushed(_: object) -> None:
            if not process.flush_once():
                raise ValueError("the log cannot be flushed")
            self._pull(address)

        in_round = self._in_round(flushed)
        process.later(process.machine.sync_s(), lambda: in_round(None))

    def _cut(self, address: str, answer: PullAnswer) -> None:
        process = self._process
        replica = process.replica
        if replica.leads or answer.epoch != replica.epoch:
            raise RoleRefused(f"an answer of epoch {answer.epoch} comes too late")
        decision = replica.diverged(Divergence(answer.diverged_epoch, answer.diverged_end_offset))
        if isinstance(decision, Halt):
            raise ValueError(decision.reason)
        self.cutting = True
        to_offset = decision.to_offset
        go_on = self._in_round(lambda _: self._pull(address))
        here = self._round

        def cut() -> None:
            epoch = replica.epochs.epoch_at(to_offset)
            end_offset = process.store.end_offset
            try:
                process.diverged.save(process.store, to_offset, epoch, process.machine.now_ms())
                replica.cut(to_offset, self._truncate)
            except (RoleRefused, ValueError) as error:
                process.loop.note(f"{process.name} cut failed: {error}")
                self._failed(str(error))
                return
            except StoreError as error:
                self.halted = str(error)
                return
            finally:
                self.cutting = False
            process.loop.note(f"{process.name} cut {to_offset}..{end_offset}")
            process.replicated()
            if here == self._round:
                go_on(None)
            else:
                self._next()

        process.later(process.machine.sync_s(), cut)

    def _truncate(self, offset: int) -> None:
        report = self._process.store.truncate(offset)
        if report.end_offset != offset:
            raise ValueError(f"the log was to be cut to {offset}, but ends at {report.end_offset}")

    # --- leading again (services/replica_claim.py)

    def _look_before_claiming(self) -> None:
        """Who leads, and is everyone there? A claim that cannot succeed would only raise the others' epochs."""
        replica = self._process.replica
        found: dict[int, tuple[StatusAnswer, str]] = {}

        def complete() -> bool:
            return not replica.unknown_replicas and not replica.known_replicas.keys() - found.keys()

        def looked() -> None:
            if complete():
                self._look_at(found)
            else:
                self._ask_members(list(self._process.machine.name_servers), ask_listed)

        def ask_listed(members: list[dict[int, str]]) -> None:
            tried = {self._process.settings.address, *replica.known_replicas.values()}
            listed = sorted({address for group in members for address in group.values()} - tried)
            self._ask_who(listed, found, lambda: self._look_at(found))

        self._ask_who(sorted(replica.known_replicas.values()), found, looked)

    def _ask_who(
        self, addresses: list[str], found: dict[int, tuple[StatusAnswer, str]], then: Callable[[], None]
    ) -> None:
        if not addresses:
            for replica_id, (_, address) in found.items():
                self._process.replica.add_known_replica(replica_id, address)
            then()
            return

        def answered(status: StatusAnswer | None) -> None:
            if status is not None:
                found[status.replica_id] = (status, addresses[0])
            self._ask_who(addresses[1:], found, then)

        self._call(addresses[0], Status(), answered, REQUEST_TIMEOUT_S)

    def _look_at(self, found: dict[int, tuple[StatusAnswer, str]]) -> None:
        process = self._process
        replica = process.replica
        if not replica.must_claim:
            self._next()
            return
        leaders = [(one.epoch, address) for one, address in found.values() if one.leads and one.epoch >= replica.epoch]
        if leaders:
            replica.step_down(*max(leaders))
            process.leader_changed()
            return
        if replica.unknown_replicas or replica.known_replicas.keys() - found.keys():
            raise ValueError("not every other replica answers")
        epoch = replica.begin_claim(max((one.epoch for one, _ in found.values()), default=0))
        order = sorted(found, key=lambda key: (found[key][0].log_epoch, found[key][0].end_offset), reverse=True)
        self._claim_next(epoch, [found[key][1] for key in order])

    def _claim_next(self, epoch: int, left: list[str]) -> None:
        process = self._process
        replica = process.replica
        if not left:
            self._failures = 0
            replica.end_claim()
            replica.claimed(epoch, process.now_s, process.machine.now_ms())
            process.role_changed()
            return
        address = left[0]

        def answered(answer: ClaimAnswer | None) -> None:
            if answer is None:
                raise ValueError(f"{address} did not answer the claim")
            if not answer.granted:
                process.loop.note(f"{process.name} claim of {epoch} refused by {address}: {answer.reason}")
                replica.end_claim()
                process.saw_epoch(answer.epoch, None)
                raise RoleRefused(answer.reason)
            self._claim_next(epoch, left[1:])

        claim = Claim(
            process.settings.replica_id,
            epoch,
            replica.epochs.last_epoch,
            process.store.end_offset,
            process.settings.address,
        )
        self._call(address, claim, answered, REQUEST_TIMEOUT_S)
