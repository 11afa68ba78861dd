"""PostgreSQL refuses to run as root. How a command is run as an ordinary user when `./dev` itself runs as root."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

from deploy.local.terminal import DevError

NOBODY = 65534

# A user namespace in which root is called 1000. Files stay root's outside, so a checkout in a private folder works.
USER_NAMESPACE = ("unshare", "--user", "--map-user=1000", "--map-group=1000", "--")
# Where namespaces are forbidden (some containers): really another user, who must be able to reach binaries and data.
SET_USER = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--")


def _works(prefix: Sequence[str]) -> bool:
    if shutil.which(prefix[0]) is None:
        return False
    return subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0


def _reachable(path: Path) -> bool:
    """Anyone may pass through every folder above `path`."""
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.resolve().parents)


def ordinary_user_prefix(data: Path, binaries: Path) -> tuple[str, ...]:
    """Command prefix that makes a program run as someone other than root; empty when we aren't root.

    Gives `data` (with all in it, if it exists) to the user in question.

    Raises:
        DevError: we are root and neither a user namespace nor another user works here.
    """
    if os.getuid() != 0:
        return ()
    if _works(USER_NAMESPACE):
        _give(data, 0)
        return USER_NAMESPACE
    if _works(SET_USER) and _reachable(data) and _reachable(binaries):
        _give(data, NOBODY)
        return SET_USER
    raise DevError(
        "PostgreSQL refuses to run as root, and running it as another user fails here"
        " (user namespaces are forbidden, and the checkout lies in a folder that others can't enter).",
        "run ./dev as an ordinary user, or set DATABASE_URL to a PostgreSQL server of yours.",
    )


def _give(folder: Path, user: int) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid == user:
        return
    for parent, folders, files in os.walk(folder):
        os.chown(parent, user, user)
        for name in folders + files:
            os.chown(os.path.join(parent, name), user, user, follow_symlinks=False)
