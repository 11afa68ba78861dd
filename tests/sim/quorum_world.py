"""One simulated quorum-led group: founded, harmed, then with a healthy majority only, then healed."""

from __future__ import annotations

from collections.abc import Sequence

from brokerd.replica.replica_settings import ReplicaSettings
from brokerd.replica.voters import Members
from mqwire.message import pack_host
from mqwire.mode import Mode
from tests.sim.event_loop import EventLoop
from tests.sim.history import Copy, Violation
from tests.sim.last_readers import find_by_key, read_to_the_end, wait_for_news
from tests.sim.machine import address_of
from tests.sim.network import Network
from tests.sim.quorum_faults import QuorumFaults
from tests.sim.quorum_history import QuorumHistory
from tests.sim.quorum_machine import QuorumMachine
from tests.sim.quorum_operator import Operator
from tests.sim.sim_clients import make_clients
from tests.sim.sim_name_server import NameServer
from tests.sim.sim_requests import Change
from tests.sim.verdict import judge
from tests.sim.wire import GROUP
from tests.sim.world import DUE_S, NEWS_SHARE, RETENTION_SHARE, Extras, Outcome, judged, observe_network

FOUND_S = 60.0  # within which all must agree, over a network that may lose a part of all packets
ELECT_S = 10.0  # within which a healthy majority must elect
FAULTS_S = 14.0
SETTLED_S = 6.0  # by then a machine that is cut off has sent all that it had to send from before
STEADY_S = 4.0
LAST_SENDS_S = 2.1  # until the last answer is there
LEVEL_S = 20.0
SENDS_AT_LEAST = 5
TRANSFER_SHARE = 0.3  # of all seeds: at the end an operator has the role move
TRANSFER_S = 10.0
ASK_AGAIN_S = 3.0


