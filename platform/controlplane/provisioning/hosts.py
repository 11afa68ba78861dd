"""Hosts of daemons: samples, what is promised and used, where each daemon is, and who takes more than a share.

One sample a minute, of each host with its daemons; a day of them is kept. What no sample says is None, never 0.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from django.conf import settings
from django.utils import timezone

from controlplane.clusters.limits import disk_of_broker
from controlplane.clusters.models import Cluster, ClusterMode, ClusterState, NameServer, Replica
from controlplane.clusters.services import Shape
from controlplane.common.errors import LimitReached
from controlplane.common.sentences import say
from controlplane.provisioning.drivers.base import Driver, ProcessUsage
from controlplane.provisioning.models import HostSample
from controlplane.provisioning.ports import BROKER_PORTS, LEADER_PORTS, NAME_SERVER_PORTS, ports_free_by_host
from controlplane.provisioning.processes import name_server_process_name, replica_process_name
from controlplane.tenants.limits import tenant_limit

KEPT_FOR = timedelta(hours=25)
# A host whose last sample is older is not known.
STALE_AFTER = timedelta(minutes=5)
# From this share of the processor on, some of what runs waits for it.
BUSY_FROM = 0.9
# So many lives of a daemon within an hour: it restarts over and over.
RESTARTS_FROM = 3


def hosts_sample(driver: Driver) -> int:
    """Write a sample of each host, and forget those of more than a day ago; returns how many. Raises DriverError."""
    now = timezone.now()
    usages: dict[str, dict[str, dict[str, object]]] = {}
    for usage in driver.process_usages():
        values = asdict(usage)
        name, host = str(values.pop("name")), str(values.pop("host"))
        usages.setdefault(host, {})[name] = values
    samples = [
        HostSample(sampled_at=now, daemons=usages.get(host.host, {}), **asdict(host)) for host in driver.host_usages()
    ]
    HostSample.objects.bulk_create(samples)
    HostSample.objects.filter(sampled_at__lt=now - KEPT_FOR).delete()
    return len(samples)


@dataclass(frozen=True, slots=True)
class Placement:
    """One daemon: whose, where, and how it is. `usage` is None when no sample has it."""

    cluster: Cluster
    row: NameServer | Replica
    process: str
    usage: ProcessUsage | None

    @property
    def host(self) -> str:
        return self.row.host

    @property
    def title(self) -> str:
        """Which daemon of its cluster it is."""
        if isinstance(self.row, NameServer):
            return say("name server %(position)s", position=self.row.position + 1)
        return say("%(group)s, replica %(replica)s", group=self.row.group.name, replica=self.row.broker_id)


def placements() -> list[Placement]:
    """Return every daemon of every cluster that is not deleted, by cluster."""
    latest = {sample.host: sample for sample in latest_samples()}
    found: list[Placement] = []
    clusters = Cluster.objects.exclude(state=ClusterState.DELETED).select_related("tenant")
    for cluster in clusters.prefetch_related("name_servers", "broker_groups__replicas").order_by("tenant", "slug"):
        for server in cluster.name_servers.all():
            name = name_server_process_name(cluster, server)
            found.append(Placement(cluster, server, name, _usage(latest.get(server.host), name)))
        for group in cluster.broker_groups.all():
            for replica in group.replicas.all():
                replica.group = group
                name = replica_process_name(cluster, replica)
                found.append(Placement(cluster, replica, name, _usage(latest.get(replica.host), name)))
    return found


def latest_samples() -> list[HostSample]:
    """Return the newest sample of each host, where it is not too old to be believed."""
    recent = HostSample.objects.filter(sampled_at__gte=timezone.now() - STALE_AFTER).order_by("host", "-sampled_at")
    return list(recent.distinct("host"))


@dataclass(frozen=True, slots=True)
class HostCapacity:
    """A host: what it has, what is promised to daemons on it, and what is used. None: not known, or without a bound."""

    host: str
    sample: HostSample | None
    daemons: int
    cpu_used: float | None
    memory_promised_bytes: int | None
    disk_promised_bytes: int = 0
    ports_free: int = 0

    @property
    def memory_used_bytes(self) -> int | None:
        sample = self.sample
        return None if sample is None else sample.memory_bytes - sample.memory_available_bytes

    @property
    def disk_used_bytes(self) -> int | None:
        return None if self.sample is None else self.sample.disk_bytes - self.sample.disk_free_bytes

    @property
    def memory_room_bytes(self) -> int | None:
        """What may still be promised of its memory; None where that is not checked or not known."""
        overcommit = settings.HIGHWATER_MEMORY_OVERCOMMIT
        if self.sample is None or self.memory_promised_bytes is None or not overcommit:
            return None
        return int(self.sample.memory_bytes * overcommit) - self.memory_promised_bytes

    @property
    def disk_room_bytes(self) -> int | None:
        """What may at least still be promised of its disk, so that its brokers can store what their tenants' limits allow."""
        return None if self.sample is None else max(0, self.sample.disk_free_bytes - self.disk_promised_bytes)

    @property
    def descriptors_room(self) -> int | None:
        """How many more files may be open; None where the host does not tell, or has no bound."""
        sample = self.sample
        if sample is None or sample.descriptors is None or sample.descriptors_max is None:
            return None
        return max(0, sample.descriptors_max - sample.descriptors)


