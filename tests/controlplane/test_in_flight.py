"""A caller's flood of requests leaves a thread to others, and few requests are never refused."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from django.http import HttpResponse
from django.test import RequestFactory

from controlplane.common import in_flight
from controlplane.common.in_flight import InFlight, InFlightMiddleware
from controlplane.common.request_context import RequestContext, set_request_context

THREADS = 4
FEW = 10


@dataclass
class Clock:
    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


def enter(stack: ExitStack, flights: InFlight, *callers: str) -> bool:
    return stack.enter_context(flights.place([(caller, FEW) for caller in callers]))


def flood(flights: InFlight, *callers: str) -> None:
    """So many that are served at once that the caller sends many."""
    for _ in range(FEW):
        with flights.place([(caller, FEW) for caller in callers]) as had:
            assert had


def test_few_requests_may_have_all_threads() -> None:
    flights = InFlight(THREADS, Clock())
    with ExitStack() as stack:
        assert [enter(stack, flights, "alice") for _ in range(THREADS)] == [True] * THREADS


def test_of_many_at_once_those_that_would_take_the_last_thread_are_refused_until_one_has_ended() -> None:
    flights = InFlight(THREADS, Clock())
    flood(flights, "alice")
    with ExitStack() as stack:
        for _ in range(THREADS - 2):
            assert enter(stack, flights, "alice")
        with flights.place([("alice", FEW)]) as had:
            assert had
            assert not enter(stack, flights, "alice")
            assert enter(stack, flights, "bob")
        assert enter(stack, flights, "alice")


def test_many_in_a_row_are_served() -> None:
    flights = InFlight(THREADS, Clock())
    for _ in range(10):
        flood(flights, "alice")


def test_who_made_up_tokens_is_known_by_its_address() -> None:
    flights = InFlight(THREADS, Clock())
    for number in range(FEW):
        flood(flights, f"token-{number}", "192.0.2.1")
    with ExitStack() as stack:
        taken = [enter(stack, flights, f"new-{number}", "192.0.2.1") for number in range(THREADS)]
    assert taken == [True] * (THREADS - 1) + [False]


def test_what_was_sent_a_while_ago_counts_no_more_and_is_forgotten() -> None:
    clock = Clock()
    flights = InFlight(THREADS, clock)
    flood(flights, "alice")
    clock.now_s += in_flight.WINDOW_S + 1
    with ExitStack() as stack:
        assert [enter(stack, flights, "alice") for _ in range(THREADS)] == [True] * THREADS
    clock.now_s += in_flight.WINDOW_S + 1
    with ExitStack() as stack:
        enter(stack, flights, "bob")
    assert list(flights._callers) == ["bob"]


@pytest.mark.parametrize(("path", "kind"), [("/api/v1/tenants/", "application/problem+json"), ("/t/", "text/html")])
def test_a_refusal_says_when_to_come_again(path: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    full = InFlight(1)
    monkeypatch.setattr(in_flight, "_in_flight", full)
    monkeypatch.setattr(in_flight, "FEW_OF_ADDRESS", 0)
    set_request_context(RequestContext("id", "192.0.2.1"))
    middleware = InFlightMiddleware(lambda request: HttpResponse("served"))
    with full.place([("address:192.0.2.1", 5)]):
        answer = middleware(RequestFactory().get(path))
        assert middleware(RequestFactory().get("/static/css/base.css")).status_code == 200
    set_request_context(RequestContext())
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "1")
    assert answer.headers["Content-Type"].startswith(kind)
