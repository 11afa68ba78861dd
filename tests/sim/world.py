"""One simulated group from its first start over faults to the healed end."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any, Protocol
from unittest.mock import patch

from brokerd.replica.replica import ReplicaSettings
from brokerd.services import message_index, replica_follower
from brokerd.store import StoreError
from controlplane.provisioning.drivers.base import ProcessState, ProcessStatus
from mqwire.codes import ResponseCode
from mqwire.command import RemotingCommand
from mqwire.message import pack_host
from mqwire.mode import Mode
from tests.sim.control_plane import BEGAN, ControlPlane
from tests.sim.event_loop import EventLoop
from tests.sim.faults import Faults
from tests.sim.history import History, Violation
from tests.sim.last_readers import find_by_key, read_to_the_end, wait_for_news
from tests.sim.machine import Machine, address_of
from tests.sim.network import Network
from tests.sim.sim_clients import LONG_SIZES, SIZES, Sender, make_clients
from tests.sim.sim_name_server import NameServer
from tests.sim.sim_requests import Promote
from tests.sim.trio_process import simulated_locks
from tests.sim.verdict import judge
from tests.sim.wire import GROUP

MODES = ("single", "async", "sync")
FLUSHES = ("sync", "async")
START_S = 2.0
FAULTS_S = 14.0
HEAL_S = 40.0
FINAL_SENDS = 3
RETENTION_SHARE = 0.3  # of all seeds: there files expire
STOPPED_S = 3.0
MAX_TIME_NOT_LEVEL_S = 3.0
INDEX_SHARE = 0.15  # of all seeds: there messages are indexed, and found by their keys at the end
INDEX_FLUSH_S = 1.0
SHORT_PULLS_SHARE = (
    0.1  # of all seeds: there followers that were away need as many pulls as if they lacked many megabytes
)
SHORT_PULLS = (1024, 4096)  # bytes
PULL_BYTES = replica_follower._PULL_BYTES
AUTO_SHARE = 0.2  # of all seeds of modes sync and changing: there enableAutoInSyncReplicas is on
NEWS_SHARE = 0.3  # of all seeds: at the end pulls are held
SWITCHOVER_SHARE = 0.3  # of all seeds: at the end an operator has the role move
SWITCHOVER_S = 10.0
DUE_S = 4.0  # by then delayed messages that were sent are being delivered
DEATH_SHARE = 0.3  # of all seeds of mode sync: at the end the leader dies for good
SUCCESSOR_S = 10.0


class Extras:
    """What a few seeds of any kind of group have besides."""

    def __init__(
        self,
        machines: Sequence[Machine],
        senders: Sequence[Sender],
        random: Random,
        *,
        retention: bool,
        indexes: bool = False,
    ) -> None:
        self.indexes = random.random() < INDEX_SHARE or indexes
        self.pull_bytes = random.choice(SHORT_PULLS) if random.random() < SHORT_PULLS_SHARE else PULL_BYTES
        for machine in machines:
            machine.reserved_hours = 0 if retention else machine.reserved_hours
            machine.indexes = self.indexes
        for sender in senders:
            sender.sizes = SIZES if self.pull_bytes == PULL_BYTES else LONG_SIZES

    @staticmethod
    def heal() -> None:
        """A group whose senders write more than such followers can fetch never catches up."""
        replica_follower._PULL_BYTES = PULL_BYTES  # type: ignore[misc] # until `constants` ends

    @contextmanager
    def constants(self) -> Iterator[None]:
        """Followers fetch so much at a time, and indexes are written soon: few processes live for ten seconds."""
        with (
            patch.object(replica_follower, "_PULL_BYTES", self.pull_bytes),
            patch.object(message_index, "_FLUSH_PERIOD_S", INDEX_FLUSH_S),
        ):
            yield


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one seed came to."""

    seed: int
    fingerprint: str
    violation: str | None
    counts: dict[str, int]
    last_lines: tuple[str, ...]


class Judgeable(Protocol):
    """A world of any kind of group."""

    loop: EventLoop
    extras: Extras

    @property
    def history(self) -> History: ...
    @property
    def machines(self) -> Sequence[Machine]: ...

    def run(self) -> None:
        """Raises Violation."""


