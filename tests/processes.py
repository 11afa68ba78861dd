"""Child processes of the tests: started with a log file, awaited by what they print, ended by their own process id.

Everything that a test starts outside its own interpreter (our daemons, Apache's, client programs) goes through
``ChildProcess``, so that no run leaves one behind: on Linux the kernel also kills the child when the test run itself
dies.
"""

from __future__ import annotations

import ctypes
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

POLL_INTERVAL_S = 0.02
PR_SET_PDEATHSIG = 1
_RANDOM = random.SystemRandom()


class ChildFailed(AssertionError):
    """A child process ended, or stayed silent, before it printed what the test waits for. The text holds the end of its
    log.
    """


def _die_with_parent() -> Callable[[], None] | None:
    """Returns the hook that asks Linux to kill the child with the thread that starts it; None where that is unwise.

    The signal is tied to the *thread* that forks, so a helper thread that ends early would take its children along:
    only the main thread uses it.
    """
    if not sys.platform.startswith("linux") or threading.current_thread() is not threading.main_thread():
        return None
    libc = ctypes.CDLL(None)

    def hook() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    return hook


class ChildProcess:
    """One child process in its own session, with standard output and standard error appended to ``log_path``.

    ``stdout_path`` separates standard output (a ready line, JSON) from the log. With ``piped`` the child's standard
    input and output are text pipes (``stdin``, ``stdout``) for a line protocol.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log_path: Path,
        stdout_path: Path | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        piped: bool = False,
    ) -> None:
        self.command = list(command)
        self.log_path = log_path
        self.stdout_path = stdout_path or log_path
        log_path.parent.mkdir(parents=True, exist_ok=True)
        # A restarted daemon appends; only what this process prints may satisfy wait_for_line.
        self._stdout_start_bytes = self.stdout_path.stat().st_size if self.stdout_path.exists() else 0
        self.started_at_s = time.monotonic()
        with log_path.open("ab") as log, self.stdout_path.open("ab") as output:
            self.popen: subprocess.Popen[str] = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                stdout=subprocess.PIPE if piped else output,
                stderr=log,
                env=dict(env) if env is not None else None,
                cwd=cwd,
                text=True,
                encoding="utf-8",
                start_new_session=True,
                preexec_fn=_die_with_parent(),
            )

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def stdin(self) -> IO[str]:
        assert self.popen.stdin is not None
        return self.popen.stdin

    @property
    def stdout(self) -> IO[str]:
        assert self.popen.stdout is not None
        return self.popen.stdout

    @property
    def running(self) -> bool:
        return self.popen.poll() is None

    def output(self) -> str:
        """Everything that this process (not its predecessors in the same file) has written to ``stdout_path``."""
        with self.stdout_path.open("rb") as file:
            file.seek(self._stdout_start_bytes)
            return file.read().decode("utf-8", "replace")

    def log_tail(self, line_count: int = 40) -> str:
        return "\n".join(self.log_path.read_text("utf-8", "replace").splitlines()[-line_count:])

    def wait_for_line(self, pattern: str, timeout_s: float = 60.0) -> re.Match[str]:
        """Waits until the output holds a match of ``pattern``. Raises ChildFailed when the process ends or the time is
        over first.
        """
        deadline_s = time.monotonic() + timeout_s
        expression = re.compile(pattern, re.MULTILINE)
        while True:
            running = self.running  # asked before the output, so that the last words of a process count
            match = expression.search(self.output())
            if match:
                return match
            if not running:
                raise ChildFailed(f"{self.command[:3]} ended with {self.popen.returncode}:\n{self.log_tail()}")
            if time.monotonic() > deadline_s:
                raise ChildFailed(f"{self.command[:3]} did not print {pattern!r} in {timeout_s} s:\n{self.log_tail()}")
            time.sleep(POLL_INTERVAL_S)

    def stop(self, timeout_s: float = 15.0) -> int:
        """Asks with SIGTERM, insists with SIGKILL after ``timeout_s``, and returns the exit status."""
        if self.running:
            self.popen.terminate()
            try:
                self.popen.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.popen.kill()
        return self._reap()

    def kill(self) -> int:
        """Ends the process at once with SIGKILL, as a crash would, and returns the exit status."""
        if self.running:
            self.popen.kill()
        return self._reap()

    def _reap(self) -> int:
        status = self.popen.wait()
        for stream in (self.popen.stdin, self.popen.stdout):
            if stream is not None and not stream.closed:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue  # unsent input of a process that is gone
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def wait_until(condition: Callable[[], bool], *, timeout_s: float, what: str, interval_s: float = 0.05) -> None:
    """Polls ``condition`` until it holds; raises AssertionError naming ``what`` when ``timeout_s`` is over."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"waited {timeout_s} s in vain: {what}")
        time.sleep(interval_s)


def free_ports(*offsets: int) -> int:
    """A port P of the loopback such that P + every offset (default: P alone) can be bound now.

    Outside the kernel's own range, of which anyone who connects somewhere takes ports, even one whose server is just down.
    """
    wanted = offsets or (0,)
    first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for _ in range(500):
        # Not of the shared generator: hypothesis seeds that alike in every run, of which two may be under way.
        base = _RANDOM.randrange(max(2048, first_outgoing // 2) - min(wanted), first_outgoing - max(wanted))
        if all(_can_bind(base + offset) for offset in wanted):
            return base
    raise AssertionError(f"no free ports at offsets {wanted} below {first_outgoing}")


def steady_ports(count: int) -> int:
    """The first of ``count`` free ports in a row."""
    return free_ports(*range(count))


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def resident_bytes(pid: int) -> int:
    """Resident memory of a process (VmRSS of /proc, Linux)."""
    status = Path(f"/proc/{pid}/status").read_text()
    match = re.search(r"VmRSS:\s+(\d+) kB", status)
    if match is None:
        raise AssertionError(f"process {pid} has no VmRSS: has it ended?")
    return int(match.group(1)) * 1024


def child_environment(**extra: str) -> dict[str, str]:
    """This process's environment without proxies for the loopback, plus ``extra``."""
    return {**os.environ, "NO_PROXY": "127.0.0.1,localhost", **extra}
