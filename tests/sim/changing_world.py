"""One simulated group whose mode changes: founded in one mode, harmed and changed, then healed and changed once more."""

from __future__ import annotations

from dataclasses import replace

from brokerd.replica.replica_settings import ReplicaSettings
from brokerd.replica.voters import Members
from mqwire.message import pack_host
from mqwire.mode import Mode
from tests.sim.changing_faults import ChangingFaults
from tests.sim.changing_history import ChangingHistory
from tests.sim.changing_process import ChangingProcess
from tests.sim.event_loop import EventLoop
from tests.sim.history import Copy, Violation
from tests.sim.last_readers import find_by_key, read_to_the_end
from tests.sim.machine import address_of
from tests.sim.mode_operator import CHANGEABLE, ModeOperator
from tests.sim.network import Network
from tests.sim.quorum_machine import ChangingMachine, QuorumMachine
from tests.sim.quorum_operator import Operator
from tests.sim.quorum_world import LEVEL_S, QuorumWorld
from tests.sim.sim_clients import make_clients
from tests.sim.sim_name_server import NameServer
from tests.sim.verdict import judge
from tests.sim.wire import GROUP
from tests.sim.world import (
    AUTO_SHARE,
    FINAL_SENDS,
    MAX_TIME_NOT_LEVEL_S,
    RETENTION_SHARE,
    Extras,
    MachineSupervisor,
    Outcome,
    judged,
    observe_network,
)

GROWS_LATER = 8  # seeds that end so: a replica more while faults go on
FOUND_S = 15.0
FAULTS_S = 18.0
HEAL_S = 60.0  # a failed operation is asked for again, and again
CHANGE_S = 20.0