def capacities(placed: Sequence[Placement]) -> list[HostCapacity]:
    """Return each host that has a sample or a daemon."""
    latest = {sample.host: sample for sample in latest_samples()}
    each_bytes = settings.HIGHWATER_DAEMON_MEMORY_MIB * 1024 * 1024
    by_host: dict[str, list[Placement]] = {}
    for one in placed:
        by_host.setdefault(one.host, []).append(one)
    hosts = sorted({*latest, *by_host})
    cpus, ports = _cpus_now(), ports_free_by_host(hosts)
    found = []
    for host in hosts:
        here = by_host.get(host, [])
        daemons = len(here)
        promised = daemons * each_bytes if each_bytes else None
        brokers = [one for one in here if isinstance(one.row, Replica)]
        stored_bytes = sum(disk_of_broker(tenant_limit(one.cluster.tenant, "stored_bytes")) for one in brokers)
        found.append(HostCapacity(host, latest.get(host), daemons, cpus.get(host), promised, stored_bytes, ports[host]))
    return found


def cpu_share(earlier: HostSample, later: HostSample) -> float | None:
    """Return the share of a host's processor that was used between two samples, 0 to 1; None across its restart."""
    total = later.cpu_total_s - earlier.cpu_total_s
    busy = later.cpu_busy_s - earlier.cpu_busy_s
    return None if total <= 0 or busy < 0 else min(1.0, busy / total)


def history(host: str) -> list[tuple[datetime, float | None, float, float]]:
    """Return a day of a host: moment, and the shares of processor, memory and disk that were used, 0 to 1."""
    samples = list(HostSample.objects.filter(host=host).order_by("sampled_at").defer("daemons"))
    return [
        (
            later.sampled_at,
            cpu_share(earlier, later),
            1 - later.memory_available_bytes / later.memory_bytes,
            1 - later.disk_free_bytes / later.disk_bytes,
        )
        for earlier, later in pairwise(samples)
    ]


@dataclass(frozen=True, slots=True)
class Crowded:
    """Replicas of one group on one host: they fail together."""

    cluster: Cluster
    group: str
    host: str
    replicas: tuple[int, ...]


def crowded(placed: Iterable[Placement]) -> list[Crowded]:
    """Return every group of which two replicas or more are on one host."""
    together: dict[tuple[str, str], list[Placement]] = {}
    for one in placed:
        if isinstance(one.row, Replica):
            together.setdefault((str(one.row.group_id), one.host), []).append(one)
    return [
        Crowded(
            ones[0].cluster,
            ones[0].row.group.name,
            host,
            tuple(sorted(one.row.broker_id for one in ones if isinstance(one.row, Replica))),
        )
        for (_, host), ones in together.items()
        if len(ones) > 1 and isinstance(ones[0].row, Replica)
    ]


@dataclass(frozen=True, slots=True)
class Fit:
    """How many more clusters of a mode there is room for: `more`, and by `rooms` what each thing allows for. None where that is not
    bounded or not known. `binds` is what allows for the fewest.
    """

    mode: str
    daemons: int
    rooms: dict[str, int | None]

    @property
    def binds(self) -> str | None:
        known = {what: room for what, room in self.rooms.items() if room is not None}
        return min(known, key=lambda what: known[what], default=None)

    @property
    def more(self) -> int | None:
        return None if self.binds is None else self.rooms[self.binds]


