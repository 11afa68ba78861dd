"""`manage.py issue_token TENANT`: print an API token, and nothing else, on standard output."""

import os
from argparse import ArgumentParser
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from controlplane.accounts.actors import SystemActor
from controlplane.accounts.authentication import token_authenticate
from controlplane.accounts.models import ApiToken, User
from controlplane.accounts.operators import OPERATE_SCOPE
from controlplane.common.errors import ApplicationError
from controlplane.tenants.models import Role, Tenant
from controlplane.tenants.token_services import ALL_SCOPES, DEFAULT_LIFE_DAYS, api_token_issue, api_token_revoke

ACTOR = SystemActor("command line")
# A token that is printed again lives at least this long.
USABLE_FOR_AT_LEAST = timedelta(days=1)


class Command(BaseCommand):
    help = "Issue a service token of a tenant and print it. It is shown this once, unless --kept names a file for it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("tenant", help="the tenant's slug")
        parser.add_argument("--name", default="command line")
        parser.add_argument("--role", default=Role.OWNER, choices=Role.values)
        parser.add_argument("--scope", action="append", choices=ALL_SCOPES, help="repeat for several; default: all")
        parser.add_argument("--operator", metavar="EMAIL", help="a token of this platform operator, who is a member")
        parser.add_argument(
            "--days",
            type=int,
            default=DEFAULT_LIFE_DAYS,
            help=f"the token's life; 0: it never expires; default: {DEFAULT_LIFE_DAYS}",
        )
        parser.add_argument(
            "--kept",
            type=Path,
            metavar="FILE",
            help="print the token in this file again while it is valid for the same; else revoke it, and keep the new one there",
        )

    def handle(self, *args: Any, **options: Any) -> str:
        tenant = Tenant.objects.filter(slug=options["tenant"]).first()
        if tenant is None:
            raise CommandError(f"There is no tenant {options['tenant']!r}.")
        operator = None
        if options["operator"]:
            operator = User.objects.filter(email=options["operator"].lower(), is_staff=True, is_active=True).first()
            if operator is None:
                raise CommandError(f"{options['operator']} is no operator. Way out: manage.py make_operator EMAIL")
        scopes = (*(options["scope"] or ALL_SCOPES), *([OPERATE_SCOPE] if operator else ()))
        file: Path | None = options["kept"]
        before = None if file is None else _kept(file, tenant)
        if file is not None and before is not None:
            wanted = (options["role"], sorted(set(scopes)), operator)
            if (before.role, before.scopes, before.user) == wanted and not _ends_soon(before):
                return file.read_text("ascii").strip()
        try:
            issued = api_token_issue(
                actor=ACTOR,
                tenant=tenant,
                name=options["name"],
                role=options["role"],
                scopes=scopes,
                user=operator,
                days=options["days"] or None,
            )
        except ApplicationError as error:
            raise CommandError(str(error)) from error
        if file is not None:
            _keep(file, issued.text)
        if before is not None:
            api_token_revoke(actor=ACTOR, token=before)
        return issued.text


def _kept(file: Path, tenant: Tenant) -> ApiToken | None:
    """The live token of the tenant whose text is in the file; None for anything else."""
    try:
        token = token_authenticate(file.read_text("ascii").strip())
    except (OSError, UnicodeDecodeError):
        return None
    return token if token is not None and token.tenant_id == tenant.pk else None


def _ends_soon(token: ApiToken) -> bool:
    return token.expires_at is not None and token.expires_at < timezone.now() + USABLE_FOR_AT_LEAST


def _keep(file: Path, text: str) -> None:
    """Readable by its owner only; replaced at once."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as handle:
        handle.write(f"{text}\n")
    os.replace(part, file)
