"""Known vulnerabilities in what is locked: pip-audit, which asks OSV (osv.dev).

Its own packages are no part of our environment: uv fetches it when it is asked for. It is not part of `./dev check`, which needs no
network and says the same of a checkout each time.
"""

from __future__ import annotations

import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from deploy.local.environment import DEVELOPMENT
from deploy.local.terminal import DevError

SERVICE = "https://api.osv.dev/"
AUDITOR = "pip-audit==2.10.1"
_TIMEOUT_S = 10


def audit(uv: Path, repository: Path, service: str = SERVICE) -> None:
    """Audit the locked requirements on our terminal; raises DevError where something is found, or nothing could be audited."""
    why = _unreachable_because(service)
    if why is not None:
        raise DevError(
            f"Nothing was audited: {service}, which knows the vulnerabilities, is not reachable from here: {why}.",
            "run ./dev audit on a machine that reaches it, or set HTTPS_PROXY.",
        )
    if subprocess.run(audit_command(uv), cwd=repository, check=False).returncode != 0:
        raise DevError(
            "Not clean, or not audited: see above.",
            "raise what is vulnerable in pyproject.toml, then ./dev lock and ./dev test.",
        )


def audit_command(uv: Path) -> list[str]:
    """The developers' requirements hold all others (tests/tidy), each pinned, so that nothing is resolved or installed."""
    auditor = [str(uv), "tool", "run", "--from", AUDITOR, "pip-audit"]
    return [*auditor, "--vulnerability-service", "osv", "--disable-pip", "--require-hashes", "-r", DEVELOPMENT]


def _unreachable_because(service: str) -> str | None:
    try:
        with urllib.request.urlopen(service, timeout=_TIMEOUT_S):  # noqa: S310  # nosec B310  # an address of ours
            return None
    except urllib.error.HTTPError:
        return None  # it answers, if only that there is no such page
    except OSError as error:
        return str(getattr(error, "reason", error))
