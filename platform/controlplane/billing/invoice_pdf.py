"""An invoice as PDF, by fpdf2 (pure Python): the same words and figures as its page. Pure."""

from controlplane.billing.invoices import InvoiceView
from controlplane.billing.lines import LineView
from controlplane.billing.models import Direction
from controlplane.billing.money import exact_text

_WORDS = {Direction.IN: "Sent", Direction.OUT: "Delivered", Direction.STORAGE: "Stored"}
_WIDTHS = (8, 34, 22, 18, 18)
# A file of any size is no invoice that anybody reads: the rest is in the CSV.
LINES_MAX = 2000


# Of what opens something.
_LINK_COLOR = (24, 84, 160)


def invoice_pdf(invoice: InvoiceView, page_url: str) -> bytes:
    """Return the file; what the fonts of every PDF reader don't have is shown as `?`. The CSV has it.

    `page_url` is the address of the invoice's page: each line opens its rows there.
    """
    # With its fonts and pictures fpdf takes 40 MB and half a second of each process that imports it.
    from fpdf import FPDF
    from fpdf.enums import XPos, YPos
    from fpdf.fonts import FontFace

    pdf = FPDF(format="A4")
    pdf.set_title(_latin(_title(invoice)))
    pdf.set_creator("Highwater")
    pdf.set_creation_date(invoice.issued_at or invoice.month.start)  # the same invoice, the same file
    pdf.add_page()
    pdf.set_font("Helvetica", "B", 18)
    pdf.cell(0, 12, _latin(_title(invoice)), new_x=XPos.LMARGIN, new_y=YPos.NEXT)
    pdf.set_font("Helvetica", size=10)
    for name, value in _facts(invoice):
        pdf.cell(35, 6, name)
        pdf.cell(0, 6, _latin(value), new_x=XPos.LMARGIN, new_y=YPos.NEXT)
    pdf.ln(4)
    pdf.set_font("Helvetica", size=8)
    with pdf.table(
        col_widths=_WIDTHS,
        text_align=("RIGHT", "LEFT", "RIGHT", "RIGHT", "RIGHT"),
        headings_style=FontFace(emphasis="BOLD"),
        borders_layout="HORIZONTAL_LINES",
    ) as table:
        table.row(("Line", "Cluster and topic", "Quantity", "Rate", f"Amount, {invoice.currency}"))
        for line in invoice.lines[:LINES_MAX]:
            row = table.row()
            row.cell(f"{line.position}")
            row.cell(_latin(_what(line)), link=f"{page_url}lines/{line.position}/", style=FontFace(color=_LINK_COLOR))
            for text in (_quantity(line), _rate(line), exact_text(line.amount)):
                row.cell(text)
        if invoice.exact_total != invoice.total:
            table.row(("", "Sum of the lines", "", "", exact_text(invoice.exact_total)))
        total = table.row(style=FontFace(emphasis="BOLD"))
        for text in ("", "Total", "", "", f"{invoice.total}"):
            total.cell(text)
    pdf.ln(4)
    for words in _notes(invoice):
        pdf.multi_cell(0, 5, _latin(words), new_x=XPos.LMARGIN, new_y=YPos.NEXT)
    return bytes(pdf.output())


def _title(invoice: InvoiceView) -> str:
    return f"Invoice {invoice.number}" if invoice.number else f"Draft for {invoice.month}"


def _facts(invoice: InvoiceView) -> list[tuple[str, str]]:
    facts = [("For", invoice.tenant_name), ("Month", f"{invoice.month} (UTC)")]
    if invoice.issued_at is not None:
        facts.append(("Issued", f"{invoice.issued_at:%Y-%m-%d %H:%M} UTC"))
    if invoice.counted_until is not None:
        facts.append(("Figures until", f"{invoice.counted_until:%Y-%m-%d %H:%M} UTC"))
    return facts


def _notes(invoice: InvoiceView) -> list[str]:
    notes = [
        invoice.rounding_rule,
        "Each line opens its usage rows in the console.",
        *(wait.sentence for wait in invoice.waits),
    ]
    notes += [
        f"Cluster {end['cluster']} is billed by the usage that is known until {end['until']}."
        f" The operator's reason: {end['reason']}"
        for end in invoice.agreed_ends
    ]
    if len(invoice.lines) > LINES_MAX:
        notes.append(f"{len(invoice.lines) - LINES_MAX} more lines are in the CSV; the total has them.")
    if invoice.snapshot_id:
        notes.append(f"Made from snapshot {invoice.snapshot_id} of the metering records.")
    return notes


def _what(line: LineView) -> str:
    words = f"{_WORDS[Direction(line.direction)]}: {line.cluster_name} / {line.topic}"
    return words if line.corrects is None else f"{words}, corrects {line.corrects.number_text}"


def _quantity(line: LineView) -> str:
    if line.direction == Direction.STORAGE:
        return f"{line.bytes / 2**30:,.2f} GiB-hours"
    return f"{exact_text(line.billed_units).removesuffix('.00')} units"


def _rate(line: LineView) -> str:
    per = "GiB-month" if line.direction == Direction.STORAGE else "million units"
    return f"{format(line.rate.normalize(), 'f')} per {per}"


def _latin(text: str) -> str:
    return text.replace("’", "'").encode("latin-1", errors="replace").decode("latin-1")
