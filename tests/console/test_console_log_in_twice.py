"""A log-in form that is sent twice at once, as by a double click, from a browser that is new to the account."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.test import Client

from controlplane.accounts.known_browsers import _hash
from controlplane.accounts.models import KnownBrowser
from tests.console.world import PASSWORD, World
from tests.controlplane.test_members_at_once import begun_before_the_commit

COOKIE = "a-browser-that-another-account-uses-too"


@pytest.mark.django_db(transaction=True)
def test_both_log_in_and_the_browser_is_known_once(world: World) -> None:
    client = Client(raise_request_exception=False)
    client.cookies[settings.HIGHWATER_BROWSER_COOKIE_NAME] = COOKIE
    statuses: list[int] = []

    def log_in() -> None:
        statuses.append(client.post("/login/", {"login": world.alice.email, "password": PASSWORD}).status_code)

    with begun_before_the_commit(log_in):
        KnownBrowser.objects.create(user=world.alice, hash=_hash(COOKIE))
    assert statuses == [302]
    assert KnownBrowser.objects.count() == 1
