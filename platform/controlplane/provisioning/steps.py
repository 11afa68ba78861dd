"""What each step of `controlplane.clusters.workflows` does. Every step may run twice, or from two workers: the
second finds its work done.

A step returns when it is done, raises StepNotReady to be called again, StepFailed to give up. It never sleeps.
"""

import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from controlplane.clusters import replica_remoting
from controlplane.clusters.given_up import replicas_given_up
from controlplane.clusters.models import (
    BrokerGroup,
    Cluster,
    ClusterState,
    Credential,
    CredentialState,
    Health,
    NameServer,
    Operation,
    OperationState,
    OperationStep,
    OperationType,
    Replica,
    StepState,
)
from controlplane.clusters.remoting import control_credentials
from controlplane.clusters.tls import cluster_tls
from controlplane.common.errors import ApplicationError
from controlplane.common.sentences import say, say_all
from controlplane.provisioning import probe
from controlplane.provisioning.certificate_files import authority_ensure, certificates_write
from controlplane.provisioning.daemon_files import daemons_locked
from controlplane.provisioning.drivers.base import Driver, ProcessState, ProcessStatus
from controlplane.provisioning.errors import StepFailed, StepNotReady
from controlplane.provisioning.ports import (
    BROKER_PORTS,
    LEADER_PORTS,
    NAME_SERVER_PORTS,
    leader_addresses,
    leader_ports,
    ports_lease,
    ports_release,
)
from controlplane.provisioning.processes import (
    Daemon,
    broker_noun,
    cluster_name_servers,
    cluster_process_names,
    cluster_replicas,
    founding_peers,
    name_server_daemons,
    name_server_process_name,
    placed_replicas,
    replica_daemons,
    replica_process_name,
)
from controlplane.topics.models import Topic, TopicState
from controlplane.topics.services import topic_apply
from mqwire.bodies import ReplicaStatus

# A daemon that ends at once is started again with growing pauses; by this time it has had three or four tries.
_CRASHING_FOR = timedelta(seconds=8)
_CATCHING_UP_FOR = timedelta(seconds=20)
_SETTLING_FOR = timedelta(minutes=2)
# Of one run of the step that spreads topics; the worker's own limit is 45 s. Its place is kept in the operation's metadata.
_SPREAD_S = 20.0
_SPREAD = "topics_spread"
_CLOCKS_APART = timedelta(seconds=30)  # of the machines that change topics, and of the workers
_LOG_LINES = 12
_MEBIBYTE = 1024 * 1024
_ALIVE = (ProcessState.RUNNING, ProcessState.STARTING)


@dataclass(frozen=True, slots=True)
class StepContext:
    """What a step works on. `cluster` is fresh from the database."""

    cluster: Cluster
    driver: Driver
    started_at: datetime
    now: datetime
    operation: Operation

    @classmethod
    def of(cls, step: OperationStep, driver: Driver) -> "StepContext":
        """Return the context of a claimed step."""
        now = timezone.now()
        cluster = Cluster.objects.select_related("tenant").get(pk=step.operation.cluster_id)
        return cls(cluster, driver, step.started_at or now, now, step.operation)


Step = Callable[[StepContext], None]


def require_in_progress(context: StepContext) -> None:
    """Raise StepFailed when the operation was ended meanwhile: by a promotion, or by an operator."""
    if not Operation.objects.filter(pk=context.operation.pk, state=OperationState.IN_PROGRESS).exists():
        raise StepFailed(say("The operation has ended."))


def require_own_try(context: StepContext) -> None:
    """As `require_in_progress`, also where the operation was retried since: another worker is at this step then."""
    require_in_progress(context)
    own = OperationStep.objects.filter(
        operation=context.operation, started_at=context.started_at, state=StepState.RUNNING
    )
    if not own.exists():
        raise StepFailed(say("The operation has ended."))


def allocate_ports(context: StepContext) -> None:
    """Give every daemon its ports. A port that another program took in the meantime is exchanged."""
    cluster = context.cluster
    Cluster.objects.filter(pk=cluster.pk, state=ClusterState.REQUESTED).update(
        state=ClusterState.PROVISIONING, error=None, updated_at=context.now
    )
    statuses = context.driver.process_statuses(cluster_process_names(cluster))
    for server in cluster_name_servers(cluster):
        running = statuses[name_server_process_name(cluster, server)].state in _ALIVE
        _ensure_port(context, NameServer, server, NAME_SERVER_PORTS, running=running)
    for replica in cluster_replicas(cluster):
        running = statuses[replica_process_name(cluster, replica)].state in _ALIVE
        _ensure_port(context, Replica, replica, BROKER_PORTS, running=running)
    _ensure_leader_ports(context)
    if cluster.elects_leaders:
        _note_founders(context)


