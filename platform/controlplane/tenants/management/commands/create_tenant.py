"""`manage.py create_tenant SLUG`: make a tenant unless it is there. For scripts; people do it in the console."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from controlplane.accounts.actors import SystemActor
from controlplane.accounts.management.account_named import account_named
from controlplane.common.errors import ApplicationError
from controlplane.tenants.models import Tenant
from controlplane.tenants.services import tenant_create


class Command(BaseCommand):
    help = "Create a tenant unless it is there, and print its slug."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("slug")
        parser.add_argument("--name", default="", help="what people read; default: the slug")
        parser.add_argument("--owner", metavar="EMAIL", help="a user who has signed up")

    def handle(self, *args: Any, **options: Any) -> str:
        slug: str = options["slug"]
        if Tenant.objects.filter(slug=slug).exists():
            return slug
        owner = account_named(options["owner"]) if options["owner"] else None
        try:
            tenant_create(actor=SystemActor("command line"), slug=slug, name=options["name"], owner=owner)
        except ApplicationError as error:
            raise CommandError(str(error)) from error
        return slug
