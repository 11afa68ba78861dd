"""How the command line reads and writes times, bodies and attributes."""

from __future__ import annotations

import time

import pytest

from highwater import ConfigurationError
from highwater._cli_format import body_text, parse_time, time_text
from highwater._cli_topics import parse_attributes
from highwater._cli_ways_out import way_out
from highwater.errors import HighwaterError, NoRouteError, broker_error


def test_times_are_read_as_people_and_mqadmin_write_them() -> None:
    at = parse_time("2026-01-31T23:59:58.123+00:00")
    assert at == 1769903998123
    assert parse_time("1769903998123") == at
    assert parse_time("2026-01-31#23:59:58:123") == parse_time("2026-01-31T23:59:58.123")
    assert parse_time("-1") == -1
    assert abs(parse_time("now") - time.time() * 1000) < 60_000


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "2026-01-31#25:00:00:000"])
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a time"):
        parse_time(text)


def test_a_time_is_written_with_its_offset() -> None:
    written = time_text(1769903998123)
    assert written is not None
    assert parse_time(written) == 1769903998123
    assert time_text(None) is None
    assert time_text(2**62) == f"{2**62} ms"  # any program may write it into a message


def test_a_body_is_shown_as_text_or_else_in_hexadecimal() -> None:
    assert body_text("grüße".encode()) == "grüße"
    assert body_text(b"\xff\x00") == "hex:ff00"


def test_a_body_that_was_cut_says_so() -> None:
    assert body_text(b"x" * 1000, 10) == "xxxxxxxxxx … (1000 bytes in all)"
    assert body_text(b"\xff" * 1000, 2) == "hex:ffff … (1000 bytes in all)"


def test_attributes_are_read_in_rocketmqs_form() -> None:
    assert parse_attributes("+message.type=FIFO,+a=b") == {"message.type": "FIFO", "a": "b"}
    assert parse_attributes("+reserve.time=24,-other") == {"reserve.time": "24", "other": None}
    assert parse_attributes("") == {}


@pytest.mark.parametrize("text", ["+a", "-", "=b", "-a=b"])
def test_what_is_no_attribute_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not an attribute"):
        parse_attributes(text)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (broker_error(16, "request code 105 needs an admin account, which k is not", "b:1"), "credential create"),
        (broker_error(16, "k has no SUB permission for group 'g'", "b:1"), "may Administer"),
        (
            broker_error(16, "this request must be signed by an administrator: AccessKey is missing", "n:1"),
            "by HIGHWATER_KEY and HIGHWATER_SECRET",
        ),
        (
            broker_error(16, "this request must be signed by an account: AccessKey or Signature does not match", "n:1"),
            "the cluster's page Credentials",
        ),
        (
            broker_error(16, "No accessKey is configured: this broker takes signed requests only", "b:1"),
            "HIGHWATER_KEY",
        ),
        (
            broker_error(16, "Check signature failed for accessKey='k': its secret is wrong", "b:1"),
            "of one key pair of this cluster",
        ),
        (broker_error(17, "topic 'x' does not exist on this broker", "b:1"), "updateTopic"),
        (broker_error(26, None, "b:1"), "updateSubGroup"),
        (broker_error(14, "this replica is a slave", "b:1"), "haStatus"),
        (broker_error(3, None, "b:1"), "brokerStatus"),
        (NoRouteError("no cluster 'c' is registered"), "clusterList"),
        (NoRouteError("cluster c has no master at the moment"), "the cluster's page"),
        (NoRouteError("no name server knows topic x"), "topicList"),
    ],
)
def test_the_usual_refusals_have_a_way_out(error: HighwaterError, said: str) -> None:
    assert said in (way_out(error) or "")


@pytest.mark.parametrize(
    "error",
    [
        broker_error(16, "request code 20003 is for the platform itself, not for k: promote in the console", "b:1"),
        broker_error(16, "topic 'x' is the broker's own: no one but the broker writes to it", "b:1"),
        NoRouteError("Nothing was promoted; with --yes replica 2 is"),
    ],
)
def test_a_refusal_that_says_what_to_do_gets_no_second_way_out(error: HighwaterError) -> None:
    assert way_out(error) is None
