"""English sentences that remember the message and the values that they were made of, so that a page can say them in another
language. Pure.
"""

from collections.abc import Mapping
from typing import Self


class Told(str):
    """English text that keeps its message and plural, with Python's named placeholders, and its values, which may be told, too."""

    message: str
    plural: str
    values: Mapping[str, str | int]

    @classmethod
    def of(cls, message: str, plural: str, values: Mapping[str, str | int]) -> Self:
        """Return the text; with a `plural`, `values["count"]` picks between the two."""
        told = cls((plural if plural and values["count"] != 1 else message) % values)
        told.message, told.plural, told.values = message, plural, values
        return told


def tell(message: str, **values: str | int) -> Told:
    """Return a sentence."""
    return Told.of(message, "", values)


def tell_count(message: str, plural: str, count: int) -> Told:
    """Return a sentence of one form for one and another for more; both may name `%(count)s`."""
    return Told.of(message, plural, {"count": count})
