"""Orders: the steps of an operation as generators, which the Celery steps and the simulation both carry out. Pure.

An order yields a request, is sent the answer, and returns what it has come to; it raises StepNotReady to be run again from its
beginning, and StepFailed. It is so written that it may be run again, by another worker or by two at once: what is done is not
asked for again, and nothing is decided by memory, but by what replicas say and rows remember.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Look:
    """Ask every replica of the group, and note what they say. Answered by a GroupView."""


@dataclass(frozen=True, slots=True)
class LookClosely:
    """Ask these only, and note nothing. Answered by the ReplicaStatus of each, None of one that does not answer."""

    replica_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for a moment. Answered by whether less than `until_s` have passed since what is waited for was asked for."""

    pause_s: float
    until_s: float


def carried_out(order: Generator[Any, Any, Result], carry_out: Callable[[Any], object]) -> Result:
    """Run an order to its end, each of its requests by `carry_out`; what that raises ends it."""
    answer: object = None
    while True:
        try:
            request = order.send(answer)
        except StopIteration as ended:
            result: Result = ended.value
            return result
        answer = carry_out(request)
