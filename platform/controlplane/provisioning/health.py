"""Samples the health of running clusters: is each process up, does every name server know each broker. Starts what
no one restarts any more.
"""

import uuid
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from controlplane.clusters.limits import quotas_reconcile
from controlplane.clusters.models import Cluster, ClusterState, Health, NameServer, Replica
from controlplane.clusters.remoting import control_credentials
from controlplane.clusters.tls import cluster_tls
from controlplane.clusters.waiting import wait_budget
from controlplane.common.logging import get_logger
from controlplane.common.sentences import bounded, say
from controlplane.provisioning.accounts import accounts_reconcile
from controlplane.provisioning.drivers.base import Driver, ProcessState, ProcessStatus
from controlplane.provisioning.ports import leader_addresses
from controlplane.provisioning.probe import Registration, registrations
from controlplane.provisioning.processes import Daemon, broker_noun, cluster_daemons

_log = get_logger("controlplane.health")

# supervisord itself restarts BACKOFF and unexpected EXITED; these it leaves alone.
_ABANDONED = (ProcessState.STOPPED, ProcessState.EXITED, ProcessState.FATAL, ProcessState.MISSING)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The health of one daemon, and since when as far as the sample says. `registered` is None for name servers."""

    health: Health
    message: str = ""
    since: datetime | None = None
    registered: bool | None = None


def cluster_sample_health(cluster_id: uuid.UUID, driver: Driver) -> None:
    """Write one sample of a running cluster; does nothing for any other. Raises DriverError when supervisord is
    away.
    """
    cluster = Cluster.objects.select_related("tenant").filter(pk=cluster_id, state=ClusterState.RUNNING).first()
    if cluster is None:
        return
    daemons = cluster_daemons(cluster, driver)
    statuses = driver.process_statuses([daemon.process.name for daemon in daemons])
    own_addresses = [daemon.row.address for daemon in daemons if isinstance(daemon.row, Replica)]
    answers = registrations(
        cluster.name_server_addresses,
        control_credentials(cluster),
        own_addresses,
        leader_addresses(cluster.pk),
        tls=cluster_tls(cluster),
        budget=wait_budget(cluster.pk),
    )
    now = timezone.now()
    for daemon in daemons:
        status = statuses[daemon.process.name]
        _write(daemon.row, status, judge(daemon.row, status, answers), now)
        if status.state in _ABANDONED:
            _start_again(cluster, daemon, driver)
    accounts_reconcile(cluster, daemons, statuses, driver)
    quotas_reconcile(
        cluster,
        [
            daemon.row.address
            for daemon in daemons
            if isinstance(daemon.row, Replica) and statuses[daemon.process.name].state == ProcessState.RUNNING
        ],
    )


def judge(row: NameServer | Replica, status: ProcessStatus, answers: list[Registration]) -> Judgement:
    """Decide from one sample. Pure."""
    noun = (
        say("Name server %(position)s", position=row.position + 1) if isinstance(row, NameServer) else broker_noun(row)
    )
    if row.health_since is None and status.state == ProcessState.STARTING:  # just added: it did not go down
        return Judgement(Health.UNKNOWN, say("%(noun)s is starting.", noun=noun))
    if status.state != ProcessState.RUNNING:
        since = status.stopped_at if status.state != ProcessState.STARTING else status.started_at
        since_words = say(" since %(since)s UTC", since=f"{since:%H:%M:%S}") if since else ""
        return Judgement(
            Health.DOWN,
            say(
                "%(noun)s is down%(since)s: %(state)s, %(description)s.",
                noun=noun,
                since=since_words,
                state=status.state,
                description=status.description or say("no details"),
            ),
            since,
        )
    if isinstance(row, NameServer):
        answer = next((answer for answer in answers if answer.name_server == row.address), None)
        if answer is not None and answer.error:
            return Judgement(
                Health.DOWN, say("%(noun)s runs, but does not answer: %(error)s", noun=noun, error=answer.error)
            )
        return Judgement(Health.HEALTHY, since=status.started_at)
    known_by = [answer for answer in answers if row.address in answer.addresses]
    if len(known_by) == len(answers):
        return Judgement(Health.HEALTHY, since=status.started_at, registered=True)
    if any(answer.error for answer in answers):
        return Judgement(Health.UNKNOWN, say("%(noun)s runs; a name server does not answer.", noun=noun))
    strangers = ", ".join(answer.name_server for answer in answers if row.address not in answer.addresses)
    return Judgement(
        Health.DOWN,
        say("%(noun)s runs, but is not registered with %(strangers)s.", noun=noun, strangers=strangers),
        registered=False,
    )


def _write(row: NameServer | Replica, status: ProcessStatus, judgement: Judgement, now: datetime) -> None:
    changed = row.health != judgement.health
    row.health = judgement.health
    row.health_message = bounded(judgement.message, 1024)
    is_new = row.health_since is None and judgement.health == Health.UNKNOWN
    if not is_new and (changed or row.health_since is None):
        row.health_since = judgement.since or now
        if judgement.health == Health.DOWN:
            _log.warning("daemon down", process=status.name, message=judgement.message)
    row.sampled_at = now
    row.process_state = status.state
    row.process_started_at = status.started_at
    fields = [
        "health",
        "health_message",
        "health_since",
        "sampled_at",
        "process_state",
        "process_started_at",
    ]
    if isinstance(row, Replica):
        row.registered = judgement.registered
        fields.append("registered")
    # Not save(): the row may have gone since it was read.
    type(row).objects.filter(pk=row.pk).update(**{name: getattr(row, name) for name in fields}, updated_at=now)


def _start_again(cluster: Cluster, daemon: Daemon, driver: Driver) -> None:
    """Start a daemon that no one restarts. The cluster's row is locked meanwhile, so that neither a deletion nor a fence can
    slip in between. A replica whose row went since it was read has been removed: its process must not come back. All is read
    again: the sample waits for name servers, and keys may have been deleted and configuration written since it began.
    """
    with transaction.atomic():
        locked = Cluster.objects.select_for_update(of=("self",)).select_related("tenant")
        running = locked.filter(pk=cluster.pk, state=ClusterState.RUNNING).first()
        if running is None or not _is_wanted(daemon.row):
            return
        now = cluster_daemons(running, driver)
        for wanted in (one for one in now if one.process.name == daemon.process.name):
            driver.files_write(cluster.pk, wanted.files)
            driver.process_start(wanted.process)
            _log.warning("daemon started again", process=wanted.process.name)


def _is_wanted(row: NameServer | Replica) -> bool:
    if isinstance(row, NameServer):
        return NameServer.objects.filter(pk=row.pk).exists()
    return Replica.objects.filter(pk=row.pk, fenced=False).exists()
