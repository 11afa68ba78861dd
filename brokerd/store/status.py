"""Whether the store may be written to. One object, shared by the store's parts; set from any thread, never unset."""

from __future__ import annotations

from brokerd.store.errors import StoreClosedError, StoreReadOnlyError


class StoreStatus:
    """Invariant: once `refusal` is anything but "not open", it stays until the store is closed."""

    __slots__ = ("refusal",)

    def __init__(self) -> None:
        self.refusal: StoreReadOnlyError | None = StoreClosedError("the store is not open")

    def opened(self) -> None:
        self.refusal = None

    def latch(self, error: StoreReadOnlyError) -> StoreReadOnlyError:
        """Refuse every later append for this reason, unless there is an earlier one; returns the one that counts."""
        if self.refusal is None or isinstance(self.refusal, StoreClosedError):
            self.refusal = error
        return self.refusal

    def check(self) -> None:
        """Raises the reason for which nothing may be written."""
        if self.refusal is not None:
            raise self.refusal.with_traceback(None)
