"""`./dev sim`: an option that would change nothing is refused, with a word on what to do."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.sim.__main__ import main


@pytest.fixture(autouse=True)
def loud_again() -> Iterator[None]:
    """The command is for a process of its own, and silences it."""
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--jobs 0", "--jobs must be at least 1"),
        ("--planted-bugs --flush async --jobs 2", "leave out --flush and --jobs"),
        ("--planted-bugs --table", "leave out --table"),
        ("--planted-bugs --no-promotions", "leave out --no-promotions"),
        ("--bug vote", "give --planted-bugs, too"),
        ("--table --flush async", "leave out --flush"),
        ("--no-promotions --mode dledger", "give --mode async or --mode sync"),
        ("--no-promotions --table", "give --mode async or --mode sync"),
    ],
)
def test_an_option_without_effect_is_refused(arguments: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments.split())
    assert refused.value.code == 2
    assert says in capsys.readouterr().err


def test_a_table_may_be_of_one_mode(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--table", "--mode", "single", "--seeds", "1", "--jobs", "1"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| single |")]
    assert [row.split(" | ")[1] for row in rows] == ["sync", "async"]
