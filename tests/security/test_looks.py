"""Looks (statistics, searches, changes of topics and groups) leave half of the time to what programs do, and keep no one out who
runs the broker: strangers have no part in them, and the platform waits for none.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from brokerd.dispatch import LOOKS
from brokerd.processors.context import Handler
from mqwire.acl import SessionCredentials
from mqwire.codes import HighwaterRequestCode, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from tests.brokerd.broker_under_test import BrokerUnderTest, RecordingPeer
from tests.security.accounts import OTHER_PROGRAM, PLATFORM, PROGRAM, ask, signed
from tests.security.live_broker import send_request

LOOK = RequestCode.GET_TOPIC_STATS_INFO
LOOK_S = 0.02
UNSIGNED = RemotingCommand.request(LOOK, ext_fields={"topic": "orders"})


@pytest.fixture
def broker(platform_broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch) -> BrokerUnderTest:
    """One that knows a topic, and takes so long for a look at it."""
    platform_broker.create_topic("orders", queues=1)
    monkeypatch.setitem(platform_broker.broker.dispatcher._handlers, LOOK, taking(platform_broker, LOOK_S))
    return platform_broker


def taking(broker: BrokerUnderTest, seconds: float) -> Handler:
    def slow(_broker: object, _peer: object, request: RemotingCommand) -> RemotingCommand:
        broker.clock.advance(seconds)
        return request.reply()

    return slow


def look_of(
    credentials: SessionCredentials, version: int = 1, clock_ms: Callable[[], int] | None = None
) -> RemotingCommand:
    if clock_ms is None:
        return signed(LOOK, credentials, {"topic": "orders"}, version=version)
    return signed(LOOK, credentials, {"topic": "orders"}, version=version, clock_ms=clock_ms)


def have_all_rest(broker: BrokerUnderTest) -> RecordingPeer:
    """Who has looked: from now on looks rest."""
    peer = RecordingPeer()
    assert broker.broker.dispatch(peer, [look_of(PROGRAM)]) == 1
    assert broker.broker.pause_s(peer, LOOK) == pytest.approx(LOOK_S)
    peer.take()
    return peer


def test_looks_rest_as_long_as_they_took_and_programs_go_on(broker: BrokerUnderTest) -> None:
    """Over fifty connections, looks at a topic of a thousand queues made a send take a second."""
    dispatcher, look = broker.broker.dispatcher, look_of(PROGRAM)
    first, second = RecordingPeer(), RecordingPeer()
    assert dispatcher.dispatch(first, [look, look]) == 1
    assert dispatcher.dispatch(second, [send_request(b"x"), look]) == 1
    assert dispatcher.pause_s(second, LOOK) == pytest.approx(LOOK_S)
    assert dispatcher.pause_s(second, RequestCode.SEND_MESSAGE_V2) == 0
    broker.clock.advance(0.03)
    assert dispatcher.dispatch(second, [look]) == 1
    assert [len(peer.take()) for peer in (first, second)] == [1, 2]


def test_what_programs_and_replicas_do_is_no_look() -> None:
    assert not LOOKS & {RequestCode.HEART_BEAT, RequestCode.PULL_MESSAGE, RequestCode.UPDATE_CONSUMER_OFFSET}
    assert not LOOKS & {HighwaterRequestCode.REPLICA_PULL, HighwaterRequestCode.REPLICA_STATUS}
    assert RequestCode.GET_ALL_CONSUMER_OFFSET not in LOOKS
    assert {RequestCode.QUERY_MESSAGE, RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.GET_CONSUME_STATS} < LOOKS


def test_a_look_that_met_a_disk_that_hung_has_the_others_rest_for_a_second_at_most(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood still, and took no one's time: topics are deleted and resets asked for when the disk is back."""
    dispatcher, peer = broker.broker.dispatcher, RecordingPeer()
    monkeypatch.setitem(dispatcher._handlers, LOOK, taking(broker, 20.0))
    assert dispatcher.dispatch(peer, [look_of(PROGRAM)]) == 1
    assert dispatcher.pause_s(peer, LOOK) == pytest.approx(1.0)


