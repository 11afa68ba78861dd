"""How long one client waits, over all its requests, for those who take them and do not answer."""

from __future__ import annotations

from highwater.errors import RequestTimeoutError
from highwater.sentences import say


class Patience:
    """Time that was waited for nothing. An address that left a request unanswered is not asked again; waits at once count once.

    Sans-io: times are seconds of any clock that is never set back.
    """

    def __init__(self, total_ms: float) -> None:
        self._left_s = total_ms / 1000
        self._counted_until_s = 0.0
        self._silent: set[str] = set()

    def timeout_ms(self, address: str, wished_ms: float) -> float:
        """How long a request to this address may take now; raises RequestTimeoutError where it is not to be sent."""
        if address in self._silent:
            raise RequestTimeoutError(
                say("%(address)s left an earlier request unanswered: it was not asked again", address=address)
            )
        if self._left_s <= 0:
            raise RequestTimeoutError(
                say("%(address)s was not asked: others took all the time without an answer", address=address)
            )
        return min(wished_ms, self._left_s * 1000)

    def ran_out(self, address: str, began_s: float, ended_s: float) -> None:
        """A request to this address had no answer in its time."""
        self._silent.add(address)
        self._left_s -= max(0.0, ended_s - max(began_s, self._counted_until_s))
        self._counted_until_s = max(self._counted_until_s, ended_s)
