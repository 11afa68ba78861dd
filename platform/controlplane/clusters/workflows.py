"""The steps of each kind of operation, as data. What a step does is in `controlplane.provisioning.steps`, under the
same name. Without rows: the simulation (tests/sim/product_steps.py) walks the same lists.

The titles are shown beside the progress bar. `timeout_s` is how long a step may wait, counted from its first start,
before it fails.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.clusters.operation_types import OperationType
from controlplane.common.sentences import say

if TYPE_CHECKING:  # rows, which the simulation has not
    from controlplane.clusters.models import Operation


@dataclass(frozen=True, slots=True)
class StepDefinition:
    """One step of a workflow."""

    name: str
    title: str
    timeout_s: int = 60


# Shared by a restart and an upgrade. Waiting for a follower that has much to catch up takes long.
_ROLLING = (
    StepDefinition("roll_look", say("Look at every daemon"), 60),
    StepDefinition("render_configuration", say("Write the configuration")),
    StepDefinition("roll_name_servers", say("Restart the name servers, one after another"), 1800),
    StepDefinition(
        "roll_followers", say("Restart the followers, and brokers that are alone, one after another"), 4 * 3600
    ),
    StepDefinition("roll_leaders", say("Move the leaderships, and restart who led"), 3600),
    StepDefinition("roll_verify", say("Check every group, and which versions run"), 300),
)

WORKFLOWS: dict[str, tuple[StepDefinition, ...]] = {
    OperationType.CLUSTER_CREATE: (
        StepDefinition("allocate_ports", say("Reserve ports")),
        StepDefinition("render_configuration", say("Write the configuration")),
        StepDefinition("start_name_servers", say("Start the name server"), timeout_s=45),
        StepDefinition("start_brokers", say("Start the broker"), timeout_s=60),
        StepDefinition("wait_for_registration", say("Wait for the broker to register"), timeout_s=60),
        StepDefinition("wait_for_replication", say("Wait until every slave is in sync"), timeout_s=60),
        StepDefinition("verify", say("Check access control and the first request"), timeout_s=30),
        StepDefinition("mark_running", say("Open the cluster")),
    ),
    OperationType.CLUSTER_GROW: (
        StepDefinition("allocate_ports", say("Reserve ports")),
        StepDefinition("render_configuration", say("Write the configuration")),
        StepDefinition("start_brokers", say("Start the brokers"), timeout_s=60),
        StepDefinition("wait_for_registration", say("Wait for the brokers to register"), timeout_s=60),
        StepDefinition("wait_for_replication", say("Wait until every slave is in sync"), timeout_s=60),
        StepDefinition("verify", say("Check access control and the first request"), timeout_s=30),
        StepDefinition("spread_topics", say("Spread the topics over all groups"), timeout_s=3600),
    ),
    OperationType.CLUSTER_RESTART: _ROLLING,
    OperationType.CLUSTER_UPGRADE: _ROLLING,
    OperationType.CLUSTER_CA: (
        # One of the three in the middle: provisioning/authority.py.
        StepDefinition("ca_refresh", say("Give every daemon a fresh certificate of the CA that signs")),
        StepDefinition("ca_look", say("Check by a TLS handshake what every daemon shows and trusts"), 600),
        StepDefinition("ca_make", say("Make the next CA")),
        StepDefinition("ca_sign", say("Let the next CA sign")),
        StepDefinition("ca_drop", say("Drop the former CA")),
        StepDefinition("ca_write", say("Give every daemon its new files")),
        StepDefinition("ca_verify", say("Check by a TLS handshake that every daemon uses them"), 600),
    ),
    OperationType.GROUP_PROMOTE: (
        StepDefinition("failover_preflight", say("Look at every replica, and reserve the epoch"), 30),
        StepDefinition("failover_fence", say("Fence the old master"), 60),
        StepDefinition("failover_promote", say("Promote the candidate"), 60),
        StepDefinition("failover_verify", say("Verify the first write"), 60),
        StepDefinition("failover_topics", say("Check that the new master has every topic"), 60),
        StepDefinition("failover_rejoin", say("Have the old master rejoin as a slave"), 60),
    ),
    OperationType.GROUP_SWITCHOVER: (
        StepDefinition("failover_preflight", say("Look at every replica, and reserve the epoch"), 30),
        StepDefinition("failover_drain", say("Hold sends until the candidate has caught up"), 30),
        StepDefinition("failover_fence", say("Fence the old master"), 60),
        StepDefinition("failover_promote", say("Promote the candidate"), 60),
        StepDefinition("failover_verify", say("Verify the first write"), 60),
        StepDefinition("failover_topics", say("Check that the new master has every topic"), 60),
        StepDefinition("failover_rejoin", say("Have the old master rejoin as a slave"), 60),
    ),
    OperationType.GROUP_DRILL: (
        # Which of them one drill has is in failover/drill/services.py.
        StepDefinition("drill_preflight", say("Look at every replica"), 30),
        StepDefinition("drill_probe", say("Send probe messages"), 30),
        StepDefinition("drill_fault", say("Kill the leader's process"), 60),
        StepDefinition("failover_fence", say("Fence the old master"), 60),
        StepDefinition("failover_promote", say("Promote the candidate"), 60),
        StepDefinition("drill_elect", say("Wait for the election"), 60),
        StepDefinition("failover_verify", say("Verify the first write"), 60),
        StepDefinition("failover_topics", say("Check that the new master has every topic"), 60),
        StepDefinition("drill_end_fault", say("End what keeps the old leader away"), 60),
        StepDefinition("failover_rejoin", say("Have the old leader rejoin as a follower"), 60),
        StepDefinition("drill_judge", say("Count the probe messages, and write the report"), 60),
        StepDefinition("return_begin", say("Wait until the old leader has caught up"), 300),
        StepDefinition("return_preflight", say("Look at every replica, and reserve the epoch"), 30),
        StepDefinition("return_drain", say("Hold sends until the old leader has caught up"), 30),
        StepDefinition("return_fence", say("Fence the present master"), 60),
        StepDefinition("return_promote", say("Promote the old leader"), 60),
        StepDefinition("return_transfer", say("Hand the leadership back"), 60),
        StepDefinition("return_verify", say("Verify the first write"), 60),
        StepDefinition("return_topics", say("Check that the leader has every topic"), 60),
        StepDefinition("return_rejoin", say("Have the other replica follow"), 60),
    ),
    OperationType.CLUSTER_MODE: (
        # Which of them one change has is in failover/mode/services.py.
        StepDefinition("mode_look", say("Look at every replica"), 30),
        StepDefinition("allocate_ports", say("Reserve ports")),
        StepDefinition("render_configuration", say("Write the configuration of the new replicas")),
        StepDefinition("mode_start_added", say("Start the new replicas"), 60),
        StepDefinition("mode_catch_up", say("Wait until every replica has caught up"), 4 * 3600),
        StepDefinition("mode_update_masters", say("Update the running masters"), 60),
        StepDefinition("mode_pass", say("Pass through the modes between"), 300),
        StepDefinition("mode_remove", say("Stop replicas and free their room"), 120),
        StepDefinition("mode_change", say("Change the mode"), 300),
        StepDefinition("mode_remove_last", say("Stop replicas and free their room"), 120),
        StepDefinition("mode_note", say("Record the new mode"), 30),
        StepDefinition("render_configuration_again", say("Write the configuration")),
    ),
    OperationType.GROUP_TRANSFER: (
        StepDefinition("quorum_look", say("Look at every replica"), 30),
        StepDefinition("quorum_transfer", say("Hand the leadership over"), 60),
        StepDefinition("quorum_verify", say("Verify the first write"), 60),
    ),
    OperationType.GROUP_PREFER: (
        StepDefinition("quorum_look", say("Look at every replica"), 30),
        StepDefinition("quorum_prefer", say("Write the preferred leader into the log"), 60),
        StepDefinition("render_configuration", say("Write the configuration")),
    ),
    OperationType.GROUP_RECOVER: (
        StepDefinition("quorum_stop_lost", say("Stop the lost replicas for good"), 60),
        StepDefinition("quorum_recover", say("Lead with the replicas that are left"), 60),
        StepDefinition("quorum_topics", say("Give the new leader the topics that it lacks"), 60),
        StepDefinition("quorum_forget", say("Forget the lost replicas and free their room"), 60),
        StepDefinition("render_configuration", say("Write the configuration")),
    ),
    OperationType.GROUP_REPLACE: (
        StepDefinition("quorum_look", say("Look at every replica"), 30),
        StepDefinition("allocate_ports", say("Reserve ports")),
        StepDefinition("render_configuration", say("Write the configuration")),
        StepDefinition("quorum_start_added", say("Start the new replica"), 60),
        StepDefinition("quorum_observe", say("Add it as an observer"), 60),
        StepDefinition("quorum_catch_up", say("Wait until it has caught up"), 4 * 3600),
        StepDefinition("quorum_promote_added", say("Make it a voter"), 120),
        StepDefinition("quorum_remove", say("Take the vote of the old replica"), 120),
        StepDefinition("quorum_forget", say("Stop the old replica and free its room"), 60),
        StepDefinition("render_configuration_again", say("Write the configuration")),
    ),
    OperationType.GROUP_GROW: (
        StepDefinition("quorum_look", say("Look at every replica"), 30),
        StepDefinition("allocate_ports", say("Reserve ports")),
        StepDefinition("render_configuration", say("Write the configuration")),
        StepDefinition("quorum_start_added", say("Start the new replicas"), 60),
        StepDefinition("quorum_observe", say("Add them as observers"), 60),
        StepDefinition("quorum_catch_up", say("Wait until they have caught up"), 4 * 3600),
        StepDefinition("quorum_promote_added", say("Make them voters, one after the other"), 120),
    ),
    OperationType.GROUP_SHRINK: (
        StepDefinition("quorum_look", say("Look at every replica"), 30),
        StepDefinition("quorum_step_aside", say("Hand the leadership to a replica that stays"), 60),
        StepDefinition("quorum_remove", say("Take the votes, one after the other"), 120),
        StepDefinition("quorum_forget", say("Stop the replicas and free their room"), 60),
        StepDefinition("render_configuration", say("Write the configuration")),
    ),
    OperationType.CLUSTER_SUSPEND: (
        StepDefinition("close_metering", say("Stop serving clients and record the last usage"), timeout_s=600),
        StepDefinition("confirm_ingested", say("Read the last usage"), timeout_s=1800),
        StepDefinition("settle_replicas", say("Wait until every follower holds what its leader holds"), timeout_s=600),
        StepDefinition("stop_processes", say("Stop the daemons"), timeout_s=120),
        StepDefinition("mark_suspended", say("Mark the cluster as suspended")),
    ),
    OperationType.CLUSTER_RESUME: (
        StepDefinition("stop_processes", say("Stop what still runs"), timeout_s=120),
        StepDefinition("render_configuration", say("Write the configuration")),
        StepDefinition("start_name_servers", say("Start the name server"), timeout_s=45),
        StepDefinition("start_brokers", say("Start the broker"), timeout_s=60),
        # Only now: a cluster whose brokers do not start keeps its end, and can be billed and deleted.
        StepDefinition("reopen_metering", say("Count usage again")),
        StepDefinition("wait_for_registration", say("Wait for the broker to register"), timeout_s=60),
        StepDefinition("wait_for_replication", say("Wait until every slave is in sync"), timeout_s=120),
        StepDefinition("verify", say("Check access control and the first request"), timeout_s=30),
        StepDefinition("note_leaders", say("Note who leads each group"), timeout_s=30),
        StepDefinition("mark_running", say("Open the cluster")),
    ),
    OperationType.CLUSTER_DELETE: (
        # Which of them one deletion has is in clusters/lifecycle.py. The first two take as long as brokers keep their
        # metering records; an operator may have it go on before.
        StepDefinition("close_metering", say("Stop serving clients and record the last usage"), timeout_s=72 * 3600),
        StepDefinition("confirm_ingested", say("Read the last usage"), timeout_s=72 * 3600),
        StepDefinition("settle_replicas", say("Wait until every follower holds what its leader holds"), timeout_s=600),
        StepDefinition("stop_processes", say("Stop the daemons"), timeout_s=120),
        StepDefinition("mark_deletion_pending", say("Keep the data until the deletion is final")),
        StepDefinition("remove_data", say("Remove the data")),
        StepDefinition("release", say("Release ports and names")),
    ),
}


def step_names(operation_type: OperationType, steps: Collection[str] | None = None) -> tuple[str, ...]:
    """Return the names of an operation's steps, in their order: of those of the workflow that it has, all when not given."""
    return tuple(one.name for one in WORKFLOWS[operation_type] if steps is None or one.name in steps)


