"""How long one web request, or one Celery task, waits for a cluster's daemons in all: over all clients that it opens, and whether
answers come or not. So a broker that answers everything just before its time limit holds a thread or a worker for so long at most.

Who opens a client takes the budget from here. Without an open one, as in management commands, nothing is counted. A step of an
operation has none either: it polls daemons that are down or slow on purpose, and its task's soft time limit ends it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from celery import Task
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from highwater import WaitBudget

if TYPE_CHECKING:
    _Task = Task[Any, Any]
else:
    _Task = Task

# Of a task's soft time limit: what waits is told so in words before the task is ended.
_SHARE_OF_TASK = 0.8


@dataclass(frozen=True, slots=True)
class _Waits:
    """What is open: how long for each cluster, and what was begun."""

    total_ms: float
    budgets: dict[UUID, WaitBudget] = field(default_factory=dict)


_open: ContextVar[_Waits | None] = ContextVar("waits", default=None)


@contextmanager
def waits_bounded(total_ms: float) -> Iterator[None]:
    """Give the block so long for each cluster, in milliseconds, whatever is open around it."""
    yield from _with(_Waits(total_ms))


@contextmanager
def waits_unbounded() -> Iterator[None]:
    """Count nothing within the block, whatever is open around it: it has a limit of its own."""
    yield from _with(None)


def _with(waits: _Waits | None) -> Iterator[None]:
    token = _open.set(waits)
    try:
        yield
    finally:
        _open.reset(token)


def wait_budget(cluster_id: UUID) -> WaitBudget | None:
    """Return what this request or task has left for the cluster; None where nothing is counted."""
    waits = _open.get()
    return None if waits is None else waits.budgets.setdefault(cluster_id, WaitBudget(waits.total_ms))


class WaitsMiddleware:
    """Gives each request HIGHWATER_REMOTING_TOTAL_MS for each cluster."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        with waits_bounded(settings.HIGHWATER_REMOTING_TOTAL_MS):
            return self.get_response(request)


class BoundedTask(_Task):
    """What tasks are made of: each has four fifths of its soft time limit for each cluster."""

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        soft_limit_s = self.soft_time_limit or self.app.conf.task_soft_time_limit
        if not soft_limit_s:
            return super().__call__(*args, **kwargs)
        with waits_bounded(soft_limit_s * 1000 * _SHARE_OF_TASK):
            return super().__call__(*args, **kwargs)
