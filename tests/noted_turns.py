"""Notes whose turns a server waits for, and whose time it counts."""

from __future__ import annotations

import pytest

from mqwire.turns import Share, ShareOfAddress, Shares


def turns_noted(monkeypatch: pytest.MonkeyPatch, shares: Shares) -> list[str]:
    """What is done with these shares from now on: `turn of a stranger`, `time of an account` and the like, in order."""
    noted: list[str] = []

    def note(of: type[Share | ShareOfAddress], name: str) -> None:
        turn, spend = of.turn, of.spend

        async def turned(share: Share | ShareOfAddress) -> None:
            if share is not shares._strangers:  # which those of addresses ask
                noted.append(f"turn of {name}")
            await turn(share)  # type: ignore[arg-type] # it is of that type

        def spent(share: Share | ShareOfAddress, seconds: float) -> None:
            if share is not shares._strangers:
                noted.append(f"time of {name}")
            spend(share, seconds)  # type: ignore[arg-type] # it is of that type

        monkeypatch.setattr(of, "turn", turned)
        monkeypatch.setattr(of, "spend", spent)

    note(Share, "an account")
    note(ShareOfAddress, "a stranger")
    return noted