# What is going on, as a sentence about an operation says it.
_OPERATION_TITLES: dict[str, str] = {
    OperationType.CLUSTER_CREATE: say("Creating the cluster"),
    OperationType.CLUSTER_DELETE: say("Deleting the cluster"),
    OperationType.CLUSTER_SUSPEND: say("Suspending the cluster"),
    OperationType.CLUSTER_RESUME: say("Starting the cluster again"),
    OperationType.CLUSTER_GROW: say("Growing the cluster"),
    OperationType.CLUSTER_MODE: say("Changing the cluster's mode"),
    OperationType.CLUSTER_RESTART: say("Restarting the cluster"),
    OperationType.CLUSTER_UPGRADE: say("Upgrading the cluster"),
    OperationType.CLUSTER_CA: say("Renewing the cluster's CA"),
    OperationType.GROUP_PROMOTE: say("Promoting a replica"),
    OperationType.GROUP_SWITCHOVER: say("Switching the master"),
    OperationType.GROUP_DRILL: say("Failover drill"),
    OperationType.GROUP_TRANSFER: say("Transferring the leadership"),
    OperationType.GROUP_PREFER: say("Preferring a leader"),
    OperationType.GROUP_REPLACE: say("Replacing a replica"),
    OperationType.GROUP_GROW: say("Growing a group"),
    OperationType.GROUP_SHRINK: say("Shrinking a group"),
    OperationType.GROUP_RECOVER: say("Recovering a group"),
}


def operation_title(operation: "Operation") -> str:
    """Return what an operation does, in words."""
    return _OPERATION_TITLES[operation.type]


# What a drill does to the leader, where it does not kill it: by the fault in the operation's metadata.
_FAULT_TITLES = {"hang": say("Make the leader's process hang"), "cut": say("Cut the leader off the network")}


def step_title(operation: "Operation", name: str) -> str:
    """Return what a step of this operation does, in words; raises KeyError as `step_definition` does."""
    title = step_definition(operation.type, name).title
    return _FAULT_TITLES.get(operation.metadata.get("fault", ""), title) if name == "drill_fault" else title


def step_definition(operation_type: str, name: str) -> StepDefinition:
    """Return a step's definition; raises KeyError for a step that the workflow no longer has."""
    for definition in WORKFLOWS[operation_type]:
        if definition.name == name:
            return definition
    raise KeyError(f"{operation_type} has no step {name}")
