"""An invoice as PDF, by fpdf2 (pure Python): the same words and figures as its page, in the language that is active. Pure but for
that, and for its font, which it reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from django.utils.translation import get_language, to_locale

from controlplane.billing.invoices import InvoiceView
from controlplane.billing.lines import LineView
from controlplane.billing.models import Direction
from controlplane.billing.money import grouped_text
from controlplane.common.sentences import in_words, say, say_as, say_count

if TYPE_CHECKING:
    from fpdf import FPDF

_WORDS: Final = {Direction.IN: say("Sent"), Direction.OUT: say("Delivered"), Direction.STORAGE: say("Stored")}
_TITLES: Final = (say_as("number", "Line"), say("Topic"), say("Direction"), say("Quantity"), say("Rate"))
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

# What every PDF reader has, for Latin letters; what we bring, for the others: Chinese (GB 2312), Greek, Cyrillic, kana. Ours has
# Latin letters as well: an invoice in a language of `_WIDE_LANGUAGES` is in it throughout.
_LATIN: Final = "Helvetica"
_WIDE: Final = "NotoSansSC"
_WIDE_LANGUAGES: Final = ("zh-hans",)
_FONT: Final = Path(__file__).parent / "fonts" / "NotoSansSC.ttf"
# Chinese has no blanks: a line may end after each of its letters, but not before a closing mark nor after an opening one.
_OPENING, _CLOSING, _IDEOGRAPH = "（“‘《【", "，。：；、！？）”’》】％", "\u3040-\u30ff\u3400-\u9fff"  # noqa: RUF001  # Chinese marks
_PIECE: Final = re.compile(
    rf"\s*[{_OPENING}]*(?:[{_IDEOGRAPH}]|[^\s{_IDEOGRAPH}{_OPENING}{_CLOSING}]*)[{_CLOSING}]*\s*"
)


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
            # fpdf2 puts the number of pages in place of {nb} when it knows it.
            _cell(self, say("Page %(page)s of %(pages)s", page=self.page_no(), pages="{nb}"), 40, 5, size=8)
            _cell(self, f"{_title(invoice)} · {invoice.tenant_name}", 0, 5, size=8, align="R")
            self.set_text_color(*_BLACK)

    pdf = Document(format="A4")
    pdf.set_title(_title(invoice))
    pdf.set_creator("Highwater")
    pdf.set_lang(to_locale(get_language() or "en").replace("_", "-"))
    pdf.set_creation_date(invoice.issued_at or invoice.month.start)  # the same invoice, the same file
    pdf.set_auto_page_break(True, margin=18)
    pdf.set_draw_color(*_RULE_COLOR)
    if any(_font_of(text) == _WIDE for text in _texts(invoice)):
        pdf.add_font(_WIDE, fname=_FONT)
    return pdf


def _head(pdf: FPDF, invoice: InvoiceView) -> None:
    _cell(pdf, _title(invoice), 0, 10, size=18, is_bold=True, is_last=True)
    if invoice.number is None:
        pdf.set_text_color(*_MUTED_COLOR)
        due = _moment(invoice.due_at)
        _write(
            pdf, say("Not an invoice yet: figures may change until it is issued, from %(moment)s.", moment=due), size=9
        )
        pdf.set_text_color(*_BLACK)
    pdf.ln(2)
    for name, value in _facts(invoice):
        pdf.set_text_color(*_MUTED_COLOR)
        _cell(pdf, name, 30, 5.5, size=9)
        pdf.set_text_color(*_BLACK)
        _write(pdf, value, size=9, height=5.5)
    pdf.set_text_color(*_MUTED_COLOR)
    _cell(pdf, say("Total"), 30, 9, size=9)
    pdf.set_text_color(*_BLACK)
    _cell(pdf, _money(invoice), 0, 9, size=13, is_bold=True, is_last=True)
    pdf.ln(3)


def _lines(pdf: FPDF, invoice: InvoiceView, page_url: str) -> None:
    from fpdf.enums import TableBordersLayout
    from fpdf.fonts import FontFace

    shown = invoice.lines[:LINES_MAX]
    digits = max((_digits(line.amount) for line in invoice.lines), default=2)
    muted, band = FontFace(color=_MUTED_COLOR), FontFace(fill_color=_BAND_COLOR)
    # Its own style, as what is in bold in one language is not in another.
    head = FontFace(color=_MUTED_COLOR)
    pdf.set_font(_font_of(""), size=8)
    with pdf.table(
        col_widths=_WIDTHS,
        text_align=_ALIGNMENTS,
        v_align="TOP",
        line_height=4,
        padding=(0.9, 1.2),
        headings_style=head,
        borders_layout=TableBordersLayout.HORIZONTAL_LINES,
    ) as table:

        def put(row: Any, text: str, style: FontFace | None = None, *, is_bold: bool = False, **how: Any) -> None:
            """Add a cell to the row, in the font that has its letters."""
            shown_text, family = _shown(pdf, text), _font_of(text)
            style = style or FontFace()
            style = FontFace(
                family=family,
                emphasis=_bold(family) if is_bold else None,
                color=style.color,
                fill_color=style.fill_color,
            )
            row.cell(shown_text, style=style, **how)

        row = table.row()
        for title in (*_TITLES, say("Amount, %(currency)s", currency=invoice.currency)):
            put(row, title, head, is_bold=True)
        for heading, of_heading in groupby(shown, _heading):
            lines = list(of_heading)
            row = table.row()
            put(row, heading, band, is_bold=True, colspan=5, align="LEFT")
            put(row, grouped_text(sum((line.amount for line in lines), start=Decimal(0)), digits), band)
            for line in lines:
                row = table.row()
                put(row, f"{line.position}", muted)
                link = f"{page_url}lines/{line.position}/"
                put(row, _what(line), FontFace(color=_LINK_COLOR), link=link)
                put(row, _WORDS[Direction(line.direction)])
                put(row, _quantity(line))
                put(row, _rate(line), muted)
                put(row, grouped_text(line.amount, digits))
        is_rounded = invoice.exact_total != invoice.total
        if is_rounded:
            row = table.row()
            put(row, say("Sum of the lines"), colspan=5, align="LEFT")
            put(row, grouped_text(invoice.exact_total, digits))
        row = table.row()
        total = say("Total, rounded to the cent") if is_rounded else say("Total")
        put(row, total, band, is_bold=True, colspan=4, align="LEFT")
        put(row, _money(invoice), band, is_bold=True, colspan=2, align="RIGHT")


def _title(invoice: InvoiceView) -> str:
    if invoice.number:
        return in_words(say("Invoice %(number)s", number=invoice.number))
    return in_words(say("Draft for %(month)s", month=invoice.month.words))


def _money(invoice: InvoiceView) -> str:
    return f"{grouped_text(invoice.total)} {invoice.currency}"


def _facts(invoice: InvoiceView) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = [
        (say_as("customer", "For"), invoice.tenant_name),
        (say("Month"), say("%(month)s (UTC)", month=invoice.month.words)),
    ]
    if invoice.issued_at is not None:
        facts.append((say("Issued"), _moment(invoice.issued_at)))
    if invoice.counted_until is not None:
        facts.append((say("Figures until"), _moment(invoice.counted_until)))
    return facts


def _notes(invoice: InvoiceView) -> list[str]:
    notes = [invoice.rounding_rule]
    if invoice.adjustments:
        notes.append(say("An adjustment is what the earlier month’s rows sum to now, less what was invoiced for them."))
    notes += [say("Each line opens its usage rows in the console."), *(wait.sentence for wait in invoice.waits)]
    notes += [
        say(
            "Cluster %(cluster_name)s is billed by the usage that is known until %(until)s UTC. The operator’s reason: %(reason)s",
            cluster_name=end["cluster"],
            until=_moment(datetime.fromisoformat(end["until"])).removesuffix(" UTC"),
            reason=end["reason"],
        )
        for end in invoice.agreed_ends
    ]
    if left := lines_left_words(invoice):
        notes.append(left)
    if invoice.snapshot_id:
        notes.append(say("Made from snapshot %(snapshot)s of the metering records.", snapshot=invoice.snapshot_id))
    return notes


def lines_left_words(invoice: InvoiceView) -> str:
    """Return how many lines are left out beyond LINES_MAX, in a sentence; empty when none is."""
    if (left := len(invoice.lines) - LINES_MAX) <= 0:
        return ""
    return say_count(
        "%(count)s more line is in the CSV; the total has it.",
        "%(count)s more lines are in the CSV; the total has them.",
        left,
    )


def _heading(line: LineView) -> str:
    if line.corrects is None:
        return say("Cluster %(name)s", name=line.cluster_name)
    return say("Adjustments of earlier invoices")


def _what(line: LineView) -> str:
    if line.corrects is None:
        return line.topic
    return say(
        "%(cluster)s / %(topic)s, corrects %(number)s",
        cluster=line.cluster_name,
        topic=line.topic,
        number=line.corrects.number_text,
    )


def _quantity(line: LineView) -> str:
    if line.direction == Direction.STORAGE:
        return say("%(count)s GiB-hours", count=f"{line.bytes / 2**30:,.2f}")
    return say("%(count)s units", count=grouped_text(line.billed_units).removesuffix(".00"))


def _rate(line: LineView) -> str:
    if line.direction == Direction.STORAGE:
        return say("%(rate)s per GiB-month", rate=grouped_text(line.rate))
    return say("%(rate)s per million units", rate=grouped_text(line.rate))


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _digits(amount: Decimal) -> int:
    """How many digits after the point its shortest text has."""
    exponent = amount.normalize().as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0


# -- letters


def _texts(invoice: InvoiceView) -> Iterable[str]:
    """All words of the language, and everything that someone has named or written."""
    yield _title(invoice)
    yield invoice.tenant_name
    yield from _notes(invoice)
    for line in invoice.lines[:LINES_MAX]:
        yield line.cluster_name
        yield line.topic


def _cell(
    pdf: FPDF,
    text: str,
    width: float,
    height: float,
    *,
    size: float,
    is_bold: bool = False,
    is_last: bool = False,
    align: str = "L",
) -> None:
    """A text in one line; the last one of its line is followed by the next line."""
    family = _font_of(text)
    pdf.set_font(family, "B" if is_bold and _bold(family) else "", size)
    pdf.cell(
        width,
        height,
        _shown(pdf, text),
        align=align,
        new_x="LMARGIN" if is_last else "RIGHT",
        new_y="NEXT" if is_last else "TOP",
    )


def _write(pdf: FPDF, text: str, *, size: float, height: float = 5) -> None:
    """A paragraph from here to the right margin."""
    family = _font_of(text)
    pdf.set_font(family, size=size)
    shown = _shown(pdf, text)
    if family == _WIDE:
        shown = broken(shown, pdf.epw + pdf.l_margin - pdf.x - 2 * pdf.c_margin, pdf.get_string_width)
    pdf.multi_cell(0, height, shown, align="L", new_x="LMARGIN", new_y="NEXT")


def broken(text: str, width: float, width_of: Callable[[str], float]) -> str:
    """Return the text with line breaks where a Chinese reader expects them; what can't be broken may be wider."""
    lines = [""]
    for piece in _PIECE.findall(text):
        if lines[-1] and width_of((lines[-1] + piece).rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.strip() for line in lines)


def _font_of(text: str) -> str:
    is_latin = get_language() not in _WIDE_LANGUAGES and _is_latin(_plain(text))
    return _LATIN if is_latin else _WIDE


def _bold(family: str) -> Any:
    """Ours has no bold letters."""
    return "BOLD" if family == _LATIN else None


def _shown(pdf: FPDF, text: str) -> str:
    """The text in the language of the invoice, without what its font can't show."""
    if _font_of(text) == _LATIN:
        return _plain(text)
    font = pdf.fonts[_WIDE.lower()]
    known: Collection[int] = getattr(font, "cmap", ())
    return "".join(letter if ord(letter) in known else "?" for letter in _plain(text))


def _plain(text: str) -> str:
    """The text in the language of the invoice. Its apostrophes are what Latin-1 has; the Chinese one is as wide as a letter."""
    return in_words(text) if get_language() in _WIDE_LANGUAGES else in_words(text).replace("’", "'")


def _is_latin(text: str) -> bool:
    try:
        text.encode("latin-1")
    except UnicodeEncodeError:
        return False
    return True
