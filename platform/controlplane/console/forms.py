"""The console's forms. They check shapes only; the rules are the services', whose errors are shown beside the field."""

from collections.abc import Sequence
from dataclasses import dataclass

from django import forms
from django.utils.text import slugify

from controlplane.clusters.models import ClusterMode, CredentialRole, FailoverPolicy, FlushType
from controlplane.clusters.services import GROUPS_MAX, REPLICAS_MAX, VOTERS, Growth
from controlplane.console.billing_forms import UtcMoment
from controlplane.console.curl import form_values
from controlplane.failover.models import DrillFault
from controlplane.tenants.models import Role
from controlplane.tenants.rules import Scope
from controlplane.tenants.services import SLUG_RULE
from controlplane.tenants.token_services import DEFAULT_LIFE_DAYS
from controlplane.topics.gateway import TestMessage
from controlplane.topics.models import MessageType
from controlplane.topics.search import KEY_MAX_LENGTH, Sought
from controlplane.topics.services import QUEUES_MAX, TopicOptions

CODE_INPUT = {"autocapitalize": "none", "autocomplete": "off", "autocorrect": "off", "spellcheck": "false"}


@dataclass(frozen=True, slots=True)
class Choice:
    """A radio button's label with a line of explanation."""

    heading: str
    detail: str = ""

    def __str__(self) -> str:
        return self.heading


class TenantForm(forms.Form):
    """A new tenant."""

    name = forms.CharField(max_length=100, label="Name", widget=forms.TextInput(attrs={"autocomplete": "organization"}))
    slug = forms.CharField(
        max_length=40,
        required=False,
        label="Short name in addresses",
        help_text=f"{SLUG_RULE[0].upper()}{SLUG_RULE[1:]}. Left empty, it is made from the name. It can’t be changed later.",
        widget=forms.TextInput(attrs=CODE_INPUT),
    )

    def clean(self) -> dict[str, object]:
        cleaned = super().clean() or {}
        if not cleaned.get("slug") and cleaned.get("name"):
            cleaned["slug"] = slugify(str(cleaned["name"]))[:39]
        return cleaned


_POLICIES = [
    (
        FailoverPolicy.MANUAL,
        Choice("An operator", "The cluster’s page shows what would be lost before anyone promotes."),
    ),
    (
        FailoverPolicy.AUTOMATIC_WHEN_LOSSLESS,
        Choice(
            "Highwater, when nothing acknowledged is lost",
            "Within about ten seconds, with synchronous replication. Otherwise an operator decides.",
        ),
    ),
]


