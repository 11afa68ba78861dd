"""Forms of billing, of a tenant's settings, and of the operators' pages. They check shapes only; the rules are the services'."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django import forms
from django.utils import timezone

from controlplane.billing.models import Plan
from controlplane.billing.money import CURRENCIES, DEFAULT_CURRENCY
from controlplane.billing.plan_services import KINDS, Rates
from controlplane.common.sentences import say
from controlplane.common.zones import zone_names
from controlplane.console.acts import form_values
from controlplane.console.edit_forms import EditForm
from controlplane.insight.models import Job, JobRunState
from controlplane.tenants.models import Tenant

_CURRENCIES = [(code, code) for code in CURRENCIES]
_HOUR_FORMATS = [
    "%Y-%m-%d %H:%M",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%d",
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%d %H:%M:%S.%f",
]


class UtcMoment(forms.CharField):
    """A moment in UTC, typed as `2026-12-01 00:00`: the same on every machine, whatever zone that is set to."""

    def __init__(self, *, label: str, help_text: str, required: bool = True) -> None:
        widget = forms.TextInput(attrs={"placeholder": "2026-12-01 00:00", "autocomplete": "off"})
        super().__init__(label=label, help_text=help_text, required=required, widget=widget)

    def clean(self, value: object) -> datetime | None:
        """Return the moment; None for an empty field that is not required."""
        text = str(super().clean(value))
        if not text:
            return None
        for pattern in _HOUR_FORMATS:
            try:
                moment = datetime.strptime(text, pattern).replace(tzinfo=UTC)
            except ValueError:
                continue
            # Of the years at the calendar's ends a part has no time in other zones, in which pages show it.
            if not 1 < moment.year < 9999:
                raise forms.ValidationError(say("Use a year from 2 to 9998."))
            return moment
        raise forms.ValidationError(say("Use a date and time such as 2026-12-01 00:00."))


def _as_json(values: dict[str, Any]) -> dict[str, Any]:
    """Return what was typed as JSON has it: moments in ISO 8601, exact numbers as strings."""
    return {
        name: value.isoformat() if isinstance(value, datetime) else str(value) if isinstance(value, Decimal) else value
        for name, value in values.items()
    }


def _next_midnight() -> datetime:
    """Return the example of a moment ahead."""
    return timezone.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)


class BudgetForm(forms.Form):
    """What may be spent in a month."""

    amount = forms.DecimalField(max_digits=20, decimal_places=2, label=say("Budget for each month"))
    currency = forms.ChoiceField(choices=_CURRENCIES, label=say("Currency"))

    def body(self) -> dict[str, Any]:
        """Return what was typed as the API's request; an example while nothing was."""
        example = {} if self.is_bound else {"amount": "250.00"}
        return {**example, **_as_json(form_values(self))}


class TenantSettingsForm(EditForm):
    """A tenant's name, zone, and what it asks of its members."""

    name = forms.CharField(max_length=100, label=say("Name"))
    time_zone = forms.ChoiceField(
        label=say("Time zone"),
        help_text=say("In which pages show times. What is stored, billed and answered by the API is UTC."),
    )
    requires_second_factor = forms.BooleanField(
        required=False,
        label=say("Demand a second factor at the log-in"),
        help_text=say(
            "Of all members: who has none sees nothing of the tenant before setting one up. An identity provider that"
            " asks for one counts where the platform trusts it. API tokens are not asked."
        ),
    )
    wants_second_factor = forms.BooleanField(
        required=False,
        label=say("Ask for the second factor again before sensitive acts"),
        help_text=say(
            "If the last time was more than 15 minutes ago: before members delete, reset offsets,"
            " promote with a loss, read a secret, or make a key or a token. Who has no second factor"
            " can’t do that in the console. API tokens are not asked."
        ),
    )

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]  # passed on as they came
        field = self.fields["time_zone"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(name, name.replace("_", " ")) for name in zone_names()]


class PlanForm(forms.Form):
    """A new plan."""

    slug = forms.CharField(
        max_length=39, label=say("Short name"), help_text=say("In addresses; it can’t be changed later.")
    )
    name = forms.CharField(max_length=100, label=say("Name"))
    description = forms.CharField(max_length=500, required=False, label=say("Description"))
    currency = forms.ChoiceField(
        choices=_CURRENCIES,
        initial=DEFAULT_CURRENCY,
        label=say("Currency"),
        help_text=say("Of all its prices, for good."),
    )
    is_default = forms.BooleanField(required=False, label=say("Tenants without a plan get this one"))

    def body(self) -> dict[str, Any]:
        """Return what was typed as the API's request; an example while nothing was."""
        example = {} if self.is_bound else {"slug": "business", "name": "Business"}
        return {**example, **form_values(self)}


class PlanChangeForm(forms.Form):
    """What can be changed of a plan."""

    name = forms.CharField(max_length=100, label=say("Name"))
    description = forms.CharField(max_length=500, required=False, label=say("Description"))
    is_default = forms.BooleanField(required=False, label=say("Tenants without a plan get this one"))

    def body(self) -> dict[str, Any]:
        """Return what was typed as the API's request; an empty description takes it away."""
        return {"description": "", "is_default": False, **form_values(self)}


