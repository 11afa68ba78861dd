"""One worker at a time writes what a cluster's daemons read: an older set of accounts never replaces a newer one."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction

from controlplane.clusters.models import Cluster
from controlplane.provisioning.drivers.base import Driver
from controlplane.provisioning.processes import Daemon, cluster_daemons


@contextmanager
def daemons_locked(cluster: Cluster, driver: Driver) -> Iterator[list[Daemon]]:
    """Yield all daemons by the rows as they are now, in the order in which they start; until the end no other worker has them."""
    with transaction.atomic():
        Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
        yield cluster_daemons(cluster, driver)
