"""Whole programs against the stock clients; the console's first programs are such ones, and tests/console runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.stock import ProgramFailed, run_go


def test_a_program_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(ProgramFailed, match="no such luck"):
        run_go('package main\n\nfunc main() { panic("no such luck") }\n', tmp_path)
