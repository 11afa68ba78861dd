"""The table of keys that a tenant sets says of each what brokerd itself says."""

from __future__ import annotations

import pytest

from brokerd.config import _FIELDS_BY_KEY, HOT_KEYS, BrokerConfig, _key
from controlplane.clusters.broker_keys import BROKER_KEYS, BrokerKey, Kind, keys_of, properties_of
from controlplane.provisioning.rendering import render_broker_conf
from tests.controlplane.test_rendering import configuration, properties

KEYS = list(BROKER_KEYS.values())
names = pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)


def allowed_values(key: BrokerKey) -> list[bool | int | str]:
    if key.kind == Kind.BOOLEAN:
        return [True, False]
    return [key.least, key.most] if key.kind == Kind.INTEGER else [value for value, _ in key.choices]


@names
def test_a_key_takes_effect_at_once_exactly_if_the_broker_takes_it_while_it_runs(key: BrokerKey) -> None:
    assert key.at_once is (key.name in HOT_KEYS)


@names
def test_the_broker_takes_every_value_at_the_bounds_and_writes_it_back_as_the_same(key: BrokerKey) -> None:
    brokers = _key(_FIELDS_BY_KEY[key.name])
    for value in allowed_values(key):
        assert key.problem(value) is None
        assert key.value_of(brokers.write(brokers.read(key.text_of(value)))) == value


@names
def test_the_default_is_what_the_platform_writes_or_the_brokers_own(key: BrokerKey) -> None:
    written = properties(render_broker_conf(configuration(total_replicas=2, in_sync_replicas=2))).get(key.name)
    told = written if written is not None else BrokerConfig().to_properties()[key.name]
    assert key.value_of(told) == key.default


@names
@pytest.mark.parametrize("wrong", [None, "x", -1, 2**31, 1.5, []])
def test_a_value_of_another_kind_or_out_of_bounds_is_a_problem(key: BrokerKey, wrong: object) -> None:
    assert key.problem(wrong) is not None  # type: ignore[arg-type]  # what a row might hold


def test_true_is_no_number() -> None:
    assert BROKER_KEYS["fileReservedTime"].problem(True) is not None


def test_what_was_set_comes_instead_of_what_is_written_otherwise() -> None:
    chosen = properties_of({"fileReservedTime": 96, "deleteWhen": 3, "slaveTimeout": 900}, replicated=False)
    text = render_broker_conf(configuration(chosen=chosen))
    found = properties(text)
    assert (found["fileReservedTime"], found["deleteWhen"]) == ("96", "03")
    assert "slaveTimeout" not in found, "it means nothing without followers"
    assert text.count("fileReservedTime=") == 1


def test_keys_of_followers_are_offered_where_there_are_followers() -> None:
    alone, replicated = ({key.name for key in keys_of(replicated=has)} for has in (False, True))
    assert replicated - alone == {"slaveReadEnable", "slaveTimeout"}
