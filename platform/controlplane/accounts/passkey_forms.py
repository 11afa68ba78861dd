"""The forms of passkeys: django-allauth's, with our words and a bound on names."""

from typing import Any

from allauth.mfa.adapter import get_adapter
from allauth.mfa.models import Authenticator
from allauth.mfa.webauthn.forms import AddWebAuthnForm, EditWebAuthnForm, LoginWebAuthnForm
from allauth.mfa.webauthn.internal.auth import parse_authentication_response
from django.core.validators import MaxLengthValidator
from django.utils.translation import gettext

NAME_LENGTH_MAX = 60


class PasskeyAddForm(AddWebAuthnForm):  # type: ignore[misc]  # untyped upstream
    """Takes what the browser made, and a name for it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _bound_name(self, gettext("By which you will know it again."))
        passwordless = self.fields["passwordless"]
        passwordless.label = gettext("Log in with it alone")
        passwordless.initial = True
        passwordless.help_text = gettext(
            "Without email and password: its own PIN, fingerprint or face is the other factor. Clear this for a security "
            "key without a PIN, which is then asked for after the password."
        )


class PasskeyLogInForm(LoginWebAuthnForm):  # type: ignore[misc]  # untyped upstream
    """Takes a passkey in place of the password: one that was unlocked by a PIN, finger or face, whatever its challenge asked for.

    A session keeps the challenge of the step after a password, for which a key need not be unlocked, beyond that step's end: the
    holder of a stolen key would answer that one, of an own log-in, and need no password of the key's owner.
    """

    def clean_credential(self) -> Authenticator:
        shown = parse_authentication_response(self.cleaned_data["credential"]).response.authenticator_data
        authenticator = super().clean_credential()
        if not shown.is_user_verified():
            raise get_adapter().validation_error("incorrect_code")
        return authenticator


class PasskeyRenameForm(EditWebAuthnForm):  # type: ignore[misc]  # untyped upstream
    """Takes a new name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _bound_name(self, "")


def _bound_name(form: AddWebAuthnForm | EditWebAuthnForm, hint: str) -> None:
    field = form.fields["name"]
    field.label, field.help_text, field.max_length = gettext("Name"), hint, NAME_LENGTH_MAX
    field.widget.attrs["maxlength"] = NAME_LENGTH_MAX
    field.validators.append(MaxLengthValidator(NAME_LENGTH_MAX))
