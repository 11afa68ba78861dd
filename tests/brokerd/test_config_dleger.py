"""The keys of DLedger mode in broker.conf: read as RocketMQ writes them, and refused with the cause and the way out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from brokerd.config import BrokerConfig, ConfigError, load_config
from brokerd.config_values import FlushDiskType

PEERS = "dLegerPeers=n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913"
GOOD = ("brokerName=a", "enableDLegerCommitLog=true", "dLegerGroup=a", PEERS, "dLegerSelfId=n2")

Load = Callable[..., BrokerConfig]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def loaded(*lines: str) -> BrokerConfig:
        file = tmp_path / "broker.conf"
        file.write_text("\n".join(lines) + "\n")
        return load_config(str(file), environ={}, warn=lambda text: None)

    return loaded


def test_the_replica_id_is_the_number_of_the_self_id_whatever_broker_id_says(load: Load) -> None:
    config = load(*GOOD, "brokerId=0")
    assert (config.broker_id, config.dleger_peers[1]) == (2, "127.0.0.1:40912")


def test_the_group_listens_where_its_peers_look_for_it(load: Load) -> None:
    assert load(*GOOD).ha_listen_port == 40913


def test_one_port_is_enough_when_the_peers_use_the_brokers_own(load: Load) -> None:
    assert load(*GOOD, "listenPort=40913").ha_listen_port == 0


def test_what_a_majority_says_is_about_disks_unless_asked_otherwise(load: Load) -> None:
    assert load(*GOOD).flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert load(*GOOD, "flushDiskType=ASYNC_FLUSH").flush_disk_type is FlushDiskType.ASYNC_FLUSH


def test_the_peers_are_shown_as_they_were_written(load: Load) -> None:
    assert load(*GOOD).to_properties()["dLegerPeers"] == PEERS.split("=", 1)[1]


def test_without_dledger_its_keys_change_nothing(load: Load) -> None:
    config = load(PEERS, "dLegerSelfId=n2")
    assert (config.broker_id, config.ha_listen_port, config.flush_disk_type) == (0, 0, FlushDiskType.ASYNC_FLUSH)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({3: ""}, r"dLegerPeers: 0 peers cannot outvote a dead one"),
        (
            {3: "dLegerPeers=n0-127.0.0.1:40911;n1-127.0.0.1:40912"},
            r"line 4, dLegerPeers: 2 peers .* allowed are 3 or more",
        ),
        ({3: "dLegerPeers=127.0.0.1:40911"}, r"line 4, dLegerPeers: .* allowed is n<number>-host:port"),
        ({3: "dLegerPeers=n0-a:1;n0-b:2;n1-c:3"}, r"each id and each address once; n0-b:2 is there twice"),
        ({3: "dLegerPeers=n0-a:1;n1-a:1;n2-c:3"}, r"each id and each address once; n1-a:1 is there twice"),
        ({3: "dLegerPeers=n0-a:0;n1-b:1;n2-c:3"}, r"allowed is n<number>-host:port"),
        ({4: ""}, r"dLegerSelfId: it is not set; allowed is one of the ids in dLegerPeers: n0, n1, n2"),
        ({4: "dLegerSelfId=n3"}, r"line 5, dLegerSelfId: n3 is not in dLegerPeers; allowed is one of n0, n1, n2"),
        ({4: "dLegerSelfId=broker-a"}, r"line 5, dLegerSelfId: .* allowed is an id as"),
        ({2: "dLegerGroup=b"}, r"line 3, dLegerGroup: b is not brokerName, a: .* leave dLegerGroup out"),
        ({5: "preferredLeaderId=n7"}, r"line 6, preferredLeaderId: n7 is not in dLegerPeers"),
    ],
)
def test_what_cannot_work_is_refused_with_its_place_and_the_way_out(
    load: Load, changes: dict[int, str], said: str
) -> None:
    lines = {**dict(enumerate(GOOD)), **changes}
    with pytest.raises(ConfigError, match=said):
        load(*(lines[number] for number in sorted(lines)))
