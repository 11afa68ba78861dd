"""Following a topic: what came since the last look, once each, bounded, and never more than its reader may see."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.common.errors import InvalidInput
from controlplane.topics import looks, tail
from controlplane.topics.models import MaskingRule, Topic, TopicState
from controlplane.topics.tail_cursor import cursor_of, places_of_cursor
from highwater import MessageQueue, QueueStats, ReceivedMessage, TopicStats
from tests.controlplane.secret_twin import MESSAGE
from tests.controlplane.world import Json, World

PLACES = st.dictionaries(st.tuples(st.text("ab-_é日", max_size=20), st.integers(0, 2**31)), st.integers(0, 2**63 - 1))


class Brokers:
    """Queues that grow."""

    def __init__(self) -> None:
        self.queues: dict[int, list[ReceivedMessage]] = {0: [], 1: []}
        self.begin = 0
        self.pulls = 0

    def store(self, queue_id: int, **changes: Any) -> None:
        queue = self.queues[queue_id]
        stored = sum(map(len, self.queues.values()))
        queue.append(
            replace(
                MESSAGE,
                queue=MessageQueue("payments", "broker-a", queue_id),
                queue_offset=len(queue),
                store_timestamp_ms=stored,
                **changes,
            )
        )

    def topic_stats(self, topic: str) -> TopicStats:
        return TopicStats(
            topic,
            tuple(
                QueueStats(MessageQueue(topic, "broker-a", queue_id), self.begin, len(messages), None)
                for queue_id, messages in self.queues.items()
            ),
        )

    def pull(self, queue: MessageQueue, offset: int, count: int) -> list[ReceivedMessage]:
        self.pulls += 1
        return self.queues[queue.queue_id][offset : offset + count]


@pytest.fixture
def brokers(world: World, monkeypatch: pytest.MonkeyPatch) -> Brokers:
    Topic.objects.create(cluster=world.cluster, name="payments", state=TopicState.ACTIVE)
    twin = Brokers()

    @contextmanager
    def stand_in(*_: object, **__: object) -> Iterator[Brokers]:
        yield twin

    monkeypatch.setattr(tail, "cluster_admin", stand_in)
    return twin


@pytest.fixture
def look(world: World, brokers: Brokers) -> Callable[..., Any]:
    def ask(cursor: str = "", *, user: Any = None, status: int = 200, **query: Any) -> Any:
        address = f"{world.cluster.path}topics/payments/messages/tail/"
        answer = Json(user or world.alice).get(address, {"cursor": cursor, **query})
        assert answer.status_code == status, answer.content
        return answer.json()

    return ask


def test_the_first_look_gives_no_message_and_each_later_one_what_came_since(
    brokers: Brokers, look: Callable[..., Any]
) -> None:
    brokers.store(0, tags="old")
    page = look()
    assert page["results"] == []
    brokers.store(1, tags="a")
    brokers.store(0, tags="b")
    page = look(page["cursor"])
    assert [one["tags"] for one in page["results"]] == ["a", "b"]
    assert look(page["cursor"])["results"] == []


def test_a_look_at_a_quiet_topic_pulls_nothing(brokers: Brokers, look: Callable[..., Any]) -> None:
    brokers.store(0)
    look(look()["cursor"])
    assert brokers.pulls == 0


def test_more_than_a_look_reads_are_skipped_and_counted_and_the_newest_kept(
    brokers: Brokers, look: Callable[..., Any]
) -> None:
    cursor = look()["cursor"]
    for number in range(250):
        brokers.store(number % 2, tags=str(number))
    page = look(cursor, limit=3)
    assert [one["tags"] for one in page["results"]] == ["247", "248", "249"]
    assert (page["skipped"], page["unwanted"]) == (247, 0)
    assert look(page["cursor"])["results"] == []


@pytest.mark.parametrize(
    "query", [{"tag": "paid"}, {"key": "o-1"}, {"text": "TWO app"}, {"tag": "paid", "key": "o-1", "text": "two"}]
)
def test_a_filter_leaves_the_others_out_and_counts_them(
    brokers: Brokers, look: Callable[..., Any], query: dict[str, str]
) -> None:
    cursor = look()["cursor"]
    brokers.store(0, tags="paid", keys=("o-1",), body=b"two apples")
    brokers.store(0, tags="due", keys=("o-2",), body=b"a pear")
    page = look(cursor, **query)
    assert [one["tags"] for one in page["results"]] == ["paid"]
    assert page["unwanted"] == 1


@pytest.mark.parametrize("query", [{"text": "4111"}, {"key": "k4111-1111"}, {"tag": "t4111-1111"}])
def test_a_filter_finds_nothing_that_is_masked(
    world: World, brokers: Brokers, look: Callable[..., Any], query: dict[str, str]
) -> None:
    for part, pattern in (("body", "$.card.number"), ("property", "KEYS"), ("property", "TAGS")):
        MaskingRule.objects.create(tenant=world.acme, part=part, pattern=pattern, visible_from="admin")
    cursor = look()["cursor"]
    brokers.store(0)
    assert look(cursor, user=world.bob, **query)["results"] == []
    assert len(look(cursor, **query)["results"]) == 1


def test_a_queue_that_is_new_is_followed_from_its_begin(brokers: Brokers, look: Callable[..., Any]) -> None:
    cursor = look()["cursor"]
    brokers.queues[2] = []
    brokers.store(2)
    assert len(look(cursor)["results"]) == 1


def test_a_topic_that_was_made_again_is_followed_from_its_new_begin(brokers: Brokers, look: Callable[..., Any]) -> None:
    for _ in range(5):
        brokers.store(0)
    cursor = look()["cursor"]
    brokers.queues[0].clear()
    brokers.store(0, tags="anew")
    assert [one["tags"] for one in look(cursor)["results"]] == ["anew"]


def test_a_broker_that_is_away_for_a_look_goes_on_where_it_was(brokers: Brokers, look: Callable[..., Any]) -> None:
    brokers.store(1)
    cursor = look()["cursor"]
    away = brokers.queues.pop(1)
    cursor = look(cursor)["cursor"]
    brokers.queues[1] = away
    brokers.store(1, tags="since")
    assert [one["tags"] for one in look(cursor)["results"]] == ["since"]


def test_who_looks_too_often_hears_when_to_look_again(
    world: World, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "_WINDOW_S", 10**6)  # however long the requests take
    client = Json(world.alice)
    address = f"{world.cluster.path}topics/payments/messages/tail/"
    answers = [client.get(address) for _ in range(2 * tail.LOOKS_OF_ONE + 1)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert refused[0].json()["code"] == "too_often"
    assert int(refused[0].headers["Retry-After"]) > 0
    assert Json(world.bob).get(address).status_code == 200


@pytest.mark.parametrize("path", ["messages/", "messages/search/?key=order-7"])
def test_stored_messages_are_looked_at_a_bounded_number_of_times(
    world: World, brokers: Brokers, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(looks, "LOOKS_OF_ONE", 0)
    answer = Json(world.alice).get(f"{world.cluster.path}topics/payments/{path}")
    assert (answer.status_code, answer.json()["code"]) == (429, "too_often")


def test_all_of_a_tenant_together_are_bounded(world: World, brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "LOOKS_OF_TENANT", 3)
    monkeypatch.setattr(tail, "_WINDOW_S", 10**6)
    address = f"{world.cluster.path}topics/payments/messages/tail/"
    statuses = {Json(user).get(address).status_code for user in (world.alice, world.bob) for _ in range(4)}
    assert statuses == {200, 429}


@given(PLACES)
def test_a_cursor_says_all_places(places: dict[tuple[str, int], int]) -> None:
    assert places_of_cursor(cursor_of(places)) == places


def test_a_cursor_of_many_queues_fits_into_an_address() -> None:
    places = {(f"broker-{letter}", queue): 10**9 + 7919 * queue for letter in "abcd" for queue in range(128)}
    assert len(cursor_of(places)) < 4096


def _packed(value: object) -> str:
    return base64.urlsafe_b64encode(zlib.compress(json.dumps(value).encode())).decode()


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "é",
        "AAAA",
        "A" * 9000,
        _packed([]),
        _packed({"a": 1}),
        _packed({"a": [[0]]}),
        _packed({"a": [[0, -1]]}),
        _packed({"a": [[0, 2**63]]}),
        _packed({"a": [["0", 1]]}),
        _packed("x" * 10**6),
        base64.urlsafe_b64encode(zlib.compress(b"{}")[:-3]).decode(),
        base64.urlsafe_b64encode(zlib.compress(b"[" * 10_000)).decode(),
    ],
)
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidInput):
        places_of_cursor(cursor)


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader_of_cursors(data: bytes) -> None:
    for packed in (data, zlib.compress(data)):
        try:
            places_of_cursor(base64.urlsafe_b64encode(packed).decode())
        except InvalidInput:
            continue
