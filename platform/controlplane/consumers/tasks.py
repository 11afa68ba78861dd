"""Celery's side of replays. Tasks call one service, and leave the rest to the rows."""

import uuid

from celery import shared_task

from controlplane.consumers.replays import TURN_TASK, replay_turn, replays_resume


@shared_task(name=TURN_TASK)
def replay_turn_task(replay_id: str) -> str:
    """Send about a second's worth of dead letters."""
    return replay_turn(uuid.UUID(replay_id))


@shared_task(name="consumers.replays_resume")
def replays_resume_task() -> int:
    """Go on with replays whose worker died."""
    return replays_resume()
