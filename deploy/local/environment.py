"""The Python environment `.venv/`: made from a hashed requirements file, remade when that file changes.

Runs under the user's own Python, before anything is installed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from deploy.local.layout import REPOSITORY
from deploy.local.terminal import DevError, Terminal, tail

RUNTIME = "requirements.txt"
DEVELOPMENT = "requirements-dev.txt"
# Beside RUNTIME, where Spark's jobs run: its packages, and a Java for a machine that has none; see spark_install.py.
ETL = "requirements-etl.txt"
JAVA = "requirements-java.txt"
_COMPILE = (
    "--universal",
    "--generate-hashes",
    "--no-header",
    "--no-emit-index-url",
    "--python-version",
    "3.11",
    "--quiet",
)


@dataclass(frozen=True)
class Environment:
    """A virtual environment at `prefix`."""

    prefix: Path

    @classmethod
    def of_checkout(cls) -> Environment:
        return cls(REPOSITORY / ".venv")

    @classmethod
    def current(cls) -> Environment:
        """The one that this process runs in (tests)."""
        return cls(Path(sys.prefix))

    @property
    def bin(self) -> Path:
        return self.prefix / "bin"

    @property
    def python(self) -> Path:
        return self.bin / "python"

    def package_folder(self, name: str) -> Path | None:
        """The folder of an installed package, found without importing it: an import could write warnings or files."""
        for site_packages in sorted(self.prefix.glob("lib/python3.*/site-packages")):
            spec = PathFinder.find_spec(name, [str(site_packages)])
            if spec is not None and spec.origin is not None:
                return Path(spec.origin).parent
        return None

    @property
    def _stamp(self) -> Path:
        return self.prefix / "highwater-stamp.json"

    @property
    def _unfinished(self) -> Path:
        """There while packages are installed. One that was killed leaves packages of which half the files are missing, and which
        an installer takes for whole.
        """
        return self.prefix / "highwater-unfinished.json"

    def installed(self) -> str | None:
        """The requirements file that this environment holds in full, as it is now; None when it must be (re)made."""
        try:
            stamp = json.loads(self._stamp.read_text())
        except (OSError, ValueError):
            return None
        level = stamp.get("requirements")
        if level not in (RUNTIME, DEVELOPMENT) or stamp != _wanted_stamp(level):
            return None
        return str(level)

    def ensure(self, requirements: str, terminal: Terminal) -> None:
        """Makes the environment hold at least what the requirements file names. Quick when it does already.

        Raises:
            DevError: no way to make an environment here, or an installation failed.
        """
        present = self.installed()
        if present in (DEVELOPMENT, requirements):
            return
        if DEVELOPMENT in (_named_in(self._stamp), _named_in(self._unfinished)):
            requirements = DEVELOPMENT  # else a `./dev up` after a change would take the developer's tools away
        if self._unfinished.exists() or not self._usable():
            self._create(terminal)
        self._unfinished.write_text(json.dumps({"requirements": requirements}))
        self._stamp.unlink(missing_ok=True)
        with terminal.step(f"Installing {_count(REPOSITORY / requirements)} packages ({requirements})"):
            self._install(requirements)
        with terminal.step("Installing the project's own commands (brokerd, namesrvd, highwater)"):
            self._install_project()
        self._stamp.write_text(json.dumps(_wanted_stamp(requirements)))
        self._unfinished.unlink()

    def has_distribution(self, name: str, version: str) -> bool:
        """Exactly this version is installed completely: its RECORD, which is written last, is there."""
        record = f"lib/python3.*/site-packages/{name.replace('-', '_')}-{version}.dist-info/RECORD"
        return any(self.prefix.glob(record))

    def install_command(self, target: Path, requirements: str, cache: Path) -> list[str]:
        """The command that installs a requirements file into the folder `target`, with no network traffic for what `cache` has.

        Nothing unpinned is fetched: what builds a source package is this environment's own.
        """
        options = ["--no-deps", "--no-build-isolation", "--require-hashes", "--cache-dir", str(cache)]
        # PySpark comes as a source package: compressing its half gigabyte of jars, only to unpack it, takes most of the time.
        options += ["--config-settings=--build-option=--compression=stored"]
        options += ["--target", str(target), "-r", str(REPOSITORY / requirements)]
        uv = self.bin / "uv"
        if uv.exists():
            return [str(uv), "pip", "install", "--compile-bytecode", "--python", str(self.python), *options]
        return [str(self.python), "-m", "pip", "install", "--no-input", *options]

    def _usable(self) -> bool:
        """Its Python starts, is new enough and has pip: the system's Python may have gone or changed under it, and one whose
        making was interrupted has no pip yet.
        """
        try:
            probe = [str(self.python), "-c", "import sys, pip; sys.exit(sys.version_info < (3, 11))"]
            return subprocess.run(probe, capture_output=True, check=False).returncode == 0
        except OSError:
            return False

    def _create(self, terminal: Terminal) -> None:
        ensurepip = (
            subprocess.run([sys.executable, "-c", "import ensurepip"], capture_output=True, check=False).returncode == 0
        )
        uv = shutil.which("uv")
        if not ensurepip and uv is None:
            raise DevError(
                f"{sys.executable} can't make virtual environments: it lacks ensurepip (Debian splits it off).",
                "`apt-get install python3-venv` as root, or install uv, or use another Python (`python3.x dev up`).",
            )
        with terminal.step(f"Making {self.prefix.name}/ with Python {sys.version.split()[0]}"):
            if ensurepip:
                _run([sys.executable, "-m", "venv", "--clear", str(self.prefix)])
            else:
                assert uv is not None
                _run([uv, "venv", "--quiet", "--clear", "--seed", "--python", sys.executable, str(self.prefix)])

    def _install(self, requirements: str) -> None:
        """Exactly the requirements file, by uv; by pip where uv can't run."""
        file = REPOSITORY / requirements
        uv = self._install_uv(file)
        if uv is not None:
            # --compile-bytecode makes the first start of each process seconds faster.
            command = [
                str(uv),
                "pip",
                "sync",
                "--quiet",
                "--require-hashes",
                "--compile-bytecode",
                "--python",
                str(self.python),
                str(file),
            ]
            try:
                _run(command)
                return
            except DevError as exc:
                print(f"uv could not install:\n{exc.cause}\ntrying pip ... ", end="", flush=True)
        _run([str(self.python), "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(file)])

    def _install_uv(self, file: Path) -> Path | None:
        """uv itself, by pip, with the version and hashes that the requirements file pins."""
        block = re.search(r"^uv==.*(?:\n[ #].*)*", file.read_text(), re.MULTILINE)
        if block is None:
            return None
        with tempfile.TemporaryDirectory() as folder:
            only_uv = Path(folder) / "uv.txt"
            only_uv.write_text(block.group() + "\n")
            try:
                _run([str(self.python), "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(only_uv)])
                _run([str(self.bin / "uv"), "--version"])
            except DevError:
                return None  # no wheel for this platform, say; pip does the same work more slowly
        return self.bin / "uv"

    def _install_project(self) -> None:
        """Editable, by the hatchling of our requirements instead of a fresh one, so nothing unpinned is fetched."""
        uv = self.bin / "uv"
        installer = (
            [str(uv), "pip", "install", "--python", str(self.python)]
            if uv.exists()
            else [str(self.python), "-m", "pip", "install"]
        )
        _run([*installer, "--quiet", "--no-deps", "--no-build-isolation", "--editable", str(REPOSITORY)])


def lock(environment: Environment, terminal: Terminal) -> None:
    """Writes the requirements files from pyproject.toml: hashed, for every platform, naming no registry."""
    uv = environment.bin / "uv"
    with terminal.step(f"Resolving {DEVELOPMENT}"):
        _run([str(uv), "pip", "compile", "pyproject.toml", "--group", "dev", *_COMPILE, "-o", DEVELOPMENT])
    with terminal.step(f"Resolving {RUNTIME}"):
        # Constrained, so that a test never sees another version than the one that runs.
        constraint = ("--constraint", DEVELOPMENT, "--no-annotate")
        _run([str(uv), "pip", "compile", "pyproject.toml", "--group", "local", *constraint, *_COMPILE, "-o", RUNTIME])
    with terminal.step(f"Resolving {ETL}"):
        _run([str(uv), "pip", "compile", "--group", "pyproject.toml:etl", *constraint, *_COMPILE, "-o", ETL])
    with terminal.step(f"Resolving {JAVA}"):
        _run([str(uv), "pip", "compile", "--group", "pyproject.toml:java", *constraint, *_COMPILE, "-o", JAVA])


def _wanted_stamp(requirements: str) -> dict[str, str]:
    # The project's metadata counts too: it names the console scripts.
    contents = (REPOSITORY / requirements).read_bytes() + (REPOSITORY / "pyproject.toml").read_bytes().split(b"[tool.")[
        0
    ]
    return {"requirements": requirements, "sha256": hashlib.sha256(contents).hexdigest(), "checkout": str(REPOSITORY)}


def _named_in(file: Path) -> str | None:
    """The requirements file that a file of ours in an environment names."""
    try:
        named = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return str(named.get("requirements"))


def _count(file: Path) -> int:
    return len(re.findall(r"^[a-z0-9]", file.read_text(), re.MULTILINE | re.IGNORECASE))


def _run(command: list[str]) -> None:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV")
    }
    try:
        result = subprocess.run(
            command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as exc:
        raise DevError(f"{command[0]} can't be run: {exc}.", "remove .venv/ and try again.") from exc
    if result.returncode != 0:
        output = (result.stdout + result.stderr).strip()
        raise DevError(
            f"This command failed with exit code {result.returncode}: {' '.join(command)}\n{tail(output)}",
            "check the network and the package index that pip uses, then run the same ./dev command again.",
        )
