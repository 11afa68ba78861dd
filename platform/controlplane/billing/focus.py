"""A month's usage as cost and usage rows of FOCUS 1.2 (FinOps Open Cost and Usage Specification), in CSV. Pure.

A row is what one price made of one topic of one cluster in one direction on one UTC day. Costs are exact: an invoice rounds its
total once, and no row. There are no discounts and no commitments: list, contracted and effective cost are the billed cost.

Of the 137 rules that FinOps' own validator (focus-validator 2, for Python 3.12) applies to this, it finds one broken whatever is
written: InvoiceId must be null (C-004) and must not be null (C-005), as it can't see whether there is an invoice.
"""

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from controlplane.billing.models import Direction
from controlplane.billing.periods import Month
from controlplane.common.spreadsheets import spreadsheet_text

PROVIDER = "Highwater"
MILLION = Decimal(1_000_000)
_GIB = Decimal(2**30)


@dataclass(frozen=True, slots=True)
class FocusRow:
    """One day of one topic, as it was metered and priced."""

    day: datetime
    cluster_id: str
    cluster_name: str
    direction: str
    topic: str
    billed_units: Decimal
    byte_hours: int
    price_id: str
    rate: Decimal
    currency: str
    amount: Decimal
    invoice: str
    tags: str = "{}"


@dataclass(frozen=True, slots=True)
class Account:
    """Who pays: the tenant."""

    id: str
    name: str


_SERVICES = {
    Direction.IN: ("Messages sent", "Units"),
    Direction.OUT: ("Messages delivered", "Units"),
    Direction.STORAGE: ("Message storage", "GiB-Hours"),
}


def focus_csv(account: Account, month: Month, rows: Iterable[FocusRow]) -> str:
    """Return a header and a record for each row; without rows, the header alone."""
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, fieldnames=COLUMNS, lineterminator="\r\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(focus_record(account, month, row))
    return out.getvalue()


def focus_record(account: Account, month: Month, row: FocusRow) -> dict[str, str]:
    """Return the columns of one row, as text; an empty text is null. No name is taken for a formula."""
    words, unit = _SERVICES[Direction(row.direction)]
    stored = row.direction == Direction.STORAGE
    consumed = Decimal(row.byte_hours) / _GIB if stored else row.billed_units
    pricing = consumed / month.hours if stored else consumed / MILLION
    cost = _text(row.amount)
    sku = f"{row.direction}-messages"
    return {
        **dict.fromkeys(COLUMNS, ""),
        "BilledCost": cost,
        "BillingAccountId": account.id,
        "BillingAccountName": spreadsheet_text(account.name),
        "BillingAccountType": "Tenant",
        "BillingCurrency": row.currency,
        "BillingPeriodEnd": _time(month.end),
        "BillingPeriodStart": _time(month.start),
        "ChargeCategory": "Usage",
        "ChargeDescription": f"{words} of topic {row.topic} in cluster {row.cluster_name}",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodEnd": _time(row.day + timedelta(days=1)),
        "ChargePeriodStart": _time(row.day),
        "ConsumedQuantity": _text(consumed),
        "ConsumedUnit": unit,
        "ContractedCost": cost,
        "ContractedUnitPrice": _text(row.rate),
        "EffectiveCost": cost,
        "InvoiceId": row.invoice,
        "InvoiceIssuerName": PROVIDER,
        "ListCost": cost,
        "ListUnitPrice": _text(row.rate),
        "PricingCategory": "Standard",
        "PricingCurrency": row.currency,
        "PricingQuantity": _text(pricing),
        "PricingUnit": "GiB-Months" if stored else "1000000 Units",
        "ProviderName": PROVIDER,
        "PublisherName": PROVIDER,
        "ResourceId": f"{row.cluster_id}/{row.topic}",
        "ResourceName": spreadsheet_text(row.topic),
        "ResourceType": "Topic",
        "ServiceCategory": "Integration",
        "ServiceName": PROVIDER,
        "ServiceSubcategory": "Messaging",
        "SkuId": sku,
        "SkuMeter": words,
        "SkuPriceId": f"{sku}-{row.price_id}",
        "SubAccountId": row.cluster_id,
        "SubAccountName": spreadsheet_text(row.cluster_name),
        "SubAccountType": "Cluster",
        "Tags": row.tags,
    }


COLUMNS = (
    *(
        "AvailabilityZone",
        "BilledCost",
        "BillingAccountId",
        "BillingAccountName",
        "BillingAccountType",
        "BillingCurrency",
    ),
    *(
        "BillingPeriodEnd",
        "BillingPeriodStart",
        "ChargeCategory",
        "ChargeClass",
        "ChargeDescription",
        "ChargeFrequency",
    ),
    *(
        "ChargePeriodEnd",
        "ChargePeriodStart",
        "ConsumedQuantity",
        "ConsumedUnit",
        "ContractedCost",
        "ContractedUnitPrice",
    ),
    *(
        "EffectiveCost",
        "InvoiceId",
        "InvoiceIssuerName",
        "ListCost",
        "ListUnitPrice",
        "PricingCategory",
        "PricingCurrency",
    ),
    *("PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "RegionId", "RegionName", "ResourceId"),
    *("ResourceName", "ResourceType", "ServiceCategory", "ServiceName", "ServiceSubcategory", "SkuId", "SkuMeter"),
    *("SkuPriceDetails", "SkuPriceId", "SubAccountId", "SubAccountName", "SubAccountType", "Tags"),
)


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _text(value: Decimal) -> str:
    return format(value.normalize(), "f") if value else "0"
