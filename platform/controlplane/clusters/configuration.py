"""The wanted configuration of a cluster's brokers: what it is, what each broker really has, changes, and how to put one back.

Each change is a row that holds the whole of what is wanted after it, so the newest row is what is wanted, and the rows are the
history. Keys that a broker takes at once are sent to every broker after the row is written; one that was away gets them by
its file when it is restarted, and is shown as different until then.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from controlplane.accounts.actors import Actor, actor_label
from controlplane.clusters.broker_keys import BROKER_KEYS, BrokerKey, Value, keys_of
from controlplane.clusters.models import Cluster, ConfigurationChange, Replica
from controlplane.clusters.remoting import cluster_admin, require_running
from controlplane.clusters.replica_remoting import broker_configurations
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import ApplicationError, InvalidInput, NotFound, PreconditionFailed
from controlplane.common.sentences import say
from controlplane.tenants.rules import actor_require


@dataclass(frozen=True, slots=True)
class BrokerValue:
    """What one broker has of one key: `value` is None when it does not say."""

    broker: str
    address: str
    value: Value | None
    differs: bool | None

    @property
    def shown(self) -> str | None:
        """Return nothing of an unknown value."""
        return None if self.value is None else str(self.value)


@dataclass(frozen=True, slots=True)
class KeyState:
    """One key: what is wanted, and what each broker has."""

    key: BrokerKey
    wanted: Value
    is_default: bool
    brokers: tuple[BrokerValue, ...]

    @property
    def drift(self) -> str:
        """`differs` when some broker has another value, `unknown` when one did not say, otherwise `none`."""
        if any(broker.differs for broker in self.brokers):
            return "differs"
        return "unknown" if any(broker.differs is None for broker in self.brokers) else "none"

    @property
    def wanted_shown(self) -> str:
        return self.key.shown(self.wanted)

    @property
    def default_shown(self) -> str:
        return self.key.shown(self.key.default)

    @property
    def different(self) -> list[tuple[str, str]]:
        """Return broker and value, of those that have another one."""
        return [
            (one.broker, self.key.shown(one.value)) for one in self.brokers if one.differs and one.value is not None
        ]


@dataclass(frozen=True, slots=True)
class Configuration:
    """What is wanted of a cluster's brokers, and what they have. `version` is the number of the newest change, 0 without one."""

    version: int
    keys: tuple[KeyState, ...]
    silent: tuple[str, ...]

    @property
    def drifting(self) -> list[KeyState]:
        """Return the keys of which some broker has another value."""
        return [state for state in self.keys if state.drift == "differs"]

    @property
    def restart_needed(self) -> bool:
        """Whether a broker has another value that only a restart changes."""
        return any(not state.key.at_once for state in self.drifting)

    @property
    def apply_needed(self) -> bool:
        """Whether a broker has another value that it would take at once."""
        return any(state.key.at_once for state in self.drifting)


@dataclass(frozen=True, slots=True)
class KeyChange:
    """One line of a change: from what to what."""

    key: BrokerKey
    old: Value
    new: Value

    @property
    def old_shown(self) -> str:
        return self.key.shown(self.old)

    @property
    def new_shown(self) -> str:
        return self.key.shown(self.new)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a change does. `brokers` is how many it concerns, `version` the newest change that it starts from."""

    version: int
    changes: tuple[KeyChange, ...]
    brokers: int

    @property
    def needs_restart(self) -> bool:
        """Whether a changed key is read only when a broker starts."""
        return any(not change.key.at_once for change in self.changes)


@dataclass(frozen=True, slots=True)
class Saved:
    """A change that was written, None when nothing was to be changed; `missing` are brokers that did not take it at once."""

    change: ConfigurationChange | None
    plan: Plan
    missing: tuple[str, ...] = ()


def wanted_values(cluster: Cluster) -> dict[str, Value]:
    """Return what was set, by key; what was not has its default."""
    newest = _newest(cluster)
    return {} if newest is None else dict(newest.configuration)


def retention_hours(cluster: Cluster) -> int:
    """Return for how long the cluster's brokers keep their files, as is wanted."""
    return int(wanted_values(cluster).get("fileReservedTime", settings.HIGHWATER_RETENTION_HOURS))


