"""Stock RocketMQ on the Java side: fetches the jars named in maven/pom.xml once, compiles sources, builds java
commands.

The cache lives in the checkout's .local/interop/, outside git and apart from HIGHWATER_STATE_DIR (a temporary state
directory must not fetch 100 MB again). Maven is asked for the jars only; javac compiles, as it needs no plugin.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

INTEROP_DIR = Path(__file__).resolve().parent
CACHE_DIR = INTEROP_DIR.parent.parent / ".local" / "interop"
POM = INTEROP_DIR / "maven" / "pom.xml"
DRIVER_SOURCES = INTEROP_DIR / "maven" / "src" / "main" / "java"

JAVA_17_FLAGS = (
    # RocketMQ reaches into these packages (mapped buffers, cleaners); Java 17 closes them by default.
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)
SMALL_HEAP = ("-Xms256m", "-Xmx512m")
# Quick starts matter more than peak speed in tests; what is measured runs as Java runs by default.
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


class ToolMissing(RuntimeError):
    """A program that the interop tests need is not installed; the text says what to run."""


def java_tool(name: str) -> str:
    """Path of java or javac: JAVA_HOME first, then PATH. Raises ToolMissing with the line to run."""
    java_home = os.environ.get("JAVA_HOME")
    if java_home and (Path(java_home) / "bin" / name).exists():
        return str(Path(java_home) / "bin" / name)
    found = shutil.which(name)
    if found is None:
        raise ToolMissing(f"{name} not found: install a Java 17 JDK, e.g. `apt-get install openjdk-17-jdk-headless`")
    return found


@contextmanager
def cache_lock(name: str) -> Iterator[None]:
    """Holds an exclusive lock in the cache folder, so that two test runs don't fill it at once."""
    CACHE_DIR.mkdir(parents=True, exist_ok=True)
    with (CACHE_DIR / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def digest_of_files(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def rocketmq_jars() -> Path:
    """The folder with the jars of maven/pom.xml; fetched by Maven when the pom has changed or nothing is there yet."""
    folder = CACHE_DIR / f"jars-{digest_of_files([POM])}"
    with cache_lock("jars"):
        if folder.exists():
            return folder
        maven = shutil.which("mvn")
        if maven is None:
            raise ToolMissing("mvn not found: install Maven, e.g. `apt-get install maven`")
        unfinished = folder.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        command = [maven, "--batch-mode", "--quiet", "--file", str(POM), "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={unfinished}"]
        quick = {"MAVEN_OPTS": " ".join(QUICK_START), **os.environ}
        done = subprocess.run(command, capture_output=True, text=True, env=quick)
        if done.returncode != 0:
            raise ToolMissing(
                f"Maven could not fetch the RocketMQ artefacts:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
            )
        unfinished.rename(folder)
    return folder


def compile_java(sources: Sequence[Path], *, name: str = "classes") -> Path:
    """Compiles ``sources`` against the RocketMQ jars; returns the class folder, taken from the cache while nothing
    changed.
    """
    jars = rocketmq_jars()
    folder = CACHE_DIR / f"{name}-{digest_of_files([*sources, POM])}"
    with cache_lock(name):
        if folder.exists():
            return folder
        unfinished = folder.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        command = [java_tool("javac"), *(f"-J{flag}" for flag in QUICK_START), "-encoding", "UTF-8", "-nowarn"]
        command += ["-d", str(unfinished), "-cp", f"{jars}/*"]
        done = subprocess.run([*command, *map(str, sources)], capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(f"javac failed:\n{done.stdout}{done.stderr}")
        unfinished.rename(folder)
    return folder


def driver_classes() -> Path:
    """The compiled programs of maven/src."""
    return compile_java(sorted(DRIVER_SOURCES.rglob("*.java")), name="driver")


def java_command(
    main_class: str,
    *arguments: str,
    home: Path,
    classes: Path | None = None,
    heap: Sequence[str] = SMALL_HEAP,
    flags: Sequence[str] = (),
    quick_start: bool = True,
) -> list[str]:
    """A ``java`` command with the RocketMQ jars (and ``classes``) on its path.

    ``home`` becomes user.home: RocketMQ puts logs, stores and client offsets under it, and two JVMs must not share
    them.
    """
    jars = rocketmq_jars()
    classpath = f"{classes}{os.pathsep}{jars}/*" if classes else f"{jars}/*"
    home.mkdir(parents=True, exist_ok=True)
    return [
        java_tool("java"),
        *heap,
        *(QUICK_START if quick_start else ()),
        *JAVA_17_FLAGS,
        f"-Duser.home={home}",
        "-Djava.net.preferIPv4Stack=true",
        *flags,
        "-cp",
        classpath,
        main_class,
        *arguments,
    ]
