"""Programs that only tests need (Chromium, Java, Maven, Go): finds them, or installs them by the means of the machine.

Nothing is skipped silently: where a tool can be neither found nor installed, the error carries the one line to run.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deploy.local.layout import REPOSITORY
from deploy.local.terminal import DevError, Terminal, tail

TOOLS_FOLDER = REPOSITORY / ".local" / "tools"

# This npm package carries a real headless Chromium for Linux x86_64, so no root is needed. Its file is checked by hash.
SPARTICUZ_VERSION = "147.0.0"
SPARTICUZ_SHA256 = "64d813a054f76fc32b8010e305d87e6d7a45aa76ee02d36e66c03c8ca6667e8d"

JAVA_MAJOR_MIN = 17
GO_VERSION_MIN = (1, 22)


@dataclass(frozen=True)
class Tool:
    """`find` returns its path or None; `packages` are Debian's names for it."""

    name: str
    find: Callable[[], Path | None]
    packages: tuple[str, ...]
    other_way: str


def find_chromium() -> Path | None:
    """$CHROMIUM, then PATH, then playwright's own download, then the one that `install_chromium_by_npm` left."""
    named = os.environ.get("CHROMIUM")
    if named:
        path = Path(named)
        if not os.access(path, os.X_OK):
            raise DevError(f"CHROMIUM={named} is no program.", "correct the variable or unset it.")
        return path
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        found = shutil.which(name)
        if found:
            return Path(found)
    caches = [Path.home() / ".cache" / "ms-playwright", Path.home() / "Library" / "Caches" / "ms-playwright"]
    patterns = ("chromium-*/chrome-linux*/chrome", "chromium-*/chrome-mac*/Chromium.app/Contents/MacOS/Chromium")
    downloads = [path for cache in caches for pattern in patterns for path in sorted(cache.glob(pattern))]
    if downloads:
        return downloads[-1]
    unpacked = TOOLS_FOLDER / "chromium"
    return unpacked if unpacked.exists() else None


def find_java_home() -> Path | None:
    """A JDK (with javac) of at least version JAVA_MAJOR_MIN: $JAVA_HOME, then PATH, then where Debian puts them."""
    candidates = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    on_path = shutil.which("javac")
    if on_path:
        candidates.append(Path(on_path).resolve().parent.parent)
    candidates += sorted(Path("/usr/lib/jvm").glob("java-*-openjdk-*"))
    return next((home for home in candidates if (_java_major(home) or 0) >= JAVA_MAJOR_MIN), None)