def test_what_is_refused_has_no_one_rest(broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers' unsigned looks, from four addresses, had the platform wait for eleven seconds, or cut."""
    check = broker.access_control.check

    def slow(request: RemotingCommand, address: tuple[str, int], **options: bool) -> str | None:
        broker.clock.advance(LOOK_S)
        return check(request, address, **options)

    monkeypatch.setattr(broker.access_control, "check", slow)
    stranger, program = RecordingPeer(), RecordingPeer()
    program.proven = True
    assert broker.broker.dispatch(stranger, [UNSIGNED]) == 1
    assert [answer.code for answer in stranger.take()] == [ResponseCode.NO_PERMISSION]
    assert broker.broker.pause_s(program, LOOK) == 0


def test_what_is_refused_waits_for_no_rest(broker: BrokerUnderTest) -> None:
    have_all_rest(broker)
    stranger = RecordingPeer()
    assert broker.broker.pause_s(stranger, LOOK) == 0
    assert broker.broker.dispatch(stranger, [UNSIGNED]) == 1
    assert [answer.code for answer in stranger.take()] == [ResponseCode.NO_PERMISSION]


def test_the_platforms_looks_wait_for_no_ones(broker: BrokerUnderTest) -> None:
    have_all_rest(broker)
    platform = RecordingPeer()
    for look in (look_of(PLATFORM, version=2), look_of(PLATFORM, version=2, clock_ms=broker.clock.time_ms)):
        assert broker.broker.dispatch(platform, [look]) == 1
    assert [answer.code for answer in platform.take()] == [ResponseCode.SUCCESS] * 2
    assert broker.broker.pause_s(platform, LOOK) == 0


def test_the_platforms_short_look_ends_no_rest(broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    dispatcher = broker.broker.dispatcher
    monkeypatch.setitem(dispatcher._handlers, LOOK, taking(broker, 0.5))
    program = RecordingPeer()
    dispatcher.dispatch(program, [look_of(PROGRAM)])
    monkeypatch.setitem(dispatcher._handlers, LOOK, taking(broker, 0.01))
    dispatcher.dispatch(RecordingPeer(), [look_of(PLATFORM, version=2)])
    assert dispatcher.pause_s(program, LOOK) == pytest.approx(0.49)


def test_a_first_look_that_waits_has_shown_its_account(broker: BrokerUnderTest) -> None:
    have_all_rest(broker)
    newcomer = RecordingPeer()
    assert broker.broker.dispatch(newcomer, [look_of(OTHER_PROGRAM)]) == 0
    assert (newcomer.proven, newcomer.access_key) == (True, OTHER_PROGRAM.access_key)


def test_a_look_that_waited_is_served_though_its_signature_counts_once(broker: BrokerUnderTest) -> None:
    have_all_rest(broker)
    newcomer, look = RecordingPeer(), look_of(OTHER_PROGRAM, version=2)
    assert broker.broker.dispatch(newcomer, [look]) == 0
    broker.clock.advance(LOOK_S)
    assert broker.broker.dispatch(newcomer, [look]) == 1
    assert [answer.code for answer in newcomer.take()] == [ResponseCode.SUCCESS]


def test_a_look_that_waited_is_refused_where_its_account_was_deleted_meanwhile(broker: BrokerUnderTest) -> None:
    have_all_rest(broker)
    newcomer, look = RecordingPeer(), look_of(OTHER_PROGRAM)
    assert broker.broker.dispatch(newcomer, [look]) == 0
    broker.access_control.delete_account(OTHER_PROGRAM.access_key)
    assert broker.broker.dispatch(newcomer, [look]) == 1
    assert [answer.code for answer in newcomer.take()] == [ResponseCode.NO_PERMISSION]


@pytest.fixture
def many_queues(platform_broker: BrokerUnderTest) -> BrokerUnderTest:
    for number in range(17):
        platform_broker.create_topic(f"wide-{number}", queues=1000)
    return platform_broker


def lags_in(broker: BrokerUnderTest, topics: int, credentials: SessionCredentials) -> RemotingCommand:
    fields = {"consumerGroup": "g", "topicList": ";".join(f"wide-{number}" for number in range(topics))}
    return ask(broker, RequestCode.GET_CONSUME_STATS, credentials, fields=fields)


def test_lags_are_looked_at_in_so_many_queues_at_once(many_queues: BrokerUnderTest) -> None:
    assert lags_in(many_queues, 16, PROGRAM).code == ResponseCode.SUCCESS


def test_lags_in_more_queues_are_refused_with_what_to_do_instead(many_queues: BrokerUnderTest) -> None:
    answer = lags_in(many_queues, 17, PROGRAM)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "17000 queues of 17 topics, at most 16384 queues" in str(answer.remark)
    assert "name one topic" in str(answer.remark)


def test_the_platform_looks_at_the_lags_in_all_queues(many_queues: BrokerUnderTest) -> None:
    assert lags_in(many_queues, 17, PLATFORM).code == ResponseCode.SUCCESS