def configuration_get(cluster: Cluster) -> Configuration:
    """Return what is wanted, and what each broker of a running cluster says that it has; takes 1.5 s at most."""
    newest = _newest(cluster)
    wanted = {} if newest is None else newest.configuration
    replicas = _replicas(cluster) if cluster.is_running else []
    answers = broker_configurations(cluster, [replica.address for replica in replicas])
    states = []
    for key in keys_of(replicated=cluster.is_replicated):
        value = wanted.get(key.name, key.default)
        brokers = tuple(_broker_value(key, value, replica, answers[replica.address]) for replica in replicas)
        states.append(KeyState(key, value, key.name not in wanted, brokers))
    return Configuration(
        version=0 if newest is None else newest.number,
        keys=tuple(states),
        silent=tuple(_title(replica) for replica in replicas if answers[replica.address] is None),
    )


def configuration_plan(cluster: Cluster, values: Mapping[str, Value | None]) -> Plan:
    """Return what these values would change; None asks for the default. Raises InvalidInput naming each wrong key."""
    newest = _newest(cluster)
    wanted = {} if newest is None else newest.configuration
    changes = []
    for name, value in values.items():
        key = BROKER_KEYS.get(name)
        if key is None:
            raise InvalidInput.for_field(name, say("There is no such key."), "unknown_member")
        new = key.default if value is None else value
        if (problem := key.problem(new)) is not None:
            raise InvalidInput.for_field(name, problem, "out_of_range")
        old = wanted.get(name, key.default)
        if new != old:
            changes.append(KeyChange(key, old, new))
    return Plan(0 if newest is None else newest.number, tuple(changes), len(_replicas(cluster)))


def configuration_change(
    *, actor: Actor, cluster: Cluster, values: Mapping[str, Value | None], version: int | None = None, put_back: int = 0
) -> Saved:
    """Write what is wanted from now on, and have running brokers take what they take at once. None asks for the default.

    `version` is the newest change that the values were chosen by. Raises InvalidInput, Conflict unless the cluster is running, and
    PreconditionFailed when someone else changed the configuration meanwhile, NotFound for a change to put back that there is not.
    """
    actor_require(actor, "cluster.update", cluster.tenant)
    require_running(cluster)
    plan = configuration_plan(cluster, values)
    if put_back:
        change_get(cluster, put_back)  # the history names no change that there is not
    if version is not None and version != plan.version:
        raise _changed_meanwhile()
    if not plan.changes:
        return Saved(None, plan)
    kept = wanted_values(cluster)
    for change in plan.changes:
        kept.pop(change.key.name, None)
        if change.new != change.key.default:
            kept[change.key.name] = change.new
    changes = {change.key.name: [change.old, change.new] for change in plan.changes}
    try:
        with transaction.atomic():
            row = ConfigurationChange.objects.create(
                cluster=cluster,
                number=plan.version + 1,
                changes=changes,
                configuration=kept,
                changed_by=actor_label(actor),
                put_back=put_back or None,
            )
            audit_event_record(
                actor=actor,
                action="cluster.configure",
                resource=f"{cluster.path}configuration/",
                tenant_id=cluster.tenant_id,
                details={"number": row.number, "changes": changes, **({"put_back": put_back} if put_back else {})},
            )
    except IntegrityError:
        raise _changed_meanwhile() from None
    keys = [change.key for change in plan.changes if change.key.at_once]
    told, missing = row, _tell_brokers(cluster, _texts(keys, row.configuration))
    # Who changed them meanwhile may have told the brokers first: what is wanted now comes last.
    while keys and (newest := _newest(cluster)) is not None and newest.number != told.number:
        told, missing = newest, _tell_brokers(cluster, _texts(keys, newest.configuration))
    return Saved(row, plan, missing)


