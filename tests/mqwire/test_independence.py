"""mqwire stands alone: standard library, msgspec, and the compressors in one module only."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import mqwire

PACKAGE = Path(mqwire.__path__[0])

IMPORT_EVERYTHING = """
import importlib, json, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import mqwire
names = [found.name for found in pkgutil.walk_packages(mqwire.__path__, "mqwire.")]
for name in names:
    if name != "mqwire.compression":
        importlib.import_module(name)
roots = {name.partition(".")[0] for name in sys.modules}
print(json.dumps([len(names), sorted(roots - set(sys.stdlib_module_names))]))
"""


def test_nothing_but_msgspec_is_needed() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-c", IMPORT_EVERYTHING, str(PACKAGE.parent)], capture_output=True, text=True, check=True
    )
    count, roots = json.loads(done.stdout)
    assert count > 20
    # Whatever the environment's own start-up files load is not ours to judge.
    assert set(roots) & {"brokerd", "namesrvd", "highwater", "controlplane", "trio", "yaml", "django", "lz4"} == set()
    assert {"mqwire", "msgspec"} <= set(roots)


def test_the_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").exists()


def test_the_package_exports_exactly_these_names() -> None:
    assert mqwire.__all__ == [
        "NEED_DATA",
        "Connection",
        "LanguageCode",
        "LocalProtocolError",
        "ProtocolError",
        "RemoteProtocolError",
        "RemotingCommand",
        "RequestCode",
        "ResponseCode",
        "SerializeType",
    ]
    assert all(hasattr(mqwire, name) for name in mqwire.__all__)
