"""Runs a command for as long as standard input stays open; then stops it and waits for its end.

The test run holds the other end of the pipe. However it ends, kill -9 included, it closes and the server goes too.
Linux's "signal me when my parent dies" would not do for PostgreSQL: it is lost when `unshare` changes the user.

    python keeper.py SIGNAL COMMAND...
"""

import signal
import subprocess
import sys
import threading
from pathlib import Path


def _stop_at_end_of_input(child: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    sys.stdin.buffer.read()
    if child.poll() is None:
        child.send_signal(number)


def main() -> int:
    """Exit status is the command's; negative signal numbers become 128 + number, as in a shell."""
    number = signal.Signals[sys.argv[1]]
    # /: the server must not keep a temporary directory busy.
    child = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, cwd=Path("/"))
    threading.Thread(target=_stop_at_end_of_input, args=(child, number), daemon=True).start()
    status = child.wait()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
