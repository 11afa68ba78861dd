"""What a benchmark found: every sample, medians, ratios, as a markdown table and as JSON."""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.bench.programs import median
from tests.bench.systems import NAMES, SYSTEMS, System


@dataclass
class Measurement:
    """One row: the samples of both systems. ``higher_is_better`` decides how the ratio is formed."""

    label: str
    unit: str
    higher_is_better: bool = True
    aim: float | None = None
    samples: dict[System, list[float]] = field(default_factory=lambda: {system: [] for system in SYSTEMS})

    def median(self, system: System) -> float | None:
        return median(self.samples[system]) if self.samples[system] else None

    @property
    def ratio(self) -> float | None:
        """How many times better than Apache ours is; None while one of them is unmeasured."""
        theirs, ours = self.median("apache"), self.median("highwater")
        if not theirs or not ours:
            return None
        return ours / theirs if self.higher_is_better else theirs / ours


class Report:
    """All rows in the order in which they were first measured."""

    def __init__(self) -> None:
        self.rows: dict[str, Measurement] = {}
        self.notes: list[str] = []
        self.started_at = datetime.datetime.now(datetime.UTC)
        self.load_average_at_start = os.getloadavg()[0]

    def add(
        self,
        system: System,
        label: str,
        values: Sequence[float],
        *,
        unit: str,
        higher_is_better: bool = True,
        aim: float | None = None,
    ) -> None:
        row = self.rows.setdefault(label, Measurement(label, unit, higher_is_better, aim))
        row.samples[system] += values

    def markdown(self) -> str:
        lines = [
            f"| measured | unit | {NAMES['apache']} | {NAMES['highwater']} | times better | aim |",
            "|---|---|---:|---:|---:|---:|",
        ]
        for row in self.rows.values():
            ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
            aim = "" if row.aim is None else f"{row.aim:.1f}"
            numbers = " | ".join(_number(row.median(system)) for system in SYSTEMS)
            lines.append(f"| {row.label} | {row.unit} | {numbers} | {ratio} | {aim} |")
        lines += ["", f"{self._machine()} Medians; load average at the start {self.load_average_at_start:.2f}."]
        return "\n".join(lines + self.notes)

    def write(self, folder: Path) -> Path:
        """Writes everything as JSON to ``folder``/<date>.json; returns the path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.started_at:%Y-%m-%dT%H%M%S}.json"
        document = {
            "started_at": self.started_at.isoformat(timespec="seconds"),
            "machine": self._machine(),
            "load_average_at_start": self.load_average_at_start,
            "notes": self.notes,
            "measurements": [
                asdict(row) | {"medians": {system: row.median(system) for system in SYSTEMS}, "ratio": row.ratio}
                for row in self.rows.values()
            ],
        }
        path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
        return path

    def _machine(self) -> str:
        return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}."


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