class ClusterForm(forms.Form):
    """A new cluster."""

    slug = forms.CharField(
        max_length=40,
        label="Name",
        help_text=f"{SLUG_RULE[0].upper()}{SLUG_RULE[1:]}. It is the cluster’s name for clients, too (brokerClusterName).",
        widget=forms.TextInput(attrs=CODE_INPUT),
    )
    mode = forms.ChoiceField(
        label="What should happen when a broker fails?",
        initial=ClusterMode.SINGLE,
        required=False,
        widget=forms.RadioSelect,
        choices=[
            (
                ClusterMode.SINGLE,
                Choice(
                    "Wait for it (single master)",
                    "One broker. Cheapest. The cluster is unavailable until the broker is back.",
                ),
            ),
            (
                ClusterMode.MULTI,
                Choice(
                    "The others take sends (multi master)",
                    "Queues are spread over several brokers. Messages on the failed one can be read once it is back.",
                ),
            ),
            (
                ClusterMode.ASYNC,
                Choice(
                    "Keep reading from a slave (asynchronous replication)",
                    "Sends don’t wait for the slave. Promoting it may lose the most recent messages.",
                ),
            ),
            (
                ClusterMode.SYNC,
                Choice(
                    "Keep reading, lose nothing (synchronous replication)",
                    "SEND_OK means that a slave has the message, too. Promoting it loses nothing.",
                ),
            ),
            (
                ClusterMode.DLEDGER,
                Choice(
                    "Recover by itself, lose nothing (DLedger)",
                    "Three or five replicas elect a leader within seconds. SEND_OK means that a majority has the"
                    " message.",
                ),
            ),
        ],
    )
    groups = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=GROUPS_MAX,
        label="Broker groups",
        help_text="Leave empty for one, or two with multi master. Each topic’s queues are spread over them.",
    )
    replicas = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=max(REPLICAS_MAX, *VOTERS),
        label="Replicas of each group",
        help_text="Including the master. Leave empty for two with master/slave replication, three with DLedger, otherwise one.",
    )
    failover_policy = forms.ChoiceField(
        label="Who promotes a slave?",
        initial=FailoverPolicy.MANUAL,
        required=False,
        widget=forms.RadioSelect,
        choices=_POLICIES,
    )
    flush_disk_type = forms.ChoiceField(
        label="When is a message safe?",
        initial="",
        required=False,
        widget=forms.RadioSelect,
        choices=[
            (
                "",
                Choice(
                    "Default for the mode",
                    "DLedger: on the disks of a majority before the answer. Other modes: soon after the answer.",
                ),
            ),
            (
                FlushType.ASYNC_FLUSH,
                Choice(
                    "Soon after the answer (ASYNC_FLUSH)",
                    "Fastest. A crash of the machine may lose the last half second; a crash of the broker loses nothing.",
                ),
            ),
            (
                FlushType.SYNC_FLUSH,
                Choice(
                    "Before the answer (SYNC_FLUSH)",
                    "Each SEND_OK means that the message is on the disk. Sends wait for the disk.",
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


class PolicyForm(forms.Form):
    """Who promotes a slave of a cluster that runs."""

    failover_policy = forms.ChoiceField(label="Who promotes a slave?", widget=forms.RadioSelect, choices=_POLICIES)


_GROWTHS = {
    Growth.GROUP: Choice(
        "A broker group", "More capacity. Each topic’s queues are spread to it while the other groups keep serving."
    ),
    Growth.REPLICA: Choice(
        "A replica of every group", "One more slave each. It copies its master’s log while the master keeps serving."
    ),
}


class GrowForm(forms.Form):
    """What a cluster grows by: offered is what its mode and size allow."""

    by = forms.ChoiceField(label="Add", widget=forms.RadioSelect)

    def __init__(self, *args: object, growths: Sequence[Growth], **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # passed through as they came
        self.fields["by"] = forms.ChoiceField(
            label="Add",
            widget=forms.RadioSelect,
            initial=growths[0] if growths else None,
            choices=[(growth.value, _GROWTHS[growth]) for growth in growths],
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
        self.fields["typed"].label = f"Type {expected} to accept the loss"
        self.fields["typed"].widget.attrs["data-must-equal"] = expected
        self.fields["typed"].error_messages["required"] = f"Type {expected} first. Nothing was changed."

    def clean_typed(self) -> str:
        typed = str(self.cleaned_data["typed"])
        if typed != self.expected:
            raise forms.ValidationError(f"This is not {self.expected}. Nothing was changed.")
        return typed


class DrillForm(forms.Form):
    """A failover drill: the group's name is typed, since sends fail or wait meanwhile."""

    fault = forms.ChoiceField(
        label="What happens to the leader",
        choices=[
            (DrillFault.KILL, Choice("Killed", "Its process ends at once, as when its machine loses power.")),
            (DrillFault.HANG, Choice("Hangs", "Its process keeps its connections and answers nothing any more.")),
        ],
        initial=DrillFault.KILL,
        widget=forms.RadioSelect,
    )
    gives_back = forms.BooleanField(
        required=False,
        label="Give the leadership back",
        help_text="Once the old leader has caught up it leads again: a second, planned change without loss.",
    )
    typed = forms.CharField(widget=forms.TextInput(attrs=CODE_INPUT))

    def __init__(self, *args: object, expected: str, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # passed through as they came
        self.expected = expected
        self.fields["typed"].label = f"Type {expected} to begin"
        self.fields["typed"].widget.attrs["data-must-equal"] = expected
        self.fields["typed"].error_messages["required"] = f"Type {expected} first. Nothing was stopped."

    def clean_typed(self) -> str:
        typed = str(self.cleaned_data["typed"])
        if typed != self.expected:
            raise forms.ValidationError(f"This is not {self.expected}. Nothing was stopped.")
        return typed


class TypedNameForm(forms.Form):
    """A dangerous action that waits until the name of its victim is typed."""

    typed = forms.CharField(widget=forms.TextInput(attrs=CODE_INPUT))

    def __init__(self, *args: object, expected: str, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # passed through as they came
        self.expected = expected
        self.fields["typed"].label = f"Type {expected} to confirm"
        self.fields["typed"].widget.attrs["data-must-equal"] = expected
        self.fields["typed"].error_messages["required"] = f"Type {expected} first. Nothing was deleted."

    def clean_typed(self) -> str:
        typed = str(self.cleaned_data["typed"])
        if typed != self.expected:
            raise forms.ValidationError(f"This is not {self.expected}. Nothing was deleted.")
        return typed


class ConfirmForm(forms.Form):
    """An action that only needs a second look."""


_RIGHTS: dict[str, tuple[CredentialRole, str, str]] = {
    "both": (CredentialRole.APP, "PUB|SUB", "SUB"),
    "send": (CredentialRole.APP, "PUB", "DENY"),
    "receive": (CredentialRole.APP, "SUB", "SUB"),
    "admin": (CredentialRole.ADMIN, "PUB|SUB", "SUB"),
}


class CredentialForm(forms.Form):
    """A new key pair. `rights` picks one of the usual permissions; finer ones are set by the API."""

    name = forms.CharField(
        max_length=100, label="Name", help_text="Who uses it, such as “checkout service”.", widget=forms.TextInput
    )
    rights = forms.ChoiceField(
        label="It may",
        initial="both",
        widget=forms.RadioSelect,
        choices=[
            ("both", Choice("Send and receive", "On all topics and consumer groups.")),
            ("send", Choice("Only send", "Consumers with this key are refused.")),
            ("receive", Choice("Only receive", "Producers with this key are refused.")),
            ("admin", Choice("Administer", "Everything, and the requests of RocketMQ’s mqadmin.")),
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


ROLE_DETAILS: dict[str, str] = {
    Role.OWNER: "Everything, and makes other owners.",
    Role.ADMIN: "Manages members, the budget and the tenant’s settings.",
    Role.OPERATOR: "Creates and deletes clusters, key pairs and API tokens.",
    Role.DEVELOPER: "Creates topics, sends and reads messages, sees key pairs.",
    Role.BILLING: "Sees clusters, usage and invoices, and sets the budget.",
    Role.VIEWER: "Looks at clusters, topics and their health.",
}


def _offer_roles(form: forms.Form, roles: Sequence[tuple[str, str]]) -> None:
    field = form.fields["role"]
    assert isinstance(field, forms.ChoiceField)
    field.choices = list(roles)


class MemberForm(forms.Form):
    """Someone who is invited to a tenant."""

    email = forms.EmailField(
        max_length=254,
        label="E-mail address",
        help_text="With or without an account: the person accepts first.",
        widget=forms.EmailInput(attrs={"autocomplete": "off"}),
    )
    role = forms.ChoiceField(label="Role", choices=Role.choices, initial=Role.DEVELOPER)

    def __init__(self, *args: object, roles: Sequence[tuple[str, str]], **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]  # passed on as they came
        _offer_roles(self, roles)

    def body(self) -> dict[str, object]:
        """Return what was typed as the API's request; an example while nothing was."""
        return {"email": "" if self.is_bound else "someone@example.com", **form_values(self)}


class TopicForm(forms.Form):
    """A new topic."""

    name = forms.CharField(
        max_length=255,  # the rule says 127; a longer name gets the rule's own sentence
        label="Name",
        help_text="1 to 127 letters, digits, and the characters _ - % |. RocketMQ’s own names, such as TBW102, are taken.",
        widget=forms.TextInput(attrs=CODE_INPUT),
    )
    message_type = forms.ChoiceField(
        label="Messages are",
        initial=MessageType.NORMAL,
        widget=forms.RadioSelect,
        choices=[
            (MessageType.NORMAL, Choice("Normal", "Spread over all queues, received in parallel.")),
            (MessageType.FIFO, Choice("Ordered (FIFO)", "Messages with the same sharding key stay in order.")),
        ],
    )
    read_queue_nums = forms.IntegerField(
        label="Read queues", initial=8, help_text=f"1 to {QUEUES_MAX}: how many consumers can share the work."
    )
    write_queue_nums = forms.IntegerField(
        label="Write queues", initial=8, help_text="Usually the same as the read queues."
    )
    description = forms.CharField(max_length=500, required=False, label="What it is for", widget=forms.TextInput)

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
        )


class MessageForm(forms.Form):
    """A test message."""

    body = forms.CharField(
        label="Body", strip=False, help_text="Sent as UTF-8.", widget=forms.Textarea(attrs={"rows": 4, **CODE_INPUT})
    )
    tags = forms.CharField(
        max_length=255,
        required=False,
        label="Tag",
        widget=forms.TextInput(attrs=CODE_INPUT),
        help_text="Consumers filter by it.",
    )
    keys = forms.CharField(
        max_length=1024,
        required=False,
        label="Keys",
        widget=forms.TextInput(attrs=CODE_INPUT),
        help_text="Separated by blanks. Messages are found by them.",
    )
    properties = forms.CharField(
        required=False,
        strip=False,
        label="Properties",
        widget=forms.Textarea(attrs={"rows": 2, **CODE_INPUT}),
        help_text="One per line, as name=value.",
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
    """Return the properties of lines `name=value`. Raises ValidationError for a line that is none."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        name, separator, value = line.partition("=")
        if not separator:
            raise forms.ValidationError(f"“{line.strip()}” is not name=value.")
        found[name.strip()] = value.strip()
    return found


class SearchForm(forms.Form):
    """A message to be found."""

    key = forms.CharField(
        label="Key or message id",
        max_length=KEY_MAX_LENGTH,
        widget=forms.TextInput(attrs=CODE_INPUT),
        error_messages={"required": "Give a key or a message id."},
    )
    since = UtcMoment(label="Stored from (UTC)", help_text="", required=False)
    until = UtcMoment(label="Stored until (UTC)", help_text="", required=False)

    def sought(self) -> Sought:
        """Return what to look for; call it on a valid form."""
        data = self.cleaned_data
        return Sought(str(data["key"]), data["since"], data["until"])


class TraceForm(forms.Form):
    """A message anywhere in a cluster."""

    q = forms.CharField(
        label="Key or message id",
        max_length=KEY_MAX_LENGTH,
        widget=forms.TextInput(attrs=CODE_INPUT),
        help_text="A key, the id that the producer got (UNIQ_KEY), or the broker’s (offsetMsgId).",
        error_messages={"required": "Give a key or a message id."},
    )
    topic = forms.ChoiceField(label="Topic", required=False)

    def __init__(self, *args: object, topics: Sequence[str], **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # passed through as they came
        choices = [("", "All topics"), *((name, name) for name in topics)]
        self.fields["topic"] = forms.ChoiceField(label="Topic", required=False, choices=choices)


class TokenForm(forms.Form):
    """A new API token."""

    name = forms.CharField(max_length=100, label="Name", help_text="Which script uses it.", widget=forms.TextInput)
    role = forms.ChoiceField(
        label="Role", choices=Role.choices, initial=Role.DEVELOPER, help_text="It never does more than you may do."
    )
    scopes = forms.MultipleChoiceField(
        label="It may",
        initial=[Scope.READ, Scope.MESSAGES, Scope.MANAGE],
        widget=forms.CheckboxSelectMultiple,
        choices=[
            (Scope.READ, Choice("Read", "Clusters, topics, members, operations.")),
            (Scope.MESSAGES, Choice("Messages", "Send test messages and browse.")),
            (Scope.MANAGE, Choice("Manage", "Create, change and delete.")),
            (Scope.CREDENTIALS, Choice("Credentials", "Key pairs and API tokens.")),
        ],
    )
    life_days = forms.TypedChoiceField(
        label="Expires",
        coerce=int,
        initial=DEFAULT_LIFE_DAYS,
        choices=[(30, "In 30 days"), (90, "In 90 days"), (365, "In a year"), (0, "Never")],
    )
    is_service = forms.BooleanField(
        required=False,
        label="Keep it working when I leave",
        help_text="A service token belongs to the tenant. Without this it is yours, and ends with your membership.",
    )

    def __init__(self, *args: object, roles: Sequence[tuple[str, str]], **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]  # passed on as they came
        _offer_roles(self, roles)

    def days(self) -> int | None:
        """Return its life in days, None for no end; call it on a valid form."""
        return int(self.cleaned_data["life_days"]) or None
