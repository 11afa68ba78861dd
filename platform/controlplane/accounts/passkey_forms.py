"""The forms of passkeys: django-allauth's, with our words and a bound on names."""

from typing import Any

from allauth.mfa.webauthn.forms import AddWebAuthnForm, EditWebAuthnForm
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
