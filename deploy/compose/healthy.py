"""Health checks of compose.yaml: `healthy.py web|supervisor`; status 0 when that part is well, else a line says why not."""

from __future__ import annotations

import os
import socket
import sys
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit


def main() -> None:
    """Look at one part."""
    try:
        {"web": _web, "supervisor": _supervisor}[sys.argv[1]]()
    except (OSError, ValueError) as error:
        sys.exit(f"{sys.argv[1]}: {error}")


def _web() -> None:
    """Ask as the proxy does: under the console's own name."""
    host = urlsplit(os.environ["HIGHWATER_PUBLIC_URL"]).netloc
    address = f"http://127.0.0.1:{os.environ['PORT']}/readyz"
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(urllib.request.Request(address, headers={"Host": host}), timeout=10):
        """It answers 503, which raises, while PostgreSQL or Redis is away."""


def _supervisor() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(5)
        connection.connect(str(Path(os.environ["HIGHWATER_STATE_DIR"], "supervisor", "supervisor.sock")))


if __name__ == "__main__":
    main()
