"""Taste as a test, after TigerBeetle's tidy.zig: what no linter checks. Each objection names the better alternative."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Written in pieces, so that this file is not what it looks for.
REGISTRY_HOSTS = [
    "pypi" + ".org",
    "pythonhosted" + ".org",
    "registry.npm" + "js.org",
    "repo.maven" + ".apache.org",
    "repo1.maven" + ".org",
    "proxy.golang" + ".org",
    "sum.golang" + ".org",
    "deb.debian" + ".org",
    "registry.yarn" + "pkg.com",
    "static.crates" + ".io",
]
MACHINE_PATHS = re.compile(
    "|".join(["/work" + "/(?:main|shared)", "/root" + "/", "/tmp" + "/ref", "/home" + "/[a-z]+/"])
)

# What each room may import besides the standard library; import-linter knows the finer arrows between our own packages.
ROOMS = {
    "platform/mqwire": {"mqwire", "msgspec", "lz4", "zstandard", "isal"},
    "brokerd/store": {"brokerd", "mqwire"},
    "brokerd": {"brokerd", "mqwire", "trio", "msgspec", "yaml", "structlog"},
    "namesrvd": {"namesrvd", "mqwire", "trio", "msgspec", "yaml", "structlog"},
    "platform/highwater": {"highwater", "mqwire", "anyio", "httpx", "msgspec", "typer", "rich", "sniffio"},
    "spark_etl/transforms": {"spark_etl", "mqwire", "pyspark"},
    "spark_etl": {"spark_etl", "highwater", "mqwire", "msgspec", "psycopg", "pyarrow", "pyspark", "trio"},
    "deploy": {"deploy"},
}


# What a checkout gathers that is not part of it, for source archives, where there is no git to ask.
NOT_OURS = {".git", ".venv", ".local", "node_modules", "__pycache__", "target"}


@cache
def tracked_files() -> list[Path]:
    """Files under version control; new ones that no one ignores count already."""
    if not (ROOT / ".git").exists():
        files = (path for path in ROOT.rglob("*") if path.is_file())
        return [path for path in files if not any(part in NOT_OURS or part.endswith("_cache") for part in path.parts)]
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def text_of(path: Path) -> str:
    return path.read_bytes().decode("utf-8", errors="replace")


def python_files() -> list[Path]:
    return [path for path in tracked_files() if path.suffix == ".py"]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_no_file_names_a_package_registry() -> None:
    found = [
        f"{relative(path)}: {host}" for path in tracked_files() for host in REGISTRY_HOSTS if host in text_of(path)
    ]
    assert not found, f"clients know their registry by themselves; leave the host out: {found}"


def test_no_file_names_a_path_of_someones_machine() -> None:
    found = [
        f"{relative(path)}: {match.group()}"
        for path in tracked_files()
        if (match := MACHINE_PATHS.search(text_of(path)))
    ]
    assert not found, f"derive the path from __file__ or the environment: {found}"


def test_nothing_is_left_for_later_in_comments() -> None:
    marker = re.compile(r"#.*\b(?:TODO|FIXME|XXX|HACK)\b")
    found = [relative(path) for path in python_files() if path != Path(__file__) and marker.search(text_of(path))]
    assert not found, f"do it, or open an issue and name it: {found}"


def test_every_ignore_carries_its_reason() -> None:
    bare = re.compile(r"#\s*(?:noqa|type:\s*ignore)(?::\s*[A-Z0-9, ]+|\[[^\]]*\])?\s*$", re.MULTILINE)
    found = [f"{relative(path)}: {match.group()}" for path in python_files() for match in bare.finditer(text_of(path))]
    assert not found, f"write the reason beside the ignore, as in `# noqa: X123  # because ...`: {found}"


# Of deploy/local, what runs in the environment only; the rest makes it.
BEHIND_THE_ENVIRONMENT = tuple(f"deploy/local/{name}.py" for name in ("demo", "demo_load", "java_trust"))


def test_every_room_imports_only_what_it_may() -> None:
    found = []
    for path in python_files():
        room = next((room for room in ROOMS if relative(path).startswith(room + "/")), None)
        if room is None:
            continue
        for name, line in imported_roots(path):
            if (
                name not in ROOMS[room]
                and name not in sys.stdlib_module_names
                and relative(path) not in BEHIND_THE_ENVIRONMENT
            ):
                found.append(f"{relative(path)}:{line} imports {name}")
    assert not found, f"see the allowed arrows in ROOMS and pyproject.toml: {found}"


def imported_roots(path: Path) -> list[tuple[str, int]]:
    roots = []
    for node in ast.walk(ast.parse(text_of(path))):
        if isinstance(node, ast.Import):
            roots += [(alias.name.split(".")[0], node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            roots.append((node.module.split(".")[0], node.lineno))
    return roots


def test_libraries_of_the_protocol_stay_in_their_modules() -> None:
    homes = {"lz4": "compression.py", "zstandard": "compression.py", "isal": "checksum.py"}
    found = [
        relative(path)
        for path in python_files()
        if relative(path).startswith("platform/mqwire/")
        for name, _ in imported_roots(path)
        if homes.get(name, path.name) != path.name
    ]
    assert not found, f"call mqwire.compression and mqwire.checksum: {found}"


def test_types_are_decoded_by_the_module_that_makes_threads_safe() -> None:
    # Built-in types have no fields to learn of.
    unsafe = re.compile(r"msgspec\.(?:convert\(|json\.decode\(.*type=(?!dict\[str, str\]|list\[str\]))")
    rooms = ("platform/mqwire/", "platform/highwater/", "platform/controlplane/")
    # The header's own type is known at import, where its decoder is made.
    allowed = {"platform/mqwire/first_decode.py", "platform/mqwire/command.py"}
    found = [
        relative(path)
        for path in python_files()
        if relative(path).startswith(rooms) and relative(path) not in allowed and unsafe.search(text_of(path))
    ]
    assert not found, f"call mqwire.first_decode.convert or json_decoder: {found}"


def test_no_package_shadows_the_standard_library() -> None:
    assert not (ROOT / "platform" / "__init__.py").exists(), "with it, `import platform` would find this folder"
    assert not (ROOT / "tests" / "platform").exists(), "name the room after the package that it tests"


def test_names_of_test_files_are_unique() -> None:
    names = Counter(path.name for path in python_files() if path.name.startswith("test_"))
    assert not [name for name, count in names.items() if count > 1], "pytest reports files by name; give each its own"


def test_requirements_are_hashed() -> None:
    for name in ("requirements.txt", "requirements-etl.txt", "requirements-dev.txt"):
        blocks = re.split(r"\n(?=[a-z0-9])", text_of(ROOT / name), flags=re.IGNORECASE)
        assert all("--hash=sha256:" in block for block in blocks), f"{name}: write it by ./dev lock"


def test_runtime_requirements_are_a_subset_of_the_developers() -> None:
    pins = {
        name: set(re.findall(r"^([A-Za-z0-9._-]+==[^ \\]+)", text_of(ROOT / name), re.MULTILINE))
        for name in ("requirements.txt", "requirements-etl.txt", "requirements-dev.txt")
    }
    difference = (pins["requirements.txt"] | pins["requirements-etl.txt"]) - pins["requirements-dev.txt"]
    assert not difference, f"tests would see other versions than users; write both by ./dev lock: {difference}"
