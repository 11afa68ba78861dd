"""The console's forms. They check shapes only; the rules are the services', whose errors are shown beside the field."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, ClassVar

from django import forms
from django.forms.utils import flatatt
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import slugify
from django.utils.translation import gettext_lazy

from controlplane.clusters.certificates import Succession
from controlplane.clusters.labels import labels_parse
from controlplane.clusters.lifecycle import REASON_CHARACTERS_MAX
from controlplane.clusters.limits import LIMIT_MAX, LimitSetting
from controlplane.clusters.models import ClusterMode, CredentialRole, FailoverPolicy, FlushType
from controlplane.clusters.services import Growth
from controlplane.clusters.sizes import GROUPS_MAX, REPLICAS_MAX, VOTERS
from controlplane.common.errors import InvalidInput
from controlplane.common.sentences import in_words, say, say_all, say_as
from controlplane.console.acts import form_values
from controlplane.console.billing_forms import UtcMoment
from controlplane.console.edit_forms import EditForm
from controlplane.failover.drill.windows import FARTHEST, LONGEST, SHORTEST
from controlplane.failover.models import DrillFault
from controlplane.provisioning.authority import OVERLAP_DAYS, OVERLAP_DAYS_MAX
from controlplane.tenants.models import Role
from controlplane.tenants.rules import Scope
from controlplane.tenants.token_services import DEFAULT_LIFE_DAYS
from controlplane.topics.gateway import TestMessage
from controlplane.topics.models import MessageType
from controlplane.topics.names import NAME_PATTERN
from controlplane.topics.search import KEY_MAX_LENGTH, Sought
from controlplane.topics.services import QUEUES_MAX, TOPIC_LIMITS, TopicOptions
from mqwire.names import RMQ_SYS_TRACE_TOPIC

CODE_INPUT = {"autocapitalize": "none", "autocomplete": "off", "autocorrect": "off", "spellcheck": "false"}


SLUG_HELP = say("2 to 39 lower-case letters, digits and single hyphens, starting with a letter.")


@dataclass(frozen=True, slots=True)
class Choice:
    """A radio button's label with a line of explanation."""

    heading: str
    detail: str = ""

    def __str__(self) -> str:
        return self.heading


class TenantForm(forms.Form):
    """A new tenant."""

    name = forms.CharField(
        max_length=100, label=say("Name"), widget=forms.TextInput(attrs={"autocomplete": "organization"})
    )
    slug = forms.CharField(
        max_length=40,
        required=False,
        label=say("Short name in addresses"),
        help_text=say_all(SLUG_HELP, say("Left empty, it is made from the name. It can’t be changed later.")),
        widget=forms.TextInput(attrs=CODE_INPUT),
    )

    def clean(self) -> dict[str, object]:
        cleaned = super().clean() or {}
        if not cleaned.get("slug") and cleaned.get("name"):
            words = slugify(str(cleaned["name"]).replace("_", " "))
            cleaned["slug"] = words[:39].rstrip("-")
        return cleaned


_POLICIES = [
    (
        FailoverPolicy.MANUAL,
        Choice(say("An operator"), say("The cluster’s page shows what would be lost before anyone promotes.")),
    ),
    (
        FailoverPolicy.AUTOMATIC_WHEN_LOSSLESS,
        Choice(
            say("Highwater, when nothing acknowledged is lost"),
            say("Within about ten seconds, with synchronous replication. Otherwise an operator decides."),
        ),
    ),
]


def _for_modes(*modes: ClusterMode) -> dict[str, str]:
    """Return the attributes of a field that only these modes have: with any other one it is hidden (forms.css)."""
    return {"data-modes": " ".join(modes)}


