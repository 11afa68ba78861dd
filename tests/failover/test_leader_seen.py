"""What a group's row says after a look at its replicas, also where another worker was at it meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.failover.samples import LeaderNews, LeaderRow, leader_seen, looked_at
from mqwire.bodies import ReplicaStatus
from tests.failover.scripted_group import ScriptedGroup, ScriptedReplica

ROW: LeaderRow[int] = LeaderRow(epoch=7, leader=0, led_epoch=5, asked_epoch=None)


def led_by(replica_id: int, epoch: int) -> dict[int, ReplicaStatus]:
    replica = ScriptedReplica(replica_id, "192.0.2.1:10911", leads=True, epoch=epoch)
    status = ScriptedGroup("broker-a", "async", [replica])._answer(replica).status
    assert status is not None
    return {replica_id: status}


@pytest.mark.parametrize(
    ("statuses", "news", "after"),
    [
        (led_by(1, 8), LeaderNews.NEWER_EPOCH, replace(ROW, epoch=8, leader=1)),
        (led_by(1, 7), LeaderNews.OF_THE_EPOCH, replace(ROW, leader=1)),
        (led_by(1, 6), LeaderNews.OF_BEFORE, replace(ROW, leader=1)),
        (led_by(1, 5), LeaderNews.KNOWN, ROW),
        (led_by(0, 6), LeaderNews.KNOWN, ROW),
        ({}, LeaderNews.KNOWN, ROW),
    ],
)
def test_a_look_changes_who_leads_and_only_a_newer_epoch_the_rows(
    statuses: dict[int, ReplicaStatus], news: LeaderNews, after: LeaderRow[int]
) -> None:
    look = looked_at(statuses, ROW)
    assert (look.news, leader_seen(ROW, ROW, look)) == (news, after)


@pytest.mark.parametrize("epoch", [6, 7, 8])
def test_what_another_worker_has_written_since_stays(epoch: int) -> None:
    look = looked_at(led_by(1, epoch), ROW)
    raised = replace(ROW, epoch=9)
    assert leader_seen(raised, ROW, look) == raised
    asked = replace(ROW, asked_epoch=7)
    assert leader_seen(asked, ROW, look) == (replace(asked, epoch=8, leader=1) if epoch == 8 else asked)