def _java_major(home: Path) -> int | None:
    if not (home / "bin" / "java").exists():
        return None
    try:
        result = subprocess.run([str(home / "bin" / "javac"), "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    match = re.search(r"javac (\d+)", result.stdout + result.stderr)
    return int(match.group(1)) if match else None


def find_maven() -> Path | None:
    found = shutil.which("mvn")
    return Path(found) if found else None


def find_go() -> Path | None:
    """Go of at least GO_VERSION_MIN: PATH, then its usual place, then Debian's versioned ones."""
    candidates = [Path(found)] if (found := shutil.which("go")) else []
    candidates += [Path("/usr/local/go/bin/go"), *sorted(Path("/usr/lib").glob("go-*/bin/go"), reverse=True)]
    return next((path for path in candidates if path.exists() and _go_version(path) >= GO_VERSION_MIN), None)


def _go_version(path: Path) -> tuple[int, int]:
    try:
        output = subprocess.run([str(path), "version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return (0, 0)
    match = re.search(r"go(\d+)\.(\d+)", output)
    return (int(match.group(1)), int(match.group(2))) if match else (0, 0)


CHROMIUM = Tool("Chromium", find_chromium, ("chromium",), "set CHROMIUM to a Chromium or Chrome of yours")
JAVA = Tool(
    "a Java Development Kit >= 17", find_java_home, ("openjdk-17-jdk-headless",), "set JAVA_HOME to one of yours"
)
MAVEN = Tool("Maven", find_maven, ("maven",), "put mvn on PATH")
GO = Tool(
    "Go >= 1.22",
    find_go,
    ("golang-1.23-go", "golang-1.22-go", "golang-go"),
    "put a newer go on PATH; Debian 12 has one in its backports",
)
TEST_TOOLS = (CHROMIUM, JAVA, MAVEN, GO)


def require(tool: Tool) -> Path:
    """The tool's path.

    Raises:
        DevError: it isn't there; carries the line that installs it.
    """
    found = tool.find()
    if found is None:
        raise DevError(
            f"The tests need {tool.name}, which isn't on this machine.",
            f"{_install_line(tool)}   (or {tool.other_way})",
        )
    return found


def ensure_test_tools(terminal: Terminal) -> None:
    """Installs what is missing: Debian packages as root (or by a password-less sudo), Chromium also by npm.

    Raises:
        DevError: something can't be installed here; carries the one line to run.
    """
    missing = [tool for tool in TEST_TOOLS if tool.find() is None]
    apt = _apt_prefix()
    if missing and apt is not None:
        with terminal.step("Reading the list of packages"):
            subprocess.run(
                [*apt, "apt-get", "update", "-qq"], capture_output=True, stdin=subprocess.DEVNULL, check=False
            )
        for tool in missing:
            with terminal.step(f"Installing {tool.name}"):
                said = _apt_install(apt, tool)
            if said:
                terminal.warn(f"apt-get could not:\n{tail(said, 8)}")
    if (
        CHROMIUM.find() is None
        and shutil.which("npm")
        and shutil.which("node")
        and sys.platform == "linux"
        and os.uname().machine == "x86_64"
    ):
        with terminal.step("Installing Chromium by npm"):
            install_chromium_by_npm()
    for tool in TEST_TOOLS:
        require(tool)


def _apt_prefix() -> list[str] | None:
    if shutil.which("apt-get") is None:
        return None
    if os.getuid() == 0:
        return []
    if (
        shutil.which("sudo")
        and subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode == 0  # noqa: S607  # nosec B607  # whatever sudo the user has
    ):
        return ["sudo", "-n"]
    return None


def _apt_install(prefix: list[str], tool: Tool) -> str:
    """Installs the first of its packages that brings it. Returns what apt-get said when none did, else nothing."""
    said = ""
    for package in tool.packages:
        # The machine may be busy with an update of its own.
        options = ["-y", "-qq", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"]
        result = subprocess.run(
            [*prefix, "apt-get", "install", *options, package],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if tool.find() is not None:
            return ""
        said = said or result.stdout + result.stderr
    return said


def _install_line(tool: Tool) -> str:
    if sys.platform == "darwin":
        names = {"Chromium": "chromium", "Maven": "maven", "Go >= 1.22": "go"}
        return f"brew install {names.get(tool.name, 'openjdk@17')}"
    return f"sudo apt-get install -y --no-install-recommends {tool.packages[-1]}"


def install_chromium_by_npm() -> Path:
    """Unpacks the headless Chromium of the npm package @sparticuz/chromium to `.local/tools/chromium`. No root.

    Raises:
        DevError: npm or node failed, or the file isn't the one we know.
    """
    folder = TOOLS_FOLDER / "npm"
    folder.mkdir(parents=True, exist_ok=True)
    install = ["npm", "install", "--prefix", str(folder), "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"]
    _run_tool([*install, f"@sparticuz/chromium@{SPARTICUZ_VERSION}"])
    packed = folder / "node_modules" / "@sparticuz" / "chromium" / "bin" / "chromium.br"
    digest = hashlib.sha256(packed.read_bytes()).hexdigest()
    if digest != SPARTICUZ_SHA256:
        raise DevError(f"{packed} is not the file that was tried (sha256 {digest}).", _install_line(CHROMIUM))
    target = TOOLS_FOLDER / "chromium"
    unpack = (
        "const fs = require('fs'), [, packed, target] = process.argv;"
        "fs.writeFileSync(target, require('zlib').brotliDecompressSync(fs.readFileSync(packed)))"
    )
    part = target.with_suffix(".part")
    _run_tool(["node", "-e", unpack, str(packed), str(part)])
    part.chmod(0o755)
    os.replace(part, target)
    shutil.rmtree(folder)
    return target


def _run_tool(command: list[str]) -> None:
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise DevError(f"{command[0]} failed:\n{tail(result.stdout + result.stderr)}", _install_line(CHROMIUM))
