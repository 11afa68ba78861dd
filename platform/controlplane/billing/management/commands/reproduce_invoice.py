"""`manage.py reproduce_invoice HW-0000001`: make an issued bill again from its snapshot, and say whether it is equal."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from controlplane.billing.reproductions import ReproductionFailed, invoice_by_number, invoice_reproduce
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import NotFound


class Command(BaseCommand):
    help = "Make the bill of an issued invoice again from the snapshot of the metering records that it was made from."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("invoice", help="its number, such as HW-0000001")

    def handle(self, *args: Any, **options: Any) -> str:
        try:
            invoice = invoice_by_number(options["invoice"])
            with transaction.atomic():
                audit_event_record(
                    actor="command line",
                    action="invoice.reproduce",
                    resource=invoice.path,
                    tenant_id=invoice.tenant_id,
                )
            made = invoice_reproduce(invoice)
        except NotFound as error:
            raise CommandError(f"There is no issued invoice {options['invoice']}.") from error
        except ReproductionFailed as error:
            raise CommandError(str(error)) from error
        head = f"{invoice.number_text} from snapshot {invoice.snapshot_id}: {made.total} {invoice.currency}"
        if made.differences:
            raise CommandError("\n".join([f"{head}, which differs from what was issued:", *made.differences]))
        return f"{head}, equal to what was issued, line by line."
