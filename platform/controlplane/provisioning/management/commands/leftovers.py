"""`manage.py leftovers`: what fits no row on the machine, and how to be rid of it."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.accounts.actors import SystemActor
from controlplane.common.errors import ApplicationError
from controlplane.provisioning.drivers import get_driver
from controlplane.provisioning.leftovers import leftovers_clear, leftovers_find


class Command(BaseCommand):
    help = "List which processes, directories and ports belong to no cluster, and which operations do not go on."

    def add_arguments(self, parser: CommandParser) -> None:
        """Two steps: what is harmless, and what deletes messages."""
        parser.add_argument("--clear", action="store_true", help="end the processes and free the ports")
        parser.add_argument(
            "--data", action="store_true", help="with --clear: delete the directories as well, for good"
        )

    def handle(self, *args: object, **options: Any) -> None:
        """Print what is there, one a line; exit with 1 when there is something and nothing was cleared."""
        if options["data"] and not options["clear"]:
            raise CommandError("--data goes with --clear.")
        try:
            if options["clear"]:
                found = leftovers_clear(actor=SystemActor("manage.py"), driver=get_driver(), data=options["data"])
            else:
                found = leftovers_find(get_driver())
        except ApplicationError as error:
            raise CommandError(f"{error.message} {error.hint}") from error
        for title, lines in (("process", found.processes), ("directory", found.folders), ("port", found.ports)):
            for line in lines:
                self.stdout.write(f"{title:<10} {line}")
        for cluster in found.lost:
            self.stdout.write(f"lost       {cluster}: its directory is gone")
        for one in found.stuck:
            self.stdout.write(
                f"operation  {one.operation.path} at “{one.step}” since {one.since:%Y-%m-%d %H:%M:%S} UTC"
            )
        if found.anything and not options["clear"]:
            raise CommandError("These fit no row, or do not go on. --clear ends the processes and frees the ports.")
