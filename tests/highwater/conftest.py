"""Fixtures of the SDK's tests: both event loops, and real clusters behind one face."""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from highwater import Admin, Producer
from mqwire.acl import SessionCredentials
from tests.highwater.cluster import Cluster
from tests.interop.targets import ADMIN_KEY, ADMIN_SECRET, Brand, access_controlled, plain, start_target


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Tests marked `anyio` run on both."""
    name: str = request.param
    return name


@pytest.fixture
def unique() -> str:
    """A name that no other test uses, for topics and groups of a shared cluster."""
    return f"t{uuid.uuid4().hex[:12]}"


class RunningClusters:
    """Starts each cluster when the first test asks for it, and once only: Apache's takes its time."""

    def __init__(self, tmp_path_factory: pytest.TempPathFactory, exits: ExitStack) -> None:
        self._tmp_path_factory = tmp_path_factory
        self._exits = exits
        self._running: dict[tuple[Brand, bool], Cluster] = {}
        exits.callback(self._running.clear)

    def get(self, brand: Brand, *, secured: bool) -> Cluster:
        # One Apache cluster serves both kinds of tests, with access control: its clients then sign everything.
        secured = secured or brand == "apache"
        if (brand, secured) not in self._running:
            folder = self._tmp_path_factory.mktemp(f"sdk-{brand}")
            credentials = SessionCredentials(ADMIN_KEY, ADMIN_SECRET) if secured else None
            target = start_target(brand, folder, _secured if secured else plain, credentials=credentials)
            self._running[brand, secured] = Cluster(self._exits.enter_context(target))
        return self._running[brand, secured]


def _secured(brand: Brand, folder: Path) -> dict[str, str]:
    # Without its timer wheel Apache 5.5.0 fails to delete topics. It compares the whole wheel each second, a sixth of a core
    # to the end of the run, unless it is set to flush rarely.
    timers = {"timerWheelEnable": "true", "timerFlushIntervalMs": "600000"}
    return {**access_controlled(brand, folder), **(timers if brand == "apache" else {})}


_RUNNING = pytest.StashKey[ExitStack]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """No other room uses these clusters, which cost processor time as long as they run."""
    yield
    if nextitem is None or nextitem.path.parent != item.path.parent:
        item.session.stash.get(_RUNNING, ExitStack()).close()


@pytest.fixture(scope="session")
def running_clusters(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningClusters]:
    with ExitStack() as exits:
        request.session.stash[_RUNNING] = exits
        yield RunningClusters(tmp_path_factory, exits)


@pytest.fixture(params=["apache", "highwater"])
def cluster(request: pytest.FixtureRequest, running_clusters: RunningClusters) -> Cluster:
    """A cluster of one name server and one broker, Apache's and ours in turn, shared by all tests."""
    return running_clusters.get(request.param, secured=False)


@pytest.fixture(params=["apache", "highwater"])
def secured_cluster(request: pytest.FixtureRequest, running_clusters: RunningClusters) -> Cluster:
    """The same where requests must be signed: RocketMQ 5's access control on Apache, RocketMQ 4's on ours."""
    return running_clusters.get(request.param, secured=True)


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with cluster.admin() as started:
        yield started


@pytest.fixture
def producer(cluster: Cluster) -> Iterator[Producer]:
    with cluster.producer() as started:
        yield started


@pytest.fixture
def topic(cluster: Cluster, unique: str) -> str:
    """A topic of four queues that only this test uses."""
    return cluster.create_topic(unique)
