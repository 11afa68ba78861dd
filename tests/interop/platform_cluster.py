"""A cluster that a tenant made through the REST API of a running platform, as the stock clients' target."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from tests.interop.clients import Cluster
from tests.support.platform_stack import PlatformStack

PATIENCE_S = 120.0


@dataclass
class PlatformCluster:
    """A running cluster; everything here goes through the REST API, as a tenant's own scripts do."""

    platform: PlatformStack
    api: httpx.Client
    path: str
    cluster: Cluster
    id: uuid.UUID

    def create_topic(self, name: str, *, queues: int) -> None:
        body = {"name": name, "read_queue_nums": queues, "write_queue_nums": queues}
        answer = self.api.post(f"{self.path}topics/", json=body)
        assert answer.status_code == 201, answer.text

    def broker_process(self) -> tuple[str, int]:
        """Name and process id of the broker under supervisord; 0 while it isn't running."""
        for process in self.platform.stack.processes() or []:
            if process.name.startswith(f"hw-{self.id.hex[:12]}-") and "namesrv" not in process.name:
                return process.name, process.pid
        raise AssertionError("supervisord doesn't know a broker of this cluster")


@contextmanager
def platform_cluster(platform: PlatformStack, tenant: str, slug: str, **options: Any) -> Iterator[PlatformCluster]:
    """Creates a tenant and a cluster, waits until it runs, and yields it with the tenant's first credential.

    ``options`` go into the request that creates the cluster: flush_disk_type and the like.
    """
    platform.manage("create_tenant", tenant)
    with platform.api(platform.token(tenant)) as api:
        answer = api.post(f"tenants/{tenant}/clusters/", json={"slug": slug, **options})
        assert answer.status_code == 202, answer.text
        operation = _finished(api, answer.json()["id"])
        assert operation["state"] == "completed", json.dumps(operation, indent=1)
        path = f"tenants/{tenant}/clusters/{slug}/"
        found = api.get(path).json()
        access_key = api.get(f"{path}credentials/").json()["results"][0]["access_key"]
        secret_key = api.post(f"{path}credentials/{access_key}/reveal/").json()["secret_key"]
        namesrv = found["namesrv_addr"]
        yield PlatformCluster(platform, api, path, Cluster(namesrv, access_key, secret_key), uuid.UUID(found["id"]))


def _finished(api: httpx.Client, operation_id: str) -> dict[str, Any]:
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        operation: dict[str, Any] = api.get(f"operations/{operation_id}/").json()
        if operation["state"] != "in_progress":
            return operation
        assert time.monotonic() < deadline_s, operation
        time.sleep(0.2)
