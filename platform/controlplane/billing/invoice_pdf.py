"""An invoice as PDF, by fpdf2 (pure Python): the same words and figures as its page. Pure but for its font, which it reads."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from controlplane.billing.invoices import InvoiceView
from controlplane.billing.lines import LineView
from controlplane.billing.models import Direction
from controlplane.billing.money import grouped_text

if TYPE_CHECKING:
    from fpdf import FPDF

_WORDS: Final = {Direction.IN: "Sent", Direction.OUT: "Delivered", Direction.STORAGE: "Stored"}
_WIDTHS: Final = (9, 64, 18, 34, 34, 31)
_ALIGNMENTS: Final = ("RIGHT", "LEFT", "LEFT", "RIGHT", "RIGHT", "RIGHT")
# A file of any size is no invoice that anyone reads: the rest is in the CSV.
LINES_MAX: Final = 2000

# Of what opens something; of what is beside the point; of rules; of a row that heads others.
_LINK_COLOR: Final = (24, 84, 160)
_MUTED_COLOR: Final = (95, 99, 104)
_RULE_COLOR: Final = (205, 208, 212)
_BAND_COLOR: Final = (241, 243, 245)
_BLACK: Final = (0, 0, 0)

# What every PDF reader has, for Latin letters; what we bring, for the others: Chinese (GB 2312), Greek, Cyrillic, kana.
_LATIN: Final = "Helvetica"
_WIDE: Final = "NotoSansSC"
_FONT: Final = Path(__file__).parent / "fonts" / "NotoSansSC.ttf"


def invoice_pdf(invoice: InvoiceView, page_url: str) -> bytes:
    """Return the file; what neither of its fonts has is shown as `?`. The CSV has it.

    `page_url` is the address of the invoice's page: each line opens its rows there.
    """
    pdf = _document(invoice)
    pdf.add_page()
    _head(pdf, invoice)
    _lines(pdf, invoice, page_url)
    pdf.ln(5)
    pdf.set_text_color(*_MUTED_COLOR)
    for words in _notes(invoice):
        _write(pdf, words, size=8, height=4.5)
        pdf.ln(1)
    return bytes(pdf.output())


def _document(invoice: InvoiceView) -> FPDF:
    # With its fonts and pictures fpdf takes 40 MB and half a second of each process that imports it.
    from fpdf import FPDF

    class Document(FPDF):
        def footer(self) -> None:
            self.set_y(-13)
            self.set_text_color(*_MUTED_COLOR)
            self.set_font(_LATIN, size=8)
            self.cell(40, 5, f"Page {self.page_no()} of {{nb}}", align="L")
            self.set_font(_font_of(f"{_title(invoice)} · {invoice.tenant_name}"), size=8)
            self.cell(0, 5, _shown(self, f"{_title(invoice)} · {invoice.tenant_name}"), align="R")
            self.set_text_color(*_BLACK)

    pdf = Document(format="A4")
    pdf.set_title(_title(invoice))
    pdf.set_creator("Highwater")
    pdf.set_creation_date(invoice.issued_at or invoice.month.start)  # the same invoice, the same file
    pdf.set_auto_page_break(True, margin=18)
    pdf.set_draw_color(*_RULE_COLOR)
    if any(_font_of(text) == _WIDE for text in _texts(invoice)):
        pdf.add_font(_WIDE, fname=_FONT)
    return pdf


def _head(pdf: FPDF, invoice: InvoiceView) -> None:
    from fpdf.enums import XPos, YPos

    pdf.set_font(_LATIN, "B", 18)
    pdf.cell(0, 10, _title(invoice), new_x=XPos.LMARGIN, new_y=YPos.NEXT)
    if invoice.number is None:
        pdf.set_text_color(*_MUTED_COLOR)
        _write(
            pdf, f"Not an invoice yet: figures may change until it is issued, from {_moment(invoice.due_at)}.", size=9
        )
        pdf.set_text_color(*_BLACK)
    pdf.ln(2)
    for name, value in _facts(invoice):
        pdf.set_font(_LATIN, size=9)
        pdf.set_text_color(*_MUTED_COLOR)
        pdf.cell(30, 5.5, name)
        pdf.set_text_color(*_BLACK)
        _write(pdf, value, size=9, height=5.5)
    pdf.set_font(_LATIN, size=9)
    pdf.set_text_color(*_MUTED_COLOR)
    pdf.cell(30, 9, "Total")
    pdf.set_text_color(*_BLACK)
    pdf.set_font(_LATIN, "B", 13)
    pdf.cell(0, 9, _money(invoice), new_x=XPos.LMARGIN, new_y=YPos.NEXT)
    pdf.ln(3)


def _lines(pdf: FPDF, invoice: InvoiceView, page_url: str) -> None:
    from fpdf.enums import TableBordersLayout
    from fpdf.fonts import FontFace

    shown = invoice.lines[:LINES_MAX]
    digits = max((_digits(line.amount) for line in invoice.lines), default=2)
    link, muted = FontFace(color=_LINK_COLOR), FontFace(color=_MUTED_COLOR)
    bold = FontFace(emphasis="BOLD", fill_color=_BAND_COLOR)
    pdf.set_font(_LATIN, size=8)
    with pdf.table(
        col_widths=_WIDTHS,
        text_align=_ALIGNMENTS,
        v_align="TOP",
        line_height=4,
        padding=(0.9, 1.2),
        headings_style=FontFace(emphasis="BOLD", color=_MUTED_COLOR),
        borders_layout=TableBordersLayout.HORIZONTAL_LINES,
    ) as table:
        table.row(("Line", "Topic", "Direction", "Quantity", "Rate", f"Amount, {invoice.currency}"))
        for heading, of_heading in groupby(shown, _heading):
            lines = list(of_heading)
            row = table.row(style=FontFace(fill_color=_BAND_COLOR))
            row.cell(
                _shown(pdf, heading),
                colspan=5,
                align="LEFT",
                style=FontFace(family=_font_of(heading), emphasis=_bold(heading)),
            )
            row.cell(grouped_text(sum((line.amount for line in lines), start=Decimal(0)), digits))
            for line in lines:
                row = table.row()
                row.cell(f"{line.position}", style=muted)
                topic = _what(line)
                opens = FontFace(color=_LINK_COLOR, family=_font_of(topic)) if _font_of(topic) != _LATIN else link
                row.cell(_shown(pdf, topic), link=f"{page_url}lines/{line.position}/", style=opens)
                row.cell(_WORDS[Direction(line.direction)])
                row.cell(_quantity(line))
                row.cell(_rate(line), style=muted)
                row.cell(grouped_text(line.amount, digits))
        if invoice.exact_total != invoice.total:
            row = table.row()
            row.cell("Sum of the lines", colspan=5, align="LEFT")
            row.cell(grouped_text(invoice.exact_total, digits))
        row = table.row(style=bold)
        row.cell(
            "Total, rounded to the cent" if invoice.exact_total != invoice.total else "Total", colspan=4, align="LEFT"
        )
        row.cell(_money(invoice), colspan=2, align="RIGHT")


def _title(invoice: InvoiceView) -> str:
    return f"Invoice {invoice.number}" if invoice.number else f"Draft for {invoice.month.start:%B %Y}"


def _money(invoice: InvoiceView) -> str:
    return f"{grouped_text(invoice.total)} {invoice.currency}"


def _facts(invoice: InvoiceView) -> list[tuple[str, str]]:
    facts = [("For", invoice.tenant_name), ("Month", f"{invoice.month.start:%B %Y} (UTC)")]
    if invoice.issued_at is not None:
        facts.append(("Issued", _moment(invoice.issued_at)))
    if invoice.counted_until is not None:
        facts.append(("Figures until", _moment(invoice.counted_until)))
    return facts


def _notes(invoice: InvoiceView) -> list[str]:
    notes = [invoice.rounding_rule]
    if invoice.adjustments:
        notes.append("An adjustment is what the earlier month’s rows sum to now, less what was invoiced for them.")
    notes += ["Each line opens its usage rows in the console.", *(wait.sentence for wait in invoice.waits)]
    notes += [
        f"Cluster {end['cluster']} is billed by the usage that is known until {_moment(datetime.fromisoformat(end['until']))}."
        f" The operator’s reason: {end['reason']}"
        for end in invoice.agreed_ends
    ]
    if len(invoice.lines) > LINES_MAX:
        notes.append(f"{len(invoice.lines) - LINES_MAX} more lines are in the CSV; the total has them.")
    if invoice.snapshot_id:
        notes.append(f"Made from snapshot {invoice.snapshot_id} of the metering records.")
    return notes


def _heading(line: LineView) -> str:
    return f"Cluster {line.cluster_name}" if line.corrects is None else "Adjustments of earlier invoices"


def _what(line: LineView) -> str:
    if line.corrects is None:
        return line.topic
    return f"{line.cluster_name} / {line.topic}, corrects {line.corrects.number_text}"


def _quantity(line: LineView) -> str:
    if line.direction == Direction.STORAGE:
        return f"{line.bytes / 2**30:,.2f} GiB-hours"
    return f"{grouped_text(line.billed_units).removesuffix('.00')} units"


def _rate(line: LineView) -> str:
    per = "GiB-month" if line.direction == Direction.STORAGE else "million units"
    return f"{grouped_text(line.rate)} per {per}"


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _digits(amount: Decimal) -> int:
    """How many digits after the point its shortest text has."""
    exponent = amount.normalize().as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0


# -- letters


def _texts(invoice: InvoiceView) -> Iterable[str]:
    """Everything that someone has named or written."""
    yield invoice.tenant_name
    yield from _notes(invoice)
    for line in invoice.lines[:LINES_MAX]:
        yield line.cluster_name
        yield line.topic


def _write(pdf: FPDF, text: str, *, size: float, height: float = 5) -> None:
    """A paragraph from here to the right margin."""
    pdf.set_font(_font_of(text), size=size)
    pdf.multi_cell(0, height, _shown(pdf, text), align="L", new_x="LMARGIN", new_y="NEXT")


def _font_of(text: str) -> str:
    return _LATIN if _is_latin(_plain(text)) else _WIDE


def _bold(text: str) -> Any:
    """Ours has no bold letters."""
    return "BOLD" if _font_of(text) == _LATIN else None


def _shown(pdf: FPDF, text: str) -> str:
    """The text without what its font can't show."""
    plain = _plain(text)
    if _is_latin(plain):
        return plain
    font = pdf.fonts[_WIDE.lower()]
    known: Collection[int] = getattr(font, "cmap", ())
    return "".join(letter if ord(letter) in known else "?" for letter in plain)


def _plain(text: str) -> str:
    return text.replace("’", "'")


def _is_latin(text: str) -> bool:
    try:
        text.encode("latin-1")
    except UnicodeEncodeError:
        return False
    return True
