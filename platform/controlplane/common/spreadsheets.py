"""Text for CSV files that people open in spreadsheets."""


def spreadsheet_text(value: str) -> str:
    """Return text that no spreadsheet takes for a formula: names are typed by tenants."""
    return f"'{value}" if value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
