"""Turns at repeated work: a tenant whose clusters hang delays no other tenant."""

from __future__ import annotations

from unittest.mock import patch
from uuid import UUID, uuid4

import pytest
from django.core.cache import cache
from redis.exceptions import RedisError

from controlplane.common.turns import interleaved, turn

HOSTILE, HONEST = uuid4(), uuid4()


@pytest.fixture(autouse=True)
def _clean() -> None:
    cache.clear()


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def look(tenant: UUID, cluster: UUID, took_s: float) -> bool:
    clock = Clock()
    with turn("look", tenant, cluster, clock) as mine:
        if mine:
            clock.now_s += took_s
        return mine


def test_a_cluster_has_one_turn_at_a_time() -> None:
    cluster = uuid4()
    with turn("look", HONEST, cluster) as first, turn("look", HONEST, cluster) as second:
        assert (first, second) == (True, False)
    assert look(HONEST, cluster, 0.1)


def test_slow_clusters_of_a_tenant_share_one_place_and_rest_and_others_do_not() -> None:
    slow = [uuid4() for _ in range(10)]
    for cluster in slow:
        look(HOSTILE, cluster, 10.0)
    assert [look(HOSTILE, cluster, 10.0) for cluster in slow] == [False] * 10
    assert look(HOSTILE, uuid4(), 0.1), "a quick cluster of the same tenant"
    assert all(look(HONEST, uuid4(), 0.1) for _ in range(20))


def test_a_slow_cluster_gets_its_turn_again_after_its_rest() -> None:
    cluster = uuid4()
    look(HOSTILE, cluster, 10.0)
    cache.delete(f"turn:look:tenant:{HOSTILE}")  # as time does
    assert look(HOSTILE, cluster, 0.1)
    assert all(look(HOSTILE, cluster, 0.1) for _ in range(3)), "it is quick again"


def test_a_turn_that_fails_is_given_back() -> None:
    cluster = uuid4()
    with pytest.raises(ValueError, match="broken"), turn("look", HONEST, cluster):
        raise ValueError("broken")
    assert look(HONEST, cluster, 0.1)


def test_without_the_cache_every_cluster_has_its_turn() -> None:
    with patch.object(cache, "add", side_effect=RedisError("away")):
        assert look(HONEST, uuid4(), 0.1)


def test_who_has_many_clusters_delays_no_one() -> None:
    items = [(HOSTILE, f"h{number}") for number in range(50)] + [(HONEST, "a"), (HONEST, "b")]
    assert set(interleaved(items)[:4]) > {"a", "b"}
    assert sorted(interleaved(items)) == sorted(name for _, name in items)
