"""`manage.py end_sessions EMAIL`: log someone out everywhere, as after a laptop was lost."""

from argparse import ArgumentParser
from typing import Any

from allauth.usersessions.adapter import get_adapter
from allauth.usersessions.models import UserSession
from django.core.management.base import BaseCommand
from django.db import transaction

from controlplane.accounts.account_events import account_event_record
from controlplane.accounts.actors import SystemActor
from controlplane.accounts.management.account_named import account_named


class Command(BaseCommand):
    help = (
        "End every session of an account. Its tokens and its password stay: change those, too, if they may be known. "
        "It is written into the audit trail."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("email")

    def handle(self, *args: Any, **options: Any) -> str:
        user = account_named(options["email"])
        sessions = list(UserSession.objects.filter(user=user))
        with transaction.atomic():
            get_adapter().end_sessions(sessions)
            account_event_record(
                actor=SystemActor("command line"),
                action="session.end_all",
                user=user,
                details={"sessions": len(sessions)},
            )
        return f"{user.email}: {len(sessions)} ended."
