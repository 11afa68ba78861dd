"""Replays of dead letters: what is sent, when they stop, and that no message is sent twice. Brokers are stood in for."""

from __future__ import annotations

import csv
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from django.utils import timezone

from controlplane.common.errors import InvalidInput, LimitReached
from controlplane.consumers import replays
from controlplane.consumers.dead_letters import DeadLetters, _row, dead_letter, dead_letters_export
from controlplane.consumers.models import DeadLetterReplay, ReplayState, ReplayTarget
from controlplane.consumers.paced import RUNNING_MAX
from controlplane.consumers.replay_plan import REPLAY_OF, Place, message_again, original_topic, ranges_of, stop_reason
from controlplane.consumers.replays import (
    ReplayWish,
    places_of,
    replay_cancel,
    replay_continue,
    replay_start,
    replay_turn,
    replays_resume,
)
from controlplane.topics.masking import Sight
from highwater import (
    BrokerError,
    ConnectError,
    HighwaterError,
    Message,
    MessageIllegalError,
    MessageQueue,
    QueueStats,
    ReceivedMessage,
    RequestTimeoutError,
    SendResult,
    SendStatus,
    TopicStats,
)
from highwater._file_messages import read_lines
from tests.controlplane.world import World, dead_letter_replay

DLQ = MessageQueue("%DLQ%billing", "broker-a", 0)


def dead(offset: int, **properties: str) -> ReceivedMessage:
    known = {"RETRY_TOPIC": "payments", "DLQ_ORIGIN_TOPIC": "payments", "DLQ_ORIGIN_MESSAGE_ID": "ID", **properties}
    return ReceivedMessage(
        topic=DLQ.topic,
        body=b"%d" % offset,
        tags="t",
        keys=("k",),
        properties=known,
        message_id=f"U{offset}",
        offset_message_id=f"O{offset}",
        queue=DLQ,
        queue_offset=offset,
        physical_offset=0,
        born_timestamp_ms=1,
        store_timestamp_ms=2,
        born_host=("10.0.0.1", 1),
        store_host=("10.0.0.1", 1),
        reconsume_times=17,
    )


@dataclass
class Brokers:
    """Ten dead letters from offset `low` on; `react` may raise for a body that is sent."""

    sent: list[bytes] = field(default_factory=list)
    low: int = 0
    high: int = 10
    react: Callable[[bytes], None] = lambda body: None

    def pull(self, queue: MessageQueue, offset: int, count: int) -> list[ReceivedMessage]:
        return [dead(one) for one in range(max(offset, self.low), min(offset + count, self.high))]

    def topic_route(self, topic: str) -> None:
        """Any group has a retry topic."""

    def topic_stats(self, topic: str) -> TopicStats:
        return TopicStats(topic, (QueueStats(DLQ, self.low, self.high, None),))

    def send(self, message: Message) -> SendResult:
        self.sent.append(message.body)
        self.react(message.body)
        return SendResult(SendStatus.SEND_OK, "U", "O", MessageQueue(message.topic, "broker-a", 0), 0)


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    found = Brokers()

    @contextmanager
    def stand_in(*_: object, **__: object) -> Iterator[Brokers]:
        yield found

    monkeypatch.setattr(replays, "cluster_admin", stand_in)
    monkeypatch.setattr(replays, "cluster_producer", stand_in)
    return found


def turn(replay: DeadLetterReplay) -> str:
    state = replay_turn(replay.pk, sleep=lambda _: None)
    replay.refresh_from_db()
    return state


def bodies(*offsets: int) -> list[bytes]:
    return [b"%d" % offset for offset in offsets]


def test_a_replayed_message_keeps_what_is_the_programs_own() -> None:
    again = message_again(
        dead(3, colour="red", DELAY="3", UNIQ_KEY="U3"), ReplayTarget.RETRY_TOPIC, "billing", ["payments"]
    )
    assert isinstance(again, Message)
    assert (again.topic, again.body, again.tags, again.keys) == ("%RETRY%billing", b"3", "t", ("k",))
    assert again.properties == {
        "colour": "red",
        REPLAY_OF: "O3",
        "RETRY_TOPIC": "payments",
        "ORIGIN_MESSAGE_ID": "ID",
    }


def test_to_its_original_topic_a_message_comes_as_a_new_one() -> None:
    again = message_again(dead(3), ReplayTarget.ORIGINAL_TOPIC, "billing", ["payments"])
    assert isinstance(again, Message)
    assert (again.topic, dict(again.properties)) == ("payments", {REPLAY_OF: "O3"})


def test_a_message_that_does_not_name_its_topic_is_not_sent() -> None:
    message = dead(3, RETRY_TOPIC="", DLQ_ORIGIN_TOPIC="")
    assert "which topic" in str(message_again(message, ReplayTarget.RETRY_TOPIC, "billing", ["payments"]))


