"""A replica that has been down since before may lead no one; one whose process was started again, unseen, may."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta

import pytest

from controlplane.failover.promotion.verdict import GroupView, ReplicaView, judge
from controlplane.failover.samples import silence_noted
from controlplane.provisioning.drivers.base import ProcessState, ProcessStatus
from tests.failover.views import NOW, slave_view

OF_VIEW = {one.name for one in fields(ReplicaView)}
CRASHED = ProcessStatus("r1", ProcessState.EXITED, stopped_at=NOW + timedelta(seconds=1))


def silent(view: ReplicaView, process: ProcessStatus, now_s: float) -> ReplicaView:
    noted = silence_noted(
        process,
        unreachable_since=view.unreachable_since,
        last_seen_at=view.last_seen_at,
        process_ended_at=view.process_ended_at,
        ran_unseen=view.ran_unseen,
        now=NOW + timedelta(seconds=now_s),
    )
    return replace(view, **{key: value for key, value in noted.items() if key in OF_VIEW})  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize(
    ("later", "clean"),
    [
        ((CRASHED,), True),
        ((ProcessStatus("r1", ProcessState.BACKOFF, stopped_at=NOW + timedelta(seconds=4)),), True),
        ((ProcessStatus("r1", ProcessState.RUNNING, started_at=NOW + timedelta(seconds=2)),), False),
        ((ProcessStatus("r1", ProcessState.RUNNING, started_at=NOW + timedelta(seconds=2)), CRASHED), False),
    ],
)
def test_who_led_last_leads_again_unasked_only_if_the_silent_one_has_not_run_since(
    later: tuple[ProcessStatus, ...], clean: bool
) -> None:
    slave = silent(slave_view(1), CRASHED, 1.5)
    for number, process in enumerate(later):
        slave = silent(slave, process, 10.0 + number)
    asked_at = NOW + timedelta(seconds=120)
    master = slave_view(
        0, role="slave", claims=True, promotable=True, sampled_at=asked_at, in_sync=None, last_seen_at=asked_at
    )
    group = GroupView(
        name="broker-a",
        in_sync_replicas=1,
        replicas=[master, slave],
        leader_id=0,
        led_at=NOW + timedelta(seconds=30),
        led_epoch=3,
        led_to_offset=1000,
        epoch=3,
    )
    cleanness = judge(group, NOW + timedelta(seconds=121)).cleanness
    assert (cleanness is not None and cleanness.clean) is clean
