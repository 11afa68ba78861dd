"""What a new page must not forget: someone has looked at it, or there is a reason why no one has to."""

from __future__ import annotations

import ast
from pathlib import Path

from django.urls import resolve

from tests.console.looks import EXCUSED, LOOKED_AT
from tests.console.test_console_access import addresses
from tests.console.world import World

TESTS = Path(__file__).parent


def pages(world: World) -> set[str]:
    """The views below /t/<tenant>/ that answer a GET with a whole page, be it a problem's.

    A 405 is no page of the view: it says that the address is one that a form is sent to.
    """
    client = world.client(world.alice)
    found = set()
    for address in addresses(world):
        answer = client.get(address)
        whole = answer.headers.get("Content-Type", "").startswith("text/html") and b"<html" in answer.content
        if whole and answer.status_code != 405:
            found.add(str(resolve(address).url_name))
    return found


def test_every_page_of_a_tenant_is_looked_at_or_excused(world: World) -> None:
    shown = pages(world)
    assert shown - LOOKED_AT.keys() - EXCUSED.keys() == set(), "look at each, and name it in looks.py"
    assert (LOOKED_AT.keys() | EXCUSED.keys()) - shown == set(), "no page has these views"
    assert LOOKED_AT.keys() & EXCUSED.keys() == set()


def test_every_picture_that_is_promised_is_taken() -> None:
    texts: set[str] = set()
    for path in TESTS.glob("test_*.py"):
        source = path.read_text(encoding="utf-8")
        if "look_at(" in source:
            texts |= {
                node.value
                for node in ast.walk(ast.parse(source))
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            }
    assert set(LOOKED_AT.values()) - texts == set()
