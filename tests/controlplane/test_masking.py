"""What rules hide of a body, value by value; what can't be looked into is withheld."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.topics.bodies import BodyForm, Masking, NotOfThisForm, body_shown
from controlplane.topics.masking import (
    MASK,
    Masks,
    NotAPath,
    Part,
    Rule,
    Sight,
    path_of,
    property_pattern_check,
)

SECRET = "4111-1111"
NAMES = st.sampled_from(["a", "b", "card", "x.y", "é", '"', "\\", ""]) | st.text('aCé日\\"{', max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('ab\\"{}[]:,é日 ', max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=20,
)


def masks(*patterns: str, withholds: bool = True) -> Masks:
    return Masks(Rule("*", Part.BODY, pattern, withholds) for pattern in patterns)


def shown(body: object, *patterns: str) -> str:
    return body_shown(json.dumps(body).encode(), 64 * 1024, masks=masks(*patterns)).text


@pytest.mark.parametrize(
    ("pattern", "body", "expected"),
    [
        ("$.card.number", {"card": {"number": 1, "year": 2}}, {"card": {"number": MASK, "year": 2}}),
        ("$.card", {"card": {"number": 1}, "n": 1}, {"card": MASK, "n": 1}),
        ("$.card.number", {"order": {"card": {"number": 1}}}, {"order": {"card": {"number": 1}}}),
        ("*.number", {"order": {"card": {"number": 1}}}, {"order": {"card": {"number": MASK}}}),
        ("*.card.number", [{"card": {"number": 1}}, {"number": 2}], [{"card": {"number": MASK}}, {"number": 2}]),
        ("$.lines.price", {"lines": [{"price": 1}, {"price": 2}]}, {"lines": [{"price": MASK}, {"price": MASK}]}),
        ("$.lines[*].price", {"lines": [{"price": 1}]}, {"lines": [{"price": MASK}]}),
        ("$.*.b", {"a": {"b": 1}, "b": 2}, {"a": {"b": MASK}, "b": 2}),
        ("*.*token*", {"a": {"accessToken": 1}}, {"a": {"accessToken": MASK}}),
        ("*.EMAIL", {"eMail": "x"}, {"eMail": MASK}),
        ("$.a?b", {"a.b": 1}, {"a.b": MASK}),
        ("$", {"a": 1}, MASK),
        ("$", 17, MASK),
        ("*.a", {"a": {}, "b": []}, {"a": MASK, "b": []}),
        ("*.a.a", {"a": {"a": {"a": 1}}}, {"a": {"a": MASK}}),
        ("*.card", {"text": '{"card": 1, "n": 2}'}, {"text": f'{{"card": "{MASK}", "n": 2}}'}),
        ("$.text.card", {"text": '[{"card": 1}]'}, {"text": f'[{{"card": "{MASK}"}}]'}),
        ("*.card", {"text": json.dumps('{"card": 1}')}, {"text": json.dumps(f'{{"card": "{MASK}"}}')}),
        ("*.card", {"text": '"card" is a word', "b": '"card"'}, {"text": '"card" is a word', "b": '"card"'}),
        ("*.card", {"text": '{"card": 1, ...'}, {"text": MASK}),
        ("*.card", [' [card=1]\n{"card": 1}'], [MASK]),
    ],
)
def test_a_path_hides_the_values_that_it_names(pattern: str, body: object, expected: object) -> None:
    assert json.loads(shown(body, pattern)) == expected


def test_what_is_not_hidden_stands_as_it_was_written() -> None:
    body = b'{ "a" : 1.10,\n  "card":{"x":[1,{}]}, "b": 1e400, "b": "\\u00e9" }'
    found = body_shown(body, 1000, masks=masks("$.card"))
    assert found.text == '{ "a" : 1.10,\n  "card":"[masked]", "b": 1e400, "b": "\\u00e9" }'
    assert (found.masking, found.truncated) == (Masking.MASKED, False)


def test_each_of_two_members_of_one_name_is_hidden() -> None:
    assert SECRET not in body_shown(f'{{"a":"{SECRET}","a":"{SECRET}"}}'.encode(), 1000, masks=masks("$.a")).text


def test_a_name_that_is_written_with_escapes_is_hidden_as_well() -> None:
    assert SECRET not in body_shown(b'{"\\u0063ard":"4111-1111"}', 1000, masks=masks("$.card")).text


def test_a_document_that_lies_deep_in_texts_is_hidden_whole() -> None:
    body: Any = {"card": SECRET}
    for _ in range(6):
        body = {"text": json.dumps(body)}
    assert SECRET not in shown(body, "*.card")


def test_a_document_in_a_text_with_too_many_tokens_is_hidden_whole() -> None:
    body = {"many": json.dumps([0] * 20_000), "few": json.dumps([0] * 100)}
    assert json.loads(shown(body, "*.card")) == body | {"many": MASK}


@pytest.mark.parametrize("body", [[0] * 100, {"text": json.dumps([0] * 100)}, {"card": [0] * 100}])
def test_bodies_of_one_answer_are_looked_into_up_to_so_many_tokens_together(body: object) -> None:
    sight, encoded = Sight([Rule("*", Part.BODY, "*.card")], budget_tokens=300), json.dumps(body).encode()
    found = [body_shown(encoded, 1000, masks=sight.masks_for([topic])) for topic in ("payments", "orders")]
    assert [one.masking is Masking.WITHHELD for one in found] == [False, True]
    assert found[1].text == ""


@pytest.mark.parametrize(
    "body",
    [
        b"card=4111-1111",
        b'"4111-1111"',
        b"41111111",
        b'{"card":"4111-1111"',
        b'\xef\xbb\xbf{"card":"4111-1111"}',
        '{"card":"4111-1111"}'.encode("utf-16"),
        b'{"card":"4111-1111"}\n{"card":"4111-1111"}',
        b"[" * 100_000,
        b'{"card":"4111-1111","x":"' + b"x" * 512 * 1024 + b'"}',
        b"\x0a\x094111-1111",
    ],
)
@pytest.mark.parametrize("form", BodyForm)
def test_what_cant_be_looked_into_is_withheld_in_every_form(body: bytes, form: BodyForm) -> None:
    found = body_shown(body, 1000, form, masks("$.card"))
    assert (found.text, found.shown_bytes, found.size_bytes) == ("", 0, -(-len(body) // 1024) * 1024)
    assert found.masking is Masking.WITHHELD


def test_a_rule_may_leave_other_bodies_as_they_are() -> None:
    found = body_shown(b"hello", 1000, masks=masks("$.card", withholds=False))
    assert (found.text, found.masking) == ("hello", Masking.NONE)


def test_a_rule_that_leaves_other_bodies_leaves_texts_that_are_no_json() -> None:
    body = json.dumps({"text": "[17] {card"}).encode()
    assert body_shown(body, 1000, masks=masks("*.card", withholds=False)).text.encode() == body


def test_a_body_that_is_a_text_of_json_is_looked_into_where_texts_are_shown() -> None:
    body = json.dumps(json.dumps({"card": SECRET, "n": 1})).encode()
    found = body_shown(body, 1000, masks=masks("*.card", withholds=False))
    assert json.loads(json.loads(found.text)) == {"card": MASK, "n": 1}


def test_one_rule_that_withholds_is_enough() -> None:
    both = Masks([Rule("*", Part.BODY, "$.a", withholds=False), Rule("*", Part.BODY, "$.b")])
    assert body_shown(b"hello", 1000, masks=both).masking is Masking.WITHHELD


@pytest.mark.parametrize("form", [BodyForm.HEX, BodyForm.BASE64])
def test_a_masked_body_is_not_shown_as_bytes(form: BodyForm) -> None:
    with pytest.raises(NotOfThisForm):
        body_shown(b'{"card":1}', 1000, form, masks("$.card"))


def test_a_masked_body_is_indented() -> None:
    found = body_shown(b'{"card":{"number":1},"n":1}', 1000, BodyForm.JSON, masks("$.card.number"))
    assert found.text == '{\n  "card": {\n    "number": "[masked]"\n  },\n  "n": 1\n}'


@pytest.mark.parametrize("limit", range(0, 50, 7))
@pytest.mark.parametrize("form", [BodyForm.AUTO, BodyForm.TEXT, BodyForm.JSON])
def test_a_cut_shows_no_hidden_value(limit: int, form: BodyForm) -> None:
    body = json.dumps({"a": "é", "card": SECRET, "b": [SECRET.replace("4", "5")]}).encode()
    found = body_shown(body, limit, form, masks("$.card"))
    assert SECRET not in found.text
    assert found.truncated


@pytest.mark.parametrize("limit", [*range(0, 80, 3), 1000])
@pytest.mark.parametrize("form", [BodyForm.AUTO, BodyForm.TEXT, BodyForm.JSON])
def test_how_long_a_hidden_value_is_can_not_be_told(limit: int, form: BodyForm) -> None:
    bodies = [
        json.dumps({"a": 1, "card": "4" * length, "text": json.dumps({"card": "4" * length}), "b": "é" * 9}).encode()
        for length in (0, 1, 20, 200)
    ]
    assert len({body_shown(body, limit, form, masks("*.card")) for body in bodies}) == 1


def test_a_body_without_hidden_values_that_is_shown_whole_has_its_own_size() -> None:
    found = body_shown(b'{ "a": "\xc3\xa9" } ', 1000, masks=masks("$.card"))
    assert (found.size_bytes, found.shown_bytes, found.truncated) == (14, 14, False)


def test_control_characters_of_a_masked_body_are_replaced() -> None:
    assert "\x9b" not in shown({"card": 1, "b": "\x9b"}, "$.card")
    assert "\x9b" not in body_shown('{"card":1,"b":"\x9b"}'.encode(), 1000, masks=masks("$.card")).text


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: MASK if name.casefold() == "card" else _without(part) for name, part in value.items()}
    return [_without(part) for part in value] if isinstance(value, list) else value


@given(VALUES.filter(lambda value: isinstance(value, dict | list)), st.sampled_from([None, 1]), st.booleans())
def test_all_members_of_a_name_are_hidden_and_nothing_else(value: Any, indent: int | None, ascii_only: bool) -> None:
    body = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    found = body_shown(body, 64 * 1024, BodyForm.JSON, masks("*.card", withholds=False))
    assert json.loads(found.text) == _without(value)


@pytest.mark.parametrize(
    "text", ["", "card", "$.", "$..a", "$.a..b", "*", "a.b", "$.a b", "$['a']", "$.a[0]", "$.a\x00", "$." + "a" * 200]
)
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(NotAPath):
        path_of(text)


@pytest.mark.parametrize("text", ["", "a b", "a\x01", "x" * 201])
def test_what_is_no_property_is_refused(text: str) -> None:
    with pytest.raises(NotAPath):
        property_pattern_check(text)


def test_a_glob_of_many_stars_is_matched_at_once() -> None:
    body = json.dumps({"a" * 50_000: 1}).encode()
    assert body_shown(body, 100, masks=masks("*." + "*a" * 60 + "b")).masking is Masking.NONE


def test_a_property_is_hidden_by_its_name_whatever_its_capitals() -> None:
    found = Masks([Rule("*", Part.PROPERTY, "pho*")])
    assert found.hides_property("Phone")
    assert not found.hides_property("KEYS")
    assert not found.hide_bodies


def test_rules_are_of_the_topics_that_they_name() -> None:
    sight = Sight([Rule("pay*", Part.BODY, "$.a"), Rule("orders", Part.BODY, "$.b")])
    assert [rule.pattern for rule in sight.masks_for(["payments"]).rules] == ["$.a"]
    assert not sight.masks_for(["invoices"]).rules
    assert len(sight.masks_for(["payments", "orders"]).rules) == 2


def test_a_message_of_no_known_topic_is_hidden_by_every_rule() -> None:
    sight = Sight([Rule("pay*", Part.BODY, "$.a"), Rule("orders", Part.BODY, "$.b")])
    assert len(sight.masks_for([]).rules) == 2


def test_a_sight_looks_into_so_many_bytes_and_no_more() -> None:
    sight = Sight([], budget_bytes=10)
    assert [sight.may_look_into(6), sight.may_look_into(4), sight.may_look_into(1)] == [True, True, False]


def test_a_body_that_is_too_large_to_be_looked_into_leaves_the_others_their_bytes() -> None:
    sight = Sight([], budget_bytes=10)
    assert [sight.may_look_into(4 * 1024 * 1024), sight.may_look_into(10)] == [True, True]
