"""Stock RocketMQ on the Go side: builds programs against the pinned client of go/go.mod and caches them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.interop.java_toolchain import CACHE_DIR, INTEROP_DIR, ToolMissing, cache_lock, digest_of_files

GO_DIR = INTEROP_DIR / "go"


def go_tool() -> str:
    """Path of go; raises ToolMissing with what to do."""
    usual = Path("/usr/local/go/bin/go")
    found = shutil.which("go") or (str(usual) if usual.exists() else None)
    if found is None:
        raise ToolMissing("go not found: install Go 1.22 or newer and put it on PATH")
    return found


def build_go(source_dir: Path, name: str) -> Path:
    """Builds the module in ``source_dir``; returns the program, taken from the cache while nothing changed."""
    sources = [*source_dir.glob("*.go"), source_dir / "go.mod", source_dir / "go.sum"]
    program = CACHE_DIR / f"go-{name}-{digest_of_files(sources)}"
    with cache_lock(f"go-{name}"):
        if not program.exists():
            unfinished = program.with_suffix(".unfinished")
            command = [go_tool(), "build", "-buildvcs=false", "-o", str(unfinished), "."]
            done = subprocess.run(command, cwd=source_dir, capture_output=True, text=True)
            if done.returncode != 0:
                raise AssertionError(f"go build failed:\n{done.stdout}{done.stderr}")
            unfinished.rename(program)
    return program


def driver_program() -> Path:
    """The compiled program of go/."""
    return build_go(GO_DIR, "driver")
