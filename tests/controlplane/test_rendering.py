"""What the daemons read, as text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import brokerd.config
import namesrvd.config
from controlplane.provisioning.rendering import (
    BrokerConfiguration,
    NameServerConfiguration,
    render_broker_conf,
    render_namesrv_conf,
    render_plain_acl,
    render_properties,
)
from highwater import AclAccount

CONTROL = AclAccount("HWCONTROL", "s3cret", admin=True)


def configuration(**changes: object) -> BrokerConfiguration:
    values: dict[str, object] = {
        "cluster_name": "orders",
        "broker_name": "broker-a",
        "broker_id": 0,
        "broker_role": "ASYNC_MASTER",
        "flush_disk_type": "SYNC_FLUSH",
        "name_server_addresses": ["127.0.0.1:20001", "127.0.0.1:20002"],
        "host": "127.0.0.1",
        "bind_address": "127.0.0.1",
        "port": 20012,
        "store_path": "/state/store",
        "acl_path": "/state/plain_acl.yml",
        "control": CONTROL,
        **changes,
    }
    return BrokerConfiguration(**values)  # type: ignore[arg-type]  # a dictionary has one type for all values


def properties(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


def test_broker_conf_names_everything_that_a_broker_needs() -> None:
    assert properties(render_broker_conf(configuration())) == {
        "brokerClusterName": "orders",
        "brokerName": "broker-a",
        "brokerId": "0",
        "brokerRole": "ASYNC_MASTER",
        "flushDiskType": "SYNC_FLUSH",
        "namesrvAddr": "127.0.0.1:20001;127.0.0.1:20002",
        "brokerIP1": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "listenPort": "20012",
        "storePathRootDir": "/state/store",
        "storePathCommitLog": "/state/store/commitlog",
        "mappedFileSizeCommitLog": str(64 * 1024 * 1024),
        "mappedFileSizeConsumeQueue": str(30_000 * 20),
        "maxHashSlotNum": "500000",
        "maxIndexNum": "2000000",
        "maxMessageSize": str(4 * 1024 * 1024),
        "deleteWhen": "04",
        "fileReservedTime": "72",
        "autoCreateTopicEnable": "false",
        "autoCreateSubscriptionGroup": "true",
        "traceTopicEnable": "true",
        "aclEnable": "true",
        "aclConfigFile": "/state/plain_acl.yml",
        "innerClientAuthenticationCredentials": '{"accessKey":"HWCONTROL","secretKey":"s3cret"}',
    }


def test_broker_conf_names_the_metering_interval_only_where_it_is_another_one() -> None:
    assert "meteringIntervalMs" not in properties(render_broker_conf(configuration()))
    assert properties(render_broker_conf(configuration(metering_interval_ms=5000)))["meteringIntervalMs"] == "5000"
    assert brokerd.config.BrokerConfig().metering_interval_ms == configuration().metering_interval_ms


def test_broker_conf_of_a_group_with_slaves_says_how_many_hold_a_message() -> None:
    found = properties(
        render_broker_conf(configuration(broker_role="SYNC_MASTER", total_replicas=3, in_sync_replicas=2))
    )
    wanted = {"brokerRole": "SYNC_MASTER", "totalReplicas": "3", "inSyncReplicas": "2", "slaveReadEnable": "true"}
    assert wanted.items() <= found.items()
    assert "haListenPort" not in found


def test_brokerd_takes_the_file_without_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(render_broker_conf(configuration()))
    warnings: list[str] = []
    config = brokerd.config.load_config(str(path), environ={}, warn=warnings.append)
    assert warnings == []
    assert (config.broker_cluster_name, config.listen_port, config.acl_enable) == ("orders", 20012, True)
    assert config.namesrv_addr == ("127.0.0.1:20001", "127.0.0.1:20002")


def test_namesrvd_takes_the_file_without_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text(
        render_namesrv_conf(NameServerConfiguration("127.0.0.1", 20001, "/state/acl.yml", "/state/kv.json"))
    )
    warnings: list[str] = []
    config = namesrvd.config.load_config(str(path), warn=warnings.append)
    assert warnings == []
    assert (config.listen_port, config.acl_enable) == (20001, True)


def test_the_brokers_own_credential_is_json() -> None:
    value = properties(render_broker_conf(configuration()))["innerClientAuthenticationCredentials"]
    assert json.loads(value) == {"accessKey": "HWCONTROL", "secretKey": "s3cret"}


def test_namesrv_conf_turns_access_control_on_and_leaves_no_file_to_the_daemons_home() -> None:
    text = render_namesrv_conf(NameServerConfiguration("127.0.0.1", 20001, "/state/acl.yml", "/state/kv.json"))
    assert properties(text) == {
        "bindAddress": "127.0.0.1",
        "listenPort": "20001",
        "aclEnable": "true",
        "aclConfigFile": "/state/acl.yml",
        "kvConfigPath": "/state/kv.json",
    }


def test_plain_acl_lists_accounts_with_their_rights_and_trusts_no_address() -> None:
    app = AclAccount("HWAPP", "other", topic_perms={"invoices": "PUB", "audit": "DENY"}, group_perms={"billing": "SUB"})
    assert yaml.safe_load(render_plain_acl(CONTROL, [app])) == {
        "globalWhiteRemoteAddresses": [],
        "accounts": [
            {
                "accessKey": "HWCONTROL",
                "secretKey": "s3cret",
                "whiteRemoteAddress": None,
                "admin": True,
                "defaultTopicPerm": "PUB|SUB",
                "defaultGroupPerm": "SUB",
                "infrastructure": True,
            },
            {
                "accessKey": "HWAPP",
                "secretKey": "other",
                "whiteRemoteAddress": None,
                "admin": False,
                "defaultTopicPerm": "PUB|SUB",
                "defaultGroupPerm": "SUB",
                "topicPerms": ["audit=DENY", "invoices=PUB"],
                "groupPerms": ["billing=SUB"],
            },
        ],
    }


def test_backslashes_are_escaped_as_java_reads_them() -> None:
    assert render_properties({"path": "C:\\store"}) == "path=C:\\\\store\n"


def test_a_line_break_cannot_smuggle_in_another_key() -> None:
    with pytest.raises(ValueError, match="line break"):
        render_properties({"brokerName": "a\naclEnable=false"})