def render_configuration(context: StepContext) -> None:
    """Write every file that daemons read."""
    if context.operation.type == OperationType.CLUSTER_CREATE:
        authority_ensure(context.cluster, context.now)
    certificates_write(context.cluster, context.driver, context.now)
    with daemons_locked(context.cluster, context.driver) as daemons:
        for daemon in daemons:
            context.driver.files_write(context.cluster.id, daemon.files)
    for daemon in daemons:
        type(daemon.row).objects.filter(pk=daemon.row.pk).update(data_dir=daemon.data_dir, updated_at=context.now)


def start_name_servers(context: StepContext) -> None:
    """Start the name servers, and wait until they accept connections."""
    daemons_start(context, name_server_daemons(context.cluster, context.driver))


def start_brokers(context: StepContext) -> None:
    """Start the brokers, and wait until they accept connections. A growth leaves alone those that run: with other settings they
    would be restarted, all of a group at once.
    """
    daemons = _brokers_to_run(context)
    statuses = context.driver.process_statuses([daemon.process.name for daemon in daemons])
    for daemon in daemons:
        if _is_added(context, daemon) or statuses[daemon.process.name].state not in _ALIVE:
            context.driver.process_start(daemon.process)
    daemons_await(context, daemons)


def wait_for_registration(context: StepContext) -> None:
    """Wait until every name server knows every broker."""
    cluster = context.cluster
    _fail_if_crashing(context, _brokers_to_run(context))
    wanted = {replica.address for replica in _replicas_to_run(cluster)}
    leaders = leader_addresses(cluster.pk)
    for answer in probe.registrations(
        cluster.name_server_addresses, control_credentials(cluster), wanted, leaders, tls=cluster_tls(cluster)
    ):
        if answer.error:
            raise StepNotReady(
                say(
                    "The name server %(name_server)s does not answer: %(error)s",
                    name_server=answer.name_server,
                    error=answer.error,
                )
            )
        missing = sorted(wanted - answer.addresses)
        if missing:
            raise StepNotReady(
                say(
                    "The name server %(name_server)s does not know %(join)s yet.",
                    name_server=answer.name_server,
                    join=", ".join(missing),
                )
            )


def wait_for_replication(context: StepContext) -> None:
    """Wait until every group with slaves has its master, and every slave is in sync with it."""
    cluster = context.cluster
    if not cluster.is_replicated:
        return
    replicas = _replicas_to_run(cluster)
    answers = replica_remoting.replica_statuses(cluster, [replica.address for replica in replicas])
    for group in sorted({replica.group.name for replica in replicas}):
        members = [replica for replica in replicas if replica.group.name == group]
        statuses = {replica.broker_id: answers[replica.address].status for replica in members}
        master = next((status for status in statuses.values() if status is not None and status.role == "master"), None)
        if master is None:
            raise StepNotReady(say("The group %(group)s has no master yet.", group=group))
        if cluster.elects_leaders:
            _wait_until_leader_is_known(cluster, group, master.address)
        missing = sorted(set(statuses) - set(master.in_sync))
        if not missing:
            continue
        gaps = {follower.replica_id: follower.gap_bytes for follower in master.followers}
        follows = statuses[missing[0]] is not None and missing[0] in gaps
        if follows and context.operation.type == OperationType.CLUSTER_GROW and _has_lasted(context, _CATCHING_UP_FOR):
            continue  # a long log; the role map shows the gap, and nothing else should wait for it
        behind = say(": %(gaps)s MiB behind", gaps=f"{gaps[missing[0]] / _MEBIBYTE:.1f}") if follows else ""
        raise StepNotReady(
            say(
                "Replica %(missing)s of %(group)s is not in sync with its master yet%(behind)s.",
                missing=missing[0],
                group=group,
                behind=behind,
            )
        )


@dataclass(frozen=True, slots=True)
class _Spread:
    """How far the topics are spread: one pass over them, by their names."""

    began: str  # when the pass began, ISO
    since: str = ""  # it is over the topics that were changed since then; "": over all
    last: str = ""  # the topic that was spread last

    def left(self, topics: QuerySet[Topic]) -> QuerySet[Topic]:
        changed = (
            topics.filter(updated_at__gte=datetime.fromisoformat(self.since) - _CLOCKS_APART) if self.since else topics
        )
        return changed.filter(name__gt=self.last).order_by("name")


