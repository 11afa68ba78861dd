"""How the daemons of one cluster are kept apart from the others' on this machine, and why not where they are not."""

import os
import shutil
import stat
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from django.conf import settings

from controlplane.clusters.models import Cluster, NameServer
from controlplane.common.sentences import say

_TOOL = "setpriv"


def shared_user_reason(paths: Iterable[Path] | None = None) -> str:
    """Return why all clusters' daemons run as one OS user; empty where each cluster has one of its own.

    `paths` are what a daemon must reach as a user that owns nothing: the interpreter, the code and the state's folder.
    """
    if not settings.HIGHWATER_DAEMON_USERS:
        return say("HIGHWATER_DAEMON_USERS is 0.")
    if os.geteuid() != 0:
        return say("The platform does not run as root, and so cannot start programs as other users.")
    if shutil.which(_TOOL) is None:
        return say("The program %(tool)s (of util-linux) is not on PATH.", tool=_TOOL)
    for path in paths or (Path(sys.executable), Path(settings.ROOT_DIR), Path(settings.HIGHWATER_STATE_DIR)):
        for folder in (*reversed(path.resolve().parents), path.resolve()):
            if folder.is_dir() and not folder.stat().st_mode & stat.S_IXOTH:
                return say(
                    "Other users may not enter %(folder)s, which daemons need (chmod o+x, or move the platform).",
                    folder=str(folder),
                )
    return ""


@cache
def _are_apart() -> bool:
    return not shared_user_reason()


def cluster_user(cluster: Cluster) -> int:
    """Return the OS user number of a cluster's daemons; 0: that of the platform.

    It goes with the port of the cluster's first name server, which no other cluster on this machine has.
    """
    port = NameServer.objects.filter(cluster=cluster).order_by("position").values_list("port", flat=True).first()
    return settings.HIGHWATER_DAEMON_USERS + port if port and _are_apart() else 0