class ClusterForm(forms.Form):
    """A new cluster."""

    slug = forms.CharField(
        max_length=40,
        label=say("Name"),
        help_text=say_all(SLUG_HELP, say("It is the cluster’s name for clients, too (brokerClusterName).")),
        widget=forms.TextInput(attrs=CODE_INPUT),
    )
    mode = forms.ChoiceField(
        label=say("What should happen when a broker fails?"),
        initial=ClusterMode.SINGLE,
        required=False,
        widget=forms.RadioSelect,
        choices=[
            (
                ClusterMode.SINGLE,
                Choice(
                    say("Wait for it (single master)"),
                    say("One broker. Cheapest. The cluster is unavailable until the broker is back."),
                ),
            ),
            (
                ClusterMode.MULTI,
                Choice(
                    say("The others take sends (multi master)"),
                    say(
                        "Queues are spread over several brokers. Messages on the failed one can be read once it"
                        " is back."
                    ),
                ),
            ),
            (
                ClusterMode.ASYNC,
                Choice(
                    say("Keep reading from a slave (asynchronous replication)"),
                    say("Sends don’t wait for the slave. Promoting it may lose the most recent messages."),
                ),
            ),
            (
                ClusterMode.SYNC,
                Choice(
                    say("Keep reading, lose nothing (synchronous replication)"),
                    say("SEND_OK means that a slave has the message, too. Promoting it loses nothing."),
                ),
            ),
            (
                ClusterMode.DLEDGER,
                Choice(
                    say("Recover by itself, lose nothing (DLedger)"),
                    say(
                        "Three or five replicas elect a leader within seconds. SEND_OK means that a majority has"
                        " the message."
                    ),
                ),
            ),
        ],
    )
    groups = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=GROUPS_MAX,
        label=say("Broker groups"),
        help_text=say("Leave empty for one, or two with multi master. Each topic’s queues are spread over them."),
        widget=forms.NumberInput(
            attrs=_for_modes(ClusterMode.MULTI, ClusterMode.ASYNC, ClusterMode.SYNC, ClusterMode.DLEDGER)
        ),
    )
    replicas = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=max(REPLICAS_MAX, *VOTERS),
        label=say("Replicas of each group"),
        help_text=say(
            "Including the master. Leave empty for two with master/slave replication, three with"
            " DLedger, otherwise one."
        ),
        widget=forms.NumberInput(attrs=_for_modes(ClusterMode.ASYNC, ClusterMode.SYNC, ClusterMode.DLEDGER)),
    )
    failover_policy = forms.ChoiceField(
        label=say("Who promotes a slave?"),
        initial=FailoverPolicy.MANUAL,
        required=False,
        widget=forms.RadioSelect(attrs=_for_modes(ClusterMode.ASYNC, ClusterMode.SYNC)),
        choices=_POLICIES,
    )
    flush_disk_type = forms.ChoiceField(
        label=say("When is a message safe?"),
        initial="",
        required=False,
        widget=forms.RadioSelect,
        choices=[
            (
                "",
                Choice(
                    say("Default for the mode"),
                    say("DLedger: on the disks of a majority before the answer. Other modes: soon after the answer."),
                ),
            ),
            (
                FlushType.ASYNC_FLUSH,
                Choice(
                    say("Soon after the answer (ASYNC_FLUSH)"),
                    say(
                        "Fastest. A crash of the machine may lose the last half second; a crash of the broker"
                        " loses nothing."
                    ),
                ),
            ),
            (
                FlushType.SYNC_FLUSH,
                Choice(
                    say("Before the answer (SYNC_FLUSH)"),
                    say("Each SEND_OK means that the message is on the disk. Sends wait for the disk."),
                ),
            ),
        ],
    )

    def body(self) -> dict[str, object]:
        """Return what was typed as the API's request; an example while nothing was."""
        return {"slug": "" if self.is_bound else "orders", **form_values(self)}

    def clean_mode(self) -> str:
        return str(self.cleaned_data.get("mode") or ClusterMode.SINGLE)

    def clean_failover_policy(self) -> str:
        return str(self.cleaned_data.get("failover_policy") or FailoverPolicy.MANUAL)

    def clean_flush_disk_type(self) -> str | None:
        return str(self.cleaned_data["flush_disk_type"]) or None

    def clean(self) -> dict[str, object]:
        """Forget what was typed before another mode was chosen, which hides it."""
        cleaned = super().clean() or {}
        for name, field in self.fields.items():
            modes = field.widget.attrs.get("data-modes")
            if modes and "mode" in cleaned and cleaned["mode"] not in modes.split():
                self.errors.pop(name, None)
                cleaned[name] = field.initial
        return cleaned


class ClusterNameForm(forms.Form):
    """What people call a cluster; its address keeps the name that it was made with."""

    name = forms.CharField(
        label=say("Name"),
        max_length=100,
        widget=forms.TextInput,
        help_text=say("What people call it. Addresses and programs keep the name that it was made with."),
    )


class LabelsForm(forms.Form):
    """All labels of a cluster, one a line."""

    labels = forms.CharField(
        label=say("Labels"),
        required=False,
        widget=forms.Textarea(attrs={**CODE_INPUT, "rows": 4}),
        help_text=say(
            "One a line, as env=prod. Lists are filtered by them, and the cost export (FOCUS) has them as tags."
        ),
    )

    def clean_labels(self) -> dict[str, str]:
        try:
            return labels_parse(str(self.cleaned_data["labels"]))
        except InvalidInput as error:
            raise forms.ValidationError(in_words(error.message)) from error


class SuspendForm(forms.Form):
    """Why a cluster is stopped for a while."""

    reason = forms.CharField(
        label=say("Reason"),
        max_length=REASON_CHARACTERS_MAX,
        required=False,
        widget=forms.TextInput,
        help_text=say("Shown to everyone who looks at the cluster. May be empty."),
    )


