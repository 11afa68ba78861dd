"""Leases of TCP ports. The unique row decides; the look at the machine only spares a start that would fail."""

import random
import uuid
from collections.abc import Collection, Sequence

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Count

from controlplane.common.sentences import say
from controlplane.provisioning.drivers.base import Driver
from controlplane.provisioning.errors import StepFailed
from controlplane.provisioning.models import PortLease

# RocketMQ's clients may also use listenPort - 2 (VIP channel), and listenPort + 1 is what RocketMQ takes for
# haListenPort: the lease covers all of them.
BROKER_PORTS = (("vipChannelPort", -2), ("spare", -1), ("listenPort", 0), ("haListenPort", 1))
NAME_SERVER_PORTS = (("listenPort", 0),)
# Of a broker group, not of a replica: its leader serves it.
LEADER_PORT = "leaderListenPort"
LEADER_PORTS = (("vipChannelPort", -2), ("spare", -1), (LEADER_PORT, 0))
_TRIES = 200


def ports_lease(
    driver: Driver, *, host: str, cluster_id: uuid.UUID, holder: uuid.UUID, ports: Sequence[tuple[str, int]]
) -> int:
    """Lease a block of neighbouring free ports and return listenPort, in place of the holder's former lease.

    Raises StepFailed when the range is exhausted.
    """
    first, last = _port_range()
    lowest = min(offset for _, offset in ports)
    highest = max(offset for _, offset in ports)
    for _ in range(_TRIES):
        port = random.randint(first - lowest, last - highest)  # not a secret: spreads concurrent leases
        if not all(driver.port_is_free(host, port + offset) for _, offset in ports):
            continue
        try:
            with transaction.atomic():
                PortLease.objects.filter(holder=holder).delete()
                PortLease.objects.bulk_create(
                    PortLease(host=host, port=port + offset, cluster_id=cluster_id, holder=holder, purpose=purpose)
                    for purpose, offset in ports
                )
        except IntegrityError:
            continue
        return port
    raise StepFailed(
        say("There is no free port between %(first)s and %(last)s on %(host)s.", first=first, last=last, host=host),
        hint=say("Delete clusters that are not needed, or widen HIGHWATER_PORT_RANGE."),
    )


def leader_ports(cluster_id: uuid.UUID) -> dict[uuid.UUID, int]:
    """Return the leader port of each broker group that has one, by the group's id."""
    leases = PortLease.objects.filter(cluster_id=cluster_id, purpose=LEADER_PORT)
    return dict(leases.values_list("holder", "port"))


def leader_addresses(cluster_id: uuid.UUID) -> frozenset[str]:
    """Return `host:port` of each leader port of the cluster."""
    leases = PortLease.objects.filter(cluster_id=cluster_id, purpose=LEADER_PORT)
    return frozenset(str(lease) for lease in leases)


def ports_release(cluster_id: uuid.UUID) -> None:
    """Give all ports of a cluster back."""
    PortLease.objects.filter(cluster_id=cluster_id).delete()


def ports_free_by_host(hosts: Collection[str]) -> dict[str, int]:
    """Return how many ports of the range no one has leased, by host. Other programs may hold some of them."""
    first, last = _port_range()
    leases = PortLease.objects.filter(host__in=hosts, port__range=(first, last)).order_by()
    leased = dict(leases.values_list("host").annotate(Count("pk")))
    return {host: last - first + 1 - leased.get(host, 0) for host in hosts}


def _port_range() -> tuple[int, int]:
    first, _, last = settings.HIGHWATER_PORT_RANGE.partition("-")
    return int(first), int(last)
