"""A credential's own quotas: its account says what it may take of a broker, and that changes while the broker runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqwire.codes import RequestCode, ResponseCode
from mqwire.headers_broker import CreateAccessConfigRequestHeader
from tests.brokerd.acl_accounts import accounts_file
from tests.brokerd.broker_under_test import BrokerUnderTest, RecordingPeer
from tests.processes import wait_until
from tests.security.accounts import ACCOUNTS, OTHER_PROGRAM, TENANT_ADMIN, ask
from tests.security.live_broker import LiveBroker, send_request
from tests.security.test_quotas import pull, refused_by, send


@pytest.fixture
def broker(platform_broker: BrokerUnderTest) -> BrokerUnderTest:
    platform_broker.create_topic("orders", queues=1)
    platform_broker.create_topic("bills", queues=1)
    platform_broker.create_group("readers")
    return platform_broker


def with_quotas(**quotas: int) -> str:
    """The accounts, where tenant-app has these quotas of its own."""
    members = "".join(f", {name}: {limit}" for name, limit in quotas.items())
    return ACCOUNTS.replace("secretKey: tenant-app-secret", f"secretKey: tenant-app-secret{members}")


def give(broker: BrokerUnderTest, **quotas: int) -> None:
    """What the control plane does: write the accounts, and ask whether they are in force."""
    path = accounts_file(broker)
    path.write_text(with_quotas(**quotas))
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    broker.access_control.reload_if_changed()


def uses(broker: BrokerUnderTest) -> dict[tuple[str, str], tuple[int, int]]:
    return {
        (use.quota, use.name): (use.used, use.limit)
        for use in broker.broker.quotas.usage(broker.broker.held_pulls)
        if use.name.startswith("tenant-app")
    }


def test_a_credentials_own_rate_of_messages_names_the_quota_and_the_credential(broker: BrokerUnderTest) -> None:
    give(broker, quotaMessagesPerSecond=2)
    assert [send(broker).code for _ in range(2)] == [ResponseCode.SUCCESS] * 2
    reply = send(broker)
    assert (reply.code, reply.remark) == (
        ResponseCode.SYSTEM_BUSY,
        "credential tenant-app is over its quota quotaMessagesPerSecond: 2 messages in a second. Slow down, or ask for more",
    )
    broker.clock.advance(1)
    assert send(broker).code == ResponseCode.SUCCESS


def test_a_credentials_own_rate_of_bytes_holds_in_all_topics_together(broker: BrokerUnderTest) -> None:
    give(broker, quotaBytesPerSecond=1000)
    send(broker, body=b"x" * 5000)
    assert refused_by(send(broker, topic="bills")) == "quotaBytesPerSecond"


def test_a_credentials_own_rate_takes_nothing_of_anothers(broker: BrokerUnderTest) -> None:
    give(broker, quotaMessagesPerSecond=1)
    send(broker)
    assert refused_by(send(broker))
    assert [send(broker, OTHER_PROGRAM).code for _ in range(5)] == [ResponseCode.SUCCESS] * 5


def test_pulls_have_the_same_rate_apart_from_sends(broker: BrokerUnderTest) -> None:
    for _ in range(3):
        send(broker)
    give(broker, quotaMessagesPerSecond=2)
    first = pull(broker)
    assert first is not None
    assert first.code == ResponseCode.SUCCESS
    assert refused_by(pull(broker)) == "quotaMessagesPerSecond"
    assert send(broker).code == ResponseCode.SUCCESS


def test_a_credential_has_its_own_bound_of_connections(broker: BrokerUnderTest) -> None:
    give(broker, quotaConnections=1)
    peers = [RecordingPeer() for _ in range(2)]
    for peer in peers:
        broker.dispatch(peer, [send_request(b"x")])
    assert peers[0].take()[0].code == ResponseCode.SUCCESS
    reply = peers[1].take()[0]
    assert refused_by(reply) == "quotaConnections"
    assert (reply.remark or "").startswith("tenant-app has 1 connections")
    other = RecordingPeer()
    broker.dispatch(other, [send_request(b"x", OTHER_PROGRAM)])
    assert other.take()[0].code == ResponseCode.SUCCESS


def test_a_credential_has_its_own_bound_of_held_pulls(broker: BrokerUnderTest) -> None:
    send(broker)
    give(broker, quotaHeldPulls=1)
    assert pull(broker, 1, suspend=True) is None
    reply = pull(broker, 1, suspend=True)
    assert refused_by(reply) == "quotaHeldPulls"
    assert "tenant-app has 1 pulls" in (reply.remark or "" if reply else "")


@pytest.mark.parametrize(
    ("own", "of_the_broker", "named"), [(5, 1, "quotaCredentialMessagesPerSecond"), (1, 5, "quotaMessagesPerSecond")]
)
def test_the_lower_of_the_brokers_quota_and_the_credentials_own_holds(
    broker: BrokerUnderTest, own: int, of_the_broker: int, named: str
) -> None:
    broker.config.quota_credential_messages_per_second = of_the_broker
    give(broker, quotaMessagesPerSecond=own)
    send(broker)
    assert refused_by(send(broker)) == named


def test_a_credentials_own_quota_goes_with_its_account(broker: BrokerUnderTest) -> None:
    give(broker, quotaMessagesPerSecond=1)
    send(broker)
    assert refused_by(send(broker))
    give(broker)
    assert send(broker).code == ResponseCode.SUCCESS
    assert uses(broker) == {}


def test_a_changed_quota_forgives_nothing_that_is_to_be_paid_back(broker: BrokerUnderTest) -> None:
    give(broker, quotaBytesPerSecond=1000)
    send(broker, body=b"x" * 5000)
    for own in (999, 1000):
        give(broker, quotaBytesPerSecond=own)
        assert refused_by(send(broker)) == "quotaBytesPerSecond"
    broker.clock.advance(1)
    assert refused_by(send(broker)) == "quotaBytesPerSecond"


def test_a_raised_quota_is_paid_back_faster(broker: BrokerUnderTest) -> None:
    give(broker, quotaBytesPerSecond=100)
    send(broker, body=b"x" * 5000)
    give(broker, quotaBytesPerSecond=10_000)
    assert refused_by(send(broker))
    broker.clock.advance(1)
    assert send(broker).code == ResponseCode.SUCCESS


def test_who_gets_a_large_quota_for_a_small_one_is_not_refused_by_the_large_one(broker: BrokerUnderTest) -> None:
    give(broker, quotaMessagesPerSecond=1)
    send(broker)
    broker.clock.advance(0.1)
    send(broker)  # takes more than is there
    assert refused_by(send(broker)) == "quotaMessagesPerSecond"
    give(broker, quotaMessagesPerSecond=50_000)
    broker.clock.advance(0.01)
    assert send(broker).code == ResponseCode.SUCCESS


def test_a_credentials_own_quota_is_there_after_a_crash(broker: BrokerUnderTest) -> None:
    give(broker, quotaMessagesPerSecond=1)
    broker.crash()
    send(broker)
    assert refused_by(send(broker)) == "quotaMessagesPerSecond"


def test_own_quotas_are_shown_before_anything_is_used(broker: BrokerUnderTest) -> None:
    give(broker, quotaMessagesPerSecond=7, quotaConnections=3, quotaHeldPulls=4)
    assert uses(broker) == {
        ("quotaMessagesPerSecond", "tenant-app (send)"): (0, 7),
        ("quotaMessagesPerSecond", "tenant-app (pull)"): (0, 7),
        ("quotaConnections", "tenant-app"): (0, 3),
        ("quotaHeldPulls", "tenant-app"): (0, 4),
    }


def test_use_of_own_quotas_is_shown(broker: BrokerUnderTest) -> None:
    give(broker, quotaMessagesPerSecond=7, quotaConnections=3, quotaHeldPulls=4)
    send(broker)
    pull(broker, 1, suspend=True)
    broker.clock.advance(1)
    shown = uses(broker)
    assert shown["quotaMessagesPerSecond", "tenant-app (send)"] == (1, 7)
    assert shown["quotaHeldPulls", "tenant-app"] == (1, 4)
    assert shown["quotaConnections", "tenant-app"][0] >= 1


def test_an_exempt_account_has_no_quota_though_its_entry_says_so(broker: BrokerUnderTest) -> None:
    path = accounts_file(broker)
    path.write_text(ACCOUNTS.replace("infrastructure: true", "infrastructure: true, quotaConnections: 1"))
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    broker.access_control.reload_if_changed()
    assert broker.broker.quotas.connect("control-plane", RecordingPeer()) is None
    assert broker.broker.quotas.connect("control-plane", RecordingPeer()) is None


# --- who may change them ---


def test_a_tenants_administrator_gives_and_takes_no_quota(broker: BrokerUnderTest) -> None:
    give(broker, quotaMessagesPerSecond=1)
    header = CreateAccessConfigRequestHeader(access_key="tenant-app", secret_key="tenant-app-secret")
    fields = {**header.to_ext_fields(), "quotaMessagesPerSecond": "1000"}
    for code in (RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, RequestCode.DELETE_ACL_CONFIG):
        assert ask(broker, code, TENANT_ADMIN, fields=fields).code == ResponseCode.NO_PERMISSION
    for key in ("quotaMessagesPerSecond", "quotaTopicHeldPulls", "aclConfigFile"):
        body = f"{key}=1000\n".encode()
        assert ask(broker, RequestCode.UPDATE_BROKER_CONFIG, TENANT_ADMIN, body=body).code != ResponseCode.SUCCESS
    send(broker)
    assert refused_by(send(broker)) == "quotaMessagesPerSecond"


# --- held pulls of a topic ---


def test_a_topic_has_a_bounded_number_of_held_pulls_whoever_waits(broker: BrokerUnderTest) -> None:
    send(broker)
    broker.config.quota_topic_held_pulls = 1
    assert pull(broker, 1, suspend=True, credentials=OTHER_PROGRAM) is None
    reply = pull(broker, 1, suspend=True)
    assert reply is not None
    assert reply.remark == (
        "topic orders has 1 pulls that wait for messages, its quota quotaTopicHeldPulls is 1."
        " Run fewer consumers, or ask for more"
    )
    assert reply.code == ResponseCode.SYSTEM_BUSY
    assert pull(broker, 0, suspend=True, topic="bills") is None


def test_a_topics_held_pull_that_was_answered_makes_room_for_another(broker: BrokerUnderTest) -> None:
    send(broker)
    broker.config.quota_topic_held_pulls = 1
    pull(broker, 1, suspend=True)
    send(broker)
    assert pull(broker, 2, suspend=True) is None


# --- over the wire ---


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveBroker]:
    broker = LiveBroker(tmp_path / "live")
    yield broker
    broker.daemon.stop()


def _one_of_many_sends_is_refused(live: LiveBroker) -> bool:
    with live.connection() as stream:
        replies = [live.send(stream) for _ in range(5)]
    return any("quota quotaMessagesPerSecond" in (reply.remark or "") for reply in replies)


def test_a_running_broker_takes_a_quota_over_and_a_restart_keeps_it(live: LiveBroker, tmp_path: Path) -> None:
    assert not _one_of_many_sends_is_refused(live)
    (tmp_path / "live" / "plain_acl.yml").write_text(with_quotas(quotaMessagesPerSecond=1))
    wait_until(lambda: _one_of_many_sends_is_refused(live), timeout_s=30, what="a refusal")
    live.daemon.stop()
    live.daemon.start()
    assert _one_of_many_sends_is_refused(live)
    (tmp_path / "live" / "plain_acl.yml").write_text(ACCOUNTS)
    wait_until(lambda: not _one_of_many_sends_is_refused(live), timeout_s=30, what="no refusal")
