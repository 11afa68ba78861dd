"""The clusters that the stock clients are run against: real Apache RocketMQ and ours, behind one face.

A test that takes a ``Target`` says nothing about whose broker it is, so it can be checked against Apache first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import yaml

from mqwire.acl import SessionCredentials
from tests.daemons import DaemonCluster
from tests.interop.apache import ApacheCluster
from tests.interop.clients import Cluster
from tests.remoting import create_topic, wait_for_registration

Brand = Literal["apache", "highwater"]
Conf = Callable[[Brand, Path], dict[str, str]]

ADMIN_KEY, ADMIN_SECRET = "interop-admin", "interop-admin-secret"
# Retries use level 3 and up; real pauses (10 s to 2 h) would only be waited for. Level 2 is the one to measure.
QUICK_DELAY_LEVELS = " ".join(["1s", "3s"] + ["1s"] * 16)


@dataclass
class Target:
    """A running cluster of one broker, and how to administer it."""

    brand: Brand
    running: ApacheCluster | DaemonCluster
    credentials: SessionCredentials | None = None

    @property
    def cluster(self) -> Cluster:
        """What a client is configured with, and the credentials of the administrator where there is access control."""
        if self.credentials is None:
            return Cluster(self.running.namesrv)
        return Cluster(self.running.namesrv, self.credentials.access_key, self.credentials.secret_key)

    @property
    def anonymous(self) -> Cluster:
        return Cluster(self.running.namesrv)

    @property
    def broker_address(self) -> str:
        return self.running.broker.address

    @property
    def broker_name(self) -> str:
        return self.running.broker_name

    def create_topic(self, name: str, *, queues: int = 4) -> None:
        """Creates a topic and waits until clients can find it."""
        create_topic(
            self.broker_address,
            name,
            queues=queues,
            credentials=self.credentials,
            namesrv=self.running.namesrv,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.running.stop()


def start_target(brand: Brand, folder: Path, conf: Conf, *, credentials: SessionCredentials | None = None) -> Target:
    """Starts a cluster of one brand with what ``conf`` says for it."""
    kind: type[ApacheCluster] | type[DaemonCluster] = {"apache": ApacheCluster, "highwater": DaemonCluster}[brand]
    running = kind.start(folder, conf(brand, folder))
    wait_for_registration(running.namesrv, running.broker_name)
    return Target(brand, running, credentials)


def plain(brand: Brand, folder: Path) -> dict[str, str]:
    """broker.conf without access control, with short delay levels and the topic of trace records."""
    return {"messageDelayLevel": QUICK_DELAY_LEVELS, "autoCreateTopicEnable": "false", "traceTopicEnable": "true"}


def access_controlled(brand: Brand, folder: Path) -> dict[str, str]:
    """broker.conf with one administrator's account: RocketMQ 4's plain_acl.yml for ours, 5's own store for Apache."""
    if brand == "highwater":
        accounts: Mapping[str, object] = {
            "globalWhiteRemoteAddresses": [],
            "accounts": [{"accessKey": ADMIN_KEY, "secretKey": ADMIN_SECRET, "admin": True}],
        }
        folder.mkdir(parents=True, exist_ok=True)
        acl_file = folder / "plain_acl.yml"
        acl_file.write_text(yaml.safe_dump(accounts), "utf-8")
        return {**plain(brand, folder), "aclEnable": "true", "aclConfigFile": str(acl_file)}
    auth = "org.apache.rocketmq.auth"
    return {
        **plain(brand, folder),
        "authenticationEnabled": "true",
        "authenticationProvider": f"{auth}.authentication.provider.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{auth}.authentication.provider.LocalAuthenticationMetadataProvider",
        "authorizationEnabled": "true",
        "authorizationProvider": f"{auth}.authorization.provider.DefaultAuthorizationProvider",
        "authorizationMetadataProvider": f"{auth}.authorization.provider.LocalAuthorizationMetadataProvider",
        "authConfigPath": str(folder / "auth"),
        "initAuthenticationUser": json.dumps({"username": ADMIN_KEY, "password": ADMIN_SECRET}),
        "innerClientAuthenticationCredentials": json.dumps({"accessKey": ADMIN_KEY, "secretKey": ADMIN_SECRET}),
    }
