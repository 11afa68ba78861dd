"""What a tenant wants of its brokers: sent at once or by a restart, compared with what they have, and put back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from django.urls import reverse

from controlplane.clusters import configuration
from controlplane.clusters.broker_keys import BROKER_KEYS
from controlplane.clusters.configuration import (
    configuration_change,
    configuration_get,
    configuration_put_back,
    wanted_values,
)
from controlplane.clusters.models import Cluster, ClusterState, ConfigurationChange
from controlplane.common.errors import BrokerUnreachable, Conflict, NotAllowed, PreconditionFailed
from controlplane.common.models import AuditEvent
from controlplane.provisioning.processes import replica_daemons
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import Json, World

pytestmark = pytest.mark.django_db

PATH = "/api/v1/tenants/acme/clusters/orders/configuration/"


class Brokers:
    """Brokers in memory: each has a configuration, None for one that is away."""

    def __init__(self) -> None:
        self.by_address: dict[str, dict[str, str] | None] = {}
        defaults = {key.name: key.text_of(key.default) for key in BROKER_KEYS.values()}
        self.default: dict[str, str] | None = defaults

    def of(self, address: str) -> dict[str, str] | None:
        return self.by_address.setdefault(address, None if self.default is None else dict(self.default))

    def reported(self, cluster: Cluster, addresses: Sequence[str]) -> dict[str, dict[str, str] | None]:
        return {address: self.of(address) for address in addresses}

    def __enter__(self) -> Brokers:
        return self

    def __exit__(self, *error: object) -> None: ...

    def update_broker_config(self, address: str, properties: Mapping[str, str]) -> None:
        present = self.of(address)
        if present is None:
            raise BrokerUnreachable("away")
        assert all(BROKER_KEYS[name].at_once for name in properties), properties
        present.update(properties)


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    found = Brokers()
    monkeypatch.setattr(configuration, "broker_configurations", found.reported)
    monkeypatch.setattr(configuration, "cluster_admin", lambda cluster: found)
    return found


def drift(cluster: Cluster) -> dict[str, str]:
    return {state.key.name: state.drift for state in configuration_get(cluster).keys if state.drift != "none"}


def test_a_key_that_needs_no_restart_is_in_force_as_soon_as_it_is_saved(world: World, brokers: Brokers) -> None:
    saved = configuration_change(actor=world.alice, cluster=world.cluster, values={"brokerPermission": "4"})
    assert not saved.plan.needs_restart
    assert drift(world.cluster) == {}
    assert next(iter(brokers.by_address.values()))["brokerPermission"] == "4"  # type: ignore[index]  # it answers


def test_a_key_that_needs_a_restart_differs_until_then_and_is_in_the_file_for_it(
    world: World, brokers: Brokers, driver: DriverTwin
) -> None:
    saved = configuration_change(actor=world.alice, cluster=world.cluster, values={"fileReservedTime": 96})
    assert saved.plan.needs_restart
    assert drift(world.cluster) == {"fileReservedTime": "differs"}
    assert configuration_get(world.cluster).restart_needed
    (daemon,) = replica_daemons(world.cluster, driver)
    assert "fileReservedTime=96\n" in daemon.files["broker-a-0/broker.conf"]
    assert "fileReservedTime=96" not in daemon.process.configuration, "the supervisor restarts no broker for it"


def test_a_cluster_from_before_a_default_came_is_shown_to_differ_from_it(world: World, brokers: Brokers) -> None:
    assert brokers.default is not None
    brokers.default["traceTopicEnable"] = "false"
    assert drift(world.cluster) == {"traceTopicEnable": "differs"}
    assert configuration_get(world.cluster).restart_needed


def test_what_a_silent_broker_has_is_unknown_and_no_difference(world: World, brokers: Brokers) -> None:
    brokers.default = None
    found = configuration_get(world.cluster)
    assert found.silent == ("broker-a",)
    assert {state.drift for state in found.keys} == {"unknown"}
    assert not found.drifting


def test_a_broker_that_was_away_is_named_and_takes_it_when_told_again(
    world: World, brokers: Brokers, api: Callable[..., Json]
) -> None:
    address = world.cluster.broker_groups.get().replicas.get().address
    brokers.by_address[address] = None
    answer = api(world.alice).call("PATCH", PATH, {"values": {"autoCreateTopicEnable": True}})
    assert answer.json()["missing"] == ["broker-a"]
    brokers.by_address[address] = dict(brokers.default or {})
    assert drift(world.cluster) == {"autoCreateTopicEnable": "differs"}
    assert api(world.alice).call("POST", f"{PATH}apply/").json() == {"missing": []}
    assert drift(world.cluster) == {}


def test_only_what_differs_from_the_default_is_kept(world: World, brokers: Brokers) -> None:
    configuration_change(actor=world.alice, cluster=world.cluster, values={"deleteWhen": 3, "fileReservedTime": 72})
    assert wanted_values(world.cluster) == {"deleteWhen": 3}
    configuration_change(actor=world.alice, cluster=world.cluster, values={"deleteWhen": None})
    assert wanted_values(world.cluster) == {}


def test_a_change_without_a_difference_leaves_no_row(world: World, brokers: Brokers) -> None:
    assert configuration_change(actor=world.alice, cluster=world.cluster, values={"deleteWhen": 4}).change is None
    assert not ConfigurationChange.objects.exists()


def test_putting_back_gives_the_keys_of_one_change_their_former_values_and_leaves_others(
    world: World, brokers: Brokers
) -> None:
    configuration_change(actor=world.alice, cluster=world.cluster, values={"deleteWhen": 3, "fileReservedTime": 96})
    configuration_change(actor=world.alice, cluster=world.cluster, values={"maxMessageSize": 1_048_576})
    saved = configuration_put_back(actor=world.alice, cluster=world.cluster, number=1)
    assert wanted_values(world.cluster) == {"maxMessageSize": 1_048_576}
    assert saved.change is not None
    assert (saved.change.number, saved.change.put_back) == (3, 1)


def test_of_two_who_looked_at_the_same_one_change_is_refused(world: World, brokers: Brokers) -> None:
    configuration_change(actor=world.alice, cluster=world.cluster, values={"deleteWhen": 3}, version=0)
    with pytest.raises(PreconditionFailed):
        configuration_change(actor=world.alice, cluster=world.cluster, values={"deleteWhen": 5}, version=0)


def test_of_two_changes_at_once_brokers_have_the_later_one(
    world: World, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = brokers.update_broker_config
    others = ["2"]

    def slowly(address: str, properties: Mapping[str, str]) -> None:
        if others:  # someone else is quicker: all of their change happens before this reaches the broker
            configuration_change(actor=world.alice, cluster=world.cluster, values={"brokerPermission": others.pop()})
        taken(address, properties)

    monkeypatch.setattr(brokers, "update_broker_config", slowly)
    configuration_change(actor=world.alice, cluster=world.cluster, values={"brokerPermission": "4"})
    assert wanted_values(world.cluster)["brokerPermission"] == "2"
    assert [one["brokerPermission"] for one in brokers.by_address.values() if one is not None] == ["2"]


def test_who_changed_what_is_in_the_audit_trail(world: World, brokers: Brokers) -> None:
    configuration_change(actor=world.alice, cluster=world.cluster, values={"deleteWhen": 3})
    event = AuditEvent.objects.get(action="cluster.configure")
    assert event.details == {"number": 1, "changes": {"deleteWhen": [4, 3]}}
    assert event.actor == "alice@example.com"


def test_who_may_not_change_the_cluster_may_not_configure_it(world: World, brokers: Brokers) -> None:
    with pytest.raises(NotAllowed):
        configuration_change(actor=world.bob, cluster=world.cluster, values={"deleteWhen": 3})


def test_a_cluster_that_does_not_run_is_not_configured(world: World, brokers: Brokers) -> None:
    world.cluster.state = ClusterState.DELETING
    with pytest.raises(Conflict):
        configuration_change(actor=world.alice, cluster=world.cluster, values={"deleteWhen": 3})


def test_a_dry_run_tells_each_key_and_changes_nothing(world: World, brokers: Brokers, api: Callable[..., Json]) -> None:
    body = {"values": {"fileReservedTime": 96, "brokerPermission": "4"}, "dry_run": True}
    answer = api(world.alice).call("PATCH", PATH, body).json()
    assert answer["needs_restart"] is True
    assert answer["number"] is None
    reported = {row["name"]: (row["old"], row["new"], row["takes_effect"]) for row in answer["changes"]}
    assert reported == {"fileReservedTime": (72, 96, "restart"), "brokerPermission": ("6", "4", "at_once")}
    assert not ConfigurationChange.objects.exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [("fileReservedTime", 47), ("fileReservedTime", "long"), ("brokerPermission", "7"), ("storePathRootDir", "/")],
)
def test_a_wrong_value_is_refused_at_its_field(
    world: World, brokers: Brokers, api: Callable[..., Json], name: str, value: Any
) -> None:
    answer = api(world.alice).call("PATCH", PATH, {"values": {name: value}})
    assert answer.status_code == 400
    assert [error["field"] for error in answer.json()["errors"]] == [f"values.{name}"]


def test_the_history_says_who_and_what_newest_first(world: World, brokers: Brokers, api: Callable[..., Json]) -> None:
    for hour in (3, 5):
        configuration_change(actor=world.alice, cluster=world.cluster, values={"deleteWhen": hour})
    rows = api(world.alice).call("GET", f"{PATH}changes/").json()["results"]
    assert [(row["number"], row["changes"], row["changed_by"]) for row in rows] == [
        (2, {"deleteWhen": [3, 5]}, "alice@example.com"),
        (1, {"deleteWhen": [4, 3]}, "alice@example.com"),
    ]
    assert api(world.alice).call("POST", f"{PATH}changes/2/put-back/", {}).json()["changes"][0]["new"] == 3


def page(world: World) -> str:
    return reverse("console:cluster-configuration", args=["acme", "orders"])


def typed(world: World, **changes: str) -> dict[str, str]:
    """What a browser sends: unchecked boxes are left out."""
    states = configuration_get(world.cluster)
    values = {state.key.name: state.wanted for state in states.keys}
    sent = {name: "on" if value is True else str(value) for name, value in values.items() if value is not False}
    return {**sent, "version": str(states.version), **changes}


def test_the_form_shows_the_difference_before_it_saves_it(
    world: World, brokers: Brokers, api: Callable[..., Json]
) -> None:
    client = api(world.alice)
    shown = client.post(page(world), typed(world, fileReservedTime="96"))
    assert shown.status_code == 200
    assert "72 hours" in shown.content.decode()
    assert "96 hours" in shown.content.decode()
    assert not ConfigurationChange.objects.exists()
    assert client.post(page(world), typed(world, fileReservedTime="96", act="save")).status_code == 302
    assert wanted_values(world.cluster) == {"fileReservedTime": 96}


def test_a_wrong_value_stands_beside_its_field(world: World, brokers: Brokers, api: Callable[..., Json]) -> None:
    answer = api(world.alice).post(page(world), typed(world, fileReservedTime="1"))
    assert answer.status_code == 422
    assert "id_fileReservedTime_error" in answer.content.decode()


def test_put_back_on_the_page_shows_the_difference_first(
    world: World, brokers: Brokers, api: Callable[..., Json]
) -> None:
    configuration_change(actor=world.alice, cluster=world.cluster, values={"fileReservedTime": 96})
    shown = api(world.alice).get(page(world), {"put_back": "1"}).content.decode()
    assert "What changes" in shown
    assert 'name="put_back" value="1"' in shown
