"""The health check of Celery's beat."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from django_celery_beat.models import IntervalSchedule, PeriodicTask


def _sent(minutes_ago: int) -> None:
    every = IntervalSchedule.objects.create(every=10, period=IntervalSchedule.SECONDS)
    PeriodicTask.objects.create(
        name="due", task="due", interval=every, last_run_at=timezone.now() - timedelta(minutes=minutes_ago)
    )


def test_beat_that_sent_something_lately_is_well(db: None) -> None:
    _sent(minutes_ago=5)
    call_command("check_beat")


def test_beat_that_is_silent_is_not(db: None) -> None:
    _sent(minutes_ago=15)
    with pytest.raises(CommandError, match="has sent nothing since"):
        call_command("check_beat")


def test_beat_that_never_sent_anything_is_not(db: None) -> None:
    with pytest.raises(CommandError, match="since its start"):
        call_command("check_beat")
