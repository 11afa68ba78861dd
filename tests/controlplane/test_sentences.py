"""A sentence is English wherever it is a string, and in the page's language where a template shows it."""

from django.template import Context, Template
from django.utils import translation

from controlplane.common.sentences import from_stored, in_words, say, say_all, say_as, say_count, to_stored


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
    told = [say_count("%(count)s byte", "%(count)s bytes", count) for count in (0, 1, 2)]
    assert told == ["0 bytes", "1 byte", "2 bytes"]


def test_a_stored_sentence_is_read_in_another_language() -> None:
    stored = to_stored(say_all(say("Settings"), "as the daemon wrote it"))
    with translation.override("zh-hans"):
        assert in_words(from_stored(stored)) == "设置as the daemon wrote it"


def test_a_text_that_is_no_sentence_is_stored_as_it_is() -> None:
    assert from_stored(to_stored("100 %, {said}")) == "100 %, {said}"
