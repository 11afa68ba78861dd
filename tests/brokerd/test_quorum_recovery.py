"""Recoveries of a group that has lost a majority of its voters for good, two at once: what the replicas that are left promise."""

from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace
from typing import Any, cast

import pytest

from brokerd.config import BrokerConfig
from brokerd.processors.replica_status import replica_status
from brokerd.replica.errors import RoleRefused
from brokerd.replica.quorum_messages import VoteAnswer, VoteRequest
from highwater.errors import HighwaterError, NoRouteError
from highwater.promotion import Ballot, Standing, judge_recovery
from highwater.recovery_order import LeadRecovered, PromiseRecovery, recovery_order
from mqwire.bodies import ReplicaStatus
from tests.brokerd.quorum_group import FIRST_MS, Node, QuorumGroup

LOST = (2, 3, 4)


def status(node: Node) -> ReplicaStatus:
    """What a node says of itself."""
    around = SimpleNamespace(
        config=BrokerConfig(),
        store=node.store,
        replica=node.replica,
        diverged=SimpleNamespace(count=lambda: 0),
        follower=SimpleNamespace(halted=None),
        clock=SimpleNamespace(monotonic=lambda: node.now_s),
        advertised_id=node.id,
        messages_behind=lambda offset: None,
        refuses_sends=lambda: node.replica.refuses_sends(node.now_s),
    )
    return replica_status(cast("Any", around))


class Operator:
    """One who runs recoverQuorum with a replica that is left: all looks come first, then one request at a time."""

    def __init__(self, group: QuorumGroup, wanted_id: int, ballot: Ballot) -> None:
        self._group = group
        answers = {node.id: Standing.of(status(node)) for node in group.nodes.values() if node.up}
        recovery = judge_recovery(group[wanted_id].replica.members.voters, answers, wanted_id)
        assert recovery.problem is None, recovery.problem
        self._order = recovery_order(recovery, wanted_id, ballot)
        self._request: PromiseRecovery | LeadRecovered | None = next(self._order)

    def go_on(self) -> None:
        """Have the next request carried out, if there is one."""
        if self._request is None:
            return
        try:
            self._request = self._order.send(self._said(self._request))
        except (StopIteration, HighwaterError):
            self._request = None

    def _said(self, request: PromiseRecovery | LeadRecovered) -> ReplicaStatus | HighwaterError:
        node = self._group[request.replica_id]
        if not node.up:
            return NoRouteError("it does not answer")
        try:
            if isinstance(request, PromiseRecovery):
                address = None if request.leader_id == node.id else f"r{request.leader_id}"
                outcome = node.elections.promise_recovery(request.lost, request.epoch, address, node.now_s)
            else:
                epochs = (request.expected_epoch, request.new_epoch)
                outcome = node.elections.recover(request.lost, *epochs, node.now_s, FIRST_MS)
        except RoleRefused as refused:
            return NoRouteError(str(refused))
        self._group.sent(node, outcome)
        node.flush()
        return status(node)


def five_of_which_two_are_left() -> QuorumGroup:
    group = QuorumGroup.led(5)
    for lost in LOST:
        group[lost].up = False
    group.live(8)  # the leader resigns, no one is elected
    assert group.leaders == []
    group.lose_letters()
    return group


def write(group: QuorumGroup) -> None:
    for key in (0, 1):
        if group[key].replica.leads:
            group[key].append(b"written by %d" % key)
            group[key].flush()


def ballots(group: QuorumGroup, *, same: bool) -> tuple[Ballot, Ballot]:
    fence = max(group[key].replica.epoch for key in (0, 1)) + 1
    return Ballot(fence, fence + 1), Ballot(fence, fence + 1) if same else Ballot(fence + 2, fence + 3)


@pytest.mark.parametrize("same", [True, False], ids=["the same epochs", "other epochs"])
@pytest.mark.parametrize("firsts", list(combinations(range(6), 3)), ids=str)
def test_two_recoveries_at_once_leave_one_history_whatever_comes_first(firsts: tuple[int, ...], same: bool) -> None:
    """Two leaders of one epoch acknowledged different messages at the same offsets; no replica ever saw that they differ."""
    group = five_of_which_two_are_left()
    first, second = (Operator(group, wanted, ballot) for wanted, ballot in enumerate(ballots(group, same=same)))
    for place in range(6):
        (first if place in firsts else second).go_on()
        leading = [group[key].replica.epoch for key in group.leaders]
        assert len(set(leading)) == len(leading), "two lead in one epoch"
        write(group)
    group.live(20)
    group.level()
    confirmed = min(group[key].replica.confirm_offset for key in (0, 1))
    logs = [group[key].store.read_raw(0, 1 << 20)[:confirmed] for key in (0, 1)]
    assert logs[0] == logs[1]


