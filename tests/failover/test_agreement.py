"""How long an agreement to a loss holds."""

from __future__ import annotations

from datetime import timedelta

import pytest

from controlplane.failover.promotion.agreement import agreement_holds
from tests.failover.views import NOW


@pytest.mark.parametrize(
    ("minutes", "was_retried", "holds"),
    [(0.0, False, True), (5.0, False, True), (5.1, False, False), (0.0, True, False)],
)
def test_a_loss_is_agreed_to_for_five_minutes_and_for_one_try(minutes: float, was_retried: bool, holds: bool) -> None:
    assert agreement_holds(NOW, NOW + timedelta(minutes=minutes), was_retried=was_retried) is holds
