"""The control plane connects to addresses of its own rows only, whatever a name server or a message's id names."""

from __future__ import annotations

import ast
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from controlplane.clusters import remoting
from controlplane.clusters.models import Cluster, Replica
from controlplane.clusters.own_addresses import broker_addresses
from controlplane.clusters.remoting import cluster_admin, cluster_producer
from controlplane.provisioning.models import PortLease
from controlplane.provisioning.ports import LEADER_PORT
from tests.controlplane.world import World

CONTROLPLANE = Path(__file__).parents[2] / "platform" / "controlplane"
PRINTED = CONTROLPLANE / "console" / "snippets"  # programs of tenants, which the console shows and does not run
CLIENTS = {"Admin", "Producer", "AsyncAdmin", "AsyncProducer", "Consumer", "AsyncConsumer", "RemotingClient"}
# Sockets beside the SDK's clients, and where each takes its addresses from.
SOCKETS = {
    "alerts/outgoing.py": "addresses that tenants type, each checked before it is connected to",
    "clusters/replica_remoting.py": "replicas, name servers and leader ports; `group_masters` leaves out any other",
    "provisioning/probe.py": "`port_answers`: a daemon's own row",
}


def calls() -> Iterator[tuple[str, ast.Call, str]]:
    for path in sorted(CONTROLPLANE.rglob("*.py")):
        if PRINTED in path.parents:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                yield path.relative_to(CONTROLPLANE).as_posix(), node, ast.unparse(node.func)


def test_each_client_that_the_control_plane_makes_is_told_its_addresses() -> None:
    made = [(where, {keyword.arg for keyword in call.keywords}) for where, call, name in calls() if name in CLIENTS]
    assert {where for where, _ in made} == {"clusters/remoting.py", "provisioning/probe.py"}
    assert [where for where, keywords in made if "only_addresses" not in keywords] == []


def test_sockets_are_opened_where_it_is_said_whose_addresses_they_are() -> None:
    assert {where for where, _, name in calls() if name == "socket.create_connection"} == SOCKETS.keys()


def test_the_addresses_of_a_cluster_are_its_replicas_and_leader_ports(world: World) -> None:
    PortLease.objects.create(
        cluster_id=world.cluster.pk, host="127.0.0.9", port=30001, purpose=LEADER_PORT, holder=uuid.uuid4()
    )
    replica = Replica.objects.get(group__cluster=world.cluster)
    assert broker_addresses(world.cluster) == {replica.address, "127.0.0.9:30001"}


@pytest.mark.parametrize("opened", [cluster_admin, cluster_producer])
def test_what_speaks_with_a_cluster_is_told_the_addresses_of_its_rows(
    world: World, monkeypatch: pytest.MonkeyPatch, opened: Callable[[Cluster], AbstractContextManager[Any]]
) -> None:
    told: dict[str, object] = {}

    class Told:
        def __init__(self, *_: object, **settings: object) -> None:
            told.update(settings)

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(remoting, "Admin", Told)
    monkeypatch.setattr(remoting, "Producer", Told)
    with opened(world.cluster):
        pass
    assert told["only_addresses"] == broker_addresses(world.cluster)
