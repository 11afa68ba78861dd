"""Fixtures of failover's tests. Django's models are imported late: pytest loads this file before Django is set up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.controlplane.driver_twin import DriverTwin
    from tests.controlplane.world import Json, World


@pytest.fixture(autouse=True)
def _no_counts_from_other_tests() -> None:
    from django.core.cache import cache

    cache.clear()


@pytest.fixture
def world(db: None) -> World:
    """Alice, Bob, Charlie and two tenants."""
    from tests.controlplane.world import make_world

    return make_world()


@pytest.fixture
def api() -> Callable[..., Json]:
    """`api(user)`."""
    from tests.controlplane.world import Json

    return Json


@pytest.fixture
def driver(tmp_path: Path) -> DriverTwin:
    """A driver in memory."""
    from tests.controlplane.driver_twin import DriverTwin

    return DriverTwin(tmp_path)