def spread_topics(context: StepContext) -> None:
    """Give the new group its share of every topic's queues: by the topics' names, and in the next run from where this one ends.

    While no run is at it the group does not count for what is made or changed: a further pass gives it that.
    """
    ends_s, began = time.monotonic() + _SPREAD_S, context.now.isoformat()
    noted = context.operation.metadata.get(_SPREAD)
    spread = _Spread(**noted) if noted else _Spread(began)
    active = Topic.objects.filter(cluster=context.cluster, state=TopicState.ACTIVE)
    while True:
        for topic in spread.left(active).select_related("cluster__tenant"):
            try:
                topic_apply(topic, keep_read_queues=True)
            except ApplicationError as error:
                if not active.filter(pk=topic.pk).exists():
                    continue  # it was deleted meanwhile
                _note_spread(context.operation, spread)
                raise StepNotReady(
                    say("The topic %(topic)s could not be spread: %(message)s", topic=topic.name, message=error.message)
                ) from error
            spread = replace(spread, last=topic.name)
            if time.monotonic() > ends_s:
                _note_spread(context.operation, spread)
                raise StepNotReady(say("The topics up to %(topic)s are spread.", topic=topic.name), delay_s=0.1)
        if spread.began == began:
            return
        spread = _Spread(began, since=spread.began)


def _note_spread(operation: Operation, spread: _Spread) -> None:
    with transaction.atomic():
        row = Operation.objects.select_for_update().get(pk=operation.pk)
        row.metadata[_SPREAD] = asdict(spread)
        row.save(update_fields=["metadata", "updated_at"])


def verify(context: StepContext) -> None:
    """Prove that signed requests are answered, and unsigned ones are not."""
    cluster = context.cluster
    credentials, tls = control_credentials(cluster), cluster_tls(cluster)
    for replica in _replicas_to_run(cluster):
        problem = probe.broker_answers(cluster.name_server_addresses, replica.address, credentials, tls)
        if problem:
            raise StepNotReady(
                say(
                    "The broker %(address)s does not answer a signed request: %(problem)s",
                    address=replica.address,
                    problem=problem,
                )
            )
        if not probe.broker_refuses_strangers(cluster.name_server_addresses, replica.address, tls):
            raise StepNotReady(
                say("The broker %(address)s did not refuse an unsigned request.", address=replica.address)
            )


def mark_running(context: StepContext) -> None:
    """Open the cluster to its tenant."""
    opening = (ClusterState.PROVISIONING, ClusterState.RESUMING)
    with transaction.atomic():
        Cluster.objects.filter(pk=context.cluster.pk, state__in=opening).update(
            state=ClusterState.RUNNING,
            error=None,
            stopped_at=None,
            stopped_by="",
            stopped_because="",
            updated_at=context.now,
        )
        Credential.objects.filter(cluster=context.cluster, state=CredentialState.PENDING).update(
            state=CredentialState.ACTIVE, updated_at=context.now
        )


def stop_processes(context: StepContext) -> None:
    """Stop and forget the daemons: followers, then leaders, which so lack no one's report; name servers last, as brokers
    unregister from them.
    """
    cluster = context.cluster
    replicas = cluster_replicas(cluster)
    leading = {address for address, status in _statuses(cluster, replicas).items() if status.role == "master"}
    for replica in sorted(replicas, key=lambda one: one.port is not None and one.address in leading):
        context.driver.process_remove(replica_process_name(cluster, replica))
    for server in cluster_name_servers(cluster):
        context.driver.process_remove(name_server_process_name(cluster, server))


def settle_replicas(context: StepContext) -> None:
    """Wait until each follower that answers holds all that its leader does: then it does not matter whose disk comes back.

    After two minutes one that its leader does not count as in sync is not waited for; in a deletion none is.
    """
    waits_for_in_sync_only = _has_lasted(context, _SETTLING_FOR)
    is_deletion = context.operation.type == OperationType.CLUSTER_DELETE
    replicas = cluster_replicas(context.cluster)
    statuses = _statuses(context.cluster, replicas)
    for replica in replicas:
        status = statuses.get(replica.address) if replica.port is not None else None
        if status is None or status.role == "master":
            continue
        leaders = [one for one in statuses.values() if one.group == status.group and one.role == "master"]
        leader = max(leaders, key=lambda one: one.end_offset, default=None)
        if waits_for_in_sync_only and (is_deletion or leader is None or replica.broker_id not in leader.in_sync):
            continue  # it may never catch up
        if leader is not None and status.end_offset < leader.end_offset:
            raise StepNotReady(
                say(
                    "Replica %(replica)s of %(group)s is %(gap)s MiB behind its leader.",
                    replica=replica.broker_id,
                    group=replica.group.name,
                    gap=f"{(leader.end_offset - status.end_offset) / _MEBIBYTE:.1f}",
                )
            )


