"""A replicated cluster on a running platform, made and watched over REST, and hurt from outside."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from highwater import Credentials
from tests.support.platform_stack import PlatformStack

SECONDS_MAX = 90
_LOOK_S = 0.25  # a look asks the whole platform, and at times every replica


def wait_for(read: Callable[[], Any], condition: Callable[[Any], bool], what: str) -> Any:
    """Read until the condition holds; fails with the last reading."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition(found := read()):
        assert time.monotonic() < deadline, f"{what}: {found}"
        time.sleep(_LOOK_S)
    return found


@dataclass
class LiveGroup:
    """The cluster of one broker group, `broker-a`."""

    platform: PlatformStack
    api: httpx.Client
    path: str
    id: str

    @classmethod
    def create(cls, platform: PlatformStack, api: httpx.Client, tenant: str, slug: str, **values: Any) -> LiveGroup:
        answer = api.post(f"tenants/{tenant}/clusters/", json={"slug": slug, **values})
        assert answer.status_code == 202, answer.text
        path = f"tenants/{tenant}/clusters/{slug}/"
        live = cls(platform, api, path, "")
        operation = live.finished(answer.json())
        assert operation["state"] == "completed", json.dumps(operation, indent=1)
        live.id = api.get(path).json()["id"]
        return live

    def get(self, rest: str = "") -> dict[str, Any]:
        answer = self.api.get(self.path + rest)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def group(self, name: str = "broker-a") -> dict[str, Any]:
        return next(group for group in self.get("groups/")["results"] if group["name"] == name)

    def replica(self, replica_id: int) -> dict[str, Any]:
        return next(replica for replica in self.group()["replicas"] if replica["replica_id"] == replica_id)

    def look(self) -> dict[str, Any]:
        """The group as it is now: a dry run asks every replica, which beat does each three seconds."""
        self.ask("switchover", dry_run=True)
        return self.group()

    def wait_group(self, condition: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        found: dict[str, Any] = wait_for(self.look, condition, what)
        return found

    def ask(self, verb: str, body: dict[str, Any] | None = None, *, dry_run: bool = False, key: str = "") -> Any:
        """POST promote/ or switchover/ and return the answer."""
        headers = {"Idempotency-Key": key} if key else {}
        query = "?dry_run=true" if dry_run else ""
        return self.api.post(f"{self.path}groups/broker-a/{verb}/{query}", json=body or {}, headers=headers)

    def finished(self, operation: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = wait_for(
            lambda: self.api.get(f"operations/{operation['id']}/").json(),
            lambda found: found["state"] != "in_progress",
            "operation",
        )
        return found

    def failover(self, operation: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = next(
            failover for failover in self.get("failovers/")["results"] if failover["operation_id"] == operation["id"]
        )
        return found

    @property
    def credentials(self) -> Credentials:
        access_key = self.get("credentials/")["results"][0]["access_key"]
        secret = self.api.post(f"{self.path}credentials/{access_key}/reveal/").json()["secret_key"]
        return Credentials(access_key, secret)

    def pid(self, replica_id: int) -> int:
        name = f"hw-{self.id.replace('-', '')[:12]}-broker-a-{replica_id}"
        processes = self.platform.stack.processes() or []
        return next((process.pid for process in processes if process.name == name), 0)

    def store(self, replica_id: int) -> Path:
        return self.platform.state_dir / "clusters" / self.id / f"broker-a-{replica_id}" / "store"

    def lose_machine(self, replica_id: int) -> None:
        """kill -9, and its disk is gone: the supervisor tries to start it, in vain."""
        store = self.store(replica_id)
        store.rename(store.with_name("store.away"))
        store.write_text("not a directory")
        os.kill(self.pid(replica_id), signal.SIGKILL)

    def machine_is_back(self, replica_id: int) -> None:
        """The disk is there again, as it was at the kill."""
        store = self.store(replica_id)
        store.unlink()
        store.with_name("store.away").rename(store)
