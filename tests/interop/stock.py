"""Compiles and runs whole programs against the stock RocketMQ clients, as a user does who pastes one.

    output = run_java(snippet, tmp_path)                     # waits for its end, returns what it printed
    with start_go(snippet, tmp_path) as process:             # a consumer that never ends by itself
        process.wait_for_line("received")

The text of the program is all that counts: name server, topic and credentials stand in it, or are given as arguments
or environment variables. Jars, class files and Go programs are cached by content.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.interop.go_toolchain import GO_DIR, build_go
from tests.interop.java_toolchain import compile_java, java_command
from tests.processes import ChildProcess, child_environment

RUN_TIMEOUT_S = 150.0
_PUBLIC_CLASS = re.compile(r"^\s*public\s+(?:final\s+)?class\s+(\w+)", re.MULTILINE)
_PACKAGE = re.compile(r"^\s*package\s+([\w.]+)\s*;", re.MULTILINE)


class ProgramFailed(AssertionError):
    """A program ended with another status than 0, or not in time; the text holds what it printed."""


def java_program(source: str, folder: Path, arguments: Sequence[str] = ()) -> list[str]:
    """Compiles one Java source text with a public class that has a main method; returns the command to run it."""
    public_class = _PUBLIC_CLASS.search(source)
    if public_class is None:
        raise AssertionError("the Java program has no public class")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{public_class.group(1)}.java"
    file.write_text(source, "utf-8")
    package = _PACKAGE.search(source)
    main_class = f"{package.group(1)}.{public_class.group(1)}" if package else public_class.group(1)
    return java_command(main_class, *arguments, home=folder / "home", classes=compile_java([file], name="snippet"))


def go_program(source: str, folder: Path, arguments: Sequence[str] = ()) -> list[str]:
    """Builds one Go source text (package main) with the pinned client; returns the command to run it."""
    module = folder / "go-module"
    module.mkdir(parents=True, exist_ok=True)
    for name in ("go.mod", "go.sum"):
        shutil.copy(GO_DIR / name, module / name)
    (module / "main.go").write_text(source, "utf-8")
    return [str(build_go(module, "snippet")), *arguments]


def start_java(
    source: str, folder: Path, arguments: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> ChildProcess:
    """Starts a Java program; what it prints is in ``folder``/java.log."""
    return _start(java_program(source, folder, arguments), folder, "java", env)


def start_go(
    source: str, folder: Path, arguments: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> ChildProcess:
    """Starts a Go program; what it prints is in ``folder``/go.log."""
    return _start(go_program(source, folder, arguments), folder, "go", env)


def run_java(
    source: str,
    folder: Path,
    arguments: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    timeout_s: float = RUN_TIMEOUT_S,
) -> str:
    """Runs a Java program to its end and returns what it printed; raises ProgramFailed."""
    return _finish(start_java(source, folder, arguments, env), timeout_s)


def run_go(
    source: str,
    folder: Path,
    arguments: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    timeout_s: float = RUN_TIMEOUT_S,
) -> str:
    """Runs a Go program to its end and returns what it printed; raises ProgramFailed."""
    return _finish(start_go(source, folder, arguments, env), timeout_s)


def _start(command: list[str], folder: Path, name: str, env: Mapping[str, str] | None) -> ChildProcess:
    environment = child_environment(HOME=str(folder), ROCKETMQ_GO_LOG_LEVEL="error", **(env or {}))
    return ChildProcess(command, log_path=folder / f"{name}.log", env=environment, cwd=folder)


def _finish(process: ChildProcess, timeout_s: float) -> str:
    try:
        status = process.popen.wait(timeout_s)
    except subprocess.TimeoutExpired:
        raise ProgramFailed(f"still running after {timeout_s} s:\n{process.log_tail()}") from None
    finally:
        process.kill()
    if status != 0:
        raise ProgramFailed(f"ended with {status}:\n{process.log_tail()}")
    return process.output()
