"""The steps of a change of a cluster's mode. Every step may run twice, or from two workers, or again after its worker was
killed: what a replica's status says is in force is not asked for again, what is gone is not removed again.
"""

from collections.abc import Mapping

from django.db import transaction
from django.utils import timezone

from controlplane.clusters import replica_remoting
from controlplane.clusters.given_up import replicas_given_up
from controlplane.clusters.models import Cluster, ClusterMode, FailoverPolicy, Replica, in_sync_replicas_of
from controlplane.clusters.remoting import cluster_admin
from controlplane.common.errors import ApplicationError
from controlplane.common.logging import get_logger
from controlplane.failover.membership.order import Forget, Free, StopForGood
from controlplane.failover.membership.removal import leaving_carried_out, removal_end_noted, removing_settled
from controlplane.failover.mode import order
from controlplane.failover.mode.order import mode_stations
from controlplane.failover.mode_changes import ALONE, broker_mode, mode_path
from controlplane.failover.orders import carried_out
from controlplane.failover.sampling import cluster_sample, fences_lift
from controlplane.provisioning.errors import StepNotReady
from controlplane.provisioning.ports import leader_ports
from controlplane.provisioning.processes import cluster_replicas, placed_replicas, replica_daemons
from controlplane.provisioning.steps import Step, StepContext, daemons_start, render_configuration, require_own_try
from highwater import Admin
from highwater.errors import BrokerError
from mqwire.bodies import ReplicaStatus
from mqwire.mode import Mode

_log = get_logger("controlplane.failover")


def mode_look(context: StepContext) -> None:
    """Wait until every group has a leader, and every replica that has been started, and stays, answers."""
    adds = bool(context.operation.metadata.get("adding"))
    _carried_out(context, order.begin(_going(context), adds=adds))


def mode_start_added(context: StepContext) -> None:
    """Start the replicas that do not run yet, and wait until they accept connections. The others are left alone.

    Also those that stay, and that an operation stopped which has ended: no one else starts them while this one runs.
    """
    going = _going(context)
    rows = [row for row in cluster_replicas(context.cluster) if row.broker_id not in going.get(row.group.name, ())]
    with transaction.atomic():
        Cluster.objects.select_for_update().get(pk=context.cluster.pk)  # replicas are fenced under this lock
        require_own_try(context)
        fences_lift(context.cluster, rows)
    answers = replica_remoting.replica_statuses(context.cluster, [row.address for row in rows])
    given_up = replicas_given_up(context.cluster)
    silent = [row for row in rows if answers[row.address].status is None and row.pk not in given_up]
    daemons_start(
        context, [daemon for daemon in replica_daemons(context.cluster, context.driver) if daemon.row in silent]
    )


def mode_catch_up(context: StepContext) -> None:
    """Wait until every replica that stays holds what its master holds."""
    _carried_out(context, order.catch_up(_going(context)))


def mode_update_masters(context: StepContext) -> None:
    """Have every running broker obey what its new file says of slaves: their reads, and the leader's port."""
    cluster, ports = context.cluster, leader_ports(context.cluster.pk)
    try:
        with cluster_admin(cluster) as admin:
            for row in cluster_replicas(cluster):
                wanted = {"slaveReadEnable": "true"}
                if row.group_id in ports:
                    wanted["leaderListenPort"] = str(ports[row.group_id])
                _have_configuration(admin, row, wanted)
    except ApplicationError as error:
        raise StepNotReady(error.message, delay_s=1.0) from error


def mode_pass(context: StepContext) -> None:
    """Have every group go through the modes between the present one and the wanted one."""
    _carried_out(context, order.pass_through(_stations(context)[:-1], _going(context), in_sync_replicas_of))


def mode_remove(context: StepContext) -> None:
    """Stop the replicas that the groups are not to have any more, and free their ports, their rows and their room."""
    _carried_out(context, order.remove())
    render_configuration(context)  # a master that restarts looks for no one who is gone


def mode_change(context: StepContext) -> None:
    """Have every group be in the wanted mode."""
    _carried_out(context, order.change(_stations(context)[-1:], _going(context), in_sync_replicas_of))


