"""brokerd/config.py: broker.conf is read, checked, explained and changed."""

from __future__ import annotations

import dataclasses
import socket
from pathlib import Path

import pytest

from brokerd.config import TENANTS_HOT_KEYS, BrokerConfig, ConfigError, load_config
from brokerd.config_keys import KEYS_NOT_SERVED, KEYS_WITHOUT_MEANING
from brokerd.config_values import BrokerRole, FlushDiskType

BROKERD = Path(__file__).parents[2] / "brokerd"
SOURCE = "".join(file.read_text() for file in BROKERD.rglob("*.py"))


class Load:
    """Loads a broker.conf of the given lines; `warnings` holds what was warned of."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "broker.conf"
        self.warnings: list[str] = []

    def __call__(self, *lines: str, overrides: dict[str, str] | None = None) -> BrokerConfig:
        self.path.write_text("\n".join(lines) + "\n")
        return load_config(str(self.path), environ={}, warn=self.warnings.append, overrides=overrides or {})


@pytest.fixture
def load(tmp_path: Path) -> Load:
    return Load(tmp_path)


# --- defaults and reading ---


def test_without_a_file_rocketmqs_defaults_hold() -> None:
    config = load_config(None, environ={})
    assert (config.broker_cluster_name, config.listen_port, config.max_message_size_bytes) == (
        "DefaultCluster",
        10911,
        4 * 1024 * 1024,
    )
    assert (config.flush_disk_type, config.broker_role) == (FlushDiskType.ASYNC_FLUSH, BrokerRole.ASYNC_MASTER)
    assert config.auto_create_topic_enable
    assert config.auto_create_subscription_group


def test_rocketmqs_sample_file_is_taken_without_a_warning(load: Load) -> None:
    config = load(
        "# sample",
        "brokerClusterName = DefaultCluster",
        "brokerName = broker-a",
        "brokerId = 0",
        "deleteWhen = 04",
        "fileReservedTime = 48",
        "brokerRole = ASYNC_MASTER",
        "flushDiskType = ASYNC_FLUSH",
    )
    assert (config.broker_name, config.delete_when_hours, config.file_reserved_time_hours) == ("broker-a", (4,), 48)
    assert load.warnings == []


def test_the_name_of_4x_for_the_size_of_a_commit_log_file_is_read(load: Load) -> None:
    assert load("mapedFileSizeCommitLog=1048576").mapped_file_size_commit_log_bytes == 1048576


def test_paths_hang_below_the_root(load: Load) -> None:
    config = load("storePathRootDir=/data/store")
    assert (config.store_path_commit_log, config.store_path_consume_queue, config.config_folder) == (
        "/data/store/commitlog",
        "/data/store/consumequeue",
        "/data/store/config",
    )


def test_the_access_control_file_stands_beside_broker_conf(load: Load) -> None:
    assert load().acl_config_file == str(load.path.parent / "plain_acl.yml")


def test_several_name_servers_are_separated_by_semicolons(load: Load) -> None:
    assert load("namesrvAddr=10.0.0.1:9876; ns2.example:9876;[::1]:9876").namesrv_addr == (
        "10.0.0.1:9876",
        "ns2.example:9876",
        "[::1]:9876",
    )


def test_name_servers_come_from_the_environment_when_the_file_names_none(tmp_path: Path) -> None:
    assert load_config(None, environ={"NAMESRV_ADDR": "h:1"}).namesrv_addr == ("h:1",)


def test_the_file_wins_over_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("namesrvAddr=f:1\n")
    assert load_config(str(file), environ={"NAMESRV_ADDR": "h:1"}).namesrv_addr == ("f:1",)


def test_the_command_line_wins_over_the_file(load: Load) -> None:
    assert load("namesrvAddr=f:1", overrides={"namesrvAddr": "c:2"}).namesrv_addr == ("c:2",)


def test_the_name_of_the_broker_defaults_to_the_hosts(load: Load) -> None:
    assert load().broker_name.startswith(socket.gethostname()[:1])


def test_credentials_are_rocketmq_5s_json(load: Load) -> None:
    credentials = load(
        'innerClientAuthenticationCredentials={"accessKey":"broker","secretKey":"s3cret"}'
    ).inner_client_authentication_credentials
    assert credentials is not None
    assert (credentials.access_key, credentials.secret_key) == ("broker", "s3cret")


def test_a_master_with_a_broker_id_is_taken_as_0_and_logged(load: Load) -> None:
    assert load("brokerId=3").broker_id == 0
    assert "taken as 0" in load.warnings[0]


# --- warnings ---


def test_keys_without_meaning_are_listed_in_one_warning(load: Load) -> None:
    load(
        "transientStorePoolEnable=true", "brokerName=a", "sendMessageThreadPoolNums=16", "waitTimeMillsInSendQueue=200"
    )
    assert len(load.warnings) == 1
    for key in ("transientStorePoolEnable", "sendMessageThreadPoolNums", "waitTimeMillsInSendQueue"):
        assert key in load.warnings[0]


def test_a_key_of_a_service_that_is_not_offered_is_reported_with_what_is_refused(load: Load) -> None:
    load("brokerName=a", "timerWheelEnable=true")
    assert len(load.warnings) == 1
    assert "line 2" in load.warnings[0]
    assert "refuses timer messages" in load.warnings[0]


def test_an_unknown_key_is_reported_with_its_line_and_the_likely_name(load: Load) -> None:
    load("brokerName=a", "flushDiskTipe=SYNC_FLUSH")
    assert len(load.warnings) == 1
    assert "line 2" in load.warnings[0]
    assert "did you mean flushDiskType?" in load.warnings[0]


def test_an_unknown_key_unlike_any_other_is_reported(load: Load) -> None:
    load("colour=blue")
    assert "'colour' is not a key of broker.conf" in load.warnings[0]


def test_a_key_given_twice_is_reported_and_the_last_one_counts(load: Load) -> None:
    assert load("listenPort=1", "listenPort=2").listen_port == 2
    assert "line 1" in load.warnings[0]


# --- refusals ---


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("listenPort=70000", "from 0 to 65535"),
        ("listenPort=eighty", "a whole number"),
        ("listenPort=", "a whole number"),
        ("listenPort=1_0", "a whole number"),
        ("autoCreateTopicEnable=yes", "true or false"),
        ("flushDiskType=SOMETIMES", "ASYNC_FLUSH or SYNC_FLUSH"),
        ("deleteWhen=25", "hours from 00 to 23"),
        ("deleteWhen=4,5", "hours from 00 to 23"),
        ("messageDelayLevel=1s 5", "1s 5s 10s"),
        ("namesrvAddr=localhost", "host:port"),
        ("brokerIP1=my host", "an IPv4 or IPv6 address"),
        ("brokerName=../x", "1 to 120 letters"),
        ("brokerName=..", "1 to 120 letters"),
        ("storePathCommitLog=/a,/b", "one path"),
        ("innerClientAuthenticationCredentials=user:pass", '{"accessKey"'),
        ("maxMessageSize=0", "from 1024"),
        ("maxMessageSize=33554432", "to 25165824"),
        ("defaultTopicQueueNums=0", "from 1 to 1024"),
    ],
)
def test_a_bad_value_is_refused_with_file_line_key_and_what_is_allowed(load: Load, line: str, allowed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load("# comment", line)
    message = str(caught.value)
    assert f"{load.path}, line 2, {line.split('=')[0]}" in message
    assert allowed in message


def test_a_bad_secret_is_not_shown(load: Load) -> None:
    with pytest.raises(ConfigError) as caught:
        load('innerClientAuthenticationCredentials={"accessKey":"a","secretKey":"hunter2"')
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        (["enableControllerMode=true"], "elect by themselves"),
        (["authenticationEnabled=true"], "aclEnable=true"),
        (["listenPort=10911", "leaderListenPort=10911"], "leaderListenPort: 10911 is listenPort already"),
        (["haListenPort=10912", "leaderListenPort=10912"], "leaderListenPort: 10912 is haListenPort already"),
        (["authorizationEnabled=true"], "aclEnable=true"),
    ],
)
def test_what_this_version_cannot_obey_is_refused_rather_than_ignored(load: Load, lines: list[str], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        load(*lines)


def test_a_sync_master_with_one_in_sync_replica_waits_for_no_one_as_in_rocketmq(load: Load) -> None:
    assert load("brokerRole=SYNC_MASTER").broker_role is BrokerRole.SYNC_MASTER


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(str(tmp_path / "none.conf"))


# --- change at run time ---


def test_a_hot_key_is_changed_and_written_to_the_file(load: Load) -> None:
    config = load("# keep me", "defaultTopicQueueNums = 8", "brokerName=a")
    assert config.change({"defaultTopicQueueNums": "4"}) == {"defaultTopicQueueNums"}
    assert config.default_topic_queue_nums == 4
    assert load.path.read_text() == "# keep me\ndefaultTopicQueueNums=4\nbrokerName=a\n"


def test_a_value_over_several_lines_is_replaced_whole(load: Load) -> None:
    load("brokerPermission = \\", "   6", "brokerName=a").change({"brokerPermission": "4"})
    assert load.path.read_text() == "brokerPermission=4\nbrokerName=a\n"


def test_a_hot_key_that_the_file_lacks_is_added(load: Load) -> None:
    load("brokerName=a").change({"brokerPermission": "4"})
    assert load.path.read_text() == "brokerName=a\nbrokerPermission=4\n"


@pytest.mark.parametrize(
    "key", ["storePathRootDir", "aclEnable", "aclConfigFile", "listenPort", "rocketmqHome", "configBlackList", "x", ""]
)
def test_other_keys_are_not_changed_at_run_time(load: Load, key: str) -> None:
    config = load("brokerName=a")
    before = dataclasses.asdict(config)
    with pytest.raises(ConfigError, match="cannot be changed while the broker runs"):
        config.change({"defaultTopicQueueNums": "1", key: "1"})
    assert dataclasses.asdict(config) == before


def test_a_bad_value_changes_nothing(load: Load) -> None:
    config = load("brokerName=a")
    with pytest.raises(ConfigError, match="true or false"):
        config.change({"defaultTopicQueueNums": "1", "autoCreateTopicEnable": "maybe"})
    assert config.default_topic_queue_nums == 8
    assert load.path.read_text() == "brokerName=a\n"


@pytest.mark.parametrize("value", ["4\naclEnable=false", "4\rx", "6\\"])
def test_a_value_cannot_smuggle_in_a_second_line(load: Load, value: str) -> None:
    with pytest.raises(ConfigError):
        load("brokerName=a").change({"brokerPermission": value})
    assert load.path.read_text() == "brokerName=a\n"


def test_a_change_survives_a_restart(load: Load) -> None:
    load("brokerName=a").change({"shortPollingTimeMills": "250"})
    assert load_config(str(load.path), environ={}).short_polling_time_ms == 250


# --- as properties ---


def test_all_keys_are_shown_but_no_secret(load: Load) -> None:
    shown = load(
        'innerClientAuthenticationCredentials={"accessKey":"a","secretKey":"hunter2"}', "brokerName=b"
    ).to_properties()
    assert shown["brokerName"] == "b"
    assert "hunter2" not in str(shown)


def test_what_is_shown_can_be_read_again(tmp_path: Path) -> None:
    config = load_config(None, environ={})
    file = tmp_path / "again.conf"
    file.write_text("".join(f"{key}={value}\n" for key, value in config.to_properties().items()))
    again = load_config(str(file), environ={}, warn=pytest.fail)
    config.file_path = again.file_path = None
    assert again == config


def test_no_key_is_both_used_and_without_meaning() -> None:
    used = {field.metadata["key"].name for field in dataclasses.fields(BrokerConfig) if "key" in field.metadata}
    assert not used & KEYS_WITHOUT_MEANING
    assert not used & KEYS_NOT_SERVED.keys()
    assert not KEYS_NOT_SERVED.keys() & KEYS_WITHOUT_MEANING


def test_no_key_takes_a_value_without_end_and_a_tenants_none_that_holds_clients_for_days() -> None:
    by_field = {f.name: f.metadata["key"] for f in dataclasses.fields(BrokerConfig) if "key" in f.metadata}
    for key in by_field.values():
        for endless in ("x" * 5000, "1" * 5000, "127.0.0.1:1;" * 500):
            with pytest.raises(ConfigError):
                load_config(None, overrides={key.name: endless}, environ={})
        if key.name in TENANTS_HOT_KEYS:
            with pytest.raises(ConfigError):
                BrokerConfig().change({key.name: str(2**31 - 1)})


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(BrokerConfig) if "key" in f.metadata])
def test_an_accepted_key_is_read_by_the_broker(field: str) -> None:
    assert f".{field}" in SOURCE, "nothing reads it: give it its effect, or move it to config_keys.py"
