"""A consumer group's name in an address."""

from django.urls import register_converter


class GroupNameConverter:
    """`%` and `|` come percent-encoded, and are decoded before this matches."""

    regex = r"[%|a-zA-Z0-9_-]{1,255}"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


register_converter(GroupNameConverter, "consumer_group")