@pytest.mark.parametrize("topic", ["RMQ_SYS_METERING", "SCHEDULE_TOPIC_XXXX", "%DLQ%others"])
@pytest.mark.parametrize("target", list(ReplayTarget))
def test_no_property_of_a_message_has_it_sent_to_a_system_topic(target: ReplayTarget, topic: str) -> None:
    message = dead(3, RETRY_TOPIC=topic, DLQ_ORIGIN_TOPIC=topic)
    assert "keeps for itself" in str(message_again(message, target, "billing", [topic]))


def test_to_a_topic_that_the_cluster_does_not_have_nothing_is_sent() -> None:
    again = message_again(dead(3), ReplayTarget.ORIGINAL_TOPIC, "billing", ["others"])
    assert again == "The cluster has no topic payments."


def test_selected_places_become_ranges_each_once() -> None:
    places = [Place("b", 0, 5), Place("a", 1, 7), Place("b", 0, 4), Place("b", 0, 5), Place("b", 0, 9)]
    assert [(one["broker_name"], one["next"], one["end"]) for one in ranges_of(places)] == [
        ("a", 7, 8),
        ("b", 4, 6),
        ("b", 9, 10),
    ]


@pytest.mark.parametrize("text", ["broker-a", "broker-a:1", "broker-a:x:1", "broker-a:1:-1", "broker-a:1:" + "9" * 30])
def test_a_place_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        places_of([text])


@pytest.mark.parametrize(
    ("failures", "new_dead", "stops"), [(1, 4, False), (2, 0, True), (0, 5, True), (0, None, False)]
)
def test_the_stop_rules(failures: int, new_dead: int | None, stops: bool) -> None:
    reason = stop_reason(failures=failures, stop_after_failures=2, new_dead=new_dead, stop_after_new_dead=5)
    assert (reason is not None) is stops
    assert stop_reason(failures=failures, stop_after_failures=0, new_dead=new_dead, stop_after_new_dead=0) is None


def test_a_replay_sends_the_rest_in_order_and_completes(world: World, brokers: Brokers) -> None:
    replay = dead_letter_replay(world.cluster)
    assert turn(replay) == ReplayState.COMPLETED
    assert brokers.sent == bodies(*range(2, 10))
    assert (replay.sent, replay.done, replay.state) == (10, 10, ReplayState.COMPLETED)
    assert turn(replay) == "not_claimed"


def test_a_turn_sends_no_more_than_its_rate(world: World, brokers: Brokers) -> None:
    replay = dead_letter_replay(world.cluster, rate_per_second=3)
    assert turn(replay) == ReplayState.RUNNING
    assert (len(brokers.sent), replay.sent, replay.lease_until) == (3, 5, None)


def test_what_retention_has_deleted_is_counted_as_gone(world: World, brokers: Brokers) -> None:
    brokers.low = 6
    replay = dead_letter_replay(world.cluster)
    assert turn(replay) == ReplayState.COMPLETED
    assert (replay.gone, replay.sent, brokers.sent) == (4, 6, bodies(6, 7, 8, 9))


@pytest.mark.parametrize("refusal", [MessageIllegalError("refused"), BrokerError(14, "it is stopping", "broker-a")])
def test_refusals_stop_a_replay_and_are_tried_again_when_it_goes_on(
    world: World, brokers: Brokers, refusal: HighwaterError
) -> None:
    def refuse(body: bytes) -> None:
        if body in bodies(3, 4):
            raise refusal

    brokers.react = refuse
    replay = dead_letter_replay(world.cluster)
    assert turn(replay) == ReplayState.STOPPED
    assert (replay.sent, replay.failed, brokers.sent) == (3, 2, bodies(2, 3, 4))
    assert [(one["offset"], one["outcome"]) for one in replay.outcomes] == [(3, "failed"), (4, "failed")]
    brokers.react = lambda body: None
    brokers.sent.clear()
    assert replay_continue(actor=world.alice, replay=replay).state == ReplayState.RUNNING
    assert turn(replay) == ReplayState.COMPLETED
    assert brokers.sent == bodies(3, 4, 5, 6, 7, 8, 9)
    assert (replay.sent, replay.failed, replay.done) == (10, 0, 10)


@pytest.mark.parametrize(
    "error",
    [
        RequestTimeoutError("no answer"),
        BrokerError(1, "it is appended, but no majority confirmed it in time", "broker-a"),
    ],
)
def test_a_send_that_may_be_stored_is_unknown_and_never_repeated(
    world: World, brokers: Brokers, error: HighwaterError
) -> None:
    def leave_in_doubt(body: bytes) -> None:
        if body == b"5":
            raise error

    brokers.react = leave_in_doubt
    replay = dead_letter_replay(world.cluster)
    assert turn(replay) == ReplayState.COMPLETED
    assert (replay.sent, replay.unknown, brokers.sent.count(b"5")) == (9, 1, 1)


