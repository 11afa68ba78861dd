"""What a property string says is the same whether its shape is new or known."""

import pytest

from brokerd.processors import send_properties
from brokerd.processors.send_properties import PropertyReader, tags_code_of
from mqwire.errors import RemoteProtocolError
from mqwire.message import string_to_properties, tags_code

KEY = "0A" * 16


@pytest.mark.parametrize(
    "text",
    [
        f"UNIQ_KEY\x01{KEY}\x02WAIT\x01true\x02TAGS\x01t\x02",
        f"KEYS\x01k\x02UNIQ_KEY\x01{KEY}",
        f"TAGS\x01日本\x02UNIQ_KEY\x01{KEY}\x02",
        f"xUNIQ_KEY\x01no\x02UNIQ_KEY\x01{KEY}\x02",
    ],
)
def test_a_property_string_is_stored_whole_with_the_clusters_name_and_region(text: str) -> None:
    reader = PropertyReader("c1", region="r1")
    for _ in range(2):
        stored = reader.read(text.encode())
        own = {"CLUSTER": "c1", "MSG_REGION": "r1"}
        assert string_to_properties(stored.properties.decode()) == {**string_to_properties(text), **own}
        assert stored.properties.endswith(b"\x02")
        assert stored.unique_key == KEY.encode()
        assert stored.tags_code == tags_code(string_to_properties(text).get("TAGS", ""))


@pytest.mark.parametrize("text", ["", "KEYS\x01k", "KEYS\x01k\x02", "xUNIQ_KEY\x01no\x02"])
def test_a_message_without_a_unique_key_gets_one(text: str) -> None:
    reader = PropertyReader("c1")
    first, second = reader.read(text.encode()), reader.read(text.encode())
    assert len(first.unique_key) == 32
    assert first.unique_key != second.unique_key
    assert string_to_properties(first.properties.decode())["UNIQ_KEY"] == first.unique_key.decode()


@pytest.mark.parametrize("name", ["DELAY", "TRAN_MSG", "TIMER_DELIVER_MS", "__CRC32#", "POP_CK"])
def test_what_asks_for_more_than_storing_is_noticed(name: str) -> None:
    assert PropertyReader("c1").read(f"{name}\x011\x02UNIQ_KEY\x01{KEY}".encode()).special


def test_ordinary_messages_are_not_special() -> None:
    assert not PropertyReader("c1").read(f"KEYS\x01DELAYED\x02UNIQ_KEY\x01{KEY}".encode()).special


def test_a_tag_inside_another_value_is_no_tag() -> None:
    assert tags_code_of(b"KEYS\x01TAGS\x02a\x01b") == 0


def test_a_tag_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="UTF-8"):
        tags_code_of(b"TAGS\x01\xff")


def test_a_long_tag_is_not_remembered() -> None:
    tag = b"t" * 30_000
    assert tags_code_of(b"TAGS\x01" + tag) == tags_code(tag.decode())
    assert tag not in send_properties._tag_codes


def test_consumers_learn_that_tracing_is_off() -> None:
    stored = PropertyReader("c1", trace_on=False).read(f"UNIQ_KEY\x01{KEY}".encode())
    assert string_to_properties(stored.properties.decode())["TRACE_ON"] == "false"
