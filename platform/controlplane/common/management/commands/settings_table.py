"""`manage.py settings_table`: docs/settings.md, from the table of all settings."""

from django.core.management.base import BaseCommand

from controlplane.settings.table import rendered


class Command(BaseCommand):
    help = "Print every setting with its type, default and meaning: the contents of docs/settings.md."
    requires_system_checks = ()

    def handle(self, *args: object, **options: object) -> None:
        """Print it."""
        self.stdout.write(rendered(), ending="")
