"""`manage.py check_beat`: whether Celery's beat sends what is due. A health check."""

from datetime import timedelta

from django.core.management.base import BaseCommand, CommandError
from django.db.models import Max
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

# Beat writes what it sent each three minutes.
_SILENT = timedelta(minutes=10)


class Command(BaseCommand):
    help = "Exit with 0 when beat has sent something in the last ten minutes."
    requires_system_checks = ()

    def handle(self, *args: object, **options: object) -> None:
        """Look into its table."""
        last = PeriodicTask.objects.aggregate(last=Max("last_run_at"))["last"]
        if last is None or timezone.now() - last > _SILENT:
            raise CommandError(f"Beat has sent nothing since {last or 'its start'}. Is it running?")
