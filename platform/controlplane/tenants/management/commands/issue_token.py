"""`manage.py issue_token TENANT`: print a new API token, and nothing else, on standard output."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from controlplane.accounts.actors import SystemActor
from controlplane.accounts.models import User
from controlplane.accounts.operators import OPERATE_SCOPE
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
        parser.add_argument("--operator", metavar="EMAIL", help="a token of this platform operator, who is a member")
        parser.add_argument("--days", type=int, help="the token's life; default: no end")

    def handle(self, *args: Any, **options: Any) -> str:
        tenant = Tenant.objects.filter(slug=options["tenant"]).first()
        if tenant is None:
            raise CommandError(f"There is no tenant {options['tenant']!r}.")
        operator = None
        if options["operator"]:
            operator = User.objects.filter(email=options["operator"].lower(), is_staff=True, is_active=True).first()
            if operator is None:
                raise CommandError(f"{options['operator']} is no operator. Way out: manage.py make_operator EMAIL")
        try:
            issued = api_token_issue(
                actor=SystemActor("command line"),
                tenant=tenant,
                name=options["name"],
                role=options["role"],
                scopes=(*(options["scope"] or ALL_SCOPES), *([OPERATE_SCOPE] if operator else ())),
                user=operator,
                days=options["days"],
            )
        except ApplicationError as error:
            raise CommandError(str(error)) from error
        return issued.text
