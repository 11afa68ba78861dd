"""What changes in the open alerts, decided from facts, rules and the time alone."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from controlplane.alerts.evaluation import CLEAR_S, Act, Fact, Key, OpenAlert, evaluate
from controlplane.alerts.kinds import KINDS, OPEN_MAX, Kind, Rule, figure, threshold_problem
from controlplane.alerts.words import amount, sentence

T0 = datetime(2026, 11, 24, 12, tzinfo=UTC)
CLUSTER = uuid.UUID(int=1)


@dataclass
class Watch:
    """One kind in one cluster, looked at again and again; it keeps what is open as the database would."""

    kind: str
    rule: Rule
    now: datetime = T0
    opened: dict[Key, OpenAlert] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    running: set[uuid.UUID] = field(default_factory=lambda: {CLUSTER})

    def key(self, subject: str = "x") -> Key:
        return Key(CLUSTER, self.kind, subject)

    def look(self, *values: float | None, after_s: float = 0) -> list[Act]:
        """Look `after_s` seconds later at subjects 0, 1, … with these values."""
        return self.look_at({str(number): value for number, value in enumerate(values)}, after_s)

    def look_at(self, values: dict[str, float | None], after_s: float = 0) -> list[Act]:
        self.now += timedelta(seconds=after_s)
        facts = [Fact(self.key(subject), value) for subject, value in values.items()]
        changes = evaluate(facts, lambda *_: self.rule, self.opened.values(), self.now, running=self.running)
        for change in changes:
            alert = change.alert or OpenAlert(uuid.uuid4(), change.key, self.now, self.now)
            if change.act in (Act.DROP, Act.RESOLVE):
                self.ended.append(change.reason)
                del self.opened[change.key]
            elif change.act is Act.CLEARING:
                self.opened[change.key] = replace(alert, clear_since=alert.clear_since or self.now)
            else:
                fired = self.now if change.act is Act.FIRE else alert.fired_at
                self.opened[change.key] = replace(alert, known_at=self.now, fired_at=fired, clear_since=None)
        return [change.act for change in changes]


def watch(kind: str = "disk_used", **changes: object) -> Watch:
    rule = Rule.default(KINDS[kind])
    return Watch(kind, replace(rule, **changes))  # type: ignore[arg-type]  # fields by name


def fired(kind: str = "disk_used") -> Watch:
    found = watch(kind, duration_s=0)
    wrong = KINDS[kind].threshold
    assert found.look(wrong) == [Act.BEGIN]
    assert found.look(wrong) == [Act.FIRE]
    return found


def test_an_alert_fires_when_it_has_lasted() -> None:
    disk = watch(duration_s=60)
    assert disk.look(90) == [Act.BEGIN]
    assert disk.look(90, after_s=59) == [Act.SEEN]
    assert disk.look(90, after_s=1) == [Act.FIRE]
    assert disk.look(90, after_s=15) == [Act.SEEN]


def test_what_was_wrong_for_a_moment_notifies_no_one() -> None:
    disk = watch(duration_s=60)
    disk.look(90)
    assert disk.look(10, after_s=15) == [Act.DROP]
    assert disk.look(10) == []


def test_what_is_not_known_neither_fires_nor_ends() -> None:
    disk = watch(duration_s=60)
    assert disk.look(None) == []
    disk.look(90)
    assert disk.look(None, after_s=120) == []
    disk = fired()
    assert disk.look(None, after_s=10_000) == []


def test_what_is_right_again_ends_when_that_lasts() -> None:
    disk = fired()
    assert disk.look(10) == [Act.CLEARING]
    assert disk.look(10, after_s=CLEAR_S - 1) == [Act.CLEARING]
    assert disk.look(10, after_s=1) == [Act.RESOLVE]
    assert disk.ended == ["Back to normal."]


def test_one_that_comes_and_goes_is_one_alert() -> None:
    disk = fired()
    for _ in range(20):
        assert disk.look(10, after_s=CLEAR_S - 1) == [Act.CLEARING]
        assert disk.look(90, after_s=1) == [Act.SEEN]
    assert disk.look(10, after_s=CLEAR_S) == [Act.CLEARING]


def test_each_subject_has_an_alert_of_its_own() -> None:
    disk = watch(duration_s=0)
    assert disk.look(90, 10, 90) == [Act.BEGIN, Act.BEGIN]
    assert disk.look(90, 90, 10) == [Act.FIRE, Act.DROP, Act.BEGIN]


def test_the_threshold_itself_is_wrong() -> None:
    assert watch(threshold=85).look(85) == [Act.BEGIN]
    assert watch(threshold=85).look(84.9) == []


def test_a_floor_is_wrong_below() -> None:
    assert watch("loss_ahead").look(23.9) == [Act.BEGIN]
    assert watch("loss_ahead").look(-1) == [Act.BEGIN]
    assert watch("loss_ahead").look(float("inf")) == []


def test_a_rule_that_is_switched_off_ends_what_is_open() -> None:
    disk = fired()
    disk.rule = replace(disk.rule, is_on=False)
    assert disk.look(90) == [Act.RESOLVE]
    assert disk.look(90) == []
    disk = fired()
    disk.rule = replace(disk.rule, is_on=False)
    assert disk.look() == [Act.RESOLVE]


def test_a_threshold_that_is_raised_ends_what_is_below() -> None:
    disk = fired()
    disk.rule = replace(disk.rule, threshold=99)
    disk.look(90)
    assert disk.look(90, after_s=CLEAR_S) == [Act.RESOLVE]


def test_what_is_gone_ends_where_every_subject_is_reported() -> None:
    disk = fired()
    assert disk.look() == [Act.RESOLVE]
    assert "gone" in disk.ended[0]


def test_a_group_of_which_nothing_is_reported_is_unknown_for_a_day() -> None:
    late = fired("lag_seconds")
    assert late.look(after_s=86_400) == []
    assert late.look(after_s=1) == [Act.RESOLVE]


def test_whatever_was_wrong_with_a_cluster_ends_when_it_does_not_run_any_more() -> None:
    late = fired("lag_seconds")
    late.running.clear()
    assert late.look() == [Act.RESOLVE]
    assert late.ended == ["Its cluster does not run any more."]


def test_a_cluster_has_a_bounded_number_of_alerts_of_a_kind() -> None:
    late = watch("lag_seconds")
    many = {str(number): 10_000.0 for number in range(OPEN_MAX + 50)}
    assert len(late.look_at(dict[str, float | None](many))) == OPEN_MAX
    assert late.look_at({"new": 10_000.0}) == []


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_every_default_is_one_that_a_tenant_may_set(kind: Kind) -> None:
    assert threshold_problem(kind, kind.threshold) == ""


@pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if kind.has_threshold], ids=lambda kind: kind.name)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
def test_a_threshold_out_of_its_bounds_is_refused(kind: Kind, bad: float) -> None:
    assert "Use a number from" in threshold_problem(kind, bad)


def test_the_bounds_of_a_threshold_are_written_out() -> None:
    assert [figure(30 * 86_400.0), figure(10.0), figure(0.5)] == ["2592000", "10", "0.5"]


def test_a_kind_that_is_wrong_or_not_takes_no_threshold() -> None:
    assert "has no threshold" in threshold_problem(KINDS["leader_missing"], 2)


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_every_kind_has_a_sentence(kind: Kind) -> None:
    reported = sentence(kind.name, "billing on orders", kind.threshold)
    assert reported[0].isupper() or reported.startswith("billing")
    assert reported.endswith(".")
    assert amount(kind.unit, kind.threshold) in reported


def test_amounts_are_written_as_people_read_them() -> None:
    reported = [
        amount(unit, value)
        for unit, value in (
            ("bytes", 512),
            ("bytes", 64 * 2**20),
            ("percent", 85.4),
            ("seconds", 90),
            ("seconds", 900),
            ("seconds", 10_000),
            ("seconds", 200_000),
            ("hours", 1),
            ("hours", 1.5),
            ("days", 3),
        )
    ]
    assert reported == [
        "512 bytes",
        "64.0 MiB",
        "85 %",
        "90 s",
        "15 min",
        "2.8 h",
        "2.3 days",
        "1 hour",
        "1.5 hours",
        "3 days",
    ]