class OperationFailForm(forms.Form):
    """Why an operation that does not go on is given up."""

    reason = forms.CharField(
        label=say("Why it is given up"), max_length=200, widget=forms.TextInput, help_text=say("The tenant reads it.")
    )


class LimitForm(forms.Form):
    """Another limit for a tenant; without a value the platform's own again."""

    name = forms.ChoiceField(label=say("Which limit"))
    value = forms.IntegerField(
        label=say("At most"),
        min_value=0,
        max_value=LIMIT_MAX,
        required=False,
        help_text=say("Empty: the platform’s own again. 0: none, of what brokers keep. Sizes are in bytes."),
    )
    reason = forms.CharField(
        label=say("Why"),
        max_length=REASON_CHARACTERS_MAX,
        widget=forms.TextInput,
        help_text=say("It is in the audit trail, which the tenant reads."),
    )

    def __init__(self, *args: Any, limits: Sequence[LimitSetting], **options: Any) -> None:
        super().__init__(*args, **options)
        field = self.fields["name"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(one.name, one.title) for one in limits]
        self._names = [one.name for one in limits]

    def address_and_body(self) -> tuple[str, dict[str, Any]]:
        """Return which limit was chosen, and what was typed as the API's request; an example while nothing was."""
        example = {} if self.is_bound else {"value": 20, "reason": "They asked for more."}
        values = {**example, **form_values(self)}
        name = values.pop("name", None)
        return name if name in self._names else self._names[0], {"value": None, **values}


class PolicyForm(forms.Form):
    """Who promotes a slave of a cluster that runs."""

    failover_policy = forms.ChoiceField(label=say("Who promotes a slave?"), widget=forms.RadioSelect, choices=_POLICIES)


class GrowForm(forms.Form):
    """One more broker group. Replicas are added and removed where the mode is changed, and there alone."""

    by = forms.ChoiceField(
        widget=forms.HiddenInput, initial=Growth.GROUP, choices=[(Growth.GROUP, say("A broker group"))]
    )


