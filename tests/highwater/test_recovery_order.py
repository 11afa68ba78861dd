"""The order of a recovery from lost disks: who promises what, and by whose word a replica leads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest

from highwater.errors import HighwaterError, NoRouteError
from highwater.promotion import Ballot, Recovery
from highwater.recovery_order import LeadRecovered, PromiseRecovery, Request, recovery_order
from mqwire.bodies import QuorumStatus, ReplicaStatus

LOST = (0, 1, 2)
BALLOT = Ballot(6, 7)


@dataclass
class Left:
    """Replicas 3 and 4 of five, and what they were asked for. One that holds nothing does not answer."""

    held: dict[int, int] = field(default_factory=lambda: {3: 100, 4: 100})
    voters: tuple[int, ...] = (0, 1, 2, 3, 4)
    epoch: int = BALLOT.fence
    asked: list[Request] = field(default_factory=list)

    def recover_with(self, wanted_id: int) -> ReplicaStatus:
        order = recovery_order(Recovery(LOST, (3, 4), problem=None, loss=""), wanted_id, BALLOT)
        request = next(order)
        while True:
            self.asked.append(request)
            try:
                request = order.send(self._said(request))
            except StopIteration as end:
                return cast("ReplicaStatus", end.value)

    def _said(self, request: Request) -> ReplicaStatus | HighwaterError:
        held = self.held.get(request.replica_id)
        if held is None:
            return NoRouteError("connection refused")
        return ReplicaStatus(
            cluster="c",
            group="broker-a",
            replica_id=request.replica_id,
            advertised_broker_id=request.replica_id,
            address=f"h:{request.replica_id}",
            role="slave",
            mode="dledger",
            epoch=self.epoch,
            log_epoch=1,
            epoch_map=[],
            min_offset=0,
            end_offset=held,
            durable_offset=held,
            held_offset=held,
            confirm_offset=held,
            flush_disk_type="SYNC_FLUSH",
            in_sync_replicas=1,
            min_in_sync_replicas=1,
            in_sync=[],
            accepts_sends=False,
            refusal=None,
            promotable=True,
            followers=[],
            quorum=QuorumStatus(
                state="unattached",
                voted_for=None,
                leader_id=None,
                voters=list(self.voters),
                preferred_leader=None,
                change_pending=False,
            ),
        )


def test_all_that_are_left_promise_before_one_leads_and_the_one_that_is_to_lead_promises_first() -> None:
    left = Left()
    left.recover_with(4)
    assert left.asked == [
        PromiseRecovery(4, BALLOT.fence, 4, LOST),
        PromiseRecovery(3, BALLOT.fence, 4, LOST),
        LeadRecovered(4, BALLOT.fence, BALLOT.epoch, LOST),
    ]


@pytest.mark.parametrize(
    ("left", "why"),
    [
        (Left(held={4: 100}), "Replica 3 is not given up, and does not promise epoch 6: connection refused."),
        (Left(epoch=8), "Replica 4 is not given up, and does not promise epoch 6: it is in epoch 8."),
        (Left(held={3: 200, 4: 100}), "Replica 3 holds more than replica 4 does"),
        (Left(voters=(3, 4)), "a majority of 2 voters"),
        (Left(voters=(0, 1, 2, 3, 4, 5)), r"Voters \[0, 1, 2, 5\] do not answer now"),
    ],
    ids=[
        "one is silent",
        "one is in a newer epoch",
        "one holds more",
        "another recovery has ended",
        "a voter was added",
    ],
)
def test_no_one_leads_where_the_promises_do_not_say_what_was_agreed_to(left: Left, why: str) -> None:
    with pytest.raises(NoRouteError, match=why):
        left.recover_with(4)
    assert not any(isinstance(request, LeadRecovered) for request in left.asked)
