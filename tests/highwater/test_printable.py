"""What others wrote does not act on the terminal that it is printed on."""

from __future__ import annotations

import json

import pytest

from highwater._cli_output import print_table
from highwater.printable import printable_json, visible

ESCAPES = "\x1b]52;c;eA==\x07 \x9b2J \x7f"


def test_control_characters_are_spelled_out() -> None:
    assert visible(ESCAPES) == "\\x1b]52;c;eA==\\x07 \\x9b2J \\x7f"


def test_line_ends_tabs_and_all_that_is_shown_stay() -> None:
    assert visible("grüße\n\t消息") == "grüße\n\t消息"


@pytest.mark.parametrize("indent", [None, 2])
def test_json_has_them_escaped_and_reads_as_before(indent: int | None) -> None:
    text = printable_json({"tags": ESCAPES, "name": "grüße"}, indent)
    assert visible(text) == text
    assert json.loads(text) == {"tags": ESCAPES, "name": "grüße"}


def test_a_table_shows_them_spelled_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["tags"], [[ESCAPES]])
    out = capsys.readouterr().out
    assert visible(out) == out
    assert "\\x1b]52" in out
