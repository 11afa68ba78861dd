"""An invoice as CSV (RFC 4180), for spreadsheets. Pure."""

import csv
import io

from controlplane.billing.invoices import InvoiceView
from controlplane.billing.money import exact_text
from controlplane.common.spreadsheets import spreadsheet_text

HEADER = (
    "invoice",
    "state",
    "tenant",
    "month",
    "position",
    "cluster",
    "direction",
    "topic",
    "price_valid_from",
    "messages",
    "bytes",
    "billed_units",
    "rate",
    "exact_amount",
    "amount",
    "currency",
    # Of an adjustment, the invoice and the month that it corrects; its figures are differences.
    "corrects_invoice",
    "corrects_month",
)


def invoice_csv(invoice: InvoiceView) -> str:
    """Return a header, a line for each line, and the total as the last: its position is empty.

    Lines have all of their digits; the total is their sum, rounded once.
    """
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(HEADER)
    head = [invoice.number or "", invoice.state, spreadsheet_text(invoice.tenant_name), str(invoice.month)]
    for line in invoice.lines:
        writer.writerow(
            [
                *head,
                line.position,
                spreadsheet_text(line.cluster_name),
                line.direction,
                spreadsheet_text(line.topic),
                line.price.valid_from.isoformat(),
                line.messages,
                line.bytes,
                format(line.billed_units, "f"),
                format(line.rate.normalize(), "f"),
                format(line.exact_amount, "f"),
                exact_text(line.amount),
                invoice.currency,
                line.corrects.number_text if line.corrects else "",
                line.corrected_month or "",
            ]
        )
    writer.writerow([*head, *[""] * 10, invoice.total, invoice.currency, "", ""])
    return out.getvalue()