def test_a_message_whose_worker_died_is_unknown_and_never_repeated(world: World, brokers: Brokers) -> None:
    def die(body: bytes) -> None:
        if body == b"5":
            raise KeyboardInterrupt

    brokers.react = die
    replay = dead_letter_replay(world.cluster)
    with pytest.raises(KeyboardInterrupt):
        turn(replay)
    assert turn(replay) == "not_claimed"  # it might be at work still
    DeadLetterReplay.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert turn(replay) == ReplayState.COMPLETED
    assert brokers.sent == bodies(2, 3, 4, 5, 6, 7, 8, 9)
    assert (replay.sent, replay.unknown, replay.done) == (9, 1, 10)
    assert [(one["offset"], one["outcome"]) for one in replay.outcomes] == [(5, "unknown")]


def test_a_cancelled_replay_sends_no_further_message(world: World, brokers: Brokers) -> None:
    replay = dead_letter_replay(world.cluster)

    def cancel(body: bytes) -> None:
        if body == b"5":
            replay_cancel(actor=world.alice, replay=DeadLetterReplay.objects.get(pk=replay.pk))

    brokers.react = cancel
    assert turn(replay) == "lost"
    assert (replay.state, replay.sent, brokers.sent) == (ReplayState.CANCELLED, 6, bodies(2, 3, 4, 5))
    brokers.react = lambda body: None
    replay_continue(actor=world.alice, replay=replay)
    assert turn(replay) == ReplayState.COMPLETED
    assert (replay.sent, brokers.sent) == (10, bodies(*range(2, 10)))


def test_a_worker_that_lost_its_turn_sends_nothing_more(world: World, brokers: Brokers) -> None:
    replay = dead_letter_replay(world.cluster)

    def take_over(body: bytes) -> None:
        DeadLetterReplay.objects.update(claim=uuid.uuid4())

    brokers.react = take_over
    assert turn(replay) == "lost"
    assert brokers.sent == bodies(2)


def test_new_dead_letters_stop_a_replay(world: World, brokers: Brokers) -> None:
    brokers.high = 15
    replay = dead_letter_replay(world.cluster)
    assert turn(replay) == ReplayState.STOPPED
    assert (brokers.sent, replay.sent) == ([], 2)
    assert "5 new dead letters" in replay.message


def test_a_tenant_has_a_bounded_number_of_replays_at_once(world: World, brokers: Brokers) -> None:
    for number in range(RUNNING_MAX):
        dead_letter_replay(world.cluster, consumer_group=f"group-{number}")
    with pytest.raises(LimitReached, match="replays of this tenant"):
        replay_start(actor=world.alice, cluster=world.cluster, group="billing", wish=ReplayWish())
    cancelled = dead_letter_replay(world.cluster, ReplayState.CANCELLED)
    with pytest.raises(LimitReached, match="replays of this tenant"):
        replay_continue(actor=world.alice, replay=cancelled)


def test_a_replay_of_a_cluster_that_stays_silent_rests_longer(world: World, brokers: Brokers) -> None:
    def refuse(body: bytes) -> None:
        raise ConnectError("no one listens")

    brokers.react = refuse
    replay = dead_letter_replay(world.cluster)
    assert turn(replay) == ReplayState.RUNNING
    assert replay.lease_until is None
    assert turn(replay) == ReplayState.RUNNING
    assert replay.lease_until is not None
    assert turn(replay) == "not_claimed"
    assert replays_resume() == 0


@pytest.mark.parametrize("born_ms", [2**62, -(2**62), -62_135_596_800_000])
def test_a_dead_letter_whose_sender_wrote_no_time_is_shown_without_one(born_ms: int) -> None:
    assert dead_letter(replace(dead(1), born_timestamp_ms=born_ms), Sight([]), 10).born_at is None


def test_what_is_exported_as_json_can_be_sent_from_the_file() -> None:
    body = b"\x00\xff not a text"
    letters = [dead(1), replace(dead(2), body=body), replace(dead(3), body=b"x" * 100)]
    rows = [json.dumps(_row(dead_letter(letter, Sight([]), 50))) for letter in letters]
    lines = list(read_lines(rows, topic=None, max_message_size=1000))
    assert [line.message and line.message.body for line in lines] == [letters[0].body, body, None]
    assert [line.message and line.message.topic for line in lines[:2]] == [original_topic(one) for one in letters[:2]]
    assert lines[2].problem == "its body was cut in the export"


@pytest.mark.parametrize("letters", [[], [replace(dead(1), born_timestamp_ms=2**62)]])
def test_a_file_names_its_columns_and_leaves_out_what_is_not_known(
    world: World, monkeypatch: pytest.MonkeyPatch, letters: list[ReceivedMessage]
) -> None:
    found = DeadLetters([dead_letter(letter, Sight([]), 50) for letter in letters], len(letters), True)
    monkeypatch.setattr("controlplane.consumers.dead_letters.dead_letters", lambda **_: found)
    text = "".join(dead_letters_export(actor=world.alice, cluster=world.cluster, group="billing", as_csv=True))
    rows = list(csv.DictReader(text.splitlines()))
    assert text.startswith("broker_name,queue_id,queue_offset,topic,died_at,born_at,")
    assert [row["born_at"] for row in rows] == ["" for _ in letters]
