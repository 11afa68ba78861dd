"""A held pull gets nothing that a new one would not get by then: its key, right, group, topic or broker was closed meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mqwire.acl import SIGNATURE_VERSION, Signer, sign_request
from mqwire.codes import PullSysFlag, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from tests.brokerd.acl_accounts import ALICE, MakeAclBroker, accounts_file
from tests.brokerd.broker_under_test import BrokerUnderTest, RecordingPeer

GROUP = "alice-group"
SUSPEND_S = 60
ACCOUNTS = """
accounts:
  - {accessKey: operator, secretKey: operator-secret, admin: true}
  - {accessKey: alice-app, secretKey: alice-secret, defaultTopicPerm: SUB, defaultGroupPerm: SUB}
  - {accessKey: bob-app, secretKey: bob-secret}
"""


@pytest.fixture
def orders(make_acl_broker: MakeAclBroker) -> BrokerUnderTest:
    """A broker with an empty queue, that makes no group by itself."""
    broker = make_acl_broker(ACCOUNTS, autoCreateSubscriptionGroup="false")
    broker.create_topic("orders", queues=1)
    broker.create_group(GROUP)
    return broker


def pull_request(broker: BrokerUnderTest, *, version: int = 1) -> RemotingCommand:
    request = RemotingCommand.request(
        RequestCode.PULL_MESSAGE,
        ext_fields={
            "consumerGroup": GROUP, "topic": "orders", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32",
            "sysFlag": str(int(PullSysFlag.SUBSCRIPTION | PullSysFlag.SUSPEND)), "commitOffset": "0",
            "suspendTimeoutMillis": str(SUSPEND_S * 1000), "subscription": "*", "subVersion": "0",
        },
    )  # fmt: skip
    if version == 1:
        sign_request(request, ALICE)
    else:
        Signer(ALICE, broker.clock.time_ms).sign(request)
        assert SIGNATURE_VERSION in request.ext_fields
    return request


def hold(broker: BrokerUnderTest, *, version: int = 1) -> RecordingPeer:
    peer = RecordingPeer()
    held = len(broker.broker.held_pulls)
    broker.dispatch(peer, [pull_request(broker, version=version)])
    assert (len(broker.broker.held_pulls), peer.take()) == (held + 1, [])
    return peer


def message_arrives(broker: BrokerUnderTest) -> None:
    broker.store_message("orders", b"secret")
    broker.broker.held_changed()


def time_is_over(broker: BrokerUnderTest) -> None:
    broker.clock.advance(SUSPEND_S + 1)
    broker.broker.answer_expired()


def said(answers: list[RemotingCommand]) -> list[tuple[int, str | None, bytes]]:
    return [(answer.code, answer.remark, bytes(answer.body)) for answer in answers]


def as_a_new_one(broker: BrokerUnderTest) -> list[tuple[int, str | None, bytes]]:
    answers = said([broker.answer(pull_request(broker))])
    assert answers[0][0] != ResponseCode.SUCCESS
    return answers


def delete_key(broker: BrokerUnderTest) -> None:
    assert broker.access_control.delete_account("alice-app")


def take_topic_right(broker: BrokerUnderTest) -> None:
    broker.access_control.put_account({"accessKey": "alice-app", "topicPerms": ["orders=PUB"]})


def take_group_right(broker: BrokerUnderTest) -> None:
    broker.access_control.put_account({"accessKey": "alice-app", "groupPerms": [f"{GROUP}=DENY"]})


def change_secret(broker: BrokerUnderTest) -> None:
    broker.access_control.put_account({"accessKey": "alice-app", "secretKey": "another-secret"})


def delete_key_by_hand(broker: BrokerUnderTest) -> None:
    path = accounts_file(broker)
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if "alice" not in line))
    assert broker.access_control.reload_if_changed()


@pytest.mark.parametrize("change", [delete_key, take_topic_right, take_group_right, change_secret, delete_key_by_hand])
def test_a_key_that_loses_its_right_has_its_held_pulls_refused_at_once(
    orders: BrokerUnderTest, change: Callable[[BrokerUnderTest], None]
) -> None:
    peers = [hold(orders) for _ in range(3)]
    change(orders)
    refusals = [said(peer.take()) for peer in peers]
    assert refusals == [as_a_new_one(orders)] * 3
    assert len(orders.broker.held_pulls) == 0


@pytest.mark.parametrize("wake", [message_arrives, time_is_over])
def test_a_held_pull_whose_key_was_deleted_unheard_is_refused_when_it_is_woken(
    orders: BrokerUnderTest, wake: Callable[[BrokerUnderTest], None]
) -> None:
    peer = hold(orders)
    orders.access_control.on_change = lambda ended: None
    delete_key(orders)
    wake(orders)
    assert said(peer.take()) == as_a_new_one(orders)


def close_topic(broker: BrokerUnderTest) -> None:
    broker.create_topic("orders", queues=1, perm=2)


def delete_topic(broker: BrokerUnderTest) -> None:
    broker.broker.topic_configs.delete(["orders"])


def close_group(broker: BrokerUnderTest) -> None:
    broker.create_group(GROUP, consume_enable=False)


def delete_group(broker: BrokerUnderTest) -> None:
    broker.broker.subscription_groups.delete(GROUP)


def close_broker(broker: BrokerUnderTest) -> None:
    broker.config.broker_permission = 2


def close_metering(broker: BrokerUnderTest) -> None:
    broker.broker.metering.close()


CLOSINGS = [close_topic, delete_topic, close_group, delete_group, close_broker, close_metering]


@pytest.mark.parametrize("wake", [message_arrives, time_is_over])
@pytest.mark.parametrize("change", CLOSINGS)
def test_a_held_pull_is_refused_when_it_is_woken_as_a_new_one_is(
    orders: BrokerUnderTest, change: Callable[[BrokerUnderTest], None], wake: Callable[[BrokerUnderTest], None]
) -> None:
    peer = hold(orders)
    change(orders)
    wake(orders)
    assert said(peer.take()) == as_a_new_one(orders)


@pytest.mark.parametrize("version", [1, 2])
def test_a_held_pull_waits_on_while_its_key_loses_other_rights(orders: BrokerUnderTest, version: int) -> None:
    peer = hold(orders, version=version)
    orders.access_control.put_account(
        {"accessKey": "alice-app", "defaultTopicPerm": "DENY", "topicPerms": ["orders=SUB"]}
    )
    assert (len(orders.broker.held_pulls), peer.take()) == (1, [])
    message_arrives(orders)
    (answer,) = peer.take()
    assert answer.code == ResponseCode.SUCCESS


def test_a_held_pull_does_not_notice_that_another_key_is_deleted(orders: BrokerUnderTest) -> None:
    hold(orders)
    account = orders.access_control.accounts["alice-app"]
    path = accounts_file(orders)
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if "bob" not in line))
    assert orders.access_control.reload_if_changed()
    assert orders.access_control.accounts["alice-app"] is account
    assert len(orders.broker.held_pulls) == 1


def test_a_held_pull_makes_no_group(make_acl_broker: MakeAclBroker) -> None:
    broker = make_acl_broker(ACCOUNTS)
    broker.create_topic("orders", queues=1)
    peer = hold(broker)
    delete_group(broker)
    message_arrives(broker)
    (answer,) = peer.take()
    assert answer.code == ResponseCode.SUCCESS
    assert broker.broker.subscription_groups.select(GROUP) is None
