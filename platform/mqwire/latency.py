"""How long many answers took, as counts by time: what a broker reports of them, added up over brokers, and quantiles of that.

A time is counted under the smallest bound that it does not exceed. Each bound is 19 percent above the last, so a quantile, which is
a bound, is at most that much too high.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

# From 0.1 ms to 12 s, four to each doubling.
BOUNDS_MS: Final = tuple(round(0.1 * 2 ** (step / 4), 4) for step in range(69))


def latency_to_json(counts: Sequence[int]) -> str:
    """`counts` has one for each bound and one for what took longer. Those above zero are named by their bound in ms, or null."""
    named = [(bound_ms, count) for bound_ms, count in zip((*BOUNDS_MS, None), counts, strict=True) if count]
    return json.dumps(named, separators=(",", ":"))


def latency_from_json(text: str | None) -> dict[float, int] | None:
    """The counts by bound in ms (infinite for what took longer than all), or None where nothing such was reported."""
    try:
        rows = json.loads(text or "")
        return {float("inf") if bound_ms is None else float(bound_ms): int(count) for bound_ms, count in rows}
    except (ValueError, TypeError):
        return None


def latency_sum(reported: Sequence[Mapping[float, int]]) -> dict[float, int]:
    """All of them together."""
    found: dict[float, int] = {}
    for one in reported:
        for bound_ms, count in one.items():
            found[bound_ms] = found.get(bound_ms, 0) + count
    return found


def latency_quantile_ms(counts: Mapping[float, int], share: float) -> float | None:
    """The time in ms that `share` of the answers did not exceed (0.99: all but one of a hundred); None where there were none.

    Of what took longer than every bound it is the largest bound.
    """
    wanted = share * sum(counts.values())
    if not wanted:
        return None
    seen = 0
    for bound_ms in sorted(counts):
        seen += counts[bound_ms]
        if seen >= wanted:
            break
    return min(bound_ms, BOUNDS_MS[-1])
