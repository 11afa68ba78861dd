"""How the command line prints tables, and how it exits."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from highwater.printable import visible

# README lists them.
EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_NO_PERMISSION = 4
EXIT_NOT_FOUND = 5

UNKNOWN = "-"


def version_line() -> str:
    """What `--version` prints."""
    from importlib.metadata import version  # slow to load, and rarely asked

    return f"highwater {version('highwater')}"


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under headings; None is an unknown value. A terminal's width is kept; a pipe gets whole lines."""
    from rich.console import Console  # only what prints a table waits for these
    from rich.table import Table

    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(UNKNOWN if value is None else visible(str(value)) for value in row))
    width = None if sys.stdout.isatty() else 10_000
    Console(width=width, soft_wrap=not sys.stdout.isatty(), highlight=False, markup=False).print(table)
