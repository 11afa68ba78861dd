"""Fixtures of the control plane's tests. Django's models are imported late: pytest loads this file before Django is set up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.controlplane.driver_twin import DriverTwin
    from tests.controlplane.real_supervisor import RealSupervisor
    from tests.controlplane.world import Json, World


@pytest.fixture(autouse=True)
def _no_counts_from_other_tests() -> None:
    from django.core.cache import cache

    cache.clear()


@pytest.fixture(autouse=True)
def _answers_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test asks the REST API for, the answer has to be one that the API's description has."""
    from controlplane.common.api import Api
    from tests.controlplane.described import as_described

    finalize = Api.finalize_response

    def finalize_and_compare(view: Api, request: Any, response: Any, *args: Any, **kwargs: Any) -> Any:
        final = finalize(view, request, response, *args, **kwargs)
        as_described(view, request, final)
        return final

    monkeypatch.setattr(Api, "finalize_response", finalize_and_compare)


@pytest.fixture
def world(db: None) -> World:
    """Alice, Bob, Charlie, two tenants, and a cluster that runs by its row only."""
    from tests.controlplane.world import make_world

    return make_world()


@pytest.fixture
def api() -> Callable[..., Json]:
    """`api(user)`, `api(token=...)` or `api()` for a stranger."""
    from tests.controlplane.world import Json

    return Json


@pytest.fixture
def token(world: World) -> Callable[..., str]:
    """Issue a service token of acme."""
    from controlplane.tenants.token_services import api_token_issue
    from tests.controlplane.world import SYSTEM

    def issue(**options: Any) -> str:
        return api_token_issue(actor=SYSTEM, tenant=world.acme, name="test", **options).text

    return issue


@pytest.fixture
def driver(tmp_path: Path) -> DriverTwin:
    """A driver in memory."""
    from tests.controlplane.driver_twin import DriverTwin

    return DriverTwin(tmp_path)


@pytest.fixture(scope="session")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSupervisor]:
    """A supervisord of this test session with the driver that talks to it."""
    from tests.controlplane.real_supervisor import running_supervisor

    with running_supervisor(tmp_path_factory.mktemp("state")) as running:
        yield running
