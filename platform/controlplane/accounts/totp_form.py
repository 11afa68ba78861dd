"""The form that turns an authenticator app on: django-allauth's, with a way out of a wrong code."""

from allauth.mfa.totp.forms import ActivateTOTPForm
from django.core.exceptions import ValidationError
from django.utils.translation import gettext


class AppForm(ActivateTOTPForm):  # type: ignore[misc]  # untyped upstream
    """Takes a code of the app that has just been given the secret."""

    def clean_code(self) -> str:
        try:
            return str(super().clean_code())
        except ValidationError as error:
            if error.code != "incorrect_code":
                raise
            message = gettext(
                "That code does not work. Try the next one; if it fails too, the clock of your phone is wrong."
            )
            raise ValidationError(message, code=error.code) from error
