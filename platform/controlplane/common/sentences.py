"""Sentences that Python builds and a page shows in its reader's language: an English message with named values.

A `Sentence` is its English text to everything that knows no better: the REST API, logs, comparisons. A template shows it
in the language of the page, and a `SentenceField` stores message and values, so that a row is read in any language.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Self

from django.db import models
from django.utils.html import escape
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext

from highwater.sentences import Sentence as SdkSentence

# Before what is stored as message and values; `to_stored` drops it from a text that a daemon or a person wrote.
_MARK = "\x1e"
# All that may follow a % in a stored message: no widths, which would make a text of any size.
_PLACEHOLDER = re.compile(r"%(?:%|\((\w+)\)s)")
# Between the context of a message and the message, as gettext has it.
_CONTEXT_END = "\x04"

Value = str | int | float | None


class Sentence(str):
    """English text that remembers the message it was made of. Make one with `say` or `say_count`."""

    message: str
    plural: str
    values: Mapping[str, Value]

    @classmethod
    def of(cls, message: str, plural: str, values: Mapping[str, Value]) -> Self:
        """Return the sentence; with a `plural`, `values["count"]` picks between the two."""
        chosen = plural if plural and values["count"] != 1 else message
        sentence = cls(_without_context(chosen) % values)
        sentence.message, sentence.plural, sentence.values = message, plural, values
        return sentence

    def __html__(self) -> SafeString:
        """What Django's templates write for it: in the language of the page, escaped."""
        return escape(str(in_words(self)))


def say(message: str, /, **values: Value) -> Sentence:
    """Return a sentence. `message` has Python's named placeholders, `%(name)s`, and stands in a .po file; a value may be a
    sentence itself.
    """
    return Sentence.of(message, "", values)


def say_as(context: str, message: str, /, **values: Value) -> Sentence:
    """Return a sentence whose message means something else elsewhere: `context` distinguishes the two in the .po files."""
    return Sentence.of(f"{context}{_CONTEXT_END}{message}", "", values)


def say_count(message: str, plural: str, count: int, /, **values: Value) -> Sentence:
    """Return a sentence of one form for one and another for more; both may name `%(count)s`."""
    return Sentence.of(message, plural, {"count": count, **values})


def say_all(*sentences: str) -> str:
    """Return sentences as one text, with a blank between them where the language has one. Empty ones are left out.

    One that another follows gets a period where it has none: what an error of the network says ends without.
    """
    said = [sentence for sentence in sentences if sentence]
    if not said:
        return ""
    text = said[-1]
    for sentence in reversed(said[:-1]):
        ends = not sentence[-1].isalnum()
        text = say("%(first)s %(rest)s" if ends else "%(first)s. %(rest)s", first=sentence, rest=text)
    return text


def from_sdk(text: str) -> str:
    """Return a sentence of the SDK as one of ours; any other text as it is."""
    if not isinstance(text, SdkSentence):
        return text
    values = {name: from_sdk(value) if isinstance(value, str) else value for name, value in text.values.items()}
    return Sentence.of(text.message, text.plural, values)


def is_made_of(text: str, message: str) -> bool:
    """Whether a text is a sentence of this message, whatever its values."""
    return isinstance(text, Sentence) and text.message == message


def in_words(text: str) -> str:
    """Return a sentence in the language of the present page; any other text as it is."""
    if not isinstance(text, Sentence):
        return text
    values = {name: in_words(value) if isinstance(value, str) else value for name, value in text.values.items()}
    if text.plural:
        count = text.values["count"]
        assert isinstance(count, int)
        return ngettext(text.message, text.plural, count) % values
    return _without_context(gettext(text.message)) % values


def _without_context(message: str) -> str:
    return message.rpartition(_CONTEXT_END)[2]


def bounded(text: str, most: int) -> str:
    """Return what a column may keep of a text from elsewhere: its beginning. A sentence is kept whole."""
    return text if isinstance(text, Sentence) else text[:most]


def to_stored(text: str) -> str:
    """Return what a column holds of a text: of a sentence its message and values."""
    return _MARK + json.dumps(_packed(text), ensure_ascii=False) if isinstance(text, Sentence) else text.lstrip(_MARK)


def from_stored(stored: str) -> str:
    """Return the text of which `to_stored` made this; what is no sentence after the mark is the text that it is."""
    if not stored.startswith(_MARK):
        return stored
    try:
        return _unpacked_sentence(json.loads(stored[len(_MARK) :]))
    except (ValueError, RecursionError):
        return stored.lstrip(_MARK)


def _packed(value: Value) -> Any:
    if not isinstance(value, Sentence):
        return value
    return [value.message, value.plural, {name: _packed(part) for name, part in value.values.items()}]


def _unpacked_sentence(packed: Any) -> Sentence:
    """Raises ValueError for what `_packed` did not make."""
    match packed:
        case [str(message), str(plural), dict(values)]:
            _message_check(message, values)
            _message_check(plural, values)
            if plural and not isinstance(values.get("count"), int):
                raise ValueError("a plural without a count")
            return Sentence.of(message, plural, {name: _unpacked(part) for name, part in values.items()})
    raise ValueError("not a sentence")


def _unpacked(packed: Any) -> Value:
    if isinstance(packed, list):
        return _unpacked_sentence(packed)
    if packed is None or isinstance(packed, str | int | float):
        return packed
    raise ValueError("not a value")


def _message_check(message: str, values: Mapping[str, Any]) -> None:
    if "%" in _PLACEHOLDER.sub("", message):
        raise ValueError("a message with other placeholders than %(name)s")
    if not all(name in values for name in _PLACEHOLDER.findall(message) if name):
        raise ValueError("a message without its values")


class SentenceField(models.TextField):  # type: ignore[type-arg] # at run time it takes none
    """A column of text that keeps sentences as such."""

    def from_db_value(self, value: str | None, expression: object, connection: object) -> str | None:
        return None if value is None else from_stored(value)

    def get_prep_value(self, value: Any) -> Any:
        prepared = super().get_prep_value(value)
        return to_stored(prepared) if isinstance(prepared, str) else prepared


class SentencesField(models.JSONField):
    """A column of JSON that keeps the sentences in it as such, however deep."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return _each(super().from_db_value(value, expression, connection), from_stored)

    def get_prep_value(self, value: Any) -> Any:
        return _each(super().get_prep_value(value), to_stored)


def _each(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {name: _each(part, change) for name, part in value.items()}
    return [_each(part, change) for part in value] if isinstance(value, list) else value