def test_a_recovery_that_no_one_crosses_leads() -> None:
    group = five_of_which_two_are_left()
    operator = Operator(group, 0, ballots(group, same=True)[0])
    for _ in range(3):
        operator.go_on()
    group.live(2)
    assert (group.leaders, group[1].replica.members.voters) == ([0], (0, 1))
    assert group[0].replica.refuses_sends(group[0].now_s) is None


def test_a_recovery_comes_to_an_end_though_those_that_promised_look_for_their_leader_meanwhile() -> None:
    group = five_of_which_two_are_left()
    operator = Operator(group, 0, ballots(group, same=True)[0])
    for _ in range(3):
        operator.go_on()
        group.live(0.3)
    assert group.leaders == [0]


def test_a_recovery_after_two_that_crossed_comes_to_an_end() -> None:
    group = five_of_which_two_are_left()
    first, second = (Operator(group, wanted, ballot) for wanted, ballot in enumerate(ballots(group, same=True)))
    for _ in range(3):
        first.go_on()
        second.go_on()
    assert group.leaders == []
    again = Operator(group, 1, ballots(group, same=True)[0])
    for _ in range(3):
        again.go_on()
    assert group.leaders == [1]


def test_who_is_left_and_does_not_promise_stops_the_recovery() -> None:
    group = five_of_which_two_are_left()
    operator = Operator(group, 0, ballots(group, same=True)[0])
    group[1].up = False
    for _ in range(3):
        operator.go_on()
    assert group.leaders == []


def promised(node: Node, leader_address: str) -> int:
    epoch = node.replica.epoch + 5
    node.elections.promise_recovery(LOST, epoch, leader_address, node.now_s)
    return epoch


def test_an_epoch_that_was_promised_to_a_recovery_is_promised_to_no_other_one_not_after_a_restart_either() -> None:
    group = five_of_which_two_are_left()
    epoch = promised(group[1], "r0")
    group[1].restart()
    group[1].elections.promise_recovery(LOST, epoch, "r0", group[1].now_s)  # asked again
    with pytest.raises(RoleRefused, match="is not above"):
        group[1].elections.promise_recovery(LOST, epoch, "r1", group[1].now_s)
    with pytest.raises(RoleRefused, match="to no recovery by which it is to lead"):
        group[1].elections.recover(LOST, epoch, epoch + 1, group[1].now_s, FIRST_MS)


def test_no_one_is_recovered_with_who_has_not_promised_it() -> None:
    """As an older command line asks: two of them made two leaders of one epoch."""
    group = five_of_which_two_are_left()
    for node in (group[0], group[1]):
        with pytest.raises(RoleRefused, match="to no recovery by which it is to lead"):
            node.elections.recover(LOST, node.replica.epoch, 9, node.now_s, FIRST_MS)


def test_no_one_is_elected_in_an_epoch_that_was_promised_to_a_recovery() -> None:
    group = five_of_which_two_are_left()
    epoch = promised(group[1], "r0")
    asked = VoteRequest(group="group-a", candidate=2, epoch=epoch, last_epoch=9, end_offset=1 << 30, pre=False)
    reply = group[1].step(asked).reply
    assert isinstance(reply, VoteAnswer)
    assert (reply.granted, reply.reason) == (False, f"epoch {epoch} has its leader")


def test_who_hears_a_leader_or_leads_promises_nothing_to_a_recovery() -> None:
    group = QuorumGroup.led(5)
    group.live(0.5)
    for node in (group[0], group[1]):
        with pytest.raises(RoleRefused, match="nothing to recover"):
            node.elections.promise_recovery(LOST, 9, "r1", node.now_s)
    assert (group.leaders, group[1].replica.epoch) == ([0], 1)


def test_a_leader_that_has_lost_its_majority_promises_and_leads_no_more() -> None:
    group = QuorumGroup.led(5)
    group.wait(8)
    outcome = group[0].elections.promise_recovery(LOST, 9, "r1", group[0].now_s)
    assert (outcome.role_changed, group.leaders, group[0].replica.epoch) == (True, [], 9)
