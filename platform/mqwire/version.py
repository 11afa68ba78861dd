"""Which program runs: its release, and a short digest of its source, as "0.1.0+3fa2c1b".

Two checkouts of one release differ by the digest, so a daemon that was started before the last update differs from one that was
started after it.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Final

_DISTRIBUTION: Final = "highwater"
_SHARED: Final = "mqwire"
_DIGITS: Final = 7


def program_version(package: str) -> str:
    """The version of a daemon as it lies on the disk now: a daemon asks once, when it starts. The package is not imported.

    Raises ModuleNotFoundError when it is not installed.
    """
    digest = hashlib.sha256()
    for name in (package, _SHARED):
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError(f"there is no package {name} here", name=name)
        root = Path(next(iter(spec.submodule_search_locations)))
        for path in sorted(root.rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{importlib.metadata.version(_DISTRIBUTION)}+{digest.hexdigest()[:_DIGITS]}"
