"""What a new page must not forget: someone has looked at it, or there is a reason why no one has to."""

from __future__ import annotations

import ast
from pathlib import Path
from unittest.mock import patch

from django.test import Client
from django.urls import resolve

from controlplane.console.views import operator_machine
from tests.console.looks import ERROR_PAGES, EXCUSED, LOOKED_AT
from tests.console.test_console_access import addresses
from tests.console.test_console_matrix import ABSENT, OPEN, OWN, address_of, operator_addresses
from tests.console.world import PASSWORD, World
from tests.controlplane.driver_twin import DriverTwin

TESTS = Path(__file__).parent
TEMPLATES = TESTS.parents[1] / "web" / "templates"


def name_of(address: str) -> str:
    """The view's name; of an address without one, the address."""
    return str(resolve(address).url_name or address.strip("/"))


def pages(world: World, tmp_path: Path) -> set[str]:
    """The views that answer a GET with a whole page, be it a problem's, or lead elsewhere: what is there in another state of the
    account must be looked at, too. All addresses but the API's are asked: other tests see to it that the lists are complete.

    A 405 is no page of the view: it says that the address is one that a form is sent to.
    """
    world.alice.is_staff = True
    world.alice.save()
    client = Client()
    client.post("/login/", {"login": world.alice.email, "password": PASSWORD})
    outside = [address_of(pattern, ABSENT) for pattern in (*OWN, *OPEN)]
    found = set()
    with patch.object(operator_machine, "get_driver", return_value=DriverTwin(tmp_path)):
        asked = [(client, address) for address in (*addresses(world), *operator_addresses(world), *outside)]
        for browser, address in (*asked, *((Client(), address) for address in outside)):
            answer = browser.get(address)
            whole = answer.headers.get("Content-Type", "").startswith("text/html") and b"<html" in answer.content
            if (whole and answer.status_code != 405) or answer.status_code in (301, 302):
                found.add(name_of(address))
    # A stranger is led from these to the log-in, and its own to another address: both answer forms alone.
    return found - POSTED


# Who is not logged in is led from these to the log-in, who is, gets 405.
POSTED = {"session-end", "session-end-others", "identity-remove"}


def test_every_page_is_looked_at_or_excused(world: World, tmp_path: Path) -> None:
    shown = pages(world, tmp_path)
    assert shown - LOOKED_AT.keys() - EXCUSED.keys() == set(), "look at each, and name it in looks.py"
    assert (LOOKED_AT.keys() | EXCUSED.keys()) - shown == set(), "no page has these views"
    assert LOOKED_AT.keys() & EXCUSED.keys() == set()


def test_every_error_page_is_looked_at() -> None:
    assert {f"{status}.html" for status in ERROR_PAGES} | {"403_csrf.html"} == {
        path.name for path in TEMPLATES.glob("*.html")
    }


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
    assert {*LOOKED_AT.values(), *ERROR_PAGES.values()} - texts == set()
