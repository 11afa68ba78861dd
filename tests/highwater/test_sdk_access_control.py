"""The SDK where requests must be signed: RocketMQ 5's access control on Apache, RocketMQ 4's on ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from highwater import (
    AclAccount,
    Admin,
    ConsumeFrom,
    Credentials,
    HighwaterError,
    Message,
    PermissionDeniedError,
    Producer,
    PushConsumer,
    ReceivedMessage,
)
from tests.highwater.cluster import Cluster
from tests.highwater.collector import Collector, wait_until
from tests.interop.targets import ADMIN_KEY

CLUSTER = "DefaultCluster"


@pytest.fixture
def secured_topic(secured_cluster: Cluster, unique: str) -> str:
    secured_cluster.create_topic(unique)
    return unique


@pytest.fixture
def owner(secured_cluster: Cluster) -> Iterator[Admin]:
    with secured_cluster.admin() as admin:
        yield admin


@pytest.mark.parametrize(
    "credentials",
    [None, Credentials("nobody", "12345678"), Credentials(ADMIN_KEY, "a wrong secret")],
    ids=["no credentials", "an unknown key", "a wrong secret"],
)
def test_whoever_does_not_sign_rightly_is_refused(
    secured_cluster: Cluster, secured_topic: str, credentials: Credentials | None
) -> None:
    with Producer(secured_cluster.namesrv, credentials=credentials) as producer:
        with pytest.raises(PermissionDeniedError) as caught:
            producer.send(Message(secured_topic, b"hello"))
    assert (caught.value.response_code, caught.value.retryable) == (16, False)


def test_a_consumer_that_is_refused_does_not_start(secured_cluster: Cluster, secured_topic: str) -> None:
    stranger = PushConsumer(secured_cluster.namesrv, "g", credentials=Credentials(ADMIN_KEY, "a wrong secret"))
    stranger.subscribe(secured_topic, handler=Collector())
    with pytest.raises(PermissionDeniedError):
        stranger.start()
    stranger.stop()


def test_whoever_signs_rightly_sends_and_consumes(secured_cluster: Cluster, secured_topic: str) -> None:
    namesrv = secured_cluster.namesrv
    with Producer(namesrv, credentials=secured_cluster.credentials) as producer:
        for serial in range(5):
            producer.send(Message(secured_topic, b"m%d" % serial, tags="ü", properties={"größe": "😀"}))
        producer.send_batch([Message(secured_topic, b"m5"), Message(secured_topic, b"m6")])
        producer.send_oneway(Message(secured_topic, b"m7"))

    def fail_once(message: ReceivedMessage) -> None:
        if message.reconsume_times == 0 and message.body == b"m0":
            raise RuntimeError("again")

    collector = Collector(fail_once)
    consumer = PushConsumer(
        namesrv, f"g-{secured_topic}", credentials=secured_cluster.credentials, consume_from=ConsumeFrom.FIRST_OFFSET
    )
    consumer.subscribe(secured_topic, handler=collector)
    with consumer:
        collector.wait(9)
    assert sorted(collector.bodies) == sorted([b"m0", *(b"m%d" % serial for serial in range(8))])


def test_administration_is_for_those_who_may(secured_cluster: Cluster, owner: Admin) -> None:
    assert owner.broker_config(secured_cluster.broker_address)["brokerName"] == secured_cluster.broker_name
    with Admin(secured_cluster.namesrv) as stranger, pytest.raises(PermissionDeniedError):
        stranger.broker_config(secured_cluster.broker_address)


# RocketMQ 5 has replaced the requests for accounts that RocketMQ 4 had.
@pytest.mark.parametrize("secured_cluster", ["highwater"], indirect=True)
def test_an_account_is_made_used_and_taken_away(secured_cluster: Cluster, owner: Admin, secured_topic: str) -> None:
    namesrv = secured_cluster.namesrv
    account = AclAccount(
        f"key-{secured_topic}",
        "a long enough secret",
        default_topic_perm="DENY",
        default_group_perm="SUB",
        topic_perms={secured_topic: "PUB"},
    )
    assert owner.upsert_acl_account(CLUSTER, account) == (secured_cluster.broker_address,)
    version = 1 if secured_cluster.brand == "apache" else 2
    credentials = Credentials(account.access_key, account.secret_key, signature_version=version)
    with Producer(namesrv, credentials=credentials) as producer:
        producer.send(Message(secured_topic, b"hello"))
    with Admin(namesrv, credentials) as tenant, pytest.raises(PermissionDeniedError):
        tenant.newest_messages(secured_topic)
    owner.delete_acl_account(account.access_key)

    def refused() -> bool:
        with Producer(namesrv, credentials=credentials) as producer:
            try:
                producer.send(Message(secured_topic, b"hello"))
            except HighwaterError as error:
                return isinstance(error, PermissionDeniedError)
        return False

    wait_until(refused, "the account that was deleted is refused")
