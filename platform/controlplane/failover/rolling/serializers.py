"""Shapes of rolling restarts, and of the versions that daemons run."""

from rest_framework import serializers

from controlplane.common.strictness import DryRunShape, Shape


class RollingRequestSerializer(DryRunShape):
    """A restart of every daemon, one after another."""


class PlannedRestartSerializer(Shape):
    """One daemon, in its turn."""

    name = serializers.CharField()
    address = serializers.CharField()
    moves_leadership = serializers.BooleanField(help_text="it leads now, and hands its role over first")
    stops_sends = serializers.BooleanField(help_text="without it too few are left to take sends, or to confirm them")
    does = serializers.CharField()


class RollingPlanSerializer(Shape):
    """What would be restarted, in this order; nothing was."""

    possible = serializers.BooleanField()
    problems = serializers.ListField(child=serializers.CharField())
    stops_sends = serializers.BooleanField()
    restarts = PlannedRestartSerializer(many=True)


class DaemonVersionSerializer(Shape):
    """What one daemon runs."""

    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=[(one, one) for one in ("name_server", "broker")])
    address = serializers.CharField()
    running = serializers.CharField(
        allow_null=True, allow_blank=True, help_text="null: it does not answer; empty: it is too old to say"
    )
    installed = serializers.CharField(help_text="what a restart would run")
    is_outdated = serializers.BooleanField(allow_null=True)


class DaemonVersionsSerializer(Shape):
    """What the daemons of a cluster run."""

    upgrade_available = serializers.BooleanField()
    daemons = DaemonVersionSerializer(many=True)