@contextmanager
def _garbage_kept() -> Iterator[None]:
    """Collect after the run what is cyclic garbage in it: to look for that again and again takes a tenth of a run's time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def judged(world: Judgeable, seed: int) -> Outcome:
    """Run it, and return what it came to."""
    violation: str | None = None
    try:
        with simulated_locks(), _garbage_kept(), world.extras.constants():
            world.run()
    except Violation as found:
        violation = str(found)
    except StoreError as error:
        violation = f"a log cannot be read: {error}"
    finally:
        for machine in world.machines:
            machine.shut()
    if violation is not None:
        world.loop.note(f"VIOLATION {violation}")
    return Outcome(seed, world.loop.fingerprint, violation, dict(world.history.counts), tuple(world.loop.last_lines))


class MachineSupervisor:
    """See control_plane.Supervisor."""

    def __init__(self, loop: EventLoop, machines: Sequence[Machine]) -> None:
        self._loop = loop
        self._machines = {machine.name: machine for machine in machines}
        self.restarts = True

    def stop(self, name: str) -> None:
        machine = self._machines[name]
        machine.kill()
        if self.restarts:
            self._loop.after(STOPPED_S, machine.start)

    def status(self, name: str) -> ProcessStatus:
        machine = self._machines[name]
        state = ProcessState.RUNNING if machine.runs_now else ProcessState.EXITED
        return ProcessStatus(
            name, state, started_at=_reported(machine.began_at_s), stopped_at=_reported(machine.ended_at_s)
        )


def _reported(time_s: float | None) -> datetime | None:
    """Supervisors report whole seconds, rounded down."""
    return None if time_s is None else BEGAN + timedelta(seconds=int(time_s))


class World:
    """All endpoints of one run."""

    def __init__(
        self,
        mode: str,
        flush: str,
        seed: int,
        *,
        replicas: int | None = None,
        promotions: bool = True,
        auto_in_sync: bool = False,
        indexes: bool = False,
        show: bool = False,
    ) -> None:
        """Without `promotions` the replica that led before must lead again by the others' agreement.

        `auto_in_sync` is enableAutoInSyncReplicas, whatever the seed says: those in sync are enough, down to minInSyncReplicas.
        `indexes`: messages are indexed, likewise.
        """
        self.mode = mode
        self.seed = seed
        self.promotions = promotions
        self.max_time_not_level_s = MAX_TIME_NOT_LEVEL_S
        self.loop = EventLoop(seed, show=show)
        random = self.loop.random
        count = 1 if mode == "single" else replicas or random.choice((2, 2, 3))
        in_sync_replicas = random.choice((2, count)) if mode == "sync" else 1
        min_in_sync_replicas = random.choice((1, in_sync_replicas))
        auto_in_sync = auto_in_sync or (mode == "sync" and self.loop.chance("auto in sync").random() < AUTO_SHARE)
        surely_held_by = min_in_sync_replicas if auto_in_sync else in_sync_replicas
        self.history = History(mode=mode, in_sync_replicas=surely_held_by)
        self.network = Network(self.loop)
        self.name_servers = [NameServer(self.loop, self.network, number) for number in range(2)]
        self.name_server_names = [server.name for server in self.name_servers]
        self.machines = [
            Machine(
                self.loop,
                self.network,
                self.history,
                ReplicaSettings(
                    group=GROUP,
                    replica_id=number,
                    address=address_of(number),
                    store_host=pack_host(f"192.0.2.{number + 1}", 10911),
                    mode=Mode(mode),
                    durable_counts=flush == "sync",
                    starts_as_leader=number == 0,
                    total_replicas=count,
                    in_sync_replicas=in_sync_replicas,
                    min_in_sync_replicas=min_in_sync_replicas,
                    auto_in_sync_replicas=auto_in_sync,
                    max_time_not_level_s=MAX_TIME_NOT_LEVEL_S,
                    follower_timeout_s=MAX_TIME_NOT_LEVEL_S,
                ),
                self.name_servers,
            )
            for number in range(count)
        ]
        observe_network(self.network, self.history, self.machines, lambda: self.faults)
        self.history.holders = lambda copy: [machine.name for machine in self.machines if machine.holds(copy)]
        self.history.logs = lambda: {machine.name: machine.log for machine in self.machines}
        names = [machine.name for machine in self.machines]
        self.control_plane = ControlPlane(
            self.loop,
            self.network,
            replicas=names,
            in_sync_replicas=surely_held_by,
            dying=random.choice((0.0, 0.05, 0.2)),
        )
        self.supervisor = MachineSupervisor(self.loop, self.machines)
        self.control_plane.supervisor = self.supervisor
        self.senders, self.readers = make_clients(
            self.loop, self.network, self.history, names, self.name_server_names, pauses_s=(0.02, 0.05, 0.15)
        )
        self.client_names = [client.name for client in [*self.senders, *self.readers]]
        self.retention = random.random() < RETENTION_SHARE
        self.extras = Extras(self.machines, self.senders, random, retention=self.retention, indexes=indexes)
        self.faults = Faults(self)
        auto = ", automatic" if auto_in_sync else ""
        self.history.counts["groups with enableAutoInSyncReplicas"] += auto_in_sync
        self.loop.note(
            f"{mode} {flush} {count} replicas, {in_sync_replicas} in sync, {min_in_sync_replicas} at least{auto}"
        )

    def run(self) -> None:
        """Raises Violation."""
        loop = self.loop
        for machine in self.machines:
            loop.after(loop.random.random() * 0.3, machine.start)
        for sender in self.senders:
            sender.run()
        for reader in self.readers:
            reader.run()
        self.control_plane.start(self.control_plane.watch(), immortal=True)
        loop.after(START_S * loop.random.random(), self.faults.run)
        loop.run_until(START_S + FAULTS_S)
        self._heal()
        read_to_the_end(loop, self.network, self.machines)
        if self.extras.indexes:
            find_by_key(loop, self.network, self.machines, self.history)
        self._catch_up()  # the leader may have written down tables meanwhile
        judge(self)

    def _heal(self) -> None:
        """Everything works again: the group must too, by itself or after one clean promotion."""
        loop = self.loop
        loop.note("healing")
        self.faults.stop()
        self.network.heal()
        self.extras.heal()
        if self.promotions:
            memory_lost = not self.machines[0].settings.durable_counts
            new_disk = bool(self.control_plane.replaced)
            self.control_plane.heal(may_lose=memory_lost or new_disk or any(machine.rot for machine in self.machines))
        for machine in self.machines:
            machine.repair()
            loop.after(loop.random.random(), machine.start)
        before = sum(sender.acknowledged for sender in self.senders)
        deadline_s = loop.now_s + HEAL_S

        def takes_sends() -> bool:
            return sum(sender.acknowledged for sender in self.senders) >= before + FINAL_SENDS

        loop.run_until(loop.now_s + 1.5)
        loop.run_until(max(loop.now_s, self.control_plane.sends_held_until_s))
        loop.run_until(deadline_s, takes_sends)
        if not takes_sends():
            raise Violation(f"the healed group takes no sends: {self._roles()}")
        self._stop_clients()
        self.faults.put_rot_right()
        self._catch_up()
        if loop.random.random() < NEWS_SHARE:
            self._send_again()
            wait_for_news(loop, self.network, self.machines)
            self._stop_clients()
            self._catch_up()
        if self.promotions and len(self.machines) > 1 and loop.random.random() < SWITCHOVER_SHARE:
            self._switch_over()
        others_suffice = self.history.in_sync_replicas > 1  # else no promotion without the leader is provably clean
        if self.promotions and self.mode == "sync" and loop.random.random() < DEATH_SHARE and others_suffice:
            self._leader_dies()

    def _switch_over(self) -> None:
        """Nothing is wrong, and messages come: an operator who asks for it has another replica lead, and nothing is typed."""
        loop, control_plane = self.loop, self.control_plane
        leader = next(machine for machine in self.machines if machine.leads)
        candidate = loop.random.choice([machine for machine in self.machines if machine is not leader])
        loop.note(f"{candidate.name} shall lead")
        self.history.another_is_to_lead(planned=True)
        if loop.random.random() < 0.5:
            self.faults.fence_late(leader, loop.random.uniform(0.05, 0.5))
        self._send_again()
        loop.run_until(loop.now_s + loop.random.uniform(0.0, DUE_S))
        control_plane.start(control_plane.asked_to_switch_over(candidate.name), immortal=True)
        loop.run_until(loop.now_s + SWITCHOVER_S, lambda: candidate.leads)
        if not candidate.leads:
            raise Violation(f"a switchover to {candidate.name} comes to nothing: {self._roles()}")
        self.history.counts["switchovers when all is well"] += 1
        self._stop_clients()
        self._catch_up()

    def _leader_dies(self) -> None:
        """Each of the others holds all there is: one of them leads soon, and nothing is typed."""
        loop = self.loop
        leader = next(machine for machine in self.machines if machine.leads)
        loop.note(f"{leader.name} dies")
        self.history.another_is_to_lead(planned=False)
        self.control_plane.heal()
        self.supervisor.restarts = False
        leader.kill()
        loop.run_until(loop.now_s + SUCCESSOR_S, lambda: any(machine.leads for machine in self.machines))
        if not any(machine.leads for machine in self.machines):
            raise Violation(f"no one leads in the place of {leader.name}, which has died: {self._roles()}")
        self.history.counts["leaders that died when all was well"] += 1
        self.supervisor.restarts = True
        leader.start()
        self._catch_up()

    def _send_again(self) -> None:
        for sender in self.senders:
            sender.stopped = False
            sender.run()

    def _stop_clients(self) -> None:
        for client in [*self.senders, *self.readers]:
            client.stopped = True
        self.history.note_delivered()
        self.loop.run_until(self.loop.now_s + 2.5)

    def _catch_up(self) -> None:
        loop = self.loop
        for _ in range(3):  # a promotion that was under way may stop one more process
            loop.run_until(loop.now_s + HEAL_S, self._all_in_sync)
            if not self._all_in_sync():
                raise Violation(f"the healed replicas do not catch up: {self._roles()}")
            loop.run_until(loop.now_s + 1.5)  # the last confirmOffset reaches the followers
            if self._all_in_sync():
                break

    def _all_in_sync(self) -> bool:
        processes = [machine.process for machine in self.machines]
        if any(process is None or process.trio.is_in_a_step for process in processes):
            return False
        ends = {
            (
                process.store.end_offset,
                process.replica.held_offset,
                process.replica.confirm_offset,
                process.replica.epoch,
            )
            for process in processes
            if process
        }
        return len(ends) == 1 and sum(process.replica.leads for process in processes if process) == 1

    def _roles(self) -> str:
        return "; ".join(
            f"{machine.name}: {machine.process.describe() if machine.process else 'down'}" for machine in self.machines
        )


def observe_network(
    network: Network, history: History, machines: Sequence[Machine], faults: Callable[[], Faults]
) -> None:
    """Let the history hear what is asked and what brokers answer."""
    by_name = {machine.name: machine for machine in machines}

    def asked(name: str, request: Any) -> None:
        faults().asked(name, request)
        if isinstance(request, Promote) and request.clean:
            history.clean_promotions.add((name, request.new_epoch))
        if isinstance(request, Promote) and request.fenced:
            history.fenced_promotions.add((name, request.new_epoch))

    def answer_leaves(name: str, request: Any, reply: RemotingCommand) -> None:
        if name in by_name:
            by_name[name].answer_leaves(request, reply)
            if reply.code == ResponseCode.SUCCESS and reply.remark is None:
                faults().answer_leaves(name, request)

    network.on_ask = asked
    network.on_answer_leaves = answer_leaves


def run_seed(
    mode: str,
    flush: str,
    seed: int,
    *,
    replicas: int | None = None,
    promotions: bool = True,
    auto_in_sync: bool = False,
    indexes: bool = False,
    show: bool = False,
) -> Outcome:
    """One run, judged; the seed says how many replicas there are unless `replicas` does."""
    world = World(
        mode,
        flush,
        seed,
        replicas=replicas,
        promotions=promotions,
        auto_in_sync=auto_in_sync,
        indexes=indexes,
        show=show,
    )
    return judged(world, seed)
