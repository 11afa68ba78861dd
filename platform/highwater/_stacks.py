"""What this program is doing, as text: each thread's stack, and where each task of the event loop waits.

The counterpart of Java's jstack, in which an administrator looks for a handler that hangs.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

# A program may have any number of tasks; its handlers are among the first few hundred, or nothing is reported.
TASKS_MAX: Final = 500


def stacks_text() -> str:
    """Each thread by name, then each task of this loop, outermost frame first."""
    return "\n".join([*_threads(), *_tasks()])


def _threads() -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        yield f'"{names.get(ident, "unknown")}" TID: {ident}\n' + "".join(traceback.format_stack(frame))


def _tasks() -> Iterator[str]:
    tasks = sorted(_of_asyncio() or _of_trio(), key=lambda task: task[0])
    for name, coroutine in tasks[:TASKS_MAX]:
        frames = list(_await_frames(coroutine))
        summary = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in frames)
        yield f'task "{name}"\n' + "".join(summary.format())
    if len(tasks) > TASKS_MAX:
        yield f"... and {len(tasks) - TASKS_MAX} tasks more\n"


def _of_asyncio() -> list[tuple[str, Any]]:
    """Names and coroutines; none where another loop runs."""
    try:
        return [(task.get_name(), task.get_coro()) for task in asyncio.all_tasks()]
    except RuntimeError:
        return []


def _of_trio() -> list[tuple[str, Any]]:
    trio: Any = sys.modules.get("trio")  # imported by who runs it; the SDK itself needs only anyio
    if trio is None:
        return []
    found: list[tuple[str, Any]] = []
    pending = [trio.lowlevel.current_root_task()]
    while pending:
        task = pending.pop()
        found.append((task.name, task.coro))
        pending += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return found


def _await_frames(awaited: Any) -> Iterator[FrameType]:
    """The frames of a coroutine and of what it awaits, down to the one that waits for the loop."""
    while awaited is not None:
        for kind in ("cr", "gi", "ag"):
            frame = getattr(awaited, f"{kind}_frame", None)
            if frame is not None:
                yield frame
                break
        awaited = next(
            (inner for name in ("cr_await", "gi_yieldfrom", "ag_await") if (inner := getattr(awaited, name, None))),
            None,
        )
