"""`manage.py issue_token TENANT`: print a new API token, and nothing else, on standard output."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from controlplane.accounts.actors import SystemActor
from controlplane.common.errors import ApplicationError
from controlplane.tenants.models import Role, Tenant
from controlplane.tenants.token_services import ALL_SCOPES, api_token_issue


class Command(BaseCommand):
    help = "Issue a service token of a tenant and print it. It is shown this once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("tenant", help="the tenant's slug")
        parser.add_argument("--name", default="command line")
        parser.add_argument("--role", default=Role.OWNER, choices=Role.values)
        parser.add_argument("--scope", action="append", choices=ALL_SCOPES, help="repeat for several; default: all")
        parser.add_argument("--days", type=int, help="the token's life; default: no end")

    def handle(self, *args: Any, **options: Any) -> str:
        tenant = Tenant.objects.filter(slug=options["tenant"]).first()
        if tenant is None:
            raise CommandError(f"There is no tenant {options['tenant']!r}.")
        try:
            issued = api_token_issue(
                actor=SystemActor("command line"),
                tenant=tenant,
                name=options["name"],
                role=options["role"],
                scopes=tuple(options["scope"] or ALL_SCOPES),
                days=options["days"],
            )
        except ApplicationError as error:
            raise CommandError(str(error)) from error
        return issued.text
