"""Places of threads that wait for clusters: a cluster that hangs keeps no other tenant's request waiting."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from unittest.mock import Mock, patch
from uuid import UUID, uuid4

import pytest

from controlplane.clusters.account_distribution import accounts_distribute
from controlplane.clusters.models import Cluster, ClusterState
from controlplane.clusters.remoting import cluster_admin, cluster_producer, remoting_errors
from controlplane.common.errors import BrokerUnreachable, InvalidInput
from controlplane.common.places import SLOW_S, Places
from highwater import MessageIllegalError

HOSTILE, HONEST = uuid4(), uuid4()


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def entered(places: Places, tenant: UUID, cluster: UUID) -> bool:
    return places.enter(tenant, cluster, wait_s=0) is not None


def test_one_tenant_leaves_a_thread_to_the_others() -> None:
    places, cluster = Places(4, Clock()), uuid4()
    assert [entered(places, HOSTILE, cluster) for _ in range(4)] == [True, True, True, False]
    assert entered(places, HONEST, uuid4())


def test_a_cluster_that_was_slow_has_one_place_until_it_is_quick_again() -> None:
    clock, cluster = Clock(), uuid4()
    places = Places(4, clock)
    first = places.enter(HOSTILE, cluster)
    assert first is not None
    clock.now_s += SLOW_S
    places.leave(first)
    again = places.enter(HOSTILE, cluster)
    assert again is not None
    assert not entered(places, HOSTILE, cluster)
    places.leave(again)  # at once
    assert [entered(places, HOSTILE, cluster) for _ in range(2)] == [True, True]


def test_a_call_that_hangs_now_keeps_its_tenants_next_one_out() -> None:
    clock = Clock()
    places = Places(4, clock)
    assert entered(places, HOSTILE, uuid4())
    clock.now_s += SLOW_S
    assert not entered(places, HOSTILE, uuid4())
    assert entered(places, HONEST, uuid4())


def test_slow_clusters_of_many_tenants_have_half_of_the_threads() -> None:
    clock = Clock()
    places = Places(4, clock)
    clusters = [(uuid4(), uuid4()) for _ in range(3)]
    for tenant, cluster in clusters:
        call = places.enter(tenant, cluster)
        assert call is not None
        clock.now_s += SLOW_S
        places.leave(call)
    assert [entered(places, tenant, cluster) for tenant, cluster in clusters] == [True, True, False]
    assert entered(places, HONEST, uuid4())


def test_a_call_within_another_of_the_same_cluster_has_its_place() -> None:
    places, cluster = Places(2, Clock()), uuid4()
    with places.place(HONEST, cluster) as outer, places.place(HONEST, cluster) as inner:
        assert (outer, inner) == (True, True)
    assert entered(places, HONEST, cluster)


def test_a_message_that_is_refused_before_it_leaves_is_not_an_unreachable_cluster() -> None:
    with pytest.raises(InvalidInput, match="DELAY is reserved"), remoting_errors():
        raise MessageIllegalError("property DELAY is reserved")


def asks(cluster: Cluster) -> None:
    with cluster_admin(cluster):
        pytest.fail("there is no place")


def sends(cluster: Cluster) -> None:
    with cluster_producer(cluster):
        pytest.fail("there is no place")


@pytest.mark.parametrize("speaks", [asks, sends, accounts_distribute])
def test_who_speaks_with_a_cluster_takes_a_place(speaks: Callable[[Cluster], object]) -> None:
    cluster, full = Cluster(tenant_id=HOSTILE, state=ClusterState.RUNNING), Mock()
    full.place.return_value = nullcontext(False)  # what `Places.place` yields
    with patch("controlplane.clusters.remoting._places", full), pytest.raises(BrokerUnreachable) as refused:
        speaks(cluster)
    assert refused.value.code == "cluster_busy"
    full.place.assert_called_once_with(HOSTILE, cluster.pk)
