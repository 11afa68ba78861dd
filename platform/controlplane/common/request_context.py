"""What is known about the request that is being served: its id, its address and its browser. Empty outside requests."""

from contextvars import ContextVar
from dataclasses import dataclass


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
