"""A chart and its table twin: one object, of which the template makes both, and the browser draws the curve."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal
from zoneinfo import ZoneInfo

from controlplane.common.sentences import in_words, say

UNKNOWN = say("not known")


@dataclass(frozen=True, slots=True)
class Curve:
    """One curve: a value for each place, None where it is not known, and the same in words."""

    name: str
    values: list[float | None]
    words: list[str]

    @classmethod
    def of(
        cls, name: str, values: Sequence[Decimal | float | None], words: Callable[[Decimal | float], str]
    ) -> "Curve":
        """Return the curve of these values; `words` says one that is known."""
        return cls(
            name,
            [None if value is None else float(value) for value in values],
            [UNKNOWN if value is None else words(value) for value in values],
        )


@dataclass(frozen=True, slots=True)
class Chart:
    """`bars`: one place for each label. `lines`: at the moments of `x`, within `span`. `ticks` are short labels for the axis."""

    id: str
    title: str
    kind: Literal["bars", "lines"]
    first_column: str
    labels: list[str]
    ticks: list[str]
    x: list[datetime]
    zone: ZoneInfo
    curves: list[Curve]
    span: tuple[datetime, datetime] | None = None
    empty: str = say("Nothing is known for this time.")
    # What a lone curve is of: the title does not say it.
    names_curves: bool = False

    @property
    def json(self) -> str:
        """What chart.js reads."""
        return json.dumps(
            {
                "kind": self.kind,
                "zone": self.zone.key,
                "labels": self.labels,
                "ticks": self.ticks,
                "x": [moment.timestamp() for moment in self.x],
                "span": None if self.span is None else [moment.timestamp() for moment in self.span],
                "series": [
                    {
                        "name": in_words(curve.name),
                        "values": curve.values,
                        "words": [in_words(words) for words in curve.words],
                    }
                    for curve in self.curves
                ],
            }
        )

    @property
    def rows(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """The table's rows: the label, and (curve, value in words) for each curve."""
        return [
            (label, [(curve.name, curve.words[place]) for curve in self.curves])
            for place, label in enumerate(self.labels)
        ]

    @property
    def has_unknown_bars(self) -> bool:
        """Whether there are places without any known value, which are shaded."""
        return self.kind == "bars" and any(value is None for curve in self.curves for value in curve.values)

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all is known."""
        return all(value is None for curve in self.curves for value in curve.values)
