"""`manage.py remove_second_factor EMAIL`: the way back for someone who lost the app and the recovery codes."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from controlplane.accounts.actors import SystemActor
from controlplane.accounts.management.account_named import account_named
from controlplane.accounts.second_factor import second_factor_remove


class Command(BaseCommand):
    help = (
        "Take the second factor off an account, so that its password alone opens it. Make sure first that it is really "
        "its owner who asks. It is written into the audit trail."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("email")

    def handle(self, *args: Any, **options: Any) -> str:
        user = account_named(options["email"])
        if not second_factor_remove(actor=SystemActor("command line"), user=user):
            raise CommandError(f"{user.email} has no second factor.")
        return f"{user.email} logs in with the password alone now. Ask its owner to set up a new second factor."
