"""`manage.py make_operator EMAIL`: let someone run the platform (or, with --remove, no longer)."""

import os
from argparse import ArgumentParser
from typing import Any

from allauth.account.models import EmailAddress
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from controlplane.accounts.models import User
from controlplane.common.audit import audit_event_record

# A password on the command line could be read by every user of the machine.
PASSWORD_VARIABLE = "HIGHWATER_OPERATOR_PASSWORD"  # noqa: S105  # the name of a variable


class Command(BaseCommand):
    help = "Make a user an operator of the platform: plans, prices, subscriptions, jobs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("email")
        parser.add_argument(
            "--create",
            action="store_true",
            help=f"make the user, with the password in ${PASSWORD_VARIABLE}; one who exists stays as they are",
        )
        parser.add_argument("--remove", action="store_true", help="take the right away")

    def handle(self, *args: Any, **options: Any) -> str:
        email = str(options["email"]).strip().lower()
        if options["create"]:
            return self._create(email)
        if User.objects.filter(email=email).update(is_staff=not options["remove"]) != 1:
            raise CommandError(f"No one has signed up as {email}.")
        action = "operator.remove" if options["remove"] else "operator.add"
        audit_event_record(actor="command line", action=action, resource=email)
        return f"{email} is {'no longer' if options['remove'] else 'now'} an operator."

    def _create(self, email: str) -> str:
        if User.objects.filter(email=email).exists():
            return f"{email} has signed up already; nothing was changed."
        password = os.environ.get(PASSWORD_VARIABLE)
        if not password:
            raise CommandError(f"There is no password. Way out: put one into the variable {PASSWORD_VARIABLE}.")
        with transaction.atomic():
            user = User.objects.create_user(email, password, is_staff=True)
            # Whoever has a shell here needs no mail to prove who they are; and the mail server may be what they have to set up.
            EmailAddress.objects.create(user=user, email=email, verified=True, primary=True)
            audit_event_record(actor="command line", action="operator.add", resource=email)
        return f"{email} is now an operator."