class RatesForm(forms.Form):
    """What a version charges."""

    per_million_units = forms.DecimalField(
        min_value=0,
        max_digits=20,
        decimal_places=10,
        label=say("A million units sent"),
        help_text=say("A unit is 4 KiB of body."),
    )
    per_million_units_out = forms.DecimalField(
        min_value=0, max_digits=20, decimal_places=10, label=say("A million units delivered")
    )
    per_gib_month_stored = forms.DecimalField(
        min_value=0, max_digits=20, decimal_places=10, label=say("A GiB stored for a month")
    )
    normal = forms.DecimalField(min_value=0, max_digits=8, decimal_places=4, initial=1, label=say("Normal, times"))
    ordered = forms.DecimalField(min_value=0, max_digits=8, decimal_places=4, initial=1, label=say("Ordered, times"))
    delayed = forms.DecimalField(min_value=0, max_digits=8, decimal_places=4, initial=1, label=say("Delayed, times"))
    transactional = forms.DecimalField(
        min_value=0, max_digits=8, decimal_places=4, initial=1, label=say("Transactional, times")
    )

    def body(self) -> dict[str, Any]:
        """Return what was typed as the API's request."""
        texts = {name: str(value) for name, value in _as_json(form_values(self)).items()}
        multipliers = {kind: texts.pop(kind) for kind in KINDS if kind in texts}
        return {**texts, "multipliers": multipliers}

    def rates(self) -> Rates:
        """Return what was typed. Only after is_valid()."""
        values = self.cleaned_data
        return Rates(
            values["per_million_units"],
            values["per_million_units_out"],
            values["per_gib_month_stored"],
            {kind: values[kind] for kind in KINDS},
        )


class PriceForm(RatesForm):
    """A new version."""

    valid_from = UtcMoment(
        label=say("Valid from (UTC)"), help_text=say("A full hour in the future. The version before it ends then.")
    )
    field_order = ["valid_from"]

    def body(self) -> dict[str, Any]:
        """Return what was typed as the API's request; it begins tomorrow, and costs something, while nothing was."""
        example = {
            "valid_from": _next_midnight().isoformat(),
            "per_million_units": "1",
            "per_million_units_out": "1",
            "per_gib_month_stored": "0.1",
        }
        return {**({} if self.is_bound else example), **super().body()}


class SubscriptionForm(forms.Form):
    """Who gets which plan, and when."""

    tenant = forms.CharField(max_length=40, label=say("Tenant"), help_text=say("Its short name."))
    plan = forms.ChoiceField(label=say("Plan"), required=False)
    valid_from = UtcMoment(
        label=say("Valid from (UTC)"), help_text=say("A full hour; in the future, unless it is the first plan.")
    )

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]  # passed on as they came
        field = self.fields["plan"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [
            ("", say("No plan: end the present one")),
            *Plan.objects.order_by("name").values_list("slug", "name"),
        ]

    def body(self) -> dict[str, Any]:
        """Return what was typed as the API's request; an example while nothing was. No plan is null."""
        plan, tenant = Plan.objects.order_by("name").first(), Tenant.objects.order_by("created_at").first()
        example = {"tenant": tenant or "my-team", "plan": plan and plan.slug, "valid_from": _next_midnight()}
        values = _as_json({**({"plan": None} if self.is_bound else example), **form_values(self)})
        named = values.get("tenant")
        return {**values, **({"tenant": named.slug} if isinstance(named, Tenant) else {})}

    def clean_tenant(self) -> Tenant:
        """Return the tenant that was named."""
        tenant = Tenant.objects.filter(slug=self.cleaned_data["tenant"].strip()).first()
        if tenant is None:
            raise forms.ValidationError(say("There is no such tenant."))
        return tenant


class JobForm(forms.Form):
    """A run, or a backfill of a range."""

    job = forms.ChoiceField(choices=Job.choices, label=say("Job"))
    range_from = UtcMoment(
        required=False, label=say("From (UTC)"), help_text=say("For a backfill; left empty, the usual range.")
    )
    range_to = UtcMoment(required=False, label=say("To (UTC)"), help_text=say("Not included."))

    def body(self) -> dict[str, Any]:
        """Return what was typed as the API's request; an example while nothing was."""
        return _as_json(form_values(self)) if self.is_bound else {"job": str(Job.USAGE_BILLING)}


class JobSearchForm(forms.Form):
    """Which runs are listed."""

    job = forms.ChoiceField(choices=[("", say("all jobs")), *Job.choices], label=say("Job"), required=False)
    state = forms.ChoiceField(
        choices=[("", say("any state")), *JobRunState.choices], label=say("State"), required=False
    )


class AgreeForm(forms.Form):
    """Up to when a cluster is billed by what is known, and why."""

    until = UtcMoment(
        label=say("Bill what is known until (UTC)"), help_text=say("In the past: the month's end, or the cluster's.")
    )
    reason = forms.CharField(
        max_length=500,
        label=say("Reason"),
        help_text=say("Printed on the invoice."),
        widget=forms.Textarea(attrs={"rows": 3}),
    )

    def body(self) -> dict[str, Any]:
        """Return what was typed as the API's request; an example while nothing was."""
        example = {"until": _next_midnight() - timedelta(days=1), "reason": "Its disk is lost."}
        return _as_json({**({} if self.is_bound else example), **form_values(self)})


class ThresholdsForm(forms.Form):
    """From which backlog and growth on a group is said to never catch up."""

    lag_messages = forms.IntegerField(min_value=0, max_value=2**63 - 1, label=say("Backlog of at least (messages)"))
    growth_per_second = forms.DecimalField(
        min_value=0, max_digits=12, decimal_places=3, label=say("Growing by at least (messages a second)")
    )

    def body(self) -> dict[str, Any]:
        """Return what was typed as the API's request."""
        return {
            name: float(value) if isinstance(value, Decimal) else value for name, value in form_values(self).items()
        }
