"""`manage.py set_limit TENANT NAME VALUE`: give one tenant another limit."""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from controlplane.accounts.actors import SystemActor
from controlplane.clusters.limits import limit_set
from controlplane.common.errors import ApplicationError
from controlplane.tenants.models import Tenant


class Command(BaseCommand):
    help = "Give one tenant another limit; its brokers that run get it at once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("tenant", help="the tenant's slug")
        parser.add_argument("name", choices=sorted(settings.HIGHWATER_LIMITS))
        parser.add_argument("value", help="a number, or `default`; 0 is none for what brokers keep")
        parser.add_argument("--reason", default="set by hand", help="why, for the audit trail")

    def handle(self, *args: Any, **options: Any) -> str:
        tenant = Tenant.objects.filter(slug=options["tenant"]).first()
        if tenant is None:
            raise CommandError(f"There is no tenant {options['tenant']!r}.")
        text = options["value"]
        if text != "default" and not text.isdecimal():
            raise CommandError(f"{text!r} is not a number. Way out: a number from 0, or `default`.")
        try:
            missing = limit_set(
                actor=SystemActor("command line"),
                tenant=tenant,
                name=options["name"],
                value=None if text == "default" else int(text),
                reason=options["reason"],
            )
        except ApplicationError as error:
            raise CommandError(str(error)) from error
        missed = f" These brokers did not take it yet: {', '.join(missing)}." if missing else ""
        return f"{tenant.slug}: {options['name']} is {text}.{missed}"
