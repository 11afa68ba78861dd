"""`manage.py make_operator EMAIL`: let somebody run the platform (or, with --remove, no longer)."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from controlplane.accounts.models import User
from controlplane.common.audit import audit_event_record


class Command(BaseCommand):
    help = "Make a user an operator of the platform: plans, prices, subscriptions, jobs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("email")
        parser.add_argument("--remove", action="store_true", help="take the right away")

    def handle(self, *args: Any, **options: Any) -> str:
        email = str(options["email"]).strip().lower()
        if User.objects.filter(email=email).update(is_staff=not options["remove"]) != 1:
            raise CommandError(f"Nobody has signed up as {email}.")
        action = "operator.remove" if options["remove"] else "operator.add"
        audit_event_record(actor="command line", action=action, resource=email)
        return f"{email} is {'no longer' if options['remove'] else 'now'} an operator."
