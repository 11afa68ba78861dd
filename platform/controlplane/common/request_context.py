"""What is known about the request that is being served: its id, its address and its browser. Empty outside requests."""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from django.conf import settings


@dataclass(frozen=True, slots=True)
class RequestContext:
    """`request_id` is empty and `address` None outside a request."""

    request_id: str = ""
    address: str | None = None
    user_agent: str = ""


_current: ContextVar[RequestContext] = ContextVar("request_context", default=RequestContext())  # noqa: B039  # frozen


def current_request_context() -> RequestContext:
    """Return the context of the request that this thread serves."""
    return _current.get()


def set_request_context(context: RequestContext) -> None:
    """Set by RequestContextMiddleware at the start of a request, and emptied at its end."""
    _current.set(context)


def address_of(meta: Mapping[str, Any]) -> str | None:
    """Return who asks: behind proxies of ours, whom the outermost of them was asked by. A client's own word does not count."""
    proxies = settings.ALLAUTH_TRUSTED_PROXY_COUNT
    named = meta.get("HTTP_X_FORWARDED_FOR", "").split(",")
    if proxies and len(named) >= proxies:
        try:
            return str(ip_address(named[-proxies].strip()))
        except ValueError:
            pass
    return meta.get("REMOTE_ADDR") or None
