"""What `./dev` says: progress, errors with a way out, questions."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class DevError(Exception):
    """Something that stops a command. Says what happened (`cause`) and what to do about it (`way_out`)."""

    def __init__(self, cause: str, way_out: str, exit_code: int = 1) -> None:
        super().__init__(cause)
        self.cause = cause
        self.way_out = way_out
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.cause}\n  Way out: {self.way_out}"


class Terminal:
    """Prints progress to a stream; `quiet` keeps steps to itself (tests), never errors."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self._colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ

    def paint(self, text: str, code: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self._colour else text

    def say(self, text: str = "") -> None:
        if not self.quiet:
            print(text, flush=True)

    def warn(self, text: str) -> None:
        if not self.quiet:
            print(self.paint(f"  ! {text}", "33"), flush=True)

    def error(self, error: DevError) -> None:
        print(self.paint(f"\n{error.cause}", "31"), file=sys.stderr)
        print(f"  Way out: {error.way_out}", file=sys.stderr, flush=True)

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """One line of progress: `  text ... done (0.4 s)`. A failing step says so and lets the exception through."""
        if self.quiet:
            yield
            return
        print(f"  {text} ... ", end="", flush=True)
        started = time.monotonic()
        try:
            yield
        except BaseException as exc:
            print(self.paint("interrupted" if isinstance(exc, KeyboardInterrupt) else "failed", "31"), flush=True)
            raise
        print(self.paint("done", "32") + f" ({time.monotonic() - started:.1f} s)", flush=True)

    def confirm(self, question: str) -> bool:
        """Asks; the answer comes from standard input, a pipe (`echo y |`) included. No answer is a no."""
        print(f"{question} [y/N] ", end="", flush=True)
        answer = sys.stdin.readline() if sys.stdin is not None else ""
        if not answer.endswith("\n") or not sys.stdin.isatty():
            print()  # no one pressed Enter here
        return answer.strip().lower() in {"y", "yes"}


def tail(text: str, lines: int = 20) -> str:
    """The last lines of a program's output, indented to stand inside a message."""
    return "\n".join("    " + line for line in text.rstrip().splitlines()[-lines:])