class TypedLossForm(forms.Form):
    """A promotion: the group's name is typed only when messages may be lost."""

    typed = forms.CharField(required=False, widget=forms.TextInput(attrs=CODE_INPUT))

    def __init__(self, *args: object, expected: str, needed: bool, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # passed through as they came
        self.expected = expected
        if not needed:
            del self.fields["typed"]
            return
        self.fields["typed"].required = True
        self.fields["typed"].label = say("Type %(expected)s to accept the loss", expected=expected)
        self.fields["typed"].widget.attrs["data-must-equal"] = expected
        self.fields["typed"].error_messages["required"] = in_words(
            say("Type %(expected)s first. Nothing was changed.", expected=expected)
        )

    def clean_typed(self) -> str:
        typed = str(self.cleaned_data["typed"])
        if typed != self.expected:
            raise forms.ValidationError(
                in_words(say("This is not %(expected)s. Nothing was changed.", expected=self.expected))
            )
        return typed


_FAULTS = [
    (DrillFault.KILL, Choice(say("Killed"), say("Its process ends at once, as when its machine loses power."))),
    (
        DrillFault.HANG,
        Choice(say("Hangs"), say("Its process keeps its connections and answers nothing any more.")),
    ),
    (
        DrillFault.CUT,
        Choice(
            say("Cut off"),
            say("It runs on and believes that it leads, but the network is gone: for 15 seconds."),
        ),
    ),
]


class DrillForm(forms.Form):
    """A failover drill: the group's name is typed, since sends fail or wait meanwhile."""

    fault = forms.ChoiceField(
        label=say("What happens to the leader"),
        choices=_FAULTS,
        initial=DrillFault.KILL,
        widget=forms.RadioSelect,
    )
    gives_back = forms.BooleanField(
        required=False,
        label=say("Give the leadership back"),
        help_text=say("Once the old leader has caught up it leads again: a second, planned change without loss."),
    )
    typed = forms.CharField(widget=forms.TextInput(attrs=CODE_INPUT))

    def __init__(self, *args: object, expected: str, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # passed through as they came
        self.expected = expected
        self.fields["typed"].label = say("Type %(expected)s to begin", expected=expected)
        self.fields["typed"].widget.attrs["data-must-equal"] = expected
        self.fields["typed"].error_messages["required"] = in_words(
            say("Type %(expected)s first. Nothing was stopped.", expected=expected)
        )

    def clean_typed(self) -> str:
        typed = str(self.cleaned_data["typed"])
        if typed != self.expected:
            raise forms.ValidationError(
                in_words(say("This is not %(expected)s. Nothing was stopped.", expected=self.expected))
            )
        return typed


class DrillWindowForm(forms.Form):
    """A drill that begins by itself within a window; the group's name is typed, as for one that begins now."""

    group = forms.ChoiceField(label=say_as("broker group", "Group"))
    opens_at = UtcMoment(label=say("Not before"), help_text=say("In UTC."))
    closes_at = UtcMoment(
        label=say("Not after"),
        help_text=say(
            "In UTC; %(minutes)s minutes to %(days)s days later.", minutes=SHORTEST.seconds // 60, days=LONGEST.days
        ),
    )
    fault = forms.ChoiceField(
        label=say("What happens to the leader"), choices=_FAULTS, initial=DrillFault.KILL, widget=forms.RadioSelect
    )
    gives_back = forms.BooleanField(required=False, label=say("Give the leadership back"))
    confirm = forms.CharField(
        label=say("Type the group’s name"),
        help_text=say("Its leader is stopped then: sends fail or wait for some seconds."),
        widget=forms.TextInput(attrs=CODE_INPUT),
    )

    def __init__(self, *args: object, groups: list[str], **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # passed through as they came
        field = self.fields["group"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(name, name) for name in groups]
        self._example = groups[0] if groups else "broker-a"

    def clean(self) -> dict[str, Any]:
        """Say all that is wrong at once; what orders the drill asks the same again, and stops at the first."""
        values = {**(super().clean() or {})}
        group, confirm = values.get("group"), values.get("confirm")
        if group and confirm and confirm != group:
            self.add_error("confirm", in_words(say("Type the group's name, %(group)s.", group=group)))
        opens_at, closes_at, now = values.get("opens_at"), values.get("closes_at"), timezone.now()
        if opens_at and opens_at > now + FARTHEST:
            self.add_error("opens_at", in_words(say("Use a time at most %(days)s days away.", days=FARTHEST.days)))
        if closes_at and closes_at <= now:
            self.add_error("closes_at", in_words(say("Use a time in the future.")))
        elif opens_at and closes_at and not SHORTEST <= closes_at - opens_at <= LONGEST:
            words = say(
                "Use a time %(minutes)s minutes to %(days)s days after the window opens.",
                minutes=SHORTEST.seconds // 60,
                days=LONGEST.days,
            )
            self.add_error("closes_at", in_words(words))
        return values

    def body(self) -> dict[str, Any]:
        """Return the API's request with what was typed so far, and an example's values before that."""
        opens_at = timezone.now().replace(minute=0, second=0, microsecond=0) + timedelta(days=7)
        values = {
            "group": self._example,
            "opens_at": opens_at,
            "closes_at": opens_at + timedelta(hours=2),
            "confirm": self._example,
            **form_values(self),
        }
        return {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in values.items()}


class TypedNameForm(forms.Form):
    """A dangerous action that waits until the name of its victim is typed."""

    typed = forms.CharField(widget=forms.TextInput(attrs=CODE_INPUT))

    def __init__(self, *args: object, expected: str, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # passed through as they came
        self.expected = expected
        self.fields["typed"].label = say("Type %(expected)s to confirm", expected=expected)
        self.fields["typed"].widget.attrs["data-must-equal"] = expected
        self.fields["typed"].error_messages["required"] = in_words(
            say("Type %(expected)s first. Nothing was deleted.", expected=expected)
        )

    def clean_typed(self) -> str:
        typed = str(self.cleaned_data["typed"])
        if typed != self.expected:
            raise forms.ValidationError(
                in_words(say("This is not %(expected)s. Nothing was deleted.", expected=self.expected))
            )
        return typed


class AuthorityRenewForm(forms.Form):
    """The next step of the renewal of a cluster's CA; `step` is the one that the page showed."""

    step = forms.ChoiceField(choices=[(one.value, one.value) for one in Succession], widget=forms.HiddenInput)
    overlap_days = forms.IntegerField(
        label=say("Days until the next CA signs"),
        min_value=1,
        max_value=OVERLAP_DAYS_MAX,
        initial=OVERLAP_DAYS,
        help_text=say("So long, programs have time to get the file ca.pem with both certificates."),
    )
    confirm = forms.CharField(widget=forms.TextInput(attrs=CODE_INPUT))

    def __init__(self, *args: object, step: Succession, expected: str, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # passed through as they came
        self.fields["step"].initial = step.value
        self.fields["confirm"].label = say("Type %(expected)s to confirm", expected=expected)
        self.fields["confirm"].widget.attrs["data-must-equal"] = expected
        if step is not Succession.TRUST_NEXT:
            del self.fields["overlap_days"]
        if step is not Succession.SIGN_BY_NEXT:
            del self.fields["confirm"]


class ConfirmForm(forms.Form):
    """An action that only needs a second look."""


class RevokeForm(ConfirmForm):
    """A member leaves or loses rights: which of the secrets that they know end as well."""

    revoke = forms.MultipleChoiceField(
        label=say("End these as well"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=say("They were made by the person, or shown to them. What you leave unchecked goes on working."),
    )

    def __init__(self, *args: object, secrets: Sequence[tuple[str, Choice]], **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]  # passed on as they came
        if secrets:
            field = self.fields["revoke"]
            assert isinstance(field, forms.MultipleChoiceField)
            field.choices = list(secrets)
        else:
            del self.fields["revoke"]

    def chosen(self) -> list[str]:
        """Return the ids, also of a form that is not valid or was not sent yet."""
        if not self.is_bound or "revoke" not in self.fields:
            return []
        self.is_valid()
        found: list[str] = self.cleaned_data.get("revoke", [])
        return found


class RoleForm(RevokeForm):
    """The same for a lower role. `is_confirmed` says that the person who changes it has seen the list."""

    role = forms.ChoiceField(choices=Role.choices, widget=forms.HiddenInput)
    is_confirmed = forms.BooleanField(required=False, widget=forms.HiddenInput, initial=True)


_RIGHTS: dict[str, tuple[CredentialRole, str, str]] = {
    "both": (CredentialRole.APP, "PUB|SUB", "SUB"),
    "send": (CredentialRole.APP, "PUB", "DENY"),
    "receive": (CredentialRole.APP, "SUB", "SUB"),
    "admin": (CredentialRole.ADMIN, "PUB|SUB", "SUB"),
}


class CredentialForm(forms.Form):
    """A new key pair. `rights` picks one of the usual permissions; finer ones are set by the API."""

    name = forms.CharField(
        max_length=100,
        label=say("Name"),
        help_text=say("Who uses it, such as “checkout service”."),
        widget=forms.TextInput,
    )
    rights = forms.ChoiceField(
        label=say("It may"),
        initial="both",
        widget=forms.RadioSelect,
        choices=[
            ("both", Choice(say("Send and receive"), say("On all topics and consumer groups."))),
            ("send", Choice(say("Only send"), say("Consumers with this key are refused."))),
            ("receive", Choice(say("Only receive"), say("Producers with this key are refused."))),
            ("admin", Choice(say("Administer"), say("Everything, and the requests of RocketMQ’s mqadmin."))),
        ],
    )

    def body(self) -> dict[str, object]:
        """Return what was typed as the API's request; an example while nothing was."""
        values = form_values(self)
        role, topic_perm, group_perm = _RIGHTS.get(values.get("rights", ""), _RIGHTS["both"])
        return {
            "name": values.get("name", "" if self.is_bound else "checkout service"),
            "role": role,
            "default_topic_perm": topic_perm,
            "default_group_perm": group_perm,
        }

    def role_and_perms(self) -> tuple[CredentialRole, str, str]:
        """Return role, default topic permission and default group permission; call it on a valid form."""
        return _RIGHTS[self.cleaned_data["rights"]]


class CredentialRotateForm(forms.Form):
    """How long the old key pair works beside the new one."""

    overlap_hours = forms.TypedChoiceField(
        label=say("The old key pair works for"),
        initial=24,
        coerce=int,
        widget=forms.RadioSelect,
        choices=[
            (24, Choice(say("24 hours more"), say("Programs change to the new pair meanwhile."))),
            (168, Choice(say("7 days more"), say("For programs that are rolled out slowly."))),
            (720, Choice(say("30 days more"), say("The longest there is."))),
            (0, Choice(say("Not at all"), say("It has leaked: programs that still use it are refused at once."))),
        ],
    )

    def body(self) -> dict[str, object]:
        """Return what was chosen as the API's request."""
        return {"overlap_hours": form_values(self).get("overlap_hours", 24)}


ROLE_DETAILS: dict[str, str] = {
    Role.OWNER: say("Everything, and makes other owners."),
    Role.ADMIN: say("Manages members, the budget and the tenant’s settings."),
    Role.OPERATOR: say("Creates and deletes clusters, key pairs and API tokens."),
    Role.DEVELOPER: say("Creates topics, sends and reads messages, sees key pairs."),
    Role.BILLING: say("Sees clusters, usage and invoices, and sets the budget."),
    Role.VIEWER: say("Looks at clusters, topics and their health."),
}


def _offer_roles(form: forms.Form, roles: Sequence[tuple[str, str]]) -> None:
    field = form.fields["role"]
    assert isinstance(field, forms.ChoiceField)
    field.choices = list(roles)


class MemberForm(forms.Form):
    """Someone who is invited to a tenant."""

    email = forms.EmailField(
        max_length=254,
        label=say("E-mail address"),
        help_text=say("With or without an account: the person accepts first."),
        widget=forms.EmailInput(attrs={"autocomplete": "off"}),
    )
    role = forms.ChoiceField(label=say("Role"), choices=Role.choices, initial=Role.DEVELOPER)

    def __init__(self, *args: object, roles: Sequence[tuple[str, str]], **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]  # passed on as they came
        _offer_roles(self, roles)

    def body(self) -> dict[str, object]:
        """Return what was typed as the API's request; an example while nothing was."""
        return {"email": "" if self.is_bound else "someone@example.com", **form_values(self)}


class SizeField(forms.CharField):
    """A size in bytes, typed as `512`, `500 MiB` or `1.5 GB`; None for nothing."""

    _UNITS: ClassVar = {
        "": 1,
        **{f"{prefix}i": 1024**power for power, prefix in enumerate("kmgt", 1)},
        **{prefix: 1000**power for power, prefix in enumerate("kmgt", 1)},
    }
    _TYPED: ClassVar = re.compile(r"([0-9]{1,16}(?:\.[0-9]{1,6})?)\s*([kmgt]?i?)b?", re.IGNORECASE)

    def clean(self, value: object) -> int | None:
        """Return the bytes; raises ValidationError."""
        text = str(super().clean(value)).strip()
        if not text:
            return None
        typed = self._TYPED.fullmatch(text)
        unit = None if typed is None else self._UNITS.get(typed[2].lower())
        if typed is None or unit is None:
            raise forms.ValidationError(say("Write a size, such as 500 MiB or 10 GiB."), code="invalid")
        return int(Decimal(typed[1]) * unit)

    def prepare_value(self, value: object) -> object:
        """Return a size as it would be typed, exactly."""
        if not isinstance(value, int):
            return value
        for unit in ("TiB", "GiB", "MiB", "KiB"):
            size = self._UNITS[unit[:2].lower()]
            if value and value % size == 0:
                return f"{value // size} {unit}"
        return str(value)


class TopicLimitsForm(EditForm):
    """How long a topic keeps messages, and how much it takes. Empty: as the brokers and the tenant's limits say."""

    retention_hours = forms.IntegerField(
        required=False,
        label=say("Keep messages for (hours)"),
        help_text=say("At most, and when left empty, as long as the brokers keep their files."),
    )
    retention_bytes = SizeField(
        required=False,
        label=say("Keep at most"),
        help_text=say("A size, such as 10 GiB. Beyond it the oldest messages go. Left empty: no limit."),
    )
    quota_messages_per_second = forms.IntegerField(
        required=False,
        label=say("Messages a second, at most"),
        help_text=say(
            "Further sends are refused with SYSTEM_BUSY, which clients may retry. Left empty: the tenant’s limits."
        ),
    )
    quota_bytes_per_second = SizeField(
        required=False,
        label=say("Bytes a second, at most"),
        help_text=say("A size, such as 5 MiB. Left empty: the tenant’s limits."),
    )
    quota_stored_bytes = SizeField(
        required=False,
        label=say("Stored at most"),
        help_text=say("A size. Sends are refused when the topic stores so much. Left empty: the tenant’s limits."),
    )
    quota_held_pulls = forms.IntegerField(
        required=False,
        label=say("Pulls that wait, at most"),
        help_text=say(
            "Each consumer group has one for each queue; further ones are refused. Left empty: the tenant’s limits."
        ),
    )

    @property
    def limits_are_open(self) -> bool:
        """Whether any limit is set, or was typed wrongly."""
        return any(self[name].errors or self[name].value() for name in TOPIC_LIMITS)


class TopicForm(TopicLimitsForm):
    """A new topic."""

    name = forms.CharField(
        max_length=255,  # the rule says 127; a longer name gets the rule's own sentence
        label=say("Name"),
        help_text=say(
            "1 to 127 letters, digits, and the characters _ - %% |. RocketMQ’s own names, such as TBW102, are taken."
        ),
        widget=forms.TextInput(attrs=CODE_INPUT),
    )
    message_type = forms.ChoiceField(
        label=say("Messages are"),
        initial=MessageType.NORMAL,
        widget=forms.RadioSelect,
        choices=[
            (MessageType.NORMAL, Choice(say("Normal"), say("Spread over all queues, received in parallel."))),
            (
                MessageType.FIFO,
                Choice(say("Ordered (FIFO)"), say("Messages with the same sharding key stay in order.")),
            ),
            (MessageType.DELAY, Choice(say("Delayed"), say("Delivered after the delay that the producer chooses."))),
            (MessageType.MIXED, Choice(say("Mixed"), say("Any of them."))),
        ],
        help_text=say(
            "A word for those who use the topic: as in RocketMQ, the brokers take messages of every type. Transactional messages"
            " are refused; they are not supported yet."
        ),
    )
    read_queue_nums = forms.IntegerField(
        label=say("Read queues"),
        initial=8,
        help_text=say("1 to %(most)s: how many consumers can share the work.", most=QUEUES_MAX),
    )
    write_queue_nums = forms.IntegerField(
        label=say("Write queues"), initial=8, help_text=say("Usually the same as the read queues.")
    )
    description = forms.CharField(max_length=500, required=False, label=say("What it is for"), widget=forms.TextInput)

    def body(self) -> dict[str, object]:
        """Return what was typed as the API's request; an example while nothing was."""
        return {"name": "" if self.is_bound else "shipments", **form_values(self)}

    def options(self) -> TopicOptions:
        """Return what was chosen; call it on a valid form."""
        data = self.cleaned_data
        return TopicOptions(
            read_queue_nums=data["read_queue_nums"],
            write_queue_nums=data["write_queue_nums"],
            message_type=data["message_type"],
            description=data["description"],
            **{name: data[name] for name in TOPIC_LIMITS},
        )


class TopicChangeForm(TopicLimitsForm):
    """What can be changed of a topic."""

    read_queue_nums = forms.IntegerField(
        label=say("Read queues"),
        help_text=say("With fewer, what is left in the queues that go can no longer be consumed."),
    )
    write_queue_nums = forms.IntegerField(
        label=say("Write queues"), help_text=say("To drain queues: fewer of these first, then fewer read queues.")
    )
    perm = forms.TypedChoiceField(
        label=say("Clients may"),
        coerce=int,
        widget=forms.RadioSelect,
        choices=[
            (6, Choice(say("Send and consume"))),
            (4, Choice(say("Consume only"), say("Sends are refused: a topic that is to be emptied."))),
            (2, Choice(say("Send only"), say("Consumers get nothing until it is changed again."))),
        ],
    )
    description = forms.CharField(max_length=500, required=False, label=say("What it is for"), widget=forms.TextInput)

    def changes(self) -> dict[str, object]:
        """Return what is otherwise than before, as the API's request; a wrong value as it was typed."""
        if not self.is_bound:
            return {}
        self.is_valid()
        typed = {name: self.cleaned_data.get(name, self[name].data) for name in self.fields}
        return {
            name: value for name, value in typed.items() if value != self.get_initial_for_field(self.fields[name], name)
        }


class MessageForm(forms.Form):
    """A test message."""

    body = forms.CharField(
        label=say("Body"),
        strip=False,
        help_text=say("Sent as UTF-8."),
        widget=forms.Textarea(attrs={"rows": 4, **CODE_INPUT}),
    )
    tags = forms.CharField(
        max_length=255,
        required=False,
        label=say("Tag"),
        widget=forms.TextInput(attrs=CODE_INPUT),
        help_text=say("Consumers filter by it."),
    )
    keys = forms.CharField(
        max_length=1024,
        required=False,
        label=say("Keys"),
        widget=forms.TextInput(attrs=CODE_INPUT),
        help_text=say("Separated by blanks. Messages are found by them."),
    )
    properties = forms.CharField(
        required=False,
        strip=False,
        label=say("Properties"),
        widget=forms.Textarea(attrs={"rows": 2, **CODE_INPUT}),
        help_text=say("One per line, as name=value."),
    )

    def clean_properties(self) -> dict[str, str]:
        """Return the properties by name; a line without `=` is an error that names it."""
        return properties_of(str(self.cleaned_data["properties"]))

    def body_sent(self) -> dict[str, object]:
        """Return what was typed as the API's request; an example while nothing was."""
        if not self.is_bound:
            return {"body": "hello", "tags": "greeting", "keys": ["k-1"], "properties": {"colour": "blue"}}
        values = {"body": "", **form_values(self)}
        if "keys" in values:
            values["keys"] = values["keys"].split()
        if not isinstance(values.get("properties", {}), dict):  # a line of it is wrong, as the field says
            del values["properties"]
        return values

    def message(self) -> TestMessage:
        """Return the message; call it on a valid form."""
        data = self.cleaned_data
        return TestMessage(
            # Browsers send a textarea's line ends as CRLF; what was typed was a line end.
            body=str(data["body"]).replace("\r\n", "\n").encode("utf-8"),
            tags=str(data["tags"]).strip(),
            keys=tuple(str(data["keys"]).split()),
            properties=data["properties"],
        )


def properties_of(text: str) -> dict[str, str]:
    """Return the properties of lines `name=value`. Raises ValidationError for a line that is none, and for a name that is there
    twice: a message has one of each.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        name, separator, value = line.partition("=")
        if not separator:
            raise forms.ValidationError(say("“%(line)s” is not name=value.", line=line.strip()))
        key = name.strip()
        if key in found:
            raise forms.ValidationError(say("%(key)s is there twice.", key=key))
        found[key] = value.strip()
    return found


class SearchForm(forms.Form):
    """A message to be found."""

    key = forms.CharField(
        label=say("Key or message id"),
        max_length=KEY_MAX_LENGTH,
        widget=forms.TextInput(attrs=CODE_INPUT),
        error_messages={"required": gettext_lazy("Give a key or a message id.")},
    )
    since = UtcMoment(label=say("Stored from (UTC)"), help_text="", required=False)
    until = UtcMoment(label=say("Stored until (UTC)"), help_text="", required=False)

    def sought(self) -> Sought:
        """Return what to look for; call it on a valid form."""
        data = self.cleaned_data
        return Sought(str(data["key"]), data["since"], data["until"])


_SELECTED = SafeString(" selected")


class LongSelect(forms.Select):
    """A choice of thousands: Django's own renders a template for each."""

    def render(
        self, name: str, value: object, attrs: dict[str, object] | None = None, renderer: object = None
    ) -> SafeString:
        """Return the element."""
        chosen = "" if value is None else str(value)
        options = format_html_join(
            "",
            '<option value="{}"{}>{}</option>',
            ((choice, _SELECTED if str(choice) == chosen else "", label) for choice, label in self.choices),
        )
        return format_html("<select{}>{}</select>", flatatt({**self.attrs, **(attrs or {}), "name": name}), options)


class BrowseForm(forms.Form):
    """From when on a topic's messages are shown."""

    since = UtcMoment(
        label=say("Stored from (UTC)"), help_text=say("Oldest first from then on. Empty: the newest."), required=False
    )


class _AnyTopic(forms.ChoiceField):
    """Also one that the cluster has not, as an address may name it: the answer then says in which cluster it is."""

    def valid_value(self, value: object) -> bool:
        return re.fullmatch(NAME_PATTERN, str(value)) is not None


class TraceForm(forms.Form):
    """A message anywhere in a cluster."""

    q = forms.CharField(
        label=say("Key or message id"),
        max_length=KEY_MAX_LENGTH,
        widget=forms.TextInput(attrs=CODE_INPUT),
        help_text=say("A key, the id that the producer got (UNIQ_KEY), or the broker’s (offsetMsgId)."),
        error_messages={"required": gettext_lazy("Give a key or a message id.")},
    )
    topic = forms.ChoiceField(label=say("Topic"), required=False)

    def __init__(self, *args: object, topics: Sequence[str], **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # passed through as they came
        choices = [("", say("All topics")), *((name, name) for name in topics)]
        self.fields["topic"] = _AnyTopic(label=say("Topic"), required=False, choices=choices, widget=LongSelect)
        self.fields["trace_topic"] = forms.ChoiceField(
            label=say("Trace records in"),
            required=False,
            choices=[("", RMQ_SYS_TRACE_TOPIC), *choices[1:]],
            widget=LongSelect,
        )


_DAYS_DIGITS_MAX = 9  # Python makes no number of thousands


class TokenForm(forms.Form):
    """A new API token."""

    name = forms.CharField(
        max_length=100, label=say("Name"), help_text=say("Which script uses it."), widget=forms.TextInput
    )
    role = forms.ChoiceField(
        label=say("Role"),
        choices=Role.choices,
        initial=Role.DEVELOPER,
        help_text=say("It never does more than you may do."),
    )
    scopes = forms.MultipleChoiceField(
        label=say("It may"),
        initial=[Scope.READ, Scope.MESSAGES, Scope.MANAGE],
        widget=forms.CheckboxSelectMultiple,
        choices=[
            (Scope.READ, Choice(say("Read"), say("Clusters, topics, members, operations."))),
            (Scope.MESSAGES, Choice(say_as("mode", "Messages"), say("Send test messages and browse."))),
            (Scope.MANAGE, Choice(say("Manage"), say("Create, change and delete."))),
            (Scope.CREDENTIALS, Choice(say("Credentials"), say("Key pairs and API tokens."))),
        ],
    )
    life_days = forms.TypedChoiceField(
        label=say("Expires"),
        coerce=int,
        initial=DEFAULT_LIFE_DAYS,
        choices=[
            (30, say("In 30 days")),
            (90, say("In 90 days")),
            (365, say("In a year")),
            (0, say_as("expiry", "Never")),
        ],
    )
    is_service = forms.BooleanField(
        required=False,
        label=say("Keep it working when I leave"),
        help_text=say(
            "A service token belongs to the tenant. Without this it is yours, and ends with your membership."
        ),
    )

    def __init__(self, *args: object, roles: Sequence[tuple[str, str]], **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]  # passed on as they came
        _offer_roles(self, roles)

    def days(self) -> int | None:
        """Return its life in days, None for no end; call it on a valid form."""
        return int(self.cleaned_data["life_days"]) or None

    def body(self) -> dict[str, object]:
        """Return the API's request with what was typed so far, and an example's name before that."""
        values: dict[str, object] = {"name": "script", **form_values(self)}
        life, is_service = str(values.pop("life_days", DEFAULT_LIFE_DAYS)), values.pop("is_service", False)
        days = int(life) or None if life.isdecimal() and len(life) <= _DAYS_DIGITS_MAX else life
        return {**values, "days": days, "is_personal": not is_service}
