"""A sentence is English wherever it is a string, and in the page's language where a template shows it."""

import json

import pytest
from django.template import Context, Template
from django.utils import translation

from controlplane.common.sentences import (
    SentenceField,
    SentencesField,
    from_stored,
    in_words,
    say,
    say_all,
    say_as,
    say_count,
    to_stored,
)


def _shown(text: str) -> str:
    return Template("{{ text }}").render(Context({"text": text}))


def test_a_sentence_is_its_english_text() -> None:
    assert say("%(count)s of %(all)s", count=1, all=3) == "1 of 3"


def test_a_template_shows_a_sentence_in_the_language_of_the_page() -> None:
    with translation.override("zh-hans"):
        assert _shown(say("All times are UTC.")) == "所有时间均为 UTC。"


def test_a_sentence_as_a_value_is_in_the_language_of_the_page_too() -> None:
    with translation.override("zh-hans"):
        assert in_words(say_all(say("All times are UTC."), say("Settings"))) == "所有时间均为 UTC。设置"


def test_what_a_tenant_typed_is_escaped_in_a_sentence() -> None:
    assert _shown(say("Topic %(name)s", name="<b>")) == "Topic &lt;b&gt;"


def test_one_word_is_translated_by_what_it_means() -> None:
    with translation.override("zh-hans"):
        assert (_shown(say_as("expiry", "Never")), _shown(say("Never"))) == ("永不过期", "从未")


def test_the_context_of_a_word_is_not_part_of_it() -> None:
    assert in_words(say_as("expiry", "Never")) == "Never"


def test_one_thing_and_more_things_have_their_own_words() -> None:
    reported = [say_count("%(count)s byte", "%(count)s bytes", count) for count in (0, 1, 2)]
    assert reported == ["0 bytes", "1 byte", "2 bytes"]


def test_a_stored_sentence_is_read_in_another_language() -> None:
    stored = to_stored(say_all(say("Settings"), "as the daemon wrote it"))
    with translation.override("zh-hans"):
        assert in_words(from_stored(stored)) == "设置。as the daemon wrote it"


def test_a_text_that_is_no_sentence_is_stored_as_it_is() -> None:
    assert from_stored(to_stored("100 %, {said}")) == "100 %, {said}"


def test_a_text_with_the_mark_of_sentences_is_not_read_as_one() -> None:
    reported = '\x1e["All times are UTC.", "", {}]'
    found = from_stored(to_stored(reported))
    assert (found, type(found)) == (reported[1:], str)


def test_columns_store_a_text_without_the_mark_and_a_sentence_with_it() -> None:
    assert SentenceField().get_prep_value('\x1e["a", "", {}]') == '["a", "", {}]'
    assert SentenceField().get_prep_value(say("a")) == '\x1e["a", "", {}]'
    assert SentencesField().get_prep_value(["\x1e7", say("a")]) == ["7", '\x1e["a", "", {}]']


@pytest.mark.parametrize(
    "reported",
    [
        "",
        "{",
        "7",
        "null",
        "[1, 2]",
        '["a", "", []]',
        '["a", "b", {}]',
        '["a", "b", {"count": "1"}]',
        '["%(x)s", "", {}]',
        '["%(x)s", "", {"x": {}}]',
        '["%(x)s", "", {"x": ["%s", "", {}]}]',
        '["%(x)999999999s", "", {"x": 1}]',
        '["%(x).999999999f", "", {"x": 1}]',
        '["100 %", "", {}]',
        "[" * 100_000,
    ],
)
def test_what_is_no_stored_sentence_is_read_as_its_text(reported: str) -> None:
    assert from_stored("\x1e" + reported) == reported


def test_a_stored_sentence_with_a_plural_and_a_percent_sign_is_read() -> None:
    sentence = say_count("%(count)s %% of %(part)s", "%(count)s %% each", 1, part=say("Settings"))
    assert from_stored(to_stored(sentence)) == sentence == "1 % of Settings"
    assert json.loads(to_stored(sentence)[1:])[1] == "%(count)s %% each"


def test_a_sentence_without_an_end_gets_one_where_another_follows() -> None:
    cause, hint = "connection refused", say("All times are UTC.")
    assert say_all(cause, hint) == "connection refused. All times are UTC."
    assert say_all(hint, cause) == "All times are UTC. connection refused"
    with translation.override("zh-hans"):
        assert in_words(say_all(cause, hint)) == "connection refused。所有时间均为 UTC。"