def configuration_put_back(*, actor: Actor, cluster: Cluster, number: int) -> Saved:
    """Give the keys of one change the values that they had before it. Raises what `configuration_change` raises."""
    actor_require(actor, "cluster.update", cluster.tenant)
    return configuration_change(actor=actor, cluster=cluster, values=values_before(cluster, number), put_back=number)


def configuration_apply(*, actor: Actor, cluster: Cluster) -> tuple[str, ...]:
    """Have every broker take again what it takes at once. Returns those that did not. Raises Conflict unless it is running."""
    actor_require(actor, "cluster.update", cluster.tenant)
    require_running(cluster)
    keys = [key for key in keys_of(replicated=cluster.is_replicated) if key.at_once]
    at_once = _texts(keys, wanted_values(cluster))
    audit_event_record(
        actor=actor,
        action="cluster.configuration_apply",
        resource=f"{cluster.path}configuration/",
        tenant_id=cluster.tenant_id,
        details={"keys": sorted(at_once)},
    )
    return _tell_brokers(cluster, at_once)


def values_before(cluster: Cluster, number: int) -> dict[str, Value | None]:
    """Return the values that the keys of one change had before it. Raises NotFound."""
    return {name: old for name, (old, _) in change_get(cluster, number).changes.items()}


def change_get(cluster: Cluster, number: int) -> ConfigurationChange:
    """Return one change. Raises NotFound."""
    found = ConfigurationChange.objects.filter(cluster=cluster, number=number).first()
    if found is None:
        raise NotFound(say("There is no change %(number)s of this configuration.", number=number))
    return found


def change_list(cluster: Cluster) -> QuerySet[ConfigurationChange]:
    """Return the changes of the configuration, newest first."""
    return ConfigurationChange.objects.filter(cluster=cluster).order_by("-number")


def change_lines(change: ConfigurationChange) -> list[KeyChange]:
    """Return what a change changed, key by key; one that the platform no longer knows is left out."""
    return [
        KeyChange(BROKER_KEYS[name], old, new) for name, (old, new) in change.changes.items() if name in BROKER_KEYS
    ]


def _texts(keys: Iterable[BrokerKey], wanted: Mapping[str, Value]) -> dict[str, str]:
    return {key.name: key.text_of(wanted.get(key.name, key.default)) for key in keys}


def _tell_brokers(cluster: Cluster, at_once: Mapping[str, str]) -> tuple[str, ...]:
    missing = []
    for replica in _replicas(cluster) if at_once else ():
        try:
            with cluster_admin(cluster) as admin:
                admin.update_broker_config(replica.address, at_once)
        except ApplicationError:
            missing.append(_title(replica))
    return tuple(missing)


def _changed_meanwhile() -> PreconditionFailed:
    return PreconditionFailed(
        say("Someone else changed the configuration meanwhile."), hint=say("Look at it again, and repeat the change.")
    )


def _newest(cluster: Cluster) -> ConfigurationChange | None:
    return change_list(cluster).first()


def _replicas(cluster: Cluster) -> list[Replica]:
    rows = Replica.objects.filter(group__cluster=cluster, port__isnull=False).select_related("group__cluster")
    return list(rows.order_by("group__name", "broker_id"))


def _broker_value(key: BrokerKey, wanted: Value, replica: Replica, answer: Mapping[str, str] | None) -> BrokerValue:
    text = None if answer is None else answer.get(key.name)
    value = None if text is None else key.value_of(text)
    return BrokerValue(_title(replica), replica.address, value, None if value is None else value != wanted)


def _title(replica: Replica) -> str:
    return f"{replica.group.name} #{replica.broker_id}" if replica.group.cluster.is_replicated else replica.group.name
