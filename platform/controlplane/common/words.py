"""Names that people give to things, as they may be stored and shown."""

import unicodedata

from controlplane.common.errors import InvalidInput
from controlplane.common.sentences import say

# Control characters, what turns the direction of text, and half characters: a name shows all that it is.
_REFUSED = ("Cc", "Cs", "Co", "Zl", "Zp")
_INVISIBLE = frozenset("\u061c\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff")


def name_check(field: str, text: str) -> str:
    """Return the name without blanks around it; raises InvalidInput for characters that cannot be seen."""
    name = text.strip()
    for character in name:
        if unicodedata.category(character) in _REFUSED or character in _INVISIBLE:
            raise InvalidInput.for_field(
                field,
                say("%(character)s can't be seen in a name. Leave it out.", character=f"U+{ord(character):04X}"),
                "invisible_character",
            )
    return name
