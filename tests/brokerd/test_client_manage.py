"""Heartbeats, group membership and its notifications, through the real dispatcher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing

from brokerd.consumer_manager import NOTICES_AT_ONCE, REPORTED_VARIANTS_MAX
from brokerd.processors.broker_admin import runtime_info
from mqwire.bodies import (
    CheckClientRequestBody,
    ConsumerConnection,
    ConsumerData,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    ProducerConnection,
    ProducerData,
    ProducerInfo,
    ProducerTableInfo,
    SubscriptionData,
)
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_client import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetProducerConnectionListRequestHeader,
    UnregisterClientRequestHeader,
)
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker, ManualClock, RecordingPeer


def heartbeat(
    client_id: str,
    *groups: str,
    topics: Sequence[str] = ("orders",),
    model: str = "CLUSTERING",
    producers: Sequence[str] = (),
    **members: Any,
) -> bytes:
    return HeartbeatData(
        client_id=client_id,
        producer_data_set=[ProducerData(group_name=name) for name in producers],
        consumer_data_set=[
            ConsumerData(
                group_name=group,
                consume_type="CONSUME_PASSIVELY",
                message_model=model,
                consume_from_where="CONSUME_FROM_LAST_OFFSET",
                subscription_data_set=[
                    SubscriptionData(topic=topic, sub_string="*", sub_version=members.get("version", 1))
                    for topic in topics
                ],
            )
            for group in groups
        ],
        heartbeat_fingerprint=members.get("fingerprint", 0),
        without_sub=members.get("without_sub", False),
    ).to_json()


def beat(
    broker: BrokerUnderTest, peer: RecordingPeer, client_id: str, *groups: str, **keywords: Any
) -> RemotingCommand:
    return broker.ask(RequestCode.HEART_BEAT, body=heartbeat(client_id, *groups, **keywords), peer=peer)


def members(broker: BrokerUnderTest, group: str) -> list[str]:
    reply = broker.ask(
        RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader(consumer_group=group)
    )
    if reply.code != ResponseCode.SUCCESS:
        return []
    return GetConsumerListByGroupResponseBody.from_json(reply.body).consumer_id_list


def notified_groups(peer: RecordingPeer) -> list[str]:
    return [
        command.ext_fields["consumerGroup"]
        for command in peer.take()
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED and command.is_oneway
    ]


def test_a_heartbeat_makes_the_client_a_member(broker: BrokerUnderTest, new_peer: type[RecordingPeer]) -> None:
    assert beat(broker, new_peer(), "c1", "g").code == ResponseCode.SUCCESS
    assert members(broker, "g") == ["c1"]


def test_a_connection_that_produces_and_consumes_is_counted_once(
    broker: BrokerUnderTest, new_peer: type[RecordingPeer]
) -> None:
    for _ in range(2):
        beat(broker, new_peer(), "c1", "g", producers=["p"])
    assert runtime_info(broker.broker)["clientConnections"] == "2"


def test_the_first_heartbeat_creates_the_group_and_its_retry_topic(
    broker: BrokerUnderTest, new_peer: type[RecordingPeer]
) -> None:
    beat(broker, new_peer(), "c1", "g")
    assert broker.broker.subscription_groups.select("g") is not None
    assert broker.topic_config("%RETRY%g").write_queue_nums == 1


def test_without_auto_creation_a_heartbeat_of_an_unknown_group_is_answered_but_registers_nothing(
    make_broker: MakeBroker, new_peer: type[RecordingPeer]
) -> None:
    broker = make_broker(autoCreateSubscriptionGroup="false")
    assert beat(broker, new_peer(), "c1", "g").code == ResponseCode.SUCCESS
    assert members(broker, "g") == []
    assert broker.broker.topic_configs.select("%RETRY%g") is None


@pytest.mark.parametrize("group", ["../g", "g g", "g" * 121, "g@x", ""])
def test_a_hostile_group_name_creates_nothing(
    broker: BrokerUnderTest, new_peer: type[RecordingPeer], group: str
) -> None:
    beat(broker, new_peer(), "c1", group)
    assert group not in broker.broker.subscription_groups.table
    assert members(broker, group) == []


def test_all_members_are_notified_when_one_joins(broker: BrokerUnderTest, new_peer: type[RecordingPeer]) -> None:
    first, second = new_peer(), new_peer()
    beat(broker, first, "c1", "g")
    first.take()
    beat(broker, second, "c2", "g")
    assert notified_groups(first) == ["g"]
    assert members(broker, "g") == ["c1", "c2"]


def test_a_repeated_heartbeat_notifies_no_one(broker: BrokerUnderTest, new_peer: type[RecordingPeer]) -> None:
    first, second = new_peer(), new_peer()
    beat(broker, first, "c1", "g")
    beat(broker, second, "c2", "g")
    first.take()
    beat(broker, second, "c2", "g")
    assert notified_groups(first) == []


def test_a_changed_set_of_topics_notifies_the_members(broker: BrokerUnderTest, new_peer: type[RecordingPeer]) -> None:
    first, second = new_peer(), new_peer()
    beat(broker, first, "c1", "g")
    beat(broker, second, "c2", "g")
    first.take()
    beat(broker, second, "c2", "g", topics=("orders", "audit"))
    assert notified_groups(first) == ["g"]


def crowd(broker: BrokerUnderTest, size: int) -> list[RecordingPeer]:
    """Members of a group, none of whom is to be notified any more."""
    peers = [RecordingPeer() for _ in range(size)]
    for number, peer in enumerate(peers):
        beat(broker, peer, f"c{number}", "g")
    while broker.broker.consumers.send_notices():
        pass
    for peer in peers:
        peer.take()
    return peers


def notices(peers: Sequence[RecordingPeer]) -> list[int]:
    return [len(notified_groups(peer)) for peer in peers]


def test_many_members_are_notified_some_at_a_time_and_once_for_all_that_changed(broker: BrokerUnderTest) -> None:
    peers = crowd(broker, NOTICES_AT_ONCE + 10)
    for peer in peers[:5]:
        broker.broker.peer_closed(peer)
    assert sum(notices(peers)) == 0
    assert broker.broker.consumers.send_notices()
    assert not broker.broker.consumers.send_notices()
    assert notices(peers) == [0] * 5 + [1] * (NOTICES_AT_ONCE + 5)


def test_one_turn_has_a_bounded_number_of_notices_of_however_many_groups(broker: BrokerUnderTest) -> None:
    peers = crowd(broker, 8)
    for group in range(20):
        for number, peer in enumerate(peers):
            beat(broker, peer, f"c{number}", f"other{group}")
    assert sum(notices(peers)) <= NOTICES_AT_ONCE


def test_a_change_while_members_are_being_notified_is_another_notice(broker: BrokerUnderTest) -> None:
    peers = crowd(broker, NOTICES_AT_ONCE + 10)
    beat(broker, RecordingPeer(), "joins", "g")
    broker.broker.consumers.send_notices()
    beat(broker, RecordingPeer(), "joins, too", "g")
    while broker.broker.consumers.send_notices():
        pass
    assert notices(peers) == [2] * len(peers)


@pytest.mark.trio
async def test_many_members_are_notified_while_the_broker_runs(
    broker: BrokerUnderTest, autojump_clock: trio.testing.MockClock
) -> None:
    peers = crowd(broker, 2 * NOTICES_AT_ONCE)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.broker.member_notices.run)
        beat(broker, RecordingPeer(), "joins", "g")
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert notices(peers) == [1] * len(peers)


def test_a_newer_subscription_replaces_the_older_one(broker: BrokerUnderTest, new_peer: type[RecordingPeer]) -> None:
    beat(broker, new_peer(), "c1", "g", version=1)
    beat(broker, new_peer(), "c1", "g", version=2)
    beat(broker, new_peer(), "c2", "g", version=1)
    subscription = broker.broker.consumers.find_subscription("g", "orders")
    assert subscription is not None
    assert subscription.sub_version == 2


def test_members_of_a_broadcasting_group_are_not_notified(
    broker: BrokerUnderTest, new_peer: type[RecordingPeer]
) -> None:
    first = new_peer()
    beat(broker, first, "c1", "g", model="BROADCASTING")
    first.take()
    beat(broker, new_peer(), "c2", "g", model="BROADCASTING")
    assert notified_groups(first) == []


def test_a_client_that_unregisters_is_gone_and_the_others_are_notified(
    broker: BrokerUnderTest, new_peer: type[RecordingPeer]
) -> None:
    first, second = new_peer(), new_peer()
    beat(broker, first, "c1", "g")
    beat(broker, second, "c2", "g")
    first.take()
    broker.ask(
        RequestCode.UNREGISTER_CLIENT,
        UnregisterClientRequestHeader(client_id="c2", consumer_group="g", producer_group="p"),
        peer=second,
    )
    assert notified_groups(first) == ["g"]
    assert members(broker, "g") == ["c1"]


def test_a_closed_connection_takes_its_clients_along(broker: BrokerUnderTest, new_peer: type[RecordingPeer]) -> None:
    first, second = new_peer(), new_peer()
    beat(broker, first, "c1", "g", "h", producers=("p",))
    beat(broker, second, "c2", "g")
    first.take()
    second.take()
    first.close()
    broker.broker.peer_closed(first)
    assert notified_groups(second) == ["g"]
    assert members(broker, "g") == ["c2"]
    assert members(broker, "h") == []
    assert broker.broker.producers.groups() == []


def test_a_silent_member_expires_after_120_seconds_and_the_others_are_notified(
    broker: BrokerUnderTest, new_peer: type[RecordingPeer], clock: ManualClock
) -> None:
    first, second = new_peer(), new_peer()
    beat(broker, first, "c1", "g")
    beat(broker, second, "c2", "g")
    clock.advance(100)
    beat(broker, first, "c1", "g")
    first.take()
    clock.advance(21)
    broker.broker.consumers.scan()
    assert notified_groups(first) == ["g"]
    assert members(broker, "g") == ["c1"]


def test_a_jump_of_the_wall_clock_expires_no_one(
    broker: BrokerUnderTest, new_peer: type[RecordingPeer], clock: ManualClock
) -> None:
    beat(broker, new_peer(), "c1", "g")
    clock.wall_ms += 24 * 3600 * 1000
    broker.broker.consumers.scan()
    assert members(broker, "g") == ["c1"]


def test_a_client_that_reconnects_is_one_member(broker: BrokerUnderTest, new_peer: type[RecordingPeer]) -> None:
    beat(broker, new_peer(), "c1", "g")
    beat(broker, new_peer(), "c1", "g")
    assert members(broker, "g") == ["c1"]


def test_a_group_without_members_answers_an_error_as_in_rocketmq(broker: BrokerUnderTest) -> None:
    reply = broker.ask(
        RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader(consumer_group="nobody")
    )
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "no consumer for this group" in (reply.remark or "")


def test_the_answer_offers_version_2_of_the_heartbeat(broker: BrokerUnderTest, new_peer: type[RecordingPeer]) -> None:
    fields = beat(broker, new_peer(), "c1", "g").ext_fields
    assert (fields["IS_SUPPORT_HEART_BEAT_V2"], fields["IS_SUB_CHANGE"]) == ("true", "true")


def test_an_unchanged_fingerprint_needs_no_subscriptions(
    broker: BrokerUnderTest, new_peer: type[RecordingPeer]
) -> None:
    peer = new_peer()
    beat(broker, peer, "c1", "g", fingerprint=7)
    fields = beat(broker, peer, "c1", "g", fingerprint=7, without_sub=True, topics=()).ext_fields
    assert fields["IS_SUB_CHANGE"] == "false"
    assert broker.broker.consumers.find_subscription("g", "orders") is not None


def test_after_a_restart_the_broker_asks_for_the_subscriptions_again(
    broker: BrokerUnderTest, new_peer: type[RecordingPeer]
) -> None:
    beat(broker, new_peer(), "c1", "g", fingerprint=7)
    broker.restart()
    fields = beat(broker, new_peer(), "c1", "g", fingerprint=7, without_sub=True, topics=()).ext_fields
    assert fields["IS_SUB_CHANGE"] == "true"


def test_a_heartbeat_with_thousands_of_groups_is_refused(
    broker: BrokerUnderTest, new_peer: type[RecordingPeer]
) -> None:
    reply = beat(broker, new_peer(), "c1", *(f"g{number}" for number in range(1025)))
    assert reply.code == ResponseCode.INVALID_PARAMETER
    assert "g0" not in broker.broker.subscription_groups.table


def test_a_heartbeat_that_cannot_be_read_is_answered_with_an_error(
    broker: BrokerUnderTest, new_peer: type[RecordingPeer]
) -> None:
    reply = broker.ask(RequestCode.HEART_BEAT, body=b"{", peer=new_peer())
    assert reply.code == ResponseCode.SYSTEM_ERROR


def test_a_one_way_heartbeat_is_not_answered(broker: BrokerUnderTest, new_peer: type[RecordingPeer]) -> None:
    assert broker.request(RequestCode.HEART_BEAT, body=heartbeat("c1", "g"), oneway=True) == []
    assert members(broker, "g") == ["c1"]


def test_the_connections_of_a_group_are_listed(broker: BrokerUnderTest, new_peer: type[RecordingPeer]) -> None:
    beat(broker, new_peer("10.1.2.3", 4567), "c1", "g")
    reply = broker.ask(
        RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListRequestHeader(consumer_group="g")
    )
    body = ConsumerConnection.from_json(reply.body)
    (connection,) = body.connection_set
    assert (connection.client_id, connection.client_addr, connection.language) == ("c1", "10.1.2.3:4567", "JAVA")
    assert list(body.subscription_table) == ["orders"]
    assert body.message_model == "CLUSTERING"


def test_each_members_own_subscription_is_reported_until_it_leaves(
    broker: BrokerUnderTest, new_peer: type[RecordingPeer]
) -> None:
    def reported() -> dict[str, list[str]]:
        reply = broker.ask(
            RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListRequestHeader(consumer_group="g")
        )
        variants = ConsumerConnection.from_json(reply.body).subscription_variants or []
        return {",".join(one.client_ids): [each.topic for each in one.subscriptions] for one in variants}

    odd = new_peer()
    beat(broker, new_peer(), "c1", "g")
    beat(broker, odd, "c2", "g", topics=("refunds",))
    beat(broker, new_peer(), "c3", "g")
    assert reported() == {"c1,c3": ["orders"], "c2": ["refunds"]}
    odd.close()
    broker.broker.consumers.close_peer(odd)
    assert reported() == {"c1,c3": ["orders"]}


def test_what_members_report_is_kept_in_bounds(broker: BrokerUnderTest, new_peer: type[RecordingPeer]) -> None:
    for number in range(REPORTED_VARIANTS_MAX + 1):
        beat(broker, new_peer(), f"c{number}", "g", topics=(f"t{number}",))
    info = broker.broker.consumers.find("g")
    assert info is not None
    assert len(info.channels) == REPORTED_VARIANTS_MAX + 1
    assert len(info.variants()) == REPORTED_VARIANTS_MAX


def test_the_connections_of_an_offline_group_are_refused_as_not_online(broker: BrokerUnderTest) -> None:
    reply = broker.ask(
        RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListRequestHeader(consumer_group="g")
    )
    assert reply.code == ResponseCode.CONSUMER_NOT_ONLINE


def test_the_connections_of_a_producer_group_are_listed(broker: BrokerUnderTest, new_peer: type[RecordingPeer]) -> None:
    beat(broker, new_peer(), "c1", producers=("p",))
    reply = broker.ask(
        RequestCode.GET_PRODUCER_CONNECTION_LIST, GetProducerConnectionListRequestHeader(producer_group="p")
    )
    assert [each.client_id for each in ProducerConnection.from_json(reply.body).connection_set] == ["c1"]


def test_all_producers_are_listed_by_group_with_the_time_of_their_last_heartbeat(
    broker: BrokerUnderTest, new_peer: type[RecordingPeer]
) -> None:
    def table() -> dict[str, list[ProducerInfo]]:
        return ProducerTableInfo.from_json(broker.ask(RequestCode.GET_ALL_PRODUCER_INFO).body).data

    assert table() == {}
    beaten_ms = broker.clock.time_ms()
    beat(broker, new_peer("10.1.2.3", 4567), "c1", producers=("p", "q"))
    beat(broker, new_peer("fd00::1", 4568), "c2", producers=("p",))
    broker.clock.advance(5)
    listed = table()
    assert {group: [each.client_id for each in members] for group, members in listed.items()} == {
        "p": ["c1", "c2"],
        "q": ["c1"],
    }
    assert [each.remote_ip for each in listed["p"]] == ["/10.1.2.3:4567", "/[fd00::1]:4568"]
    assert listed["q"][0].language == "JAVA"
    assert listed["q"][0].last_update_timestamp == beaten_ms


def test_a_producer_group_has_an_available_channel_while_a_connection_is_open(
    broker: BrokerUnderTest, new_peer: type[RecordingPeer]
) -> None:
    first, second = new_peer(), new_peer()
    beat(broker, first, "c1", producers=("p",))
    beat(broker, second, "c2", producers=("p",))
    first.close()
    channel = broker.broker.producers.available_channel("p")
    assert channel is not None
    assert channel.client_id == "c2"


@pytest.mark.parametrize(("kind", "code"), [("TAG", ResponseCode.SUCCESS), ("SQL92", ResponseCode.SYSTEM_ERROR)])
def test_only_tag_filters_are_understood(broker: BrokerUnderTest, kind: str, code: int) -> None:
    body = CheckClientRequestBody(
        client_id="c1",
        group="g",
        subscription_data=SubscriptionData(topic="orders", sub_string="a > 1", expression_type=kind),
    )
    assert broker.ask(RequestCode.CHECK_CLIENT_CONFIG, body=body.to_json()).code == code
