"""Forms of service accounts. They check shapes only; the rules are the service's."""

from collections.abc import Sequence
from typing import Any

from django import forms

from controlplane.common.sentences import say
from controlplane.console.acts import form_values
from controlplane.console.edit_forms import EditForm
from controlplane.console.forms import TokenForm
from controlplane.tenants.models import Role


class ServiceAccountForm(EditForm):
    """A program of the tenant."""

    name = forms.CharField(max_length=100, label=say("Name"), help_text=say("Which program it is."))
    description = forms.CharField(max_length=200, required=False, label=say("Description"))
    role = forms.ChoiceField(
        label=say("Role"),
        initial=Role.DEVELOPER,
        help_text=say("None of its tokens does more. Programs manage no members."),
    )

    def __init__(self, *args: object, roles: Sequence[tuple[str, str]], **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]  # passed on as they came
        field = self.fields["role"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = list(roles)

    def body(self) -> dict[str, Any]:
        """Return the API's request with what was typed so far, and an example's name before that."""
        return {"name": "deployment", **form_values(self)}

    def changes(self) -> dict[str, Any]:
        """Return the API's request that changes an account to what the form holds."""
        return {"description": "", **form_values(self)}


class AccountTokenForm(TokenForm):
    """A token of a service account."""

    def __init__(self, *args: object, roles: Sequence[tuple[str, str]], **options: object) -> None:
        super().__init__(*args, roles=roles, **options)
        del self.fields["is_service"]
        self.fields["role"].help_text = say("It never does more than the service account may do.")

    def body(self) -> dict[str, object]:
        """Return the API's request, but for the account that the token is of."""
        return {name: value for name, value in super().body().items() if name != "is_personal"}
