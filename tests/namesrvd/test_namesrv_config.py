"""namesrv.conf: RocketMQ's own keys, checked; and what is said about the others."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from mqwire.properties import format_properties
from namesrvd.config import KEYS_WITHOUT_MEANING, ConfigError, NamesrvConfig, load_config


def load(tmp_path: Path, text: str) -> tuple[NamesrvConfig, list[str]]:
    path = tmp_path / "namesrv.conf"
    path.write_text(text, "utf-8")
    warnings: list[str] = []
    return load_config(str(path), warn=warnings.append), warnings


def test_defaults_are_rocketmqs() -> None:
    config = load_config(None)
    assert (config.listen_port, config.bind_address) == (9876, "0.0.0.0")
    assert config.broker_channel_expired_timeout_ms == 120_000
    assert config.scan_not_active_broker_interval_ms == 10_000
    assert config.kv_config_path.endswith("/namesrv/kvConfig.json")
    assert not config.order_message_enable


def test_every_key_is_read(tmp_path: Path) -> None:
    config, warnings = load(
        tmp_path,
        """
        listenPort=9000
        bindAddress = ::1
        kvConfigPath=/var/lib/kv.json
        scanNotActiveBrokerInterval=5000
        orderMessageEnable=true
        needWaitForService=TRUE
        waitSecondsForService=30
        deleteTopicWithBrokerRegistration=true
        aclEnable=true
        aclConfigFile=/etc/plain_acl.yml
        """,
    )
    assert warnings == []
    assert (config.listen_port, config.bind_address, config.kv_config_path) == (9000, "::1", "/var/lib/kv.json")
    assert (config.scan_not_active_broker_interval_ms, config.wait_seconds_for_service) == (5000, 30)
    assert config.order_message_enable
    assert config.need_wait_for_service
    assert config.delete_topic_with_broker_registration
    assert (config.acl_enable, config.acl_config_file) == (True, "/etc/plain_acl.yml")


def test_the_access_rules_stand_beside_the_file_by_default(tmp_path: Path) -> None:
    config, _ = load(tmp_path, "listenPort=1")
    assert config.acl_config_file == str(tmp_path / "plain_acl.yml")


BAD_VALUES = [
    ("listenPort", "98765", "a whole number from 0 to 65535"),
    ("listenPort", "", "a whole number"),
    ("listenPort", "-1", "a whole number"),
    ("listenPort", "9" * 5000, "a whole number"),
    ("listenPort", "\uff19", "a whole number"),
    ("bindAddress", "localhost", "an IPv4 or IPv6 address"),
    ("orderMessageEnable", "yes", "true or false"),
    ("kvConfigPath", "", "a file's path"),
    ("brokerChannelExpiredTimeout", "0", "a whole number from 10"),
]


@pytest.mark.parametrize(("key", "value", "allowed"), BAD_VALUES)
def test_a_bad_value_is_reported_with_file_line_key_value_and_what_is_allowed(
    tmp_path: Path, key: str, value: str, allowed: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"# a comment\n\n{key}={value}\n")
    message = str(caught.value)
    for part in (str(tmp_path / "namesrv.conf"), "line 3", f"{key}={value}", allowed):
        assert part in message


def test_keys_without_meaning_are_reported_in_one_warning(tmp_path: Path) -> None:
    _, warnings = load(tmp_path, "rocketmqHome=/opt\nlistenPort=1\nserverWorkerThreads=8\nlistenprt=2\nwhatever=3\n")
    assert len(warnings) == 1
    assert "rocketmqHome (line 1)" in warnings[0]
    assert "serverWorkerThreads (line 3)" in warnings[0]
    assert "listenprt (line 4: unknown, did you mean listenPort?)" in warnings[0]
    assert "whatever (line 5: unknown)" in warnings[0]


def test_of_a_key_that_stands_there_twice_the_last_counts(tmp_path: Path) -> None:
    config, warnings = load(tmp_path, "listenPort=1\nlistenPort=2\n")
    assert config.listen_port == 2
    assert len(warnings) == 1
    assert "line 2" in warnings[0]
    assert "line 1" in warnings[0]


def test_the_command_line_wins(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text("listenPort=1\nbindAddress=127.0.0.1\n")
    config = load_config(str(path), overrides={"listenPort": "2"})
    assert (config.listen_port, config.bind_address) == (2, "127.0.0.1")
    with pytest.raises(ConfigError, match="command line: listenPort=x"):
        load_config(str(path), overrides={"listenPort": "x"})


def test_a_missing_file_and_one_that_is_no_text_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(str(tmp_path / "none.conf"))
    (tmp_path / "bad.conf").write_bytes(b"listenPort=1\nbindAddress=\xff")
    with pytest.raises(ConfigError, match="line 2"):
        load_config(str(tmp_path / "bad.conf"))


def test_the_password_of_its_key_is_shown_to_no_one(tmp_path: Path) -> None:
    config, warnings = load(tmp_path, "tls.server.keyPassword=a-secret\n")
    assert config.tls_server_key_password == "a-secret"
    assert not warnings
    assert "a-secret" not in str(config.to_properties()) + repr(config)


def test_what_is_answered_as_properties_can_be_read_again(tmp_path: Path) -> None:
    config = dataclasses.replace(load_config(None), listen_port=1, acl_enable=True)
    again, warnings = load(tmp_path, format_properties(config.to_properties()))
    assert again == config
    assert warnings == []


def test_no_key_is_both_known_and_without_meaning() -> None:
    assert KEYS_WITHOUT_MEANING.isdisjoint(NamesrvConfig().to_properties())
