"""Brokers and name servers that accept connections and never answer: what they cost the control plane is bounded."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from django.test import override_settings

from controlplane.clusters import limits
from controlplane.clusters.limits import limit_set, quotas_reconcile
from controlplane.clusters.models import BrokerGroup, NameServer, Replica
from controlplane.clusters.remoting import cluster_admin
from highwater.errors import HighwaterError
from tests.controlplane.world import World, make_cluster

pytestmark = pytest.mark.django_db

REPLICAS = 8
SHORT = override_settings(HIGHWATER_REMOTING_TIMEOUT_MS=300, HIGHWATER_REMOTING_PATIENCE_MS=900)


@pytest.fixture
def silent_ports(world: World) -> Iterator[list[int]]:
    """All daemons of the world's cluster: ports at which connections are made, by the kernel alone."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(REPLICAS + 2)]
        ports = [listener.getsockname()[1] for listener in listeners]
        NameServer.objects.filter(cluster=world.cluster).delete()
        for position, port in enumerate(ports[:2]):
            NameServer.objects.create(cluster=world.cluster, position=position, host="127.0.0.1", port=port)
        Replica.objects.filter(group__cluster=world.cluster).delete()
        group = BrokerGroup.objects.get(cluster=world.cluster)
        for broker_id, port in enumerate(ports[2:]):
            Replica.objects.create(group=group, broker_id=broker_id, host="127.0.0.1", port=port)
        yield ports[2:]


@SHORT
def test_all_silent_brokers_of_a_cluster_take_one_patience(world: World, silent_ports: list[int]) -> None:
    failed = 0
    began_s = time.monotonic()
    with cluster_admin(world.cluster) as admin:
        for port in silent_ports * 2:
            try:
                admin.broker_config(f"127.0.0.1:{port}")
            except HighwaterError:
                failed += 1
    assert failed == REPLICAS * 2
    assert time.monotonic() - began_s < 2.5


@SHORT
def test_silent_name_servers_are_asked_once(world: World, silent_ports: list[int]) -> None:
    began_s = time.monotonic()
    with cluster_admin(world.cluster) as admin:
        for _ in range(20):
            with pytest.raises(HighwaterError):
                admin.cluster_info()
    assert time.monotonic() - began_s < 2.5


@SHORT
def test_a_tenants_limit_is_set_while_its_brokers_are_silent(world: World, silent_ports: list[int]) -> None:
    world.alice.is_staff = True
    world.alice.save()
    began_s = time.monotonic()
    missing = limit_set(actor=world.alice, tenant=world.acme, name="messages_per_second", value=7, reason="a test")
    assert time.monotonic() - began_s < 4
    assert {f"127.0.0.1:{port}" for port in silent_ports} <= set(missing)
    world.acme.refresh_from_db()
    assert world.acme.limits == {"messages_per_second": 7}


@SHORT
def test_clusters_without_end_are_not_all_waited_for(
    world: World, silent_ports: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.alice.is_staff = True
    world.alice.save()
    monkeypatch.setattr(limits, "_GIVING_SECONDS_MAX", -1.0)
    other = make_cluster(world.acme, "other")
    began_s = time.monotonic()
    missing = limit_set(actor=world.alice, tenant=world.acme, name="messages_per_second", value=7, reason="a test")
    assert time.monotonic() - began_s < 0.3
    assert Replica.objects.get(group__cluster=other).address in missing
    assert len(missing) == Replica.objects.filter(group__cluster__tenant=world.acme).count()


@SHORT
def test_limits_that_differ_are_given_in_one_patience(
    world: World, silent_ports: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = [f"127.0.0.1:{port}" for port in silent_ports]
    differing = {address: {"quotaCredentialMessagesPerSecond": "1"} for address in addresses}
    monkeypatch.setattr(limits, "broker_configurations", lambda *_: differing)
    began_s = time.monotonic()
    quotas_reconcile(world.cluster, addresses)
    assert time.monotonic() - began_s < 2.5
