"""Passwords of the local platform: made once, kept in `.local/secrets.json` (mode 0600)."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

from deploy.local.layout import write_private
from deploy.local.terminal import DevError

NAMES = ("postgres_admin", "postgres", "redis", "django", "demo", "operator")


def load_secrets(path: Path) -> dict[str, str]:
    """The stored secrets; missing ones are made. A broken file stops the start: its passwords can't be made again."""
    stored: dict[str, str] = {}
    if path.exists():
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as exc:
            raise DevError(
                f"{path} is not JSON: {exc}.", "restore it, or give up the local data with ./dev reset."
            ) from exc
    missing = [name for name in NAMES if name not in stored]
    if missing:
        # URL-safe, because two of them become part of DATABASE_URL and REDIS_URL.
        stored.update({name: secrets.token_urlsafe(48 if name == "django" else 18) for name in missing})
        write_private(path, json.dumps(stored, indent=1) + "\n")
    return stored
