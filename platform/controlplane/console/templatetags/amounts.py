"""How amounts and counts of billing look on a page."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Literal

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext

from controlplane.billing.money import CENT, exact_text, to_cents
from controlplane.console.templatetags.console import unknown

register = template.Library()


def money_words(amount: Decimal, currency: str) -> str:
    """Return an amount to the cent: `1\u202f234.50 EUR`; what rounds to nothing and isn't says so: `< 0.01 EUR`."""
    cents = to_cents(amount)
    if amount and not cents:
        return f"< {CENT} {currency}" if amount > 0 else f"> -{CENT} {currency}"
    return f"{cents:,} {currency}".replace(",", "\u202f")


@register.simple_tag
def money(amount: Decimal | None, currency: str | None) -> SafeString:
    """Show an amount to the cent, its exact value in the title; the mark of the unknown for None."""
    if amount is None or currency is None:
        return unknown()
    return format_html(
        '<span class="amount" title="{}">{}</span>',
        gettext("exactly %(amount)s %(currency)s") % {"amount": format(amount.normalize(), "f"), "currency": currency},
        money_words(amount, currency),
    )


@register.filter
def exact(value: Decimal | Literal[""] | None) -> str | SafeString:
    """Return a decimal with all of its digits, thin separators as in `number`, and no zeros at its end."""
    return unknown() if value is None or value == "" else format(value.normalize(), ",f").replace(",", "\u202f")


@register.filter
def all_digits(amount: Decimal | Literal[""] | None) -> str | SafeString:
    """Return an amount of money with all of its digits, and at least the cents: a line's."""
    return unknown() if amount is None or amount == "" else exact_text(amount)


@register.filter
def moment(text: str) -> datetime:
    """Return the time of an RFC 3339 text, as it is kept with an issued invoice."""
    return datetime.fromisoformat(text).astimezone(UTC)


@register.filter
def gib_hours(byte_hours: int | Literal[""] | None) -> str | SafeString:
    """Return byte-hours as GiB-hours: `1.25 GiB·h`; what is less than a hundredth of one says so. Below 0: a credit."""
    if byte_hours is None or byte_hours == "":
        return unknown()
    value = byte_hours / 2**30
    if byte_hours and abs(value) < 0.01:
        return "< 0.01 GiB·h" if value > 0 else "> -0.01 GiB·h"
    return "0" if byte_hours == 0 else f"{value:,.2f} GiB·h".replace(",", "\u202f")
