"""What goes wrong: each seed has its own selection of kinds and its own pace (swarm testing)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from mqwire.message import decode_records
from mqwire.names import RMQ_SYS_EPOCH, RMQ_SYS_METADATA
from tests.sim.history import Copy, Violation
from tests.sim.machine import SUPERVISOR_S, USUAL_SYNC_S
from tests.sim.sim_requests import ChangeGroup, ChangeTopic, CommitOffset, Demote, Read, ResetOffset
from tests.sim.wire import TOPICS, queue_of

if TYPE_CHECKING:
    from tests.sim.machine import Machine, Rot
    from tests.sim.world import World


REPAIR_S = 40.0
_LEADER_DISK_SHARE = 0.3  # of the times when it is the leader's disk that could be lost
_CARELESS_SHARE = 0.5
PLAN_EVERY = 10  # seeds
RING_REPLICAS = 3  # at least
_EPOCHS, _TABLES = -1, -2  # as queues that no client reads
_OWN_TOPICS = {RMQ_SYS_EPOCH: _EPOCHS, RMQ_SYS_METADATA: _TABLES}
_LAST_RECORD_S, _LAST_RECORD_LOOK_S = 2.0, 0.01
_PROMOTION_S = 4.0  # as long as one takes when a replica does not answer


class Faults:
    """Happens until `stopped`."""

    _fenced_late: tuple[str, float] | None = (
        None  # the leader that hears of the next fence late, and by how many seconds
    )
    _loses_power: tuple[Machine, Machine] | None = (
        None  # the first one, once it is asked to promise; the other is not heard then
    )

    def __init__(self, world: World) -> None:
        self._world = world
        self._loop = world.loop
        self.stopped = False
        self._composed_until_s = 0.0
        self._disk_chance = world.loop.chance("lost disks")
        random = world.loop.random
        kinds: list[tuple[Callable[[], None], float]] = [
            (self._kill, 3.0),
            (self._power_cut, 2.0),
            (self._power_cut_of_all, 0.5),
            (self._die_in_the_middle, 3.0),
            (self._pause, 2.0),
            (self._partition, 3.0),
            (self._one_way, 2.0),
            (self._clock_jump, 0.7),
            *self._of_disks(),
            (self._name_server_restart, 0.5),
            (self._failover, 1.5),
            (self._two_failovers, 0.7),
            (self._switchover, 2.0),
            (self._mistake, 1.0),
        ]
        if world.mode != "single":
            kinds += [(self._ring, 0.5), (self._split, 1.0), (self._rot, 1.0), (self._rot_of_the_last_record, 0.5)]
            kinds.append((self._unclean, 1.0 if world.mode == "async" else 0.4))
            kinds.append((self._replace_disk, 0.6))
            kinds += [(self._worst_candidate, 0.7), (self._leader_alone, 0.5), (self._by_hand, 0.7)]
        if not world.promotions:
            kinds = [(kind, weight) for kind, weight in kinds if kind not in self._of_operators()]
        self._kinds = [(kind, weight) for kind, weight in kinds if random.random() < 0.6] or kinds
        if world.promotions and world.mode != "single":
            self._kinds += self._planned(world.seed)
        self._mean_s = random.choice((0.4, 0.8, 1.5))
        self.dies_after_answer = random.choice((0.0, 0.0, 0.02, 0.1))
        world.network.loss = random.choice((0.0, 0.0, 0.01, 0.05))
        world.network.doubling = random.choice((0.0, 0.01, 0.05))
        world.network.slow = random.choice((0.0, 0.01, 0.05))
        control = world.control_plane
        if not world.promotions:
            return
        control.failovers = random.choice((0.2, 0.7, 1.0))
        control.unclean = random.choice((0.0, 0.0, 0.3)) if world.mode == "sync" else random.choice((0.0, 0.3, 0.8))

    def _planned(self, seed: int) -> list[tuple[Callable[[], None], float]]:
        """Composed faults that chance hardly brings about: some seeds have plenty of one, by their number."""
        plan = self._plans().get(seed % PLAN_EVERY)
        return [] if plan is None else self._plenty_of(plan)

    def _plenty_of(self, kind: Callable[[], None]) -> list[tuple[Callable[[], None], float]]:
        return [(kind, sum(weight for _, weight in self._kinds))]

    def _plans(self) -> dict[int, Callable[[], None]]:
        plans: dict[int, Callable[[], None]] = {
            3: self._out_of_sight,
            4: self._by_hand,
            5: self._rot_of_own_records,
            6: self._rot_of_two,
            7: self._worst_candidate,
        }
        if self._world.mode == "async":
            return plans | {0: self._led_for_a_moment, 2: self._late_fence, 8: self._replace_disk}
        if self._world.mode != "sync":
            return plans
        return plans | {
            0: self._replace_disk,
            1: self._leader_alone,
            2: self._power_cut_after_a_promise,
            8: self._worst_candidate_beside_a_new_disk,
            9: self._leader_alone_while_others_are_suspended,
        }

    def _of_disks(self) -> list[tuple[Callable[[], None], float]]:
        """Of any kind of group."""
        return [
            (self._slow_disk, 1.0),
            (self._slow_reads, 0.5),
            (self._sync_error, 0.7),
            (self._call_error, 1.0),
            (self._read_errors, 0.5),
            (self._short_writes, 0.5),
            (self._full_disk, 0.5),
            (self._expire, 1.5 if self._world.retention else 0.3),
        ]

    def _of_operators(self) -> list[Callable[[], None]]:
        """What needs an operator or a control plane."""
        return [
            self._failover,
            self._two_failovers,
            self._switchover,
            self._mistake,
            self._unclean,
            self._by_hand,
            self._replace_disk,
            self._worst_candidate,
            self._leader_alone,
            self._rot,
            self._rot_of_the_last_record,
        ]

    def run(self) -> None:
        self._loop.after(self._loop.random.expovariate(1 / self._mean_s), self._strike)

    def stop(self) -> None:
        """No new ones; those that are there are for the world to end."""
        self.stopped, self._fenced_late = True, None

    def _strike(self) -> None:
        if self.stopped:
            return
        kinds, weights = zip(*self._possible_kinds(), strict=True)
        kind = self._loop.random.choices(kinds, weights)[0]
        self._world.history.counts["faults"] += 1
        self._world.history.counts[f"fault: {kind.__name__.strip('_').replace('_', ' ')}"] += 1
        kind()
        self.run()

    def _possible_kinds(self) -> list[tuple[Callable[[], None], float]]:
        """A ring of two cuts no one off from the other: no fault of that seed, or of the group while it is so small."""
        if len(self._names_in_service()) >= RING_REPLICAS:
            return self._kinds
        return [(kind, weight) for kind, weight in self._kinds if kind != self._ring] or [(self._partition, 1.0)]

    def asked(self, name: str, request: Any) -> None:
        """Someone is about to ask a replica for something."""
        if isinstance(request, Demote) and self._fenced_late is not None and name == self._fenced_late[0]:
            late_s, self._fenced_late = self._fenced_late[1], None
            self._cut_off_for(late_s, (self._world.control_plane.name, name))
        if isinstance(request, Demote) and self._loses_power is not None and not self.stopped:
            machine, unheard = self._loses_power
            if name == machine.name:
                self._loses_power = None
                self._block_for(_PROMOTION_S / 2, [(self._world.control_plane.name, unheard.name)])
                cut_in_s = self._loop.random.uniform(0.02, 0.2)
                self._loop.after(cut_in_s, machine.power_cut)
                self._loop.after(cut_in_s + self._loop.random.uniform(0.1, 0.5), machine.start)

    def answer_leaves(self, name: str, request: Any) -> None:
        """A broker that has just answered that a change is done may lose its power before anything else happens."""
        random = self._loop.random
        if (
            self.stopped
            or not isinstance(request, CommitOffset | ResetOffset | ChangeTopic | ChangeGroup)
            or not self.dies_after_answer
        ):
            return
        if random.random() < self.dies_after_answer:
            machine = next(machine for machine in self._world.machines if machine.name == name)
            self._world.history.counts["fault: power cut after an answer"] += 1
            self._loop.after(random.random() * 0.002, machine.power_cut)
            self._later(1.0, machine.start)

    def _later(self, mean_s: float, action: Callable[[], None]) -> None:
        def unless_stopped() -> None:
            if not self.stopped:
                action()

        self._loop.after(self._loop.random.expovariate(1 / mean_s), unless_stopped)

    def _machine(self) -> Machine:
        return self._loop.random.choice(self._world.machines)

    def _names_in_service(self) -> list[str]:
        return [machine.name for machine in self._world.machines if not machine.out_of_service]

    # --- processes and disks

    def _kill(self) -> None:
        machine = self._machine()
        machine.kill()
        self._later(0.7, machine.start)

    def _power_cut(self) -> None:
        machine = self._machine()
        machine.power_cut()
        self._later(1.0, machine.start)

    def _power_cut_of_all(self) -> None:
        for machine in self._world.machines:
            machine.power_cut()
            self._later(1.0, machine.start)

    def _die_in_the_middle(self) -> None:
        machine = self._machine()
        if machine.process is None:
            machine.start()
        random = self._loop.random
        machine.die_within(random.randrange(12), power_cut=random.random() < 0.5)
        self._later(2.0, machine.start)

    def _pause(self) -> None:
        machine = self._machine()
        machine.pause()
        self._later(1.5, machine.resume)

    def _slow_disk(self) -> None:
        machine = self._machine()
        machine.sync_mean_s = self._loop.random.choice((0.02, 0.2, 1.0))

        def well() -> None:
            machine.sync_mean_s = USUAL_SYNC_S

        self._later(2.0, well)

    def _sync_error(self) -> None:
        machine = self._machine()
        machine.disk.fail_syncs = 1
        self._later(3.0, partial(self._restart_with_well_disk, machine))

    def _call_error(self) -> None:
        """One call of the disk fails, whichever it is."""
        machine = self._machine()
        random = self._loop.random
        machine.disk.fail_call_in(random.randrange(20), random.choice((errno.EIO, errno.EIO, errno.ENOSPC)))
        self._later(3.0, partial(self._restart_with_well_disk, machine))

    def _read_errors(self) -> None:
        """A burst of reads, opens and looks at names fails; a broker that ends for that is started again, as by a supervisor."""
        random, machines = self._loop.random, self._world.machines
        if any(machine.disk.reads_fail for machine in machines):
            return
        count, error = random.choice((1, 1, 3, 10, 30)), random.choice((errno.EIO, errno.EIO, errno.EMFILE))
        self.fail_reads(self._machine(), random.randrange(50), count, error, random.expovariate(1 / 2.0))

    def fail_reads(self, machine: Machine, reads: int, count: int, error: int, lasts_s: float) -> None:
        """See SimDisk.fail_reads_in; those that are left after so many seconds do not fail any more."""
        until_s = self._loop.now_s + lasts_s
        machine.disk.fail_reads_in(reads, count, error)
        self._loop.note(f"{machine.name} is to fail {count} reads: {errno.errorcode[error]}")

        def look() -> None:
            if self.stopped:
                return
            if self._loop.now_s < until_s and machine.disk.reads_fail:
                machine.start()
                self._loop.after(SUPERVISOR_S, look)
                return
            machine.disk.stop_failing_reads()
            if machine.process is not None and machine.wants_restart(machine.process):
                machine.kill()
            machine.start()

        self._loop.after(SUPERVISOR_S, look)

    def _restart_with_well_disk(self, machine: Machine) -> None:
        machine.disk.heal()
        machine.kill()
        machine.start()

    def _short_writes(self) -> None:
        machine = self._machine()
        machine.disk.write_short(self._loop.random.choice((0.1, 0.5, 1.0)), self._loop.random.getrandbits(32))

        def well() -> None:
            machine.disk.short_share = 0.0

        self._later(2.0, well)

    def _full_disk(self) -> None:
        """There is room for so many bytes; then an operator makes more."""
        machine = self._machine()
        machine.disk.capacity_bytes = self._loop.random.choice((0, 100, 5_000, 20_000))
        self._loop.note(f"{machine.name} has room for {machine.disk.capacity_bytes} bytes")

        def more() -> None:
            machine.disk.capacity_bytes = None

        self._later(2.0, more)

    def _expire(self) -> None:
        """A disk is so full that retention deletes what has expired, which here is all that it may delete."""
        machine = self._machine()
        machine.disk.used_ratio = 0.8
        self._loop.note(f"{machine.name} wants old files gone")

        def well() -> None:
            machine.disk.used_ratio = 0.1

        self._later(1.5, well)

    def _slow_reads(self) -> None:
        machine = self._machine()
        machine.disk.read_s = self._loop.random.choice((0.0005, 0.005, 0.02))

        def well() -> None:
            machine.disk.read_s = 0.0

        self._later(2.0, well)

    def _rot(self) -> None:
        """A stored byte flips, on one disk at a time, of a record that every other disk has; then a client reads it."""
        machine, random = self._machine(), self._loop.random
        if machine.process is None or not self._is_spare(machine) or self._rots():
            return
        attempts = self._world.history.attempts
        for attempt in random.sample(attempts, min(len(attempts), 20)):
            if attempt.code != "SEND_OK" or attempt.delayed or attempt.topic:
                continue  # no client reads it there
            if self._spoil(machine, attempt.promised, attempt.queue):
                return

    def _rot_of_two(self) -> None:
        """As `_rot`, on two disks at once, of one record each: all have both but for that."""
        random = self._loop.random
        well = [one for one in self._world.machines if one.process is not None and self._is_spare(one)]
        if len(well) < 2 or self._rots():
            return
        attempts = self._world.history.attempts
        stored = [one for one in attempts if one.code == "SEND_OK" and not one.delayed and not one.topic]
        machines = random.sample(well, 2)
        for attempt in random.sample(stored, min(len(stored), 20)):
            others = [one.rot.copy.physical_offset for one in self._world.machines if one.rot is not None]
            if attempt.promised.physical_offset not in others and self._spoil(
                machines[-1], attempt.promised, attempt.queue
            ):
                machines.pop()
                if not machines:
                    return

    def _rot_of_own_records(self) -> None:
        """As `_rot`, of a record of epochs or tables: those are read at each start, of tables what follows the last base."""
        machine, random = self._machine(), self._loop.random
        process = machine.process
        if process is None or process.trio.is_in_a_step or process.reopening:
            return
        if not self._is_spare(machine) or self._rots():
            return
        own: list[tuple[int, Copy, bytes]] = []
        for start, record in process.walk(process.store.min_physical_offset, process.store.end_offset):
            (message,) = decode_records(record)
            if message.topic in _OWN_TOPICS:
                epoch, end = process.replica.epochs.epoch_at(start), start + len(record)
                copy = Copy(machine.name, epoch, start, end, message.queue_offset)
                own.append((_OWN_TOPICS[message.topic], copy, record))
        for queue, copy, record in random.sample(own, min(len(own), 5)):
            machine.contents[copy.epoch, copy.physical_offset] = bytes(record)
            if self._spoil(machine, copy, queue):
                return

    def _rot_of_the_last_record(self) -> None:
        """As `_rot`, of the record with which a log ends, once it is confirmed; with a restart, before another follows it."""
        machine, until_s = self._machine(), self._loop.now_s + _LAST_RECORD_S

        def look() -> None:
            if self.stopped or self._rots() or not self._is_spare(machine) or self._spoil_last_record(machine):
                return
            if self._loop.now_s < until_s:
                self._loop.after(_LAST_RECORD_LOOK_S, look)

        look()

    def _spoil_last_record(self, machine: Machine) -> bool:
        process = machine.process
        if process is None or process.trio.is_in_a_step or process.reopening or process.store.damaged_from is not None:
            return False
        replicas = [one.process.replica for one in self._world.machines if one.process is not None]
        if not any(replica.leads and replica.confirm_offset >= process.store.end_offset for replica in replicas):
            return False
        for start, record in process.walk(process.store._log.last_record_offset, process.store.end_offset):
            end = start + len(record)
            if end < process.store.end_offset:
                continue
            (message,) = decode_records(record)
            own = _OWN_TOPICS.get(message.topic)
            attempt = self._world.history.by_body.get(message.body)
            is_read = message.topic in TOPICS and attempt is not None and attempt.code == "SEND_OK"
            if own is None and not is_read:
                return False
            epoch = process.replica.epochs.epoch_at(start)
            machine.contents[epoch, start] = bytes(record)
            queue = queue_of(message.topic, message.queue_id) if own is None else own
            return self._spoil(machine, Copy(machine.name, epoch, start, end, message.queue_offset), queue)
        return False

    def _spoil(self, machine: Machine, copy: Copy, queue: int) -> bool:
        """Unless another disk lacks the record. Without a checkpoint a spoiled last record is taken for a torn one."""
        assert machine.process is not None, "just checked"
        store = machine.process.store
        others = [one for one in self._world.machines if one is not machine]
        is_last = copy.end_offset >= store.end_offset
        if (is_last and not store._checkpoint.own) or not (
            machine.has_synced(copy) and all(_keeps(one, copy) for one in others)
        ):
            return False
        if (
            is_last or copy.end_offset > store._reader.trusted_from_now
        ):  # it is in memory: it must be read from the disk again
            machine.kill()
            self._later(0.5, machine.start)
        self._world.history.counts["last records that rotted"] += is_last
        machine.spoil(copy, queue, is_last=is_last)
        self._later(1.5, partial(self._read_rot, machine))
        return True

    def _is_spare(self, machine: Machine) -> bool:
        """Whether the group must live without this disk, if it comes to that."""
        return not self._world.control_plane.replaced

    def _rots(self) -> bool:
        return any(machine.may_rot for machine in self._world.machines)

    def _read_rot(self, machine: Machine) -> None:
        rot = machine.rot
        if rot is None:
            return
        if rot.queue >= 0:
            self.read_at(machine, rot.queue, rot.copy.queue_offset)
            self._later(1.0, partial(self._read_rot, machine))
        else:
            machine.kill()
            machine.start()

    def read_at(self, machine: Machine, queue: int, queue_offset: int) -> None:
        """A client asks that replica for the messages from there on."""
        network, reader = self._world.network, self._world.readers[0]
        network.call(reader, machine.name, Read(queue, queue_offset), lambda answer: None, timeout_s=0.5)

    def put_rot_right(self) -> None:
        """Where a disk has spoiled a record, a client reads it again and again until it is whole; raises Violation.

        After a restart: what a process has in its memory it does not read from the disk.
        """
        loop, machines = self._loop, self._world.machines
        for machine in machines:
            if machine.rot is not None:
                machine.kill()
                machine.start()
        deadline_s = loop.now_s + REPAIR_S
        while rotten := [
            (machine, rot) for machine in machines if (rot := machine.rot) is not None and self._is_read(rot)
        ]:
            if loop.now_s >= deadline_s:
                states = "; ".join(
                    f"{one.name}: {one.process.describe() if one.process else 'down'}" for one in machines
                )
                raise Violation(f"what a disk has spoiled is read, and not put right: {rotten}: {states}")
            for machine, rot in rotten:
                if rot.queue >= 0:
                    self.read_at(machine, rot.queue, rot.copy.queue_offset)
            loop.run_until(loop.now_s + 1.0)
        for machine in machines:
            if machine.rot is not None:
                machine.undo_rot()

    @staticmethod
    def _is_read(rot: Rot) -> bool:
        """Of tables a start reads what follows the last base. What no one reads stays as it is until a follower asks for it."""
        return rot.queue != _TABLES

    def _clock_jump(self) -> None:
        machine = self._machine()
        machine.wall_skew_ms = self._loop.random.randrange(-3_600_000, 3_600_000)
        self._loop.note(f"{machine.name} has its clock set {machine.wall_skew_ms} ms off")

    def _replace_disk(self) -> None:
        """One disk at a time is lost, seldom the leader's own. The replica is stopped until its leader has left it out, as the
        runbook says, or a careless operator starts it with an empty disk earlier, or at once.
        """
        control, chance = self._world.control_plane, self._disk_chance
        machine = self._machine()
        leaders = [other.name for other in self._world.machines if other.process and other.process.replica.leads]
        if leaders != [control.leader] or control.replaced or self._rots():
            return
        leads = machine.name in leaders
        if leads and chance.random() >= _LEADER_DISK_SHARE:
            return
        away_s = self._world.max_time_not_level_s + 1.0
        if chance.random() < _CARELESS_SHARE:
            away_s = chance.choice((0.0, chance.uniform(0.0, away_s)))
        self._loop.note(f"{machine.name} loses its disk{', and leads' if leads else ''}")
        self._world.history.counts["disks of leaders lost"] += leads
        control.replaces(machine.name)
        machine.kill()
        machine.disk_lost(leads=leads, others=[other for other in self._world.machines if other is not machine])
        machine.out_of_service = True

        def replaced() -> None:
            machine.out_of_service = False
            machine.replace_disk()
            machine.start()

        self._loop.after(away_s, replaced)

    # --- network

    def _partition(self) -> None:
        """One endpoint hears no one of the group and is heard by no one, or only the others are."""
        machine = self._machine()
        names = [other.name for other in self._world.machines if other is not machine]
        if self._loop.random.random() < 0.5:
            names += self._world.name_server_names
        if self._loop.random.random() < 0.3:
            names.append(self._world.control_plane.name)
        self._block([(machine.name, name) for name in names] + [(name, machine.name) for name in names])

    def _one_way(self) -> None:
        machine = self._machine()
        names = [other.name for other in self._world.machines if other is not machine]
        names += [*self._world.name_server_names, self._world.control_plane.name, *self._world.client_names]
        names = [name for name in names if self._loop.random.random() < 0.5]
        if self._loop.random.random() < 0.5:
            self._block([(machine.name, name) for name in names])
        else:
            self._block([(name, machine.name) for name in names])

    def _ring(self) -> None:
        """Every replica hears its two neighbours only, or only the one in front of it: of three each pair are neighbours."""
        names, random = self._names_in_service(), self._loop.random
        random.shuffle(names)
        count = len(names)
        heard = (1,) if count == RING_REPLICAS or random.random() < 0.5 else (1, count - 1)
        self._block(
            [
                (names[source], names[target])
                for source in range(count)
                for target in range(count)
                if source != target and (target - source) % count not in heard
            ]
        )

    def _split(self) -> None:
        """Two sides that don't hear each other; the name servers are on both, the clients too."""
        names = [machine.name for machine in self._world.machines]
        self._loop.random.shuffle(names)
        place = self._loop.random.randrange(1, max(2, len(names)))
        one, other = names[:place], names[place:]
        self._block([(a, b) for a in one for b in other] + [(b, a) for a in one for b in other])

    def _block(self, pairs: list[tuple[str, str]], mean_s: float = 2.0) -> None:
        self._loop.note(f"cut off: {sorted(pairs)}")
        self._world.network.blocked.update(pairs)
        self._later(mean_s, lambda: self._world.network.blocked.difference_update(pairs))

    def _cut_off_for(self, seconds: float, pair: tuple[str, str]) -> None:
        """One way, and also when faults have stopped meanwhile."""
        blocked = self._world.network.blocked
        self._loop.note(f"cut off: {[pair]}")
        blocked.add(pair)
        self._loop.after(seconds, lambda: blocked.discard(pair))

    def _name_server_restart(self) -> None:
        self._loop.random.choice(self._world.name_servers).restart()

    # --- promotions

    def _failover(self) -> None:
        """Of the best, or of any that an operator prefers."""
        control, random = self._world.control_plane, self._loop.random
        control.start(control.failover(self._machine().name if random.random() < 0.4 else None))

    def _two_failovers(self) -> None:
        self._failover()
        self._loop.after(self._loop.random.random() * 0.05, self._failover)

    def _switchover(self) -> None:
        control = self._world.control_plane
        control.start(control.switchover(self._machine().name))

    def _unclean(self) -> None:
        control = self._world.control_plane
        control.start(control.promote_unclean(self._machine().name))

    def _by_hand(self) -> None:
        control = self._world.control_plane
        control.start(control.promote_by_hand(self._machine().name))

    def _worst_candidate(self) -> None:
        """A replica that has fallen out of sync is to be promoted, when others that hold more are away, or have new disks."""
        laggard = self._machine()
        followers = [one for one in self._followers() if one is not laggard]
        self._promote_worst(laggard, self._loop.random.choice((None, *followers)))

    def _worst_candidate_beside_a_new_disk(self) -> None:
        """A replica that has fallen out of sync is to be promoted, when the leader is gone and another one has a new disk."""
        followers = self._followers()
        if len(followers) > 1:
            self._promote_worst(*self._loop.random.sample(followers, 2))

    def _leader_and_followers(self) -> tuple[Machine, list[Machine]] | None:
        """None while a composed fault is under way, or one of both is missing."""
        leaders = [one for one in self._world.machines if one.leads]
        followers = [one for one in self._world.machines if one not in leaders]
        if not leaders or not followers or self._loop.now_s < self._composed_until_s:
            return None
        return leaders[0], followers

    def _followers(self) -> list[Machine]:
        return [one for one in self._world.machines if not (one.process and one.process.replica.leads)]

    def _promote_worst(self, laggard: Machine, loses_disk: Machine | None) -> None:
        world, loop, control = self._world, self._loop, self._world.control_plane
        others = [machine for machine in world.machines if machine is not laggard]
        leaders = [machine for machine in others if machine.process and machine.process.replica.leads]
        if not leaders or loop.now_s < self._composed_until_s:
            return
        lag_s = world.max_time_not_level_s + loop.random.uniform(0.5, 2.0)
        self._composed_until_s = loop.now_s + lag_s + _PROMOTION_S
        self._block_for(lag_s + _PROMOTION_S, [(one.name, laggard.name) for one in others])
        if control.replaced or self._rots():
            loses_disk = None
        if loses_disk is not None:
            control.replaces(loses_disk.name)

        def away() -> None:
            # One that was promoted meanwhile keeps its disk, as the runbook says: readers may have seen what only that has. So
            # does one whose leader leads no more: a power cut may have taken from that what both held.
            leads_still = leaders[0].process is not None and leaders[0].process.replica.leads
            was_promoted = loses_disk is not None and world.history.last_leader == loses_disk.name
            keeps = loses_disk is not None and (self.stopped or was_promoted or not leads_still)
            if loses_disk is not None and keeps:
                control.replaced.pop(loses_disk.name, None)
            if self.stopped:
                return
            asked_in_s = 0.05
            if loses_disk is not None and not keeps:
                loses_disk.replace_disk()
                loses_disk.start()
                leaders[0].kill()
                # By then the control plane may have seen the new disk, and the leader is still away.
                asked_in_s = loop.random.uniform(0.05, _PROMOTION_S)
                loop.after(asked_in_s + _PROMOTION_S, leaders[0].start)
            else:
                self._block_for(_PROMOTION_S, [(one.name, control.name) for one in others])
            loop.after(asked_in_s, lambda: control.start(control.failover(laggard.name)))

        loop.after(lag_s - 0.1, away)

    def _power_cut_after_a_promise(self) -> None:
        """Who is to lead loses what it held in memory alone, just after it has promised. Another replica is not heard by the
        control plane then, so that the fence waits for its answer.
        """
        control, loop = self._world.control_plane, self._loop
        leads = [one for one in self._world.machines if one.process and one.process.replica.leads]
        followers = self._followers()
        if not leads or len(followers) < 2 or loop.now_s < self._composed_until_s:
            return
        candidate, unheard = loop.random.sample(followers, 2)
        self._composed_until_s = loop.now_s + _PROMOTION_S
        self._loses_power = candidate, unheard
        control.start(control.failover(candidate.name, drained=True))  # else the leader holds more, and leads again

    def fence_late(self, leader: Machine, late_s: float) -> None:
        """It hears of the next fence that much late, also when faults have stopped."""
        self._fenced_late = leader.name, late_s

    def _late_fence(self) -> None:
        """The leader hears of a fence a moment after the others, and what it has acknowledged meanwhile only it holds."""
        found = self._leader_and_followers()
        if found is None:
            return
        control = self._world.control_plane
        self._composed_until_s = self._loop.now_s + _PROMOTION_S / 2
        self.fence_late(found[0], self._loop.random.expovariate(1 / self._loop.random.uniform(0.05, 0.5)))
        control.start(control.failover(self._loop.random.choice(found[1]).name))

    def _out_of_sight(self) -> None:
        """Only clients still reach the leader: an operator takes it for dead, and promotes another."""
        world, loop, control = self._world, self._loop, self._world.control_plane
        found = self._leader_and_followers()
        if found is None:
            return
        leader, candidate = found[0], loop.random.choice(found[1])
        others = [one.name for one in world.machines if one is not leader]
        lasts_s = _PROMOTION_S + loop.random.uniform(1.0, 4.0)
        self._composed_until_s = loop.now_s + lasts_s
        self._block_for(lasts_s, [(leader.name, name) for name in [*others, *world.name_server_names, control.name]])
        control.start(control.promote_unclean(candidate.name))

    def _led_for_a_moment(self) -> None:
        """An operator promotes a replica that lacks the last deliveries of delayed messages, and whose clock is late: it does not
        deliver them either. It dies when the former leader has followed it, which then is to lead again, and must deliver them.
        """
        world, loop, control = self._world, self._loop, self._world.control_plane
        found = self._leader_and_followers()
        if found is None:
            return
        leader, candidate = found[0], loop.random.choice(found[1])
        alone_s = loop.random.uniform(0.3, 1.5)
        until_s = self._composed_until_s = loop.now_s + alone_s + 2 * _PROMOTION_S
        began_ms = candidate.now_ms()
        self._block_for(alone_s + _PROMOTION_S, [(leader.name, candidate.name)])

        def promote() -> None:
            if not self.stopped:
                self._block_for(_PROMOTION_S, [(leader.name, control.name)])
                control.start(control.promote_unclean(candidate.name))
                wait_for_candidate()

        def wait_for_candidate() -> None:
            if self.stopped or loop.now_s > until_s:
                return
            if not candidate.leads or leader.process is None:
                loop.after(_LAST_RECORD_LOOK_S, wait_for_candidate)
                return
            candidate.wall_skew_ms -= candidate.now_ms() - began_ms
            world.network.blocked.difference_update([(leader.name, candidate.name), (candidate.name, leader.name)])
            wait_for_truncation(leader.process.store.end_offset)

        def wait_for_truncation(end_offset: int) -> None:
            if self.stopped or loop.now_s > until_s or leader.process is None or not candidate.leads:
                return
            if leader.process.store.end_offset >= end_offset:
                loop.after(_LAST_RECORD_LOOK_S / 10, partial(wait_for_truncation, end_offset))
                return
            candidate.kill()
            control.start(control.promote_unclean(leader.name))
            self._later(4.0, candidate.start)

        loop.after(alone_s, promote)

    def _leader_alone(self) -> None:
        """It goes on without its followers, for readers perhaps, and then is gone."""
        leaders = [one for one in self._world.machines if one.process and one.process.replica.leads]
        if not leaders:
            return
        leader, lasts_s = leaders[0], self._world.max_time_not_level_s + self._loop.random.uniform(0.5, 3.0)
        self._block_for(lasts_s, [(leader.name, one.name) for one in self._world.machines if one is not leader])
        self._gone_after(lasts_s, leader)

    def _leader_alone_while_others_are_suspended(self) -> None:
        """Machines, that is, with their clocks: what they knew of the leader is old when they go on."""
        leaders = [one for one in self._world.machines if one.process and one.process.replica.leads]
        if not leaders:
            return
        leader, lasts_s = leaders[0], self._world.max_time_not_level_s + self._loop.random.uniform(0.5, 3.0)
        self._suspend_for(lasts_s, [one for one in self._world.machines if one is not leader])
        self._gone_after(lasts_s, leader)

    def _gone_after(self, lasts_s: float, leader: Machine) -> None:
        def gone() -> None:
            if not self.stopped:
                leader.kill()
                self._failover()
                self._later(4.0, leader.start)

        self._loop.after(lasts_s - 0.05, gone)

    def _suspend_for(self, seconds: float, machines: list[Machine]) -> None:
        def resume() -> None:
            if not self.stopped:
                for machine in machines:
                    machine.resume()

        for machine in machines:
            machine.pause()
        self._loop.after(seconds, resume)

    def _block_for(self, seconds: float, pairs: list[tuple[str, str]]) -> None:
        """Both ways."""
        blocked = {*pairs, *((other, one) for one, other in pairs)}
        self._loop.note(f"cut off for {seconds:.1f} s: {sorted(blocked)}")
        self._world.network.blocked.update(blocked)
        self._connect_after(seconds, blocked)

    def _connect_after(self, seconds: float, pairs: Iterable[tuple[str, str]]) -> None:
        """Once faults have stopped the network is whole, and who is cut off then is to stay so."""

        def connect() -> None:
            if not self.stopped:
                self._world.network.blocked.difference_update(pairs)

        self._loop.after(seconds, connect)

    def _mistake(self) -> None:
        control = self._world.control_plane
        name = self._machine().name
        if self._loop.random.random() < 0.5:
            control.start(control.mistaken_promotion(name))
        else:
            control.start(control.mistaken_demotion(name))


def _keeps(machine: Machine, copy: Copy) -> bool:
    """Whether a machine has the record whatever happens to its memory: its process knows that the log is durable up to there. A
    record may be on a disk, and lost by the next recovery for want of one before it.
    """
    process = machine.process
    return process is not None and process.store.durable_offset >= copy.end_offset and machine.has_synced(copy)
