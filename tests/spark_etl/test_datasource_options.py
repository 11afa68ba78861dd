"""The data source's options, offsets and ranges, without Spark."""

from __future__ import annotations

import pickle

import pytest

from highwater import MessageQueue
from spark_etl.datasource.offsets import QueueRange, limited, ranges, split
from spark_etl.datasource.options import parse_options
from spark_etl.errors import EtlError, LostMessagesError, OptionError

NEEDED = {"namesrv": "127.0.0.1:9876", "topic": "orders"}


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"topic": "t"}, r"namesrv is missing.*add \.option"),
        ({"namesrv": "h:1"}, "topic is missing"),
        ({**NEEDED, "startingOfsets": "latest"}, "no option 'startingOfsets'.*did you mean startingOffsets"),
        ({**NEEDED, "colour": "red"}, "no option 'colour'.*The options are namesrv"),
        ({**NEEDED, "accessKey": "k"}, "secretKey is missing"),
        ({**NEEDED, "secretKey": "s"}, "accessKey is missing"),
        ({**NEEDED, "useTls": "maybe"}, "true or false"),
        ({**NEEDED, "maxMessagesPerTrigger": "0"}, "at least 1"),
        ({**NEEDED, "maxMessagesPerTrigger": "many"}, "at least 1"),
        ({**NEEDED, "overlapMessages": "-1"}, "at least 0"),
        ({**NEEDED, "startingOffsets": "sometime"}, "earliest, latest, or JSON"),
        ({**NEEDED, "startingOffsets": '{"broker-a:0": -1}'}, "earliest, latest, or JSON"),
        ({**NEEDED, "startingOffsets": '["broker-a:0"]'}, "earliest, latest, or JSON"),
        ({**NEEDED, "startingTimestamp": "yesterday"}, "with its zone"),
        ({**NEEDED, "startingTimestamp": "2026-11-21T13:00:00"}, "with its zone"),
        ({**NEEDED, "startingTimestamp": "5", "startingOffsets": "latest"}, "leave one of them out"),
    ],
)
def test_an_option_that_cannot_work_is_refused_with_the_way_out(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(OptionError, match=f"(?s){complaint}"):
        parse_options(given, streaming=False)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(OptionError, match="no end"):
        parse_options({**NEEDED, "endingTimestamp": "5"}, streaming=True)


def test_names_of_options_are_taken_in_any_case() -> None:
    assert parse_options({"NAMESRV": "h:1", "Topic": "t"}, streaming=False).topic == "t"


def test_a_time_may_be_given_in_either_form() -> None:
    as_text = parse_options({**NEEDED, "startingTimestamp": "2026-11-21T13:00:00+01:00"}, streaming=False)
    as_number = parse_options({**NEEDED, "startingTimestamp": "1795262400000"}, streaming=False)
    assert as_text.starting == as_number.starting


def test_a_secret_is_not_in_the_text_of_the_options() -> None:
    options = parse_options({**NEEDED, "accessKey": "key", "secretKey": "hush"}, streaming=False)
    assert "hush" not in repr(options)


def test_errors_travel_from_a_worker_with_their_way_out() -> None:
    error = pickle.loads(pickle.dumps(LostMessagesError("Gone.", "look elsewhere.")))
    assert isinstance(error, EtlError)
    assert (error.cause, error.way_out) == ("Gone.", "look elsewhere.")


# -- how far a micro-batch goes


def test_without_a_limit_a_batch_goes_to_the_latest_offsets() -> None:
    assert limited({"a:0": 1}, {"a:1": 5, "a:0": 9}, None) == {"a:0": 9, "a:1": 5}


def test_a_limit_is_shared_fairly_and_used_up() -> None:
    ends = limited({"a:0": 0, "a:1": 10, "a:2": 0}, {"a:0": 1000, "a:1": 12, "a:2": 1000}, 100)
    assert ends == {"a:0": 49, "a:1": 12, "a:2": 49}


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_a_limit_always_makes_progress_and_is_never_exceeded(limit: int) -> None:
    start, latest = {"a:0": 0, "a:1": 0, "a:2": 0}, {"a:0": 4, "a:1": 1, "a:2": 9}
    position, rounds = dict(start), 0
    while position != latest:
        ends = limited(position, latest, limit)
        assert 0 < sum(ends.values()) - sum(position.values()) <= limit
        position, rounds = ends, rounds + 1
    assert rounds == -(-14 // limit)


def test_a_queue_that_went_back_goes_back_whole() -> None:
    assert limited({"a:0": 50, "a:1": 0}, {"a:0": 40, "a:1": 100}, 10) == {"a:0": 40, "a:1": 10}


def test_offsets_are_always_in_the_same_order() -> None:
    assert list(limited({}, {"b:0": 1, "a:0": 1}, None)) == list(limited({}, {"a:0": 1, "b:0": 1}, None))


# -- what a batch reads


def queue(number: int) -> MessageQueue:
    return MessageQueue("orders", "broker-a", number)


def test_a_queue_without_news_is_not_read() -> None:
    assert ranges("orders", {"broker-a:0": 7}, {"broker-a:0": 7}, overlap_messages=5) == []


def test_a_new_queue_is_read_from_its_beginning() -> None:
    assert ranges("orders", {}, {"broker-a:3": 2}) == [QueueRange(queue(3), 0, 2, 0)]


def test_an_overlap_is_read_again_but_not_missed() -> None:
    assert ranges("orders", {"broker-a:0": 10}, {"broker-a:0": 20}, overlap_messages=4) == [
        QueueRange(queue(0), 6, 20, 10)
    ]


def test_a_queue_that_went_back_is_read_before_its_new_end() -> None:
    assert ranges("orders", {"broker-a:0": 50}, {"broker-a:0": 40}, overlap_messages=15) == [
        QueueRange(queue(0), 25, 40, 40)
    ]


def test_a_broker_name_may_hold_a_colon_free_dash_and_numbers() -> None:
    assert ranges("orders", {}, {"broker-a-10:12": 1})[0].queue == MessageQueue("orders", "broker-a-10", 12)


def test_a_range_is_split_into_pieces_that_tile_it() -> None:
    pieces = split(QueueRange(queue(0), 3, 25, 5), 10)
    assert [(piece.begin, piece.end, piece.expected_from) for piece in pieces] == [
        (3, 13, 5),
        (13, 23, 13),
        (23, 25, 23),
    ]
