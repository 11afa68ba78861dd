"""`manage.py verify_audit_trail [SLUG...]`: check every event of the audit trail, and name the first that was changed."""

import uuid
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from controlplane.common.audit_chain import ChainCheck, chain_check, chain_keys
from controlplane.tenants.models import Tenant


class Command(BaseCommand):
    help = (
        "Check the audit trail's chains of hashes: of the tenants that are named, or of all and of the platform's own. "
        "Ends with 1 at a broken one. Note the printed heads elsewhere: who can write every row can make a new chain, "
        "but not one with the head that you noted."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("slugs", nargs="*", metavar="SLUG")

    def handle(self, *args: Any, **options: Any) -> None:
        broken = 0
        for name, tenant_id in self._chains(options["slugs"]):
            check = chain_check(tenant_id)
            broken += not check.is_intact
            self.stdout.write(f"{name}: {_words(check)}")
        if broken:
            raise CommandError(
                f"{broken} chain{'s are' if broken > 1 else ' is'} broken. Compare the database with a backup from before; "
                "the trail of a broken chain is no proof from the event on that is named."
            )

    def _chains(self, slugs: list[str]) -> list[tuple[str, uuid.UUID | None]]:
        names = dict(Tenant.objects.values_list("slug", "pk"))
        if unknown := [slug for slug in slugs if slug not in names]:
            raise CommandError(f"There is no tenant {', '.join(unknown)}.")
        if slugs:
            return [(slug, names[slug]) for slug in slugs]
        by_id = {key: slug for slug, key in names.items()}
        # The trail outlives its tenant: such a chain is named by the tenant's id.
        return [("platform" if key is None else by_id.get(key, str(key)), key) for key in chain_keys()]


def _words(check: ChainCheck) -> str:
    if check.is_intact:
        return f"intact, {check.length} events, head {check.head}"
    event = f" ({check.broken_event})" if check.broken_event else ""
    return f"BROKEN at event {check.broken_sequence}{event} of {check.length}: {check.reason}"
