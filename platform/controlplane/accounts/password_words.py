"""Words that anyone would try for this product, and that no password is made of."""

import re

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

WORDS = ("highwater", "rocketmq", "apache", "broker", "console", "operator", "queue", "password", "admin", "welcome")
_REST_MIN = 6
_PLAIN = str.maketrans("01345@$!", "oieasasi")


class WordsValidator:
    """Refuses a password that has fewer than six letters beside these words, digits and signs."""

    def validate(self, password: str, user: AbstractBaseUser | None = None) -> None:
        """Raise ValidationError for one that is easily guessed here."""
        rest = password.casefold().translate(_PLAIN)
        found = [word for word in WORDS if word in rest]
        for word in found:
            rest = rest.replace(word, "")
        if found and len(re.sub(r"[\W\d_]", "", rest)) < _REST_MIN:
            raise ValidationError(self.get_help_text(), code="password_of_our_words")

    def get_help_text(self) -> str:
        """Return what the form says."""
        return _("Your password can’t be made of words of this product, such as its name.")
