"""Shapes of a cluster's configuration."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.clusters.broker_keys import BROKER_KEYS, SUBJECTS, BrokerKey, Kind, Subject
from controlplane.clusters.configuration import KeyChange, KeyState
from controlplane.common.strictness import DryRunShape, Shape

_AT_ONCE, _RESTART = "at_once", "restart"
_EFFECT = [(_AT_ONCE, "when it is saved"), (_RESTART, "when the broker is restarted")]
_VALUE = {"oneOf": [{"type": "boolean"}, {"type": "integer"}, {"type": "string"}]}


@extend_schema_field(_VALUE)
class ValueField(serializers.JSONField):
    """A value of a key: true or false, a whole number, or a text."""


class BrokerValueSerializer(Shape):
    """What one broker has of a key."""

    broker = serializers.CharField()
    address = serializers.CharField()
    value = ValueField(allow_null=True, help_text="null: it does not say")
    differs = serializers.BooleanField(allow_null=True, help_text="from what is wanted; null: not known")


class ChoiceSerializer(Shape):
    """One of the texts that a key may have."""

    value = serializers.CharField()
    title = serializers.CharField()


class KeyStateSerializer(Shape):
    """One key: what it may be, what is wanted, and what each broker has."""

    name = serializers.CharField(source="key.name", help_text="as in broker.conf")
    subject = serializers.ChoiceField(source="key.subject", choices=[(one.value, SUBJECTS[one]) for one in Subject])
    title = serializers.CharField(source="key.title")
    help = serializers.CharField(source="key.help")
    affects = serializers.CharField(source="key.affects")
    type = serializers.ChoiceField(source="key.kind", choices=[(kind.value, kind.value) for kind in Kind])
    unit = serializers.CharField(source="key.unit", allow_blank=True)
    minimum = serializers.SerializerMethodField()
    maximum = serializers.SerializerMethodField()
    choices = serializers.SerializerMethodField()
    default = ValueField(source="key.default")
    takes_effect = serializers.SerializerMethodField()
    wanted = ValueField()
    is_default = serializers.BooleanField()
    drift = serializers.ChoiceField(choices=[(one, one) for one in ("none", "differs", "unknown")])
    brokers = BrokerValueSerializer(many=True)

    def get_minimum(self, state: KeyState) -> int | None:
        return state.key.least if state.key.kind == Kind.INTEGER else None

    def get_maximum(self, state: KeyState) -> int | None:
        return state.key.most if state.key.kind == Kind.INTEGER else None

    @extend_schema_field(ChoiceSerializer(many=True))
    def get_choices(self, state: KeyState) -> list[dict[str, str]]:
        return [{"value": value, "title": str(title)} for value, title in state.key.choices]

    @extend_schema_field(serializers.ChoiceField(choices=_EFFECT))
    def get_takes_effect(self, state: KeyState) -> str:
        return _effect(state.key)


class ConfigurationSerializer(Shape):
    """What is wanted of a cluster's brokers, and what they have."""

    version = serializers.IntegerField(help_text="number of the newest change, 0 before the first")
    keys = KeyStateSerializer(many=True)
    silent = serializers.ListField(child=serializers.CharField(), help_text="brokers that did not say")
    restart_needed = serializers.BooleanField(help_text="a broker has another value, which only a restart changes")
    apply_needed = serializers.BooleanField(help_text="a broker has another value that it would take at once")


class ConfigurationValuesSerializer(Shape):
    """Values by key; null asks for the default. What is left out stays."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {name: _field_of(key) for name, key in BROKER_KEYS.items()}


class ConfigurationUpdateSerializer(DryRunShape):
    """What is wanted from now on."""

    values = ConfigurationValuesSerializer(required=False)
    version = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=2**31 - 1,
        help_text="the `version` that the values were chosen by: 412 when there is a newer one",
    )


class KeyChangeSerializer(Shape):
    """One key of a change."""

    name = serializers.CharField(source="key.name")
    title = serializers.CharField(source="key.title")
    affects = serializers.CharField(source="key.affects")
    old = ValueField()
    new = ValueField()
    takes_effect = serializers.SerializerMethodField()

    @extend_schema_field(serializers.ChoiceField(choices=_EFFECT))
    def get_takes_effect(self, change: KeyChange) -> str:
        return _effect(change.key)


class ConfigurationPlanSerializer(Shape):
    """What a change does, or did."""

    version = serializers.IntegerField(source="plan.version", help_text="the newest change before this one")
    changes = KeyChangeSerializer(many=True, source="plan.changes")
    brokers = serializers.IntegerField(source="plan.brokers", help_text="how many brokers it concerns")
    needs_restart = serializers.BooleanField(source="plan.needs_restart")
    number = serializers.IntegerField(
        source="change.number", default=None, allow_null=True, help_text="null: not saved"
    )
    missing = serializers.ListField(
        child=serializers.CharField(), help_text="brokers that did not take it at once: they differ until they do"
    )


class ConfigurationChangeSerializer(Shape):
    """One change of the past. Each value of `changes` is a pair: before, after."""

    number = serializers.IntegerField()
    changes = serializers.DictField(child=serializers.ListField(child=ValueField()))
    changed_by = serializers.CharField()
    put_back = serializers.IntegerField(allow_null=True, help_text="number of the change that it took back")
    created_at = serializers.DateTimeField()


class ConfigurationAppliedSerializer(Shape):
    """How brokers took what is wanted."""

    missing = serializers.ListField(child=serializers.CharField(), help_text="brokers that did not take it")


class PutBackSerializer(DryRunShape):
    """The keys of one change get the values that they had before it."""


def _effect(key: BrokerKey) -> str:
    return _AT_ONCE if key.at_once else _RESTART


def _field_of(key: BrokerKey) -> serializers.Field[Any, Any, Any, Any]:
    help_text = f"{key.title}. {key.help}"
    if key.kind == Kind.BOOLEAN:
        return serializers.BooleanField(required=False, allow_null=True, help_text=help_text)
    if key.kind == Kind.CHOICE:
        return serializers.ChoiceField(
            choices=[(value, str(title)) for value, title in key.choices],
            required=False,
            allow_null=True,
            help_text=help_text,
        )
    return serializers.IntegerField(
        required=False, allow_null=True, min_value=key.least, max_value=key.most, help_text=help_text
    )
