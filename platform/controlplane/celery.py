"""The Celery application. Workers: `celery -A controlplane worker`; schedule: `celery -A controlplane beat`."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings.local")
# `migrate` runs Django's checks. They load every page, which workers and beat have no use for: each starts a third faster without.
os.environ.setdefault("CELERY_SKIP_CHECKS", "true")

app = Celery("controlplane", task_cls="controlplane.clusters.waiting:BoundedTask")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
