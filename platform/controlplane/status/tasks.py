"""Celery's side of the status: workers say that they live."""

from celery import shared_task

from controlplane.status import services


@shared_task(name="status.worker_beat")
def worker_beat_task(queue: str) -> None:
    """Say that a worker of the queue lives: sent to that queue."""
    services.worker_beat(queue)