class ChangingWorld(QuorumWorld):
    """All endpoints of one run. `mode` is what the group is founded in; "single" grows first, one replica after the other."""

    def __init__(
        self, flush: str, seed: int, *, replicas: int | None = None, weather: str = "", show: bool = False
    ) -> None:
        self.flush = flush
        self.weather = weather
        self.seed = seed
        self.loop = EventLoop(seed, show=show)
        random = self.loop.random
        total = replicas or random.choice((2, 3, 3, 3, 5))
        self.waiting = 1 if seed % 10 == GROWS_LATER and total > 2 else 0
        count = total - self.waiting
        self.mode = random.choice((Mode.SINGLE, *(CHANGEABLE if count > 2 else CHANGEABLE[:2])))
        sync_replicas = random.choice((2, count))
        auto_in_sync = self.loop.chance("auto in sync").random() < AUTO_SHARE
        history = ChangingHistory()
        history.lacking = self._lacking
        history.logs = lambda: {machine.name: machine.log for machine in self.machines}
        history.least_majority = lambda: min(
            (len(voters) // 2 + 1 for voters in self._voter_sets() if voters), default=1
        )
        history.on_vote = self._voted
        self.history = history  # type: ignore[assignment] # what the inherited steps use of it, it has
        self.power_cuts = flush == "sync" or random.random() < 0.5
        self.max_time_not_level_s = MAX_TIME_NOT_LEVEL_S
        self.voters_die = random.choice((0.0, 0.05, 0.3))
        self.network = Network(self.loop)
        self.name_servers = [NameServer(self.loop, self.network, number) for number in range(2)]
        self.name_server_names = [server.name for server in self.name_servers]
        addresses = {number: address_of(number) for number in range(total)}
        peers = {number: addresses[number] for number in range(count)}
        names = [f"r{number}" for number in peers]
        elects = self.mode == Mode.DLEDGER
        self.machines = [
            ChangingMachine(
                self.loop,
                self.network,
                self.history,
                ReplicaSettings(
                    group=GROUP,
                    replica_id=number,
                    address=address,
                    store_host=pack_host(f"192.0.2.{number + 1}", 10911),
                    mode=Mode(self.mode),
                    durable_counts=flush == "sync",
                    starts_as_leader=number == 0 and not elects,
                    total_replicas=1 if self.mode == "single" else count,
                    in_sync_replicas=sync_replicas if self.mode == "sync" else 1,
                    auto_in_sync_replicas=auto_in_sync,
                    max_time_not_level_s=MAX_TIME_NOT_LEVEL_S,
                    follower_timeout_s=MAX_TIME_NOT_LEVEL_S,
                    members=Members(tuple(peers) if elects else ()),
                    peers=peers if elects else {},
                ),
                self.name_servers,
            )
            for number, address in addresses.items()
        ]
        observe_network(self.network, self.history, self.machines, lambda: self.faults)
        for machine in self.machines:
            machine.others = [other for other in self.machines if other is not machine]
            machine.out_of_service = self.mode == "single" and machine is not self.machines[0]
        for machine in self.machines[count:]:
            machine.out_of_service = True
        self.mode_operator = ModeOperator(
            self.loop,
            self.network,
            replicas=names,
            row_mode=Mode.ASYNC if self.mode == Mode.SINGLE else Mode(self.mode),
            sync_replicas=sync_replicas,
            auto_in_sync=auto_in_sync,
            dying=random.choice((0.0, 0.05, 0.2)),
        )
        self.mode_operator.supervisor = MachineSupervisor(self.loop, self.machines)
        self.control_plane = self.mode_operator  # type: ignore[assignment] # what the faults use of it, it has
        self.operator = Operator(self)
        self.mode_operator.on_voters_change = self.operator.note_change
        self.mode_operator.on_stop_for_good = self._stop_for_good
        self.mode_operator.on_stop_ended = self._stop_ended
        self.mode_operator.on_freed = self._freed
        every_name = [machine.name for machine in self.machines]
        self.senders, self.readers = make_clients(
            self.loop, self.network, self.history, every_name, self.name_server_names, pauses_s=(0.04, 0.1, 0.2)
        )
        self.client_names = [client.name for client in [*self.senders, *self.readers]]
        self.retention = random.random() < RETENTION_SHARE
        self.extras = Extras(self.machines, self.senders, random, retention=self.retention)
        self.faults = ChangingFaults(self)
        auto = ", automatic" if auto_in_sync else ""
        self.history.counts["groups with enableAutoInSyncReplicas"] += auto_in_sync
        self.loop.note(f"changing {flush} {count} replicas, founded as {self.mode}, {sync_replicas} in sync{auto}")

    def _lacking(self, node: str, copy: Copy) -> str | None:
        """Why the mode that the leader acts by forbids to acknowledge this."""
        process = next(machine for machine in self.machines if machine.name == node).process
        assert isinstance(process, ChangingProcess), "it acknowledges just now"
        lost_by = self.history.lost_by(copy)  # memory that a power cut took after the report counts by it
        holders = {one.settings.replica_id for one in self.machines if one.holds(copy) or one.name in lost_by}
        policies = process.policies_of(copy)
        for settings, members in policies:
            if settings.mode is Mode.DLEDGER:
                if len(holders.intersection(members.voters)) >= members.majority:
                    return None
            elif len(holders) >= settings.surely_held_by:
                return None
        return f"only {sorted(holders)} hold it, in mode {[settings.mode for settings, _ in policies]}"

    # --- the run

    def run(self) -> None:
        """Raises Violation."""
        loop, operator = self.loop, self.mode_operator
        for machine in self.machines:
            loop.after(loop.random.random() * 0.3, machine.start)
        for sender in self.senders:
            sender.run()
        for reader in self.readers:
            reader.run()
        loop.run_until(FOUND_S, lambda: bool(self._leaders()))
        self._grow()
        operator.start(operator.watch(), immortal=True)
        loop.after(loop.random.random(), self.faults.run)
        if self.waiting:
            loop.after(FAULTS_S * loop.random.random(), self.grow_later)
        loop.run_until(loop.now_s + FAULTS_S)
        self.faults.stop()
        self._settle(operator)
        self._change_once_more(operator)
        self._come_to_rest()
        self._when_all_is_well()
        read_to_the_end(loop, self.network, self.machines)
        if self.extras.indexes:
            find_by_key(loop, self.network, self.machines, self.history)
        loop.run_until(loop.now_s + LEVEL_S, self._level)  # the leader may have written down tables meanwhile
        judge(self)  # type: ignore[arg-type] # it has what is judged

    def _grow(self) -> None:
        """From a single replica: the configuration names all, which counts from the next start; each begins empty."""
        founding = self.machines[: len(self.machines) - self.waiting]
        for machine in founding:
            if self.mode != "single":
                return
            machine.settings = replace(machine.settings, total_replicas=len(founding), mode=Mode.ASYNC)
            machine.out_of_service = False
            machine.start()
            self.loop.run_until(self.loop.now_s + self.loop.random.uniform(0.1, 1.0))

    def grow_later(self) -> None:
        """A replica more, in any mode and whatever goes on there, as an operation of its own: while none is under way or hangs."""
        if not self.waiting:
            return
        if not self.mode_operator.settled:
            self.loop.after(0.3, self.grow_later)
            return
        self.waiting = 0
        machine = self.machines[-1]
        for one in self.machines:
            one.settings = replace(one.settings, total_replicas=len(self.machines))
        mode = self.mode_operator.row_mode
        peers = {one.settings.replica_id: one.settings.address for one in self.machines}
        machine.settings = replace(machine.settings, mode=mode)
        if mode == Mode.DLEDGER:
            machine.settings = replace(machine.settings, members=Members(tuple(peers)), peers=peers)
        machine.members = self.machines[0].members
        self.loop.note(f"{machine.name} is added to the group")
        self.history.counts["groups that grew later"] += 1
        machine.out_of_service = False
        machine.start()
        self.mode_operator.begin_growth(machine.name, machine.settings.address)

    def _stop_for_good(self, replica_id: int) -> None:
        for machine in self.machines:
            if machine.settings.replica_id == replica_id:
                machine.has_left = True
                machine.kill()

    def _stop_ended(self, replica_id: int) -> None:
        for machine in self.machines:
            if machine.settings.replica_id == replica_id and machine.has_left:
                machine.has_left = False
                machine.start()

    def _freed(self, replica_id: int) -> None:
        self.machines[:] = [one for one in self.machines if one.settings.replica_id != replica_id]
        for one in self.machines:
            one.settings = replace(one.settings, total_replicas=len(self.machines))
            one.others = [other for other in self.machines if other is not one]
        self.history.counts["groups that shrank"] += 1

    def _settle(self, operator: ModeOperator) -> None:
        """Everything works again: changes that hang are finished, and the group takes sends."""
        loop = self.loop
        loop.note("healing")
        self.network.heal()
        self.extras.heal()
        # Where memory was lost with the power, a log has rot, or a new disk has not caught up, no promotion may be provably clean:
        # an operator types the loss, of the best log.
        memory_lost = self.flush == "async" and self.power_cuts
        operator.heal(may_lose=memory_lost or bool(operator.replaced) or any(one.rot for one in self.machines))
        self._repair(self.machines)
        before = self._acknowledged()
        doubt_s = self.machines[0].settings.quorum_times.doubt if memory_lost else 0.0
        deadline_s = loop.now_s + HEAL_S + 1.2 * doubt_s
        loop.run_until(loop.now_s + 1.5)
        loop.run_until(max(loop.now_s, operator.sends_held_until_s))
        while loop.now_s < deadline_s:
            if operator.settled and self.waiting:
                self.grow_later()
            elif operator.settled:
                break
            else:
                operator.change_mode()
            loop.run_until(min(deadline_s, loop.now_s + 1.0))
        else:
            what = operator.resize or f"the change to {operator.unfinished or operator.operation}"
            raise Violation(f"{what} hangs: {self._roles()}")
        loop.run_until(deadline_s, lambda: self._acknowledged() >= before + FINAL_SENDS)
        if self._acknowledged() < before + FINAL_SENDS:
            raise Violation(f"the healed group takes no sends in mode {operator.row_mode}: {self._roles()}")
        self.faults.put_rot_right()

    def _change_once_more(self, operator: ModeOperator) -> None:
        """Every replica acts by the new mode soon, its leader has stayed, and sends were taken all the while."""
        loop = self.loop
        loop.run_until(loop.now_s + CHANGE_S, lambda: operator.leader is not None)
        before, wanted = self._acknowledged(), operator.completed + 1
        deadline_s = loop.now_s + CHANGE_S
        while operator.completed < wanted and loop.now_s < deadline_s:
            operator.change_mode()  # an operation that took too long has failed, and is asked for again
            loop.run_until(min(deadline_s, loop.now_s + 1.0), lambda: operator.completed >= wanted)
        modes = {machine.process.replica.settings.mode for machine in self.machines if machine.process}
        if operator.completed < wanted or modes != {operator.row_mode}:
            raise Violation(f"a healed group does not change to {operator.operation}: {self._roles()}")
        loop.run_until(loop.now_s + CHANGE_S, lambda: self._acknowledged() >= before + FINAL_SENDS)
        if self._acknowledged() < before + FINAL_SENDS:
            raise Violation(f"the group takes no sends in its new mode {operator.row_mode}: {self._roles()}")

    def _may_lead(self) -> list[QuorumMachine]:
        return super()._may_lead() if self.mode_operator.row_mode == Mode.DLEDGER else self.machines

    def _ask_to_lead(self, candidate: QuorumMachine) -> None:
        operator = self.mode_operator
        if operator.row_mode == Mode.DLEDGER:
            super()._ask_to_lead(candidate)
        else:
            operator.start(operator.asked_to_switch_over(candidate.name), immortal=True)

    def _acknowledged(self) -> int:
        return sum(sender.acknowledged for sender in self.senders)


def run_changing_seed(
    flush: str, seed: int, *, replicas: int | None = None, weather: str = "", show: bool = False
) -> Outcome:
    """One run, judged. `weather`: a composed fault that it has plenty of, whatever its number."""
    return judged(ChangingWorld(flush, seed, replicas=replicas, weather=weather, show=show), seed)
