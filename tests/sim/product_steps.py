"""The steps of the product's operations, in the order that its workflows have: which of them the simulation runs, and which not."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from controlplane.clusters.operation_types import OperationType
from controlplane.clusters.workflows import step_names

Step = TypeVar("Step")

# See "What is not simulated" in docs/simulation.md.
NOT_SIMULATED = {
    # The world starts and configures processes itself.
    "allocate_ports",
    "render_configuration",
    "render_configuration_again",
    "mode_start_added",
    "mode_update_masters",
    "quorum_start_added",
    # The world sees by itself when sends are taken again, what was stopped starts by itself, and topics have no rows.
    "failover_verify",
    "failover_topics",
    "failover_rejoin",
}


def steps_of(
    operation_type: OperationType, simulated: Mapping[str, Step], names: Collection[str] | None = None
) -> list[Step]:
    """Return what an operation of this type does, step by step: `simulated` has each by its name. `names` are those of the
    workflow's that it has, as when the product begins one. Raises KeyError for a step that is in no list.
    """
    return [simulated[name] for name in step_names(operation_type, names) if name not in NOT_SIMULATED]
