"""A real supervisord for tests of the local driver."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from controlplane.provisioning.drivers.local import LocalDriver
from controlplane.provisioning.drivers.supervisor_rpc import SupervisorRpc
from controlplane.provisioning.errors import DriverError


@dataclass
class RealSupervisor:
    """A supervisord of this test session with the driver that talks to it."""

    state_dir: Path
    socket: str
    driver: LocalDriver
    rpc: SupervisorRpc


@contextmanager
def running_supervisor(state_dir: Path) -> Iterator[RealSupervisor]:
    """Run supervisord, with `state_dir` as the platform's state directory."""
    (state_dir / "supervisor" / "conf.d").mkdir(parents=True)
    # pytest's own folders can be too long for a unix socket.
    with tempfile.TemporaryDirectory(prefix="hw-") as folder:
        socket = f"{folder}/s"
        configuration = state_dir / "supervisor" / "supervisord.conf"
        configuration.write_text(
            f"[unix_http_server]\nfile={socket}\n"
            f"[supervisord]\nlogfile={state_dir}/supervisord.log\npidfile={state_dir}/supervisord.pid\n"
            "[rpcinterface:supervisor]\n"
            "supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface\n"
            "[include]\nfiles=conf.d/*.conf\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "supervisor.supervisord", "-n", "-c", str(configuration)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            rpc = SupervisorRpc(socket)
            _until_it_answers(rpc)
            yield RealSupervisor(state_dir, socket, LocalDriver(state_dir, socket), rpc)
        finally:
            process.terminate()  # supervisord stops its children first
            process.wait(30)


def _until_it_answers(rpc: SupervisorRpc) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            rpc.all_process_info()
            return
        except DriverError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