class QuorumWorld:
    """All endpoints of one run."""

    def __init__(self, flush: str, seed: int, *, replicas: int | None = None, show: bool = False) -> None:
        self.flush = flush
        self.seed = seed
        self.mode = "dledger"
        self.loop = EventLoop(seed, show=show)
        random = self.loop.random
        voters = replicas or random.choice((3, 3, 3, 5))
        self.power_cuts = flush == "sync" or random.random() < 0.6
        self.history = QuorumHistory()
        self.history.lacking_majority = self._lacking_majority
        self.history.on_vote = self._voted
        self.history.least_majority = lambda: min(len(voters) // 2 + 1 for voters in self._voter_sets())
        self.network = Network(self.loop)
        self.name_servers = [NameServer(self.loop, self.network, number) for number in range(2)]
        self.name_server_names = [server.name for server in self.name_servers]
        self.voters_die = random.choice((0.0, 0.05, 0.3))  # the chance of a voter to be killed right after its vote
        peers = {number: address_of(number) for number in range(voters)}
        self.machines = [
            QuorumMachine(
                self.loop,
                self.network,
                self.history,
                ReplicaSettings(
                    group=GROUP,
                    replica_id=number,
                    address=address,
                    store_host=pack_host(f"192.0.2.{number + 1}", 10911),
                    mode=Mode.DLEDGER,
                    durable_counts=flush == "sync",
                    starts_as_leader=False,
                    total_replicas=len(peers),
                    max_time_not_level_s=3.0,
                    follower_timeout_s=3.0,
                    members=Members(tuple(range(voters))),
                    peers=peers,
                ),
                self.name_servers,
            )
            for number, address in peers.items()
        ]
        for machine in self.machines:
            machine.others = [other for other in self.machines if other is not machine]
        observe_network(self.network, self.history, self.machines, lambda: self.faults)
        self.control_plane = self.operator = Operator(self)
        names = [machine.name for machine in self.machines]
        self.senders, self.readers = make_clients(
            self.loop, self.network, self.history, names, self.name_server_names, pauses_s=(0.04, 0.1, 0.2)
        )
        self.client_names = [client.name for client in [*self.senders, *self.readers]]
        self.retention = random.random() < RETENTION_SHARE
        self.extras = Extras(self.machines, self.senders, random, retention=self.retention)
        self.faults = QuorumFaults(self)
        self.loop.note(f"dledger {flush} {voters} voters")

    # --- what the observer reports and asks

    def _voted(self, node: str) -> None:
        loop = self.loop
        if self.faults.stopped or loop.random.random() >= self.voters_die:
            return
        machine = next(machine for machine in self.machines if machine.name == node)

        def restart() -> None:
            if not self.faults.stopped:
                machine.kill()
                machine.start()

        loop.after(loop.random.random() * 0.01, restart)

    def _lacking_majority(self, node: str, copy: Copy) -> str | None:
        leader = next(machine for machine in self.machines if machine.name == node)
        members = leader.process.replica.members if leader.process else leader.members
        voters = [machine for machine in self.machines if machine.settings.replica_id in members.voters]
        holders = [machine.name for machine in voters if machine.holds(copy)]
        # A disk that was lost after a report still counts by it, and is one of those that a majority can lose.
        lost = [
            machine.name
            for machine in voters
            if (machine.had(copy) or machine.has_lost_to_rot) and machine.name not in holders
        ]
        # So does memory that a power cut took after the report.
        lost += [
            machine.name
            for machine in voters
            if machine.name in self.history.lost_by(copy) and machine.name not in holders
        ]
        if len(holders) + len(lost) >= members.majority:
            return None
        return f"of {members.voters} only {holders} hold it"

    def can_lose(self, machine: QuorumMachine | None, *, besides: Sequence[Change] | None = None) -> bool:
        """Whether this disk may be lost beside those that have no full vote already: a minority of all sets that may count.

        With `besides` those are also the sets that come of these requests, and of others that may not have arrived yet.
        """
        about_to_fail = {other.settings.replica_id for other in self.machines if other.disk.is_to_fail}
        lost = self._without_full_vote() | about_to_fail
        if machine is not None:
            lost.add(machine.settings.replica_id)
        sets = self._voter_sets()
        if besides is not None:
            sets = self.operator.voters_on_their_way(sets, besides)
        return all(len(lost.intersection(voters)) <= (len(voters) - 1) // 2 for voters in sets)

    def _without_full_vote(self) -> set[int]:
        return {machine.settings.replica_id for machine in self.machines if not machine.has_full_vote}

    def _voter_sets(self) -> set[tuple[int, ...]]:
        return {machine.members.voters for machine in self.machines}

    def _leaders(self) -> list[QuorumMachine]:
        """Those whose epoch's record is confirmed."""
        return [
            machine
            for machine in self.machines
            if machine.process
            and not machine.paused  # it has not heard yet that its time is over
            and machine.process.replica.leads
            and machine.process.replica.confirm_offset > machine.process.replica.epochs.entries[-1].start_offset
        ]

    # --- the run

    def run(self) -> None:
        """Raises Violation."""
        loop = self.loop
        for machine in self.machines:
            loop.after(loop.random.random() * 0.3, machine.start)
        for sender in self.senders:
            sender.run()
        for reader in self.readers:
            reader.run()
        self._be_late()
        self._elects("founded", FOUND_S)
        loop.after(loop.random.random(), self.faults.run)
        loop.run_until(loop.now_s + FAULTS_S)
        self.faults.stop()
        self.network.heal()
        self.extras.heal()
        if any(machine.rot for machine in self.machines):
            self._repair(self.machines)
            self.faults.put_rot_right()
        broken = self._break_a_minority()
        self._repair([machine for machine in self.machines if machine not in broken])
        began_s = loop.now_s
        # A voter that lost its memory waits for those that may know better: it counts as broken for that long.
        loses_memory = self.power_cuts or self.history.counts["pages dropped after a failed sync"]
        doubt_s = self.machines[0].settings.quorum_times.doubt if self.flush == "async" and loses_memory else 0.0
        self._doubt_s = 1.2 * doubt_s
        self._elects("in the healthy majority", ELECT_S + self._doubt_s)
        loop.run_until(max(loop.now_s + 1.0, began_s + SETTLED_S))
        self._commits_all_writes()
        self._heal()
        self._when_all_is_well()
        read_to_the_end(loop, self.network, self.machines)
        if self.extras.indexes:
            find_by_key(loop, self.network, self.machines, self.history)
        loop.run_until(loop.now_s + LEVEL_S, self._level)  # the leader may have written down tables meanwhile
        judge(self)  # type: ignore[arg-type] # it has what is judged

    def _be_late(self) -> None:
        """All must agree to the founding: it waits for one that the others do not reach yet."""
        random, network = self.loop.random, self.network
        if random.random() < 0.75:
            return
        late = random.choice(self.machines)
        pairs = {(late.name, other.name) for other in late.others} | {(other.name, late.name) for other in late.others}
        network.blocked.update(pairs)
        self.loop.after(random.uniform(2.0, 12.0), lambda: network.blocked.difference_update(pairs))

    def _elects(self, what: str, within_s: float = ELECT_S) -> None:
        loop = self.loop
        began_s = loop.now_s
        epoch = max((machine.process.replica.epoch for machine in self.machines if machine.process), default=0)
        loop.run_until(began_s + within_s, lambda: bool(self._leaders()))
        if not self._leaders():
            raise Violation(f"no leader was elected within {within_s} s ({what}, from epoch {epoch}): {self._roles()}")
        took_s = loop.now_s - began_s
        limit_s = next(limit for limit in (0.5, 1, 2, 3, 4, 6, 8, 10.1, 60.1) if took_s <= limit)
        self.history.counts[f"leader {what} within {limit_s} s"] += 1

    def _commits_all_writes(self) -> None:
        """All that leaders took is confirmed, and no one takes the lead from them without need."""
        loop, history = self.loop, self.history
        loop.run_until(
            loop.now_s + ELECT_S - SETTLED_S + self._doubt_s, lambda: len(self._leaders()) == 1
        )  # the preferred one may follow
        if len(self._leaders()) != 1:
            raise Violation(f"{len(self._leaders())} leaders in a healthy group: {self._roles()}")
        (leader,) = self._leaders()
        preferred = leader.members.preferred not in (None, leader.settings.replica_id)
        before, refused = len(history.attempts), history.refused_by_leaders
        epoch = self._epoch_of(leader)
        loop.run_until(loop.now_s + STEADY_S)
        last = len(history.attempts)
        loop.run_until(loop.now_s + LAST_SENDS_S)
        if preferred:
            return  # it may have handed the role over meanwhile
        if self._epoch_of(leader) != epoch:
            raise Violation(
                f"{leader.name} led a healthy majority in epoch {epoch}, and was disturbed: {self._roles()}"
            )
        attempts = history.attempts[before:last]
        unconfirmed = [
            attempt for attempt in attempts if attempt.copies and attempt.code != "SEND_OK" and attempt.asks == 1
        ]
        if unconfirmed or history.refused_by_leaders > refused:
            raise Violation(
                f"the leader of a healthy majority refused {history.refused_by_leaders - refused} sends"
                f" and did not confirm {unconfirmed[:3]}"
            )
        if sum(attempt.code == "SEND_OK" for attempt in attempts) < SENDS_AT_LEAST:
            raise Violation(f"the group with a healthy majority takes no sends: {self._roles()}")

    @staticmethod
    def _epoch_of(leader: QuorumMachine) -> int | None:
        process = leader.process
        return process.replica.epoch if process is not None and process.replica.leads else None

    def _break_a_minority(self) -> list[QuorumMachine]:
        """Each in its own way, so that every set of voters that may count, or come of a request, has a healthy majority left."""
        random = self.loop.random
        machines = list(self.machines)
        random.shuffle(machines)
        broken: list[QuorumMachine] = []
        for machine in machines[: random.choice((0, 1, 1, 2))]:
            if self._leave_a_majority([*broken, machine]):
                broken.append(machine)
        for machine in broken:
            self._break(machine, random.choice(("down", "paused", "cut off", "deaf", "mute", "deaf", "mute")))
        return broken

    def _leave_a_majority(self, broken: list[QuorumMachine]) -> bool:
        ids = {machine.settings.replica_id for machine in broken}
        ids |= self._without_full_vote()
        sets = self.operator.voters_on_their_way(self._voter_sets())
        return all(len(set(voters) - ids) >= len(voters) // 2 + 1 for voters in sets)

    def _break(self, machine: QuorumMachine, how: str) -> None:
        self.loop.note(f"{machine.name} stays {how}")
        if how == "down":
            machine.kill()
            return
        machine.start()
        if how == "paused":
            machine.pause()
            return
        machine.resume()
        others = [other.name for other in machine.others]
        if how != "mute":
            self.network.blocked.update((other, machine.name) for other in others)
        if how != "deaf":
            self.network.blocked.update((machine.name, other) for other in others)

    def _repair(self, machines: list[QuorumMachine]) -> None:
        for machine in machines:
            machine.repair()
            machine.start()

    def _heal(self) -> None:
        loop = self.loop
        loop.note("healing")
        self.network.heal()
        self._repair(self.machines)
        self._elects("when all are healed")
        self._come_to_rest()

    def _come_to_rest(self) -> None:
        """No one sends any more: all replicas are soon the same."""
        loop = self.loop
        for client in [*self.senders, *self.readers]:
            client.stopped = True
        self.history.note_delivered()
        loop.run_until(loop.now_s + LAST_SENDS_S)
        loop.run_until(loop.now_s + LEVEL_S, self._level)
        if not self._level():
            raise Violation(f"the healed replicas do not catch up: {self._roles()}")
        loop.run_until(loop.now_s + 1.5)
        loop.run_until(loop.now_s + LEVEL_S, self._level)  # the leader may have written down tables meanwhile

    def _when_all_is_well(self) -> None:
        """Held pulls are answered by what comes, and another replica leads where an operator asks for that."""
        random = self.loop.random
        if random.random() < NEWS_SHARE:
            self._send_again()
            wait_for_news(self.loop, self.network, self.machines)
            self._come_to_rest()
        if random.random() < TRANSFER_SHARE:
            self._transfer()

    def _transfer(self) -> None:
        loop = self.loop
        (leader,) = self._leaders()
        candidates = [machine for machine in self._may_lead() if machine is not leader]
        preferred = [one for one in candidates if one.settings.replica_id == leader.members.preferred]
        if not candidates:
            return
        candidate = loop.random.choice(preferred or candidates)
        loop.note(f"{candidate.name} shall lead")
        self.history.another_is_to_lead(planned=True)
        self._send_again()
        loop.run_until(loop.now_s + loop.random.uniform(0.0, DUE_S))
        until_s = loop.now_s + TRANSFER_S
        while not candidate.leads and loop.now_s < until_s:
            self._ask_to_lead(candidate)
            loop.run_until(loop.now_s + ASK_AGAIN_S, lambda: candidate.leads)
        if not candidate.leads:
            raise Violation(f"a transfer to {candidate.name} comes to nothing: {self._roles()}")
        self.history.counts["transfers when all is well"] += 1
        self._come_to_rest()

    def _may_lead(self) -> list[QuorumMachine]:
        return [one for one in self.machines if one.settings.replica_id in one.members.voters and one.has_full_vote]

    def _ask_to_lead(self, candidate: QuorumMachine) -> None:
        """The product asks again where nothing has come of it."""
        self.operator.transfer_to(candidate.settings.replica_id)

    def _send_again(self) -> None:
        for sender in self.senders:
            sender.stopped = False
            sender.run()

    def _level(self) -> bool:
        processes = [machine.process for machine in self.machines]
        if any(process is not None and process.trio.is_in_a_step for process in processes):
            return False
        ends = {
            (
                process.store.end_offset,
                process.replica.held_offset,
                process.replica.confirm_offset,
                process.replica.epoch,
            )
            for process in processes
            if process is not None
        }
        return None not in processes and len(ends) == 1 and len(self._leaders()) == 1

    def _roles(self) -> str:
        def role(machine: QuorumMachine) -> str:
            process = machine.process
            return f"{machine.name} {'down' if process is None else process.describe()}"

        return "; ".join(map(role, self.machines))


def run_quorum_seed(flush: str, seed: int, *, replicas: int | None = None, show: bool = False) -> Outcome:
    """One run, judged."""
    return judged(QuorumWorld(flush, seed, replicas=replicas, show=show), seed)
