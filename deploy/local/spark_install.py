"""The program `spark` under supervisord: installs what Spark's jobs need, in the background, until it succeeds.

    python -m deploy.local.spark_install

PySpark and pyarrow go into a folder of their own in the state directory, and so does a Java runtime where the machine has none; the
jars come by the jobs' own downloader. Each part appears under its name only when it is complete, so a kill at any moment leaves
nothing in the way of the next try, which reuses what was downloaded.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType

from deploy.local.environment import ETL, JAVA, Environment
from deploy.local.java_trust import find_bundle, write_truststore
from deploy.local.layout import REPOSITORY, Layout
from deploy.local.spark import (
    INSTALLING,
    READY,
    WAITING,
    Setup,
    find_java_home,
    now_text,
    packages_in,
    read_setup,
    usable,
    wanted_key,
    write_java_wrapper,
    write_setup,
)
from deploy.local.terminal import DevError, tail

BACKOFF_S = (15, 30, 60, 120, 300, 600)
POLL_S = 1.0
WAITED_S = 5
CHILD_STOP_S = 5.0
CAUSE_CHARACTERS_MAX = 300
WAY_OUT = "check the network, the package index that pip uses, and the free space on the disk (the whole output: ./dev logs spark)."
ORNAMENTS = " \u00d7\u2570\u2500\u25b6\u2502\u251c"  # around uv's error messages

# Measured with PySpark 4.3.0: what lies in the cache when the downloads are done, and how much more while the wheel is built.
DOWNLOADED_BYTES = 640_000_000
BUILDING_BYTES = 1_900_000_000
DISK_BYTES_MIN = 3_500_000_000

# Each phase's share of the bar: [from, to) percent.
DOWNLOAD, BUILD, RUNTIME, JARS = (0, 50), (50, 84), (84, 92), (92, 100)


def backoff_s(attempt: int) -> int:
    """How long to wait after the attempt (1 is the first) failed."""
    return BACKOFF_S[min(attempt, len(BACKOFF_S)) - 1]


def percent_of(phase: tuple[int, int], done: float) -> int:
    """The bar's value when `done` (0 to 1) of a phase is over; never the phase's end, which belongs to the next one."""
    first, last = phase
    return first + int((last - first - 1) * min(1.0, max(0.0, done)))


@dataclass
class Installer:
    """One installation into `layout.spark`. Tests replace `run`, which runs a command and reports while it lasts."""

    layout: Layout
    environment: Environment
    attempt: int = 1
    percent: int = 0
    """How far this attempt has come; it never goes back, though temporary files come and go."""

    _lock: int | None = None

    @property
    def _work(self) -> Path:
        """Caches and temporary files; reused by the next try, removed when all is installed."""
        return self.layout.spark / "work"

    def install(self) -> Setup:
        """Installs what is missing; quick when nothing is.

        Raises:
            DevError: says what failed and what to do.
        """
        present = read_setup(self.layout)
        if present is not None and usable(present):
            return present
        with self._exclusively():
            present = read_setup(self.layout)
            if present is not None and usable(present):
                return present
            key = wanted_key()
            self.percent = 0
            self.report(0, "looking at what is there")
            packages = self._packages(key)
            java_home = find_java_home()
            if java_home is None:
                java_home = self._java_runtime(key)
            setup = Setup(key, INSTALLING, 0, "", now_text(), packages=packages, java_home=str(java_home))
            self._jars(setup)
            done = self._finish(setup)
        self._clean(done)
        return done

    def report(self, percent: int, what: str) -> None:
        sentence = f"Spark is being installed, {percent} %: {what}."
        write_setup(self.layout, Setup(wanted_key(), INSTALLING, percent, sentence, now_text(), attempt=self.attempt))

    def report_failure(self, error: DevError, pause_s: int) -> None:
        next_try_at = now_text(datetime.now(UTC) + timedelta(seconds=pause_s))
        cause = " ".join(error.cause.split())
        cause += "" if cause.endswith((".", "!", "?")) else "."
        setup = Setup(
            wanted_key(),
            WAITING,
            0,
            f"Spark could not be installed (attempt {self.attempt}): {cause}",
            now_text(),
            way_out=error.way_out,
            attempt=self.attempt,
            next_try_at=next_try_at,
        )
        write_setup(self.layout, setup)

    # --- the parts ----------------------------------------------------------------------------------------------------

    def _packages(self, key: str) -> str:
        if packages_in(self.environment):
            return ""
        folder = self.layout.spark / f"packages-{key}"
        if not folder.is_dir():
            self._require_space()

            def watch(said: str) -> tuple[int, str]:
                size = _size(self._work)
                if "Building pyspark" in said:
                    return percent_of(BUILD, (size - DOWNLOADED_BYTES) / BUILDING_BYTES), "unpacking PySpark"
                return percent_of(DOWNLOAD, size / DOWNLOADED_BYTES), "downloading PySpark"

            self._install_into(folder, ETL, watch)
        return str(folder)

    def _java_runtime(self, key: str) -> Path:
        folder = self.layout.spark / f"java-{key}"
        if not folder.is_dir():
            percent = percent_of(RUNTIME, 0)
            self._install_into(folder, JAVA, lambda said: (percent, "downloading a Java runtime"), _complete_java)
        return folder

    def _jars(self, setup: Setup) -> None:
        percent = percent_of(JARS, 0)
        self.run(
            [str(self.environment.python), "-m", "spark_etl.jobs.jars"],
            setup.job_variables(os.environ),
            lambda said: (percent, "downloading the database driver and the table format"),
        )

    def _finish(self, setup: Setup) -> Setup:
        done = replace(
            setup, state=READY, percent=100, attempt=self.attempt, updated_at=now_text(), ready_at=now_text()
        )
        java = "a Java runtime of its own" if Path(setup.java_home).parent == self.layout.spark else setup.java_home
        done = replace(done, sentence=f"Spark is installed, with {java}.")
        write_setup(self.layout, done)
        return done

    def _clean(self, setup: Setup) -> None:
        """Removes caches, and what older requirements wanted."""
        kept = {Path(setup.packages).name, Path(setup.java_home).name, "setup.json", "lock"}
        for path in self.layout.spark.iterdir():
            if path.name not in kept and path.is_dir():
                shutil.rmtree(path, ignore_errors=True)

    # --- how ----------------------------------------------------------------------------------------------------------

    def _install_into(
        self,
        folder: Path,
        requirements: str,
        watch: Callable[[str], tuple[int, str]],
        complete: Callable[[Path], None] | None = None,
    ) -> None:
        """Installs a requirements file into a new folder, which has its name only when everything is in it."""
        part = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        scratch = self._work / "tmp"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        command = self.environment.install_command(part, requirements, cache=self._work / "cache")
        self.run(command, {"TMPDIR": str(scratch)}, watch)
        if complete is not None:
            complete(part)
        os.replace(part, folder)

    def run(self, command: Sequence[str], variables: dict[str, str], watch: Callable[[str], tuple[int, str]]) -> None:
        """Runs a command to its end, and reports its progress each second.

        Raises:
            DevError: it failed; carries its last lines.
        """
        self._work.mkdir(parents=True, exist_ok=True)
        output = self._work / "output"
        with output.open("wb") as file:
            process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                pass_fds=() if self._lock is None else (self._lock,),
            )
            try:
                while True:
                    self.report(*watch(output.read_text(errors="replace")))
                    try:
                        status = process.wait(POLL_S)
                        break
                    except subprocess.TimeoutExpired:
                        continue
            except BaseException:
                _end(process)
                raise
        said = output.read_text(errors="replace").strip()
        if status != 0:
            print(f"{' '.join(command[:6])} ... ended with status {status}:\n{tail(said, 60)}", flush=True)
            cause, _, way_out = said.partition("Way out: ")
            raise DevError(_cause(cause) or f"{command[0]} ended with status {status}.", way_out.strip() or WAY_OUT)

    def _require_space(self) -> None:
        free = shutil.disk_usage(self.layout.spark).free
        if free < DISK_BYTES_MIN:
            raise DevError(
                f"{self.layout.spark} has {free / 1e9:.1f} GB free; installing Spark takes {DISK_BYTES_MIN / 1e9:.1f} GB"
                " for a minute, and 0.7 GB afterwards.",
                "free some space, or set HIGHWATER_STATE_DIR to a folder on a larger disk.",
            )

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        """One installation at a time. The lock goes with the process and the command that it runs: should this process be killed
        alone, the next try waits until that command has ended, which writes to the same folders.
        """
        self.layout.spark.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.layout.spark / "lock").open("w") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    self._report_waiting()
                    time.sleep(POLL_S)
            self._lock = lock.fileno()
            try:
                yield
            finally:
                self._lock = None

    def _report_waiting(self) -> None:
        """Says so where the installation that goes on does not report itself."""
        setup = read_setup(self.layout)
        if setup is None or datetime.now(UTC) - datetime.fromisoformat(setup.updated_at) > timedelta(seconds=WAITED_S):
            self.report(self.percent, "waiting for an earlier try to end")


def _complete_java(folder: Path) -> None:
    write_java_wrapper(folder)
    bundle = find_bundle()
    if bundle is not None:
        write_truststore(bundle, folder / "truststore.p12")


def _cause(said: str) -> str:
    """The last lines of a failed command in one: there uv, pip and Spark say why."""
    lines = [line.strip(ORNAMENTS) for line in said.splitlines() if line.strip(ORNAMENTS)]
    text = " ".join(lines[-3:])
    return text if len(text) <= CAUSE_CHARACTERS_MAX else f"… {text[-CAUSE_CHARACTERS_MAX:]}"


def _size(folder: Path) -> int:
    """Bytes of all files below; of what vanishes meanwhile, nothing."""
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except OSError:
                continue
    return total


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(CHILD_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def install_until_done(installer: Installer, pause: Callable[[float], None] = time.sleep) -> Setup:
    """Tries until it succeeds; between tries it waits longer and longer, and says until when."""
    while True:
        try:
            return installer.install()
        except (DevError, OSError) as exc:
            error = exc if isinstance(exc, DevError) else DevError(f"{exc}.", "make room on the disk, or correct that.")
            pause_s = backoff_s(installer.attempt)
            print(f"Attempt {installer.attempt} failed: {error}\nNext try in {pause_s} s.", flush=True)
            installer.report_failure(error, pause_s)
            pause(pause_s)
            installer.attempt += 1


def main() -> int:
    """Installs; ends with status 0 as soon as everything is there."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(1)

    signal.signal(signal.SIGTERM, stop)
    setup = install_until_done(Installer(Layout.from_environment(), Environment.current()))
    print(setup.sentence, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
