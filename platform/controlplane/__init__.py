"""The control plane: one Django project, one app per bounded context, the same furniture in each."""

from controlplane.celery import app as celery_app

__all__ = ["celery_app"]