def mode_note(context: StepContext) -> None:
    """Write the new mode into the cluster's row, and learn the groups' epochs before a leader is assigned one."""
    _carried_out(context, order.note())


def _note_mode(context: StepContext) -> None:
    wanted = context.operation.metadata["to"]
    cluster = context.cluster
    values: dict[str, object] = {"mode": wanted, "founded_mode": cluster.mode_at_creation}
    if wanted == ClusterMode.DLEDGER or wanted in ALONE:
        values["failover_policy"] = FailoverPolicy.MANUAL
    if cluster.mode != wanted:
        Cluster.objects.filter(pk=cluster.pk, mode=cluster.mode).update(**values, updated_at=timezone.now())


def _have_configuration(admin: Admin, row: Replica, wanted: Mapping[str, str]) -> None:
    try:
        present = admin.broker_config(row.address)
        missing = {key: value for key, value in wanted.items() if present.get(key) != value}
        if missing:
            admin.update_broker_config(row.address, missing)
    except BrokerError as error:  # of an older version: it reads its file when it next starts
        _log.warning("a broker keeps its configuration", replica=str(row), error=str(error))


def _carried_out(context: StepContext, requests: order.Order[None]) -> None:
    carried_out(requests, _Execution(context).carry_out)


class _Execution:
    """What the order of a change asks for (order.py), done by remoting and rows."""

    def __init__(self, context: StepContext) -> None:
        self._context = context

    def carry_out(self, request: order.Request) -> object:
        """Return what the order wants to know."""
        context = self._context
        match request:
            case order.LookAtGroups():
                return _answers(context)
            case order.LookAndNote():
                cluster = Cluster.objects.select_related("tenant").get(
                    pk=context.cluster.pk
                )  # its mode may be a new one
                return order.GroupsNoted(cluster_sample(cluster, context.driver), timezone.now())
            case order.NoteMode():
                _note_mode(context)
            case order.LeadAlone(group, replica_id, epoch, with_incomplete_log):
                return replica_remoting.replica_promote(
                    context.cluster,
                    self._address(group, replica_id),
                    group=group,
                    replica_id=replica_id,
                    expected_epoch=epoch,
                    new_epoch=epoch + 1,
                    with_incomplete_log=with_incomplete_log,
                )
            case order.ChangeMode(group, leader, mode, in_sync_replicas):
                return replica_remoting.replica_mode(
                    context.cluster,
                    leader,
                    group=group,
                    mode=mode,
                    in_sync_replicas=in_sync_replicas,
                )
            case order.SettleRemoval(leaders):
                return removing_settled(context, leaders)
            case order.NoteEnd(group, replica_id, end_offset):
                return removal_end_noted(context, group, replica_id, end_offset)
            case StopForGood() | Forget() | Free():
                return leaving_carried_out(context, request)
        return None

    def _address(self, group: str, replica_id: int) -> str:
        rows = placed_replicas(self._context.cluster, group)
        return next(row.address for row in rows if row.broker_id == replica_id)


def _going(context: StepContext) -> order.Going:
    removing: dict[str, list[int]] = context.operation.metadata.get("removing", {})
    return removing


def _stations(context: StepContext) -> list[tuple[Mode, tuple[Mode, ...]]]:
    path = mode_path(context.operation.metadata["from"], context.operation.metadata["to"])
    return mode_stations([broker_mode(mode) for mode in path])


def _answers(context: StepContext) -> dict[str, dict[int, ReplicaStatus | None]]:
    """What every replica reports, by group: None where it does not answer."""
    replicas = placed_replicas(context.cluster)
    answers = replica_remoting.replica_statuses(context.cluster, [replica.address for replica in replicas])
    groups: dict[str, dict[int, ReplicaStatus | None]] = {replica.group.name: {} for replica in replicas}
    for replica in replicas:
        groups[replica.group.name][replica.broker_id] = answers[replica.address].status
    return groups


STEPS: dict[str, Step] = {
    **{
        step.__name__: step
        for step in (
            mode_look,
            mode_start_added,
            mode_catch_up,
            mode_update_masters,
            mode_pass,
            mode_remove,
            mode_change,
            mode_note,
        )
    },
    "mode_remove_last": mode_remove,  # the same work, at another place of the workflow
}
