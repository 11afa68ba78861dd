"""Every form of the console, sent empty and sent with far too much: no 5xx, and it is said beside a field or in a message what is
wrong. The forms are read from the pages, so a new one is covered by being there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from unittest.mock import patch
from urllib.parse import urljoin, urlsplit

import pytest
from allauth.account.internal.flows import reauthentication
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.db import transaction
from django.test import Client

from controlplane.console.views import operator_machine
from tests.console.test_console_access import addresses
from tests.console.test_console_matrix import ABSENT, OPEN, OWN, address_of, operator_addresses
from tests.console.world import World
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.secret_twin import secret_messages

LONG = "x" * 20_000
# Typed by no one: a choice that the page does not offer, a number of 400 digits.
TOO_MUCH = {"number": "9" * 400, "select": "no-such-choice", "radio": "no-such-choice", "checkbox": "on"}


@dataclass
class Form:
    """A form of a page: where it is sent to, and its fields' names with the kinds of their elements."""

    action: str
    fields: dict[str, str] = field(default_factory=dict)
    hidden: dict[str, str] = field(default_factory=dict)

    def too_much(self) -> dict[str, str]:
        """Every field with far too much in it; what the page hides is sent back."""
        return {**self.hidden, **{name: TOO_MUCH.get(kind, LONG) for name, kind in self.fields.items()}}


class Forms(HTMLParser):
    """Collects the forms that a page sends by POST."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address
        self.found: list[Form] = []
        self._open: Form | None = None

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        if tag == "form":
            is_posted = given.get("method", "get").lower() == "post"
            self._open = Form(urljoin(self.address, given.get("action", self.address))) if is_posted else None
            self.found += [self._open] if self._open else []
        elif self._open is not None and given.get("name") and tag in ("input", "textarea", "select", "button"):
            kind = given.get("type", "text") if tag == "input" else tag
            if kind in ("hidden", "submit", "button"):
                self._open.hidden[given["name"]] = given.get("value", "")
            else:
                self._open.fields[given["name"]] = kind

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._open = None


def forms_of(client: Client, address: str) -> list[Form]:
    """The forms on the page at the address; none where a GET shows no page."""
    with transaction.atomic():
        answer = client.get(address)
        text = str(answer.getvalue(), "utf-8", "replace")
        transaction.set_rollback(True)
    parser = Forms(address)
    if answer.headers.get("Content-Type", "").startswith("text/html"):
        parser.feed(text)
    return parser.found


def is_said(page: str) -> bool:
    """Whether the page says that something is wrong: in a message, or beside a field whose control names the error."""
    tied = [one for one in re.findall(r'class="field__error" id="([^"]+)"', page) if one in _described(page)]
    return bool(tied) or 'role="alert"' in page or "notice notice--bad" in page or "notice notice--warn" in page


def _described(page: str) -> set[str]:
    return {word for words in re.findall(r'aria-describedby="([^"]+)"', page) for word in words.split()}


def untied(page: str) -> list[str]:
    """The errors beside fields that no control names."""
    return [one for one in re.findall(r'class="field__error" id="([^"]+)"', page) if one not in _described(page)]


def complaints(client: Client, form: Form, body: dict[str, str], *, must_refuse: bool) -> Iterator[str]:
    """What is wrong with how the form takes this; nothing of what it does stays."""
    with transaction.atomic():
        answer = client.post(form.action, body)
        page = str(answer.getvalue(), "utf-8", "replace")
        status = answer.status_code
        if status in (301, 302):
            followed = client.get(answer.headers["Location"], follow=True)
            page = str(followed.getvalue(), "utf-8", "replace")
        transaction.set_rollback(True)
    if status >= 500:
        yield f"{status}"
    elif is_whole(page) and untied(page):
        yield f"errors that no control names: {untied(page)}"
    elif must_refuse and status < 400 and not is_said(page):
        yield f"{status}, and nothing is said"
    elif status in (301, 302) and must_refuse and {"text", "textarea"} & set(form.fields.values()):
        yield "the form is gone, and with it what was typed"
    elif must_refuse and status == 422 and LONG[:200] not in page and "text" in form.fields.values():
        yield "what was typed is gone"


def is_whole(page: str) -> bool:
    return "<html" in page


@pytest.fixture
def found(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[World, list[str]]]:
    """Every address of the console; Alice owns the tenant, runs the platform, and has a second factor."""
    world.alice.is_staff = True
    world.alice.save()
    outside = [address_of(pattern, ABSENT) for pattern in (*OWN, *OPEN)]
    known = [*addresses(world), *operator_addresses(world), *outside]
    monkeypatch.setattr(reauthentication, "did_recently_reauthenticate", lambda request: True)
    with secret_messages(), patch.object(operator_machine, "get_driver", return_value=DriverTwin(tmp_path)):
        yield world, known


@pytest.mark.parametrize("has_factor", [False, True])
def test_every_form_takes_wrong_input_with_a_word_of_what_is_wrong(
    found: tuple[World, list[str]], has_factor: bool
) -> None:
    world, known = found
    if has_factor:
        TOTP.activate(world.alice, generate_totp_secret())
        RecoveryCodes.activate(world.alice)
        known = [address for address in known if address.startswith("/2fa/")]
    seen: set[tuple[str, frozenset[str]]] = set()
    wrong = []
    for user in (world.alice, None):
        for address in known:
            for form in forms_of(world.client(user), address):
                key = (urlsplit(form.action).path, frozenset(form.fields))
                if key in seen:
                    continue
                seen.add(key)
                client = world.client(user)
                wrong += [
                    f"{address} -> {form.action}, empty: {one}"
                    for one in complaints(client, form, {}, must_refuse=False)
                ]
                wrong += [
                    f"{address} -> {form.action} {sorted(form.fields)}, too much: {one}"
                    for one in complaints(client, form, form.too_much(), must_refuse=bool(form.fields))
                ]
    assert not wrong, "\n".join(wrong)
    assert len(seen) > (3 if has_factor else 70), "few forms were found, so this proves little"
