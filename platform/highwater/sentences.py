"""English sentences that remember the message and the values that they were made of, so that a page can say them in another
language. Pure.
"""

from collections.abc import Mapping
from typing import Self


class Sentence(str):
    """English text that keeps its message and plural, with Python's named placeholders, and its values: sentences, too."""

    message: str
    plural: str
    values: Mapping[str, str | int]

    @classmethod
    def of(cls, message: str, plural: str, values: Mapping[str, str | int]) -> Self:
        """Return the sentence; with a `plural`, `values["count"]` picks between the two."""
        sentence = cls((plural if plural and values["count"] != 1 else message) % values)
        sentence.message, sentence.plural, sentence.values = message, plural, values
        return sentence


def say(message: str, /, **values: str | int) -> Sentence:
    """Return a sentence."""
    return Sentence.of(message, "", values)


def say_count(message: str, plural: str, count: int, /, **values: str | int) -> Sentence:
    """Return a sentence of one form for one and another for more; both may name `%(count)s`."""
    return Sentence.of(message, plural, {"count": count, **values})
