"""Which promotion the control plane begins with no one asking for it."""

from __future__ import annotations

from controlplane.failover.promotion.automatic import OwnPromotion, promotion_to_begin
from tests.failover.test_verdict import away, group, master, replica
from tests.failover.views import NOW


def test_a_dead_master_is_replaced_where_the_policy_says_so_and_nothing_is_lost() -> None:
    view = group(away(master()), replica(1), replica(2))
    assert promotion_to_begin(view, NOW, when_lossless=True) == OwnPromotion(1, repeats=False)
    assert promotion_to_begin(view, NOW, when_lossless=False) is None


def test_a_master_that_has_just_fallen_silent_is_waited_for() -> None:
    view = group(away(master(), 2), replica(1), replica(2))
    assert promotion_to_begin(view, NOW, when_lossless=True) is None


def test_no_one_is_promoted_beside_a_master_nor_where_something_may_be_lost() -> None:
    assert promotion_to_begin(group(master(), replica(1)), NOW, when_lossless=True) is None
    view = group(away(master()), replica(1, in_sync=None), in_sync_replicas=1)
    assert promotion_to_begin(view, NOW, when_lossless=True) is None
