"""Fixtures of the interop tests: stock clients, and the clusters that they talk to.

``target`` is a running cluster. In ``./dev test`` it is ours. To check the tests themselves against the original, run

    HIGHWATER_INTEROP_TARGETS=apache,highwater ./dev test tests/interop
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mqwire.acl import SessionCredentials
from tests.interop.apache import ApacheCluster
from tests.interop.clients import DriverProcess, GoClient, JavaClient
from tests.interop.platform_cluster import PlatformCluster, platform_cluster
from tests.interop.targets import ADMIN_KEY, ADMIN_SECRET, Brand, Target, access_controlled, plain, start_target
from tests.support.platform_stack import PlatformStack

TARGETS_VARIABLE = "HIGHWATER_INTEROP_TARGETS"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for fixture in ("target", "secured_target"):
        if fixture in metafunc.fixturenames:
            names = os.environ.get(TARGETS_VARIABLE, "highwater").split(",")
            metafunc.parametrize(fixture, names, indirect=True, scope="session")


def _brand(request: pytest.FixtureRequest) -> Brand:
    name: str = request.param
    if name not in ("apache", "highwater"):
        raise ValueError(f"{TARGETS_VARIABLE} may hold apache and highwater, not {name!r}")
    return "apache" if name == "apache" else "highwater"


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A cluster of one name server and one broker without access control."""
    brand = _brand(request)
    with start_target(brand, tmp_path_factory.mktemp(brand), plain) as running:
        yield running


@pytest.fixture(scope="session")
def secured_target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A cluster where requests need the signature of an account."""
    brand = _brand(request)
    credentials = SessionCredentials(ADMIN_KEY, ADMIN_SECRET)
    folder = tmp_path_factory.mktemp(f"{brand}-acl")
    with start_target(brand, folder, access_controlled, credentials=credentials) as running:
        yield running


@pytest.fixture(scope="session")
def tenant_cluster(platform_stack: PlatformStack) -> Iterator[PlatformCluster]:
    """A cluster with synchronous flush and access control that a tenant made through the REST API."""
    with platform_cluster(platform_stack, "interop", "stock", flush_disk_type="SYNC_FLUSH") as running:
        yield running


@pytest.fixture(scope="session")
def java_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriverProcess]:
    """The stock Java client, in one JVM for the whole session."""
    with JavaClient(tmp_path_factory.mktemp("java-client")) as client:
        yield client


@pytest.fixture(scope="session")
def go_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriverProcess]:
    """The stock Go client, in one process for the whole session."""
    with GoClient(tmp_path_factory.mktemp("go-client")) as client:
        yield client


@pytest.fixture(params=["java", "go"])
def client(request: pytest.FixtureRequest) -> DriverProcess:
    """Each stock client in turn."""
    driver: DriverProcess = request.getfixturevalue(f"{request.param}_client")
    return driver


@pytest.fixture
def topic(target: Target) -> str:
    """A topic of its own for the test, with four queues."""
    name = f"topic-{uuid.uuid4().hex[:12]}"
    target.create_topic(name, queues=4)
    return name


@pytest.fixture
def apache(tmp_path: Path) -> Callable[..., ApacheCluster]:
    """Starts a real Apache cluster: ``with apache(conf, store_dir=...) as cluster``."""

    def start(conf: dict[str, str] | None = None, *, store_dir: Path | None = None) -> ApacheCluster:
        return ApacheCluster.start(tmp_path / f"apache-{uuid.uuid4().hex[:6]}", conf, store_dir=store_dir)

    return start
