"""`python -m controlplane.insight.leash COMMAND …`: runs a command that ends with the process that started it.

Standard input is the leash: when it closes, because the worker died or let go, the command's whole process group is
asked to end, and killed when it does not. Imports nothing of Django: it must start at once.
"""

import os
import signal
import subprocess
import sys
import threading

GRACE_S = 20.0


def main(command: list[str]) -> int:
    """Run the command in a process group of its own; return its exit status, 128 + the signal that ended it."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    threading.Thread(target=_watch, args=(child,), daemon=True).start()
    status = child.wait()
    _signal(child.pid, signal.SIGKILL)  # what the command left running
    return 128 - status if status < 0 else status


def _watch(child: subprocess.Popen[bytes]) -> None:
    # Not by sys.stdin: its lock, held by this thread, would abort the interpreter at its end.
    while os.read(0, 1024):
        pass
    _signal(child.pid, signal.SIGTERM)
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        _signal(child.pid, signal.SIGKILL)


def _signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return  # all of them have ended


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
