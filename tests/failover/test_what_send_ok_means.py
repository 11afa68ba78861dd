"""What SEND_OK means in a group, as its page says it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.failover.acknowledgement import acknowledgement_words
from controlplane.failover.membership.verdict import Electorate
from controlplane.failover.promotion.verdict import GroupView
from tests.failover.views import slave_view

ALONE = GroupView(name="broker-a", in_sync_replicas=1, replicas=())
PAIR = GroupView(name="broker-a", in_sync_replicas=1, replicas=(slave_view(0), slave_view(1)))
ELECTING = replace(PAIR, elects=True)
FIVE = Electorate(voters=(0, 1, 2, 3, 4))


@pytest.mark.parametrize(
    ("group", "electorate", "copies"),
    [
        (ALONE, None, "the broker holds the message: one copy."),
        (PAIR, None, "the master holds the message: one copy is certain."),
        (replace(PAIR, in_sync_replicas=2), None, "the master and a slave hold the message: two copies."),
        (ELECTING, FIVE, "a majority of the replicas holds the message: 3 of 5."),
        (ELECTING, None, "a majority of the replicas holds the message."),
        (replace(ELECTING, elections_in_doubt=True), FIVE, "the master holds the message: one copy is certain."),
    ],
    ids=["alone", "async", "sync", "dledger", "dledger, not heard of", "on the way out of dledger"],
)
def test_it_says_how_many_copies_there_are(group: GroupView, electorate: Electorate | None, copies: str) -> None:
    words = acknowledgement_words(group, electorate, "SYNC_FLUSH")
    assert words == f"SEND_OK means that {copies} A copy counts once it is on disk."


def test_it_says_that_the_disk_comes_later() -> None:
    assert "A copy counts before it is on disk" in acknowledgement_words(ALONE, None, "ASYNC_FLUSH")
