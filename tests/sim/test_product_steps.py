"""The simulation walks the product's own lists of steps."""

from __future__ import annotations

import pytest

from controlplane.clusters.operation_types import OperationType
from controlplane.failover.mode.order import change_steps
from tests.sim.product_steps import steps_of


def test_the_simulated_steps_come_in_the_order_of_the_workflow() -> None:
    simulated = {name: name for name in ("failover_promote", "failover_fence", "failover_preflight")}
    assert steps_of(OperationType.GROUP_PROMOTE, simulated) == [
        "failover_preflight",
        "failover_fence",
        "failover_promote",
    ]


def test_a_step_that_is_in_no_list_is_noticed() -> None:
    with pytest.raises(KeyError, match="failover_drain"):
        steps_of(
            OperationType.GROUP_SWITCHOVER,
            {name: name for name in ("failover_preflight", "failover_fence", "failover_promote")},
        )


def test_a_change_has_those_of_its_steps_that_it_needs() -> None:
    names = ("mode_look", "mode_catch_up", "mode_pass", "mode_remove", "mode_change", "mode_remove_last", "mode_note")
    simulated = {name: name for name in names}

    def steps(chosen: set[str]) -> list[str]:
        return steps_of(OperationType.CLUSTER_MODE, simulated, chosen)

    assert steps(change_steps(modes=1, adds=False, removes=False)) == ["mode_look", "mode_change", "mode_note"]
    assert steps(change_steps(modes=2, adds=False, removes=True, becomes_alone=True)) == [
        "mode_look",
        "mode_pass",
        "mode_remove",
        "mode_change",
        "mode_note",
    ]
    assert steps(change_steps(modes=0, adds=True, removes=False)) == ["mode_look", "mode_catch_up", "mode_note"]
    assert steps(change_steps(modes=0, adds=False, removes=True)) == ["mode_look", "mode_remove_last", "mode_note"]
