"""The picture of a group: from a row of the role map to shapes and words. No database."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

from controlplane.console.group_picture import Box, GroupPicture, group_picture
from controlplane.failover.membership.verdict import Electorate
from controlplane.failover.promotion.verdict import GroupState, Verdict
from controlplane.failover.role_map import GroupRow, ReplicaRow

MASTER = ReplicaRow(0, "h:1", fenced=False, role="master", epoch=3, accepts_sends=True)
SLAVE = ReplicaRow(1, "h:2", fenced=False, role="slave", epoch=3, in_sync=True, gap_bytes=0)
SILENT = ReplicaRow(0, "h:1", fenced=False, unreachable_since=datetime(2026, 11, 26, 12, 58, 49, tzinfo=UTC))


def _group(*replicas: ReplicaRow, master: int | None = 0, state: GroupState = GroupState.HEALTHY) -> GroupRow:
    return GroupRow("broker-a", 3, master, Verdict(state, ()), list(replicas), None, copies=2)


def _box(picture: GroupPicture, replica_id: int | None) -> Box:
    return next(box for box in picture.boxes if box.replica_id == replica_id)


def _lines(picture: GroupPicture, replica_id: int | None) -> list[str]:
    return [words.text for words in _box(picture, replica_id).lines]


def test_a_slave_in_sync_has_a_whole_line_from_the_master() -> None:
    picture = group_picture(_group(MASTER, SLAVE))
    assert (_lines(picture, 0), _lines(picture, 1)) == (["Master", "epoch 3"], ["Slave", "in sync"])
    assert ([link.line for link in picture.links], picture.promise.text) == (["even"], "SEND_OK: 2 copies")


def test_a_slave_that_is_behind_has_a_broken_line_and_its_gap() -> None:
    picture = group_picture(_group(MASTER, replace(SLAVE, in_sync=False, gap_bytes=5 << 20)))
    assert (_lines(picture, 1)[-1], [link.line for link in picture.links]) == ("5.0 MiB behind", ["behind"])


def test_a_dead_master_leaves_its_place_empty_and_the_others_without_lines() -> None:
    picture = group_picture(_group(SILENT, replace(SLAVE, in_sync=None), master=None, state=GroupState.NO_MASTER))
    assert (_box(picture, None).look, _box(picture, None).name.text) == ("missing", "No master")
    assert _lines(picture, 0) == ["Does not answer", "since 12:58:49 UTC"]
    assert (picture.links, picture.promise.text) == ((), "Sends fail")


def test_a_master_that_takes_no_sends_promises_nothing() -> None:
    assert group_picture(_group(replace(MASTER, accepts_sends=False))).promise.text == "Sends are refused"


def test_an_elected_leader_waits_for_a_majority_of_the_voters() -> None:
    follower = replace(SLAVE, election_state="follower", is_voter=True, in_sync=False, gap_bytes=300)
    elected = replace(
        _group(MASTER, follower, replace(follower, replica_id=2)), electorate=Electorate(voters=(0, 1, 2))
    )
    picture = group_picture(elected)
    assert picture.promise.text == "SEND_OK: 2 of 3 copies"
    assert (_lines(picture, 0)[0], _lines(picture, 2)) == ("Leader", ["Follower", "300 B behind"])
    assert [link.line for link in picture.links] == ["even", "even"]


def test_what_was_not_looked_at_lately_is_not_drawn_as_leading() -> None:
    picture = group_picture(_group(MASTER, master=None, state=GroupState.UNKNOWN))
    assert (_box(picture, None).name.text, _lines(picture, 0)[-1]) == ("Leader not known", "no recent data")


def test_shapes_stay_within_the_drawing_and_apart_for_five_replicas() -> None:
    picture = group_picture(_group(MASTER, *(replace(SLAVE, replica_id=one) for one in range(1, 5))))
    followers = sorted(box.y for box in picture.boxes[1:])
    assert all(box.x > 0 and box.x + box.width < picture.width for box in picture.boxes)
    assert all(box.y > 0 and box.y + box.height < picture.height for box in picture.boxes)
    assert all(below - above > 64 for above, below in pairwise(followers))
    assert picture.promise.y < picture.height


def test_the_description_says_all_that_is_drawn() -> None:
    assert group_picture(_group(MASTER, SLAVE)).description == (
        "Replica 0: Master, epoch 3. Replica 1: Slave, in sync. SEND_OK: 2 copies."
    )
