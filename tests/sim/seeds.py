"""One seed of any mode."""

from __future__ import annotations

from tests.sim import world
from tests.sim.changing_world import run_changing_seed
from tests.sim.quorum_world import run_quorum_seed
from tests.sim.world import Outcome

MODES = (*world.MODES, "dledger", "changing")


def run_seed(
    mode: str,
    flush: str,
    seed: int,
    *,
    replicas: int | None = None,
    promotions: bool = True,
    indexes: bool = False,
    weather: str = "",
    show: bool = False,
) -> Outcome:
    """One run, judged; the seed says how many replicas there are unless `replicas` does. `promotions` and `indexes` are for groups
    of one mode that is assigned a leader, `weather` for those whose mode changes.
    """
    if mode == "dledger":
        return run_quorum_seed(flush, seed, replicas=replicas, show=show)
    if mode == "changing":
        return run_changing_seed(flush, seed, replicas=replicas, weather=weather, show=show)
    return world.run_seed(mode, flush, seed, replicas=replicas, promotions=promotions, indexes=indexes, show=show)