def fits(hosts: Sequence[HostCapacity]) -> list[Fit]:
    """Return, for the least cluster of each mode, how many more all hosts together have room for.

    Its brokers are promised the disk that a new tenant's limit allows. Each daemon counts with as many open files as the one
    that has most of them now.
    """
    daemon_bytes = settings.HIGHWATER_DAEMON_MEMORY_MIB * 1024 * 1024
    broker_bytes = disk_of_broker(settings.HIGHWATER_LIMITS["stored_bytes"])
    open_files = [
        usage["descriptors"] for host in hosts if host.sample is not None for usage in host.sample.daemons.values()
    ]
    daemon_files = max((count for count in open_files if count is not None), default=0)
    found = []
    for mode in ClusterMode:
        shape = Shape.of(mode, None, None)
        brokers = shape.groups * shape.replicas
        daemons = brokers + shape.name_servers
        ports = brokers * len(BROKER_PORTS) + shape.name_servers * len(NAME_SERVER_PORTS)
        if shape.replicas > 1:
            ports += shape.groups * len(LEADER_PORTS)
        rooms = {
            "memory": _room([host.memory_room_bytes for host in hosts], daemons * daemon_bytes),
            "disk": _room([host.disk_room_bytes for host in hosts], brokers * broker_bytes),
            "ports": _room([host.ports_free for host in hosts], ports),
            "descriptors": _room([host.descriptors_room for host in hosts], daemons * daemon_files),
        }
        found.append(Fit(mode.value, daemons, rooms))
    return found


def _room(free: Sequence[int | None], each: int) -> int | None:
    """Return how many times `each` fits into what all hosts have; None when that is not known of one, or nothing is needed."""
    known = [amount for amount in free if amount is not None]
    return None if not known or len(known) < len(free) or not each else max(0, sum(known)) // each


def room_require() -> None:
    """Raise LimitReached when the daemons that there are rows of are promised more memory, or disk, than may be. Without a sample
    nothing is refused: what the hosts have is not known then.
    """
    _memory_require()
    _disk_require()


def _disk_require() -> None:
    overcommit, samples = settings.HIGHWATER_DISK_OVERCOMMIT, latest_samples()
    if not overcommit or not samples:
        return
    living = Replica.objects.exclude(group__cluster__state=ClusterState.DELETED)
    # A tenant without this limit counts nothing: its brokers are as large as the operator lets them be.
    promised_bytes = sum(
        disk_of_broker(tenant_limit(replica.group.cluster.tenant, "stored_bytes"))
        for replica in living.select_related("group__cluster__tenant")
    )
    promised_gib = promised_bytes // 2**30
    may_gib = int(sum(sample.disk_bytes for sample in samples) * overcommit) // 2**30
    if promised_gib > may_gib:
        raise LimitReached(
            say(
                "The platform has no room for this: its brokers would be promised %(promised)s GiB of disk,"
                " and %(most)s GiB may be.",
                promised=promised_gib,
                most=may_gib,
            ),
            code="no_room",
            hint=say("Delete what is not needed, or ask the platform's operator for more room."),
            extra={"promised_gib": promised_gib, "at_most_gib": may_gib},
        )


def _memory_require() -> None:
    overcommit = settings.HIGHWATER_MEMORY_OVERCOMMIT
    each_mib = settings.HIGHWATER_DAEMON_MEMORY_MIB
    samples = latest_samples()
    if not overcommit or not each_mib or not samples:
        return
    living = Cluster.objects.exclude(state=ClusterState.DELETED)
    daemons = (
        Replica.objects.filter(group__cluster__in=living).count()
        + NameServer.objects.filter(cluster__in=living).count()
    )
    promised_mib = daemons * each_mib
    may_mib = int(sum(sample.memory_bytes for sample in samples) * overcommit) // (1024 * 1024)
    if promised_mib > may_mib:
        raise LimitReached(
            say(
                "The platform has no room for this: its daemons would be promised %(promised)s MiB of memory,"
                " and %(most)s MiB may be.",
                promised=promised_mib,
                most=may_mib,
            ),
            code="no_room",
            hint=say("Delete what is not needed, or ask the platform's operator for more room."),
            extra={"promised_mib": promised_mib, "at_most_mib": may_mib},
        )


@dataclass(frozen=True, slots=True)
class Taken:
    """What a cluster's daemons on a host took over a window: `cpu` is a share of the host's, 0 to 1, disk is in bytes a second.
    None: not known.

    `is_noisy`: it took more than its share of a processor for which others had to wait.
    """

    cluster: Cluster
    host: str
    cpu: float | None
    memory_bytes: int | None
    read_per_s: int | None
    written_per_s: int | None
    is_noisy: bool


def samples_by_host(window: timedelta, hosts: Collection[str] | None = None) -> dict[str, list[HostSample]]:
    """Return the samples of the last `window` of each host, or of these, oldest first."""
    found: dict[str, list[HostSample]] = {}
    samples = HostSample.objects.filter(sampled_at__gte=timezone.now() - window)
    for sample in (samples if hosts is None else samples.filter(host__in=hosts)).order_by("sampled_at"):
        found.setdefault(sample.host, []).append(sample)
    return found