def mark_suspended(context: StepContext) -> None:
    """Say that nothing of the cluster runs."""
    _mark_stopped(context, ClusterState.SUSPENDING, ClusterState.SUSPENDED)


def mark_deletion_pending(context: StepContext) -> None:
    """Say that nothing of the cluster runs, and that it can be restored until its time is up."""
    _mark_stopped(context, ClusterState.DELETING, ClusterState.DELETION_PENDING)


def _mark_stopped(context: StepContext, before: ClusterState, after: ClusterState) -> None:
    cluster = context.cluster
    unknown: dict[str, Any] = {
        "health": Health.UNKNOWN,
        "health_message": "",
        "health_since": None,
        "sampled_at": None,
        "process_state": "",
        "process_started_at": None,
        "updated_at": context.now,
    }
    with transaction.atomic():
        Cluster.objects.filter(pk=cluster.pk, state=before).update(state=after, error=None, updated_at=context.now)
        NameServer.objects.filter(cluster=cluster).update(**unknown)
        Replica.objects.filter(group__cluster=cluster).update(**unknown, registered=None)


def _statuses(cluster: Cluster, replicas: list[Replica]) -> dict[str, ReplicaStatus]:
    """What the brokers that answer say, by address."""
    addresses = [replica.address for replica in replicas if replica.port is not None]
    answers = replica_remoting.replica_statuses(cluster, addresses) if addresses else {}
    return {address: answer.status for address, answer in answers.items() if answer.status is not None}


def remove_data(context: StepContext) -> None:
    """Remove the cluster's directory."""
    context.driver.files_remove(context.cluster.id)


def release(context: StepContext) -> None:
    """Give ports and names back, and keep the cluster's row for its history."""
    cluster = context.cluster
    with transaction.atomic():
        won = Cluster.objects.filter(pk=cluster.pk, state=ClusterState.DELETING).update(
            state=ClusterState.DELETED, error=None, deleted_at=context.now, updated_at=context.now
        )
        if won != 1:
            return
        ports_release(cluster.pk)
        Topic.objects.filter(cluster=cluster).delete()
        Credential.objects.filter(cluster=cluster).delete()
        BrokerGroup.objects.filter(cluster=cluster).delete()
        NameServer.objects.filter(cluster=cluster).delete()


STEPS: dict[str, Step] = {
    step.__name__: step
    for step in (
        allocate_ports,
        render_configuration,
        start_name_servers,
        start_brokers,
        wait_for_registration,
        wait_for_replication,
        spread_topics,
        verify,
        mark_running,
        settle_replicas,
        stop_processes,
        mark_suspended,
        mark_deletion_pending,
        remove_data,
        release,
    )
}


def _ensure_port(
    context: StepContext,
    model: type[NameServer] | type[Replica],
    row: NameServer | Replica,
    ports: tuple[tuple[str, int], ...],
    *,
    running: bool,
) -> None:
    with transaction.atomic():
        locked = model.objects.select_for_update().get(pk=row.pk)
        if locked.port is not None:
            present = locked.port
            if running or all(context.driver.port_is_free(row.host, present + offset) for _, offset in ports):
                return
        locked.port = ports_lease(
            context.driver, host=row.host, cluster_id=context.cluster.pk, holder=row.pk, ports=ports
        )
        locked.save(update_fields=["port", "updated_at"])


def _ensure_leader_ports(context: StepContext) -> None:
    """Give each group of several replicas on one host a port for its leader, once and for life.

    Stock clients keep a broker's address for 30 s: with this one they reach the next leader at once.
    """
    members: dict[uuid.UUID, list[Replica]] = {}
    for replica in cluster_replicas(context.cluster):
        members.setdefault(replica.group_id, []).append(replica)
    for group_id, replicas in members.items():
        hosts = {replica.host for replica in replicas}
        if len(replicas) == 1 or len(hosts) > 1:
            continue
        with transaction.atomic():
            BrokerGroup.objects.select_for_update().get(pk=group_id)
            if group_id not in leader_ports(context.cluster.pk):
                ports_lease(
                    context.driver,
                    host=hosts.pop(),
                    cluster_id=context.cluster.pk,
                    holder=group_id,
                    ports=LEADER_PORTS,
                )


