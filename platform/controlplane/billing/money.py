"""Amounts: exact while they are counted, rounded once, half up, to the cent of an invoice's total. Pure."""

from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal

CENT = Decimal("0.01")
ZERO = Decimal(0)

# Currencies of two decimals: what is rounded to the cent must have cents.
CURRENCIES: tuple[str, ...] = (
    *("AUD", "BRL", "CAD", "CHF", "CNY", "CZK", "DKK", "EUR", "GBP", "HKD", "ILS", "INR"),
    *("MXN", "NOK", "NZD", "PLN", "RON", "SEK", "SGD", "THB", "TRY", "TWD", "USD", "ZAR"),
)
DEFAULT_CURRENCY = "USD"  # of a new plan, and of a budget where no plan says another

THRESHOLDS_PERCENT = (50, 80, 100)


def to_cents(amount: Decimal) -> Decimal:
    """Return the amount rounded half up to two decimals; a credit like a charge, away from 0. There is no -0.00."""
    return amount.quantize(CENT, rounding=ROUND_HALF_UP) + ZERO


def total_of(lines: Iterable[Decimal]) -> Decimal:
    """Return the invoice's total: the exact sum of its lines, rounded once."""
    return to_cents(sum(lines, start=ZERO))


def exact_text(amount: Decimal) -> str:
    """Return all digits that are not 0, and at least the cents: `1.005`, `0.50`."""
    text = format(amount.normalize(), "f")
    whole, _, digits = text.partition(".")
    return f"{whole}.{digits.ljust(2, '0')}"


def grouped_text(amount: Decimal, digits_min: int = 2) -> str:
    """Return all digits that are not 0, at least so many of them, in groups of three before the point: `1,234.50`."""
    whole, _, digits = exact_text(amount).partition(".")
    sign, whole = ("-", whole[1:]) if whole.startswith("-") else ("", whole)
    return f"{sign}{int(whole):,}.{digits.ljust(digits_min, '0')}"


def thresholds_reached(spent: Decimal, budget: Decimal) -> tuple[int, ...]:
    """Return which of 50, 80 and 100 % of the budget were reached, rising; raises ValueError unless budget > 0."""
    if budget <= 0:
        raise ValueError("a budget is above 0")
    return tuple(percent for percent in THRESHOLDS_PERCENT if spent * 100 >= budget * percent)


def percent_of(spent: Decimal, budget: Decimal) -> int:
    """Return how much of the budget is spent, in whole percent rounded down: 100 means that it is reached."""
    return int(spent * 100 // budget)