def taken(host: str, placed: Sequence[Placement], samples: Sequence[HostSample]) -> tuple[list[Taken], float | None]:
    """Return what each cluster took on a host over these samples of it, oldest first, most of the processor first, and the share
    of the processor that was used.
    """
    seconds = (samples[-1].sampled_at - samples[0].sampled_at).total_seconds() if len(samples) > 1 else 0.0
    busy = cpu_share(samples[0], samples[-1]) if seconds else None
    by_cluster: dict[str, list[Placement]] = {}
    for one in placed:
        if one.host == host:
            by_cluster.setdefault(str(one.cluster.pk), []).append(one)
    rows = []
    for ones in by_cluster.values():
        names = [one.process for one in ones]
        cpu_s = _grown(samples, names, "cpu_s")
        read, written = _grown(samples, names, "read_bytes"), _grown(samples, names, "written_bytes")
        memory = [one.usage.memory_bytes for one in ones if one.usage is not None]
        rows.append(
            Taken(
                cluster=ones[0].cluster,
                host=host,
                cpu=None if not seconds or cpu_s is None else cpu_s / seconds / samples[-1].cores,
                memory_bytes=sum(memory) if len(memory) == len(ones) else None,
                read_per_s=None if not seconds or read is None else round(read / seconds),
                written_per_s=None if not seconds or written is None else round(written / seconds),
                is_noisy=False,
            )
        )
    return noisy_marked(rows, busy), busy


def noisy_marked(rows: Sequence[Taken], busy: float | None) -> list[Taken]:
    """Mark who takes more than its share while others wait, and sort by the processor. Pure.

    A share is what each gets when all that do something get the same; who does next to nothing wants none.
    """
    wanting = sum(row.cpu is not None and row.cpu >= _IDLE_BELOW for row in rows)
    share = 1 / wanting if wanting else 1.0
    waits = busy is not None and busy >= BUSY_FROM and wanting > 1
    marked = [
        Taken(
            row.cluster,
            row.host,
            row.cpu,
            row.memory_bytes,
            row.read_per_s,
            row.written_per_s,
            is_noisy=waits and row.cpu is not None and row.cpu > share,
        )
        for row in rows
    ]
    return sorted(marked, key=lambda row: -1.0 if row.cpu is None else row.cpu, reverse=True)


_IDLE_BELOW = 0.01


def restarts(window: timedelta = timedelta(hours=1)) -> dict[str, tuple[int, datetime]]:
    """Return the processes that restart over and over: how often they were seen to begin within the window, and since when."""
    lives: dict[str, dict[str, datetime]] = {}
    for sample in HostSample.objects.filter(sampled_at__gte=timezone.now() - window).order_by("sampled_at"):
        for name, values in sample.daemons.items():
            lives.setdefault(name, {}).setdefault(values["life"], sample.sampled_at)
    return {
        name: (len(seen) - 1, sorted(seen.values())[1]) for name, seen in lives.items() if len(seen) > RESTARTS_FROM
    }


def _grown(samples: Sequence[HostSample], names: Sequence[str], what: str) -> float | None:
    """Return by how much a counter grew over the samples, summed over daemons; a restart begins at 0. None when never seen."""
    total, seen = 0.0, False
    for earlier, later in pairwise(samples):
        for name in names:
            before, after = earlier.daemons.get(name), later.daemons.get(name)
            if after is None or after[what] is None:
                continue
            if before is not None and before["life"] == after["life"]:
                if before[what] is None:
                    continue
                total += max(0, after[what] - before[what])
            else:
                total += after[what]
            seen = True
    return total if seen else None


def _cpus_now() -> dict[str, float | None]:
    """The processor's used share by host, between its two newest samples."""
    fresh = HostSample.objects.filter(sampled_at__gte=timezone.now() - STALE_AFTER)
    newest: dict[str, list[HostSample]] = {}
    for sample in fresh.order_by("-sampled_at").defer("daemons"):
        newest.setdefault(sample.host, []).append(sample)
    return {host: cpu_share(two[1], two[0]) for host, two in newest.items() if len(two) > 1}


def _usage(sample: HostSample | None, name: str) -> ProcessUsage | None:
    values = None if sample is None else sample.daemons.get(name)
    return None if sample is None or values is None else ProcessUsage(name=name, host=sample.host, **values)