def _note_founders(context: StepContext) -> None:
    """Write down who founds the groups that are being made: until that is done, a changed port restarts all of a group."""
    groups = BrokerGroup.objects.filter(cluster=context.cluster)
    if context.operation.type == OperationType.CLUSTER_GROW:
        groups = groups.filter(name=context.operation.metadata["group"])
    elif context.operation.type != OperationType.CLUSTER_CREATE:
        return
    for group in groups:
        peers = founding_peers([replica for replica in cluster_replicas(context.cluster) if replica.group == group])
        groups.filter(pk=group.pk).update(founding_peers=peers, updated_at=context.now)


def _wait_until_leader_is_known(cluster: Cluster, group: str, address: str) -> None:
    for name_server, master in replica_remoting.group_masters(cluster, group, leader_addresses(cluster.pk)).items():
        if master != address:
            raise StepNotReady(
                say(
                    "The name server %(name_server)s does not know the leader of %(group)s yet.",
                    name_server=name_server,
                    group=group,
                )
            )


def _replicas_to_run(cluster: Cluster) -> list[Replica]:
    given_up = replicas_given_up(cluster)
    return [replica for replica in placed_replicas(cluster) if replica.pk not in given_up]


def _brokers_to_run(context: StepContext) -> list[Daemon]:
    given_up = replicas_given_up(context.cluster)
    return [one for one in replica_daemons(context.cluster, context.driver) if one.row.pk not in given_up]


def _is_added(context: StepContext, daemon: Daemon) -> bool:
    """Whether this broker is one that the operation adds; all are where it does not grow a cluster that runs."""
    row, added = daemon.row, context.operation.metadata
    if context.operation.type != OperationType.CLUSTER_GROW or not isinstance(row, Replica):
        return True
    return bool(row.group.name == added.get("group") or row.broker_id == added.get("replica"))


def daemons_start(context: StepContext, daemons: list[Daemon]) -> None:
    """Start these daemons; raises StepNotReady until all of them accept connections."""
    for daemon in daemons:
        context.driver.process_start(daemon.process)
    daemons_await(context, daemons)


def daemons_await(context: StepContext, daemons: list[Daemon]) -> None:
    """Raise StepNotReady until all of these daemons, which someone has started, accept connections."""
    _fail_if_crashing(context, daemons)
    statuses = context.driver.process_statuses([daemon.process.name for daemon in daemons])
    for daemon in daemons:
        status = statuses[daemon.process.name]
        if status.state != ProcessState.RUNNING:
            raise StepNotReady(
                say(
                    "%(daemon)s is %(state)s: %(description)s",
                    daemon=daemon_noun(daemon),
                    state=status.state,
                    description=status.description,
                ).strip(" :")
            )
        if daemon.row.port is None or not probe.port_answers(daemon.row.host, daemon.row.port):
            raise StepNotReady(
                say(
                    "%(daemon)s does not listen on port %(port)s yet.", daemon=daemon_noun(daemon), port=daemon.row.port
                )
            )


def _has_lasted(context: StepContext, time: timedelta) -> bool:
    return context.now - context.started_at > time


def _fail_if_crashing(context: StepContext, daemons: list[Daemon]) -> None:
    """Don't wait for the end of the step's time when a daemon keeps ending: its log says why."""
    statuses = context.driver.process_statuses([daemon.process.name for daemon in daemons])
    for daemon in daemons:
        status = statuses[daemon.process.name]
        lasting = _has_lasted(context, _CRASHING_FOR)
        if status.state == ProcessState.FATAL or (status.state == ProcessState.BACKOFF and lasting):
            raise StepFailed(
                say(
                    "%(daemon)s does not start. %(driver)s",
                    daemon=daemon_noun(daemon),
                    driver=last_words(context.driver, context.cluster, daemon, status),
                ),
                hint=say("Retry the operation; if it fails again, the log lines say what to change."),
            )


def last_words(driver: Driver, cluster: Cluster, daemon: Daemon, status: ProcessStatus) -> str:
    """Return how a daemon ended and the last lines of its log, short enough to show."""
    lines = driver.log_tail(cluster.id, daemon.process.name, _LOG_LINES)
    ended = "" if status.exit_status is None else say("It ended with status %(status)s.", status=status.exit_status)
    if not lines:
        return say_all(ended, status.description)
    return say_all(ended, say("Its last words: %(lines)s", lines="\n".join(lines)[-800:]))


def daemon_noun(daemon: Daemon) -> str:
    """Return what a sentence calls the daemon."""
    return (
        say("Name server %(position)s", position=daemon.row.position + 1)
        if isinstance(daemon.row, NameServer)
        else broker_noun(daemon.row)
    )
