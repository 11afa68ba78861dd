"""Makes the passwords of compose.yaml: `python3 deploy/compose/make_secrets.py [FOLDER]`, by default deploy/secrets.

Files that are there stay as they are. Run again after a change of POSTGRES_PORT or REDIS_PORT in deploy/.env with the two
addresses deleted.
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

DEPLOY = Path(__file__).resolve().parents[1]


def make_secrets(folder: Path, postgres_port: str = "5432", redis_port: str = "6379") -> list[str]:
    """Write each secret that is not there, for its owner's eyes only; return the names of those that were made."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    made: list[str] = []

    def kept(name: str, text: str) -> str:
        path = folder / name
        if not path.exists():
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(text)
            made.append(name)
        return path.read_text().strip()

    kept("secret_key", secrets.token_urlsafe(48))
    postgres = kept("postgres_password", secrets.token_urlsafe(24))
    redis = kept("redis_password", secrets.token_urlsafe(24))
    kept("database_url", f"postgres://highwater:{postgres}@127.0.0.1:{postgres_port}/highwater")
    kept("redis_url", f"redis://:{redis}@127.0.0.1:{redis_port}/0")
    return made


def main() -> None:
    """Make them, and say which."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DEPLOY / "secrets"
    lines = (DEPLOY / ".env").read_text().splitlines() if (DEPLOY / ".env").exists() else []
    ports = dict(line.split("=", 1) for line in lines if line.startswith(("POSTGRES_PORT=", "REDIS_PORT=")))
    made = make_secrets(folder, ports.get("POSTGRES_PORT", "5432"), ports.get("REDIS_PORT", "6379"))
    print(f"{folder}: made {', '.join(made)}" if made else f"{folder}: nothing to make")


if __name__ == "__main__":
    main()
