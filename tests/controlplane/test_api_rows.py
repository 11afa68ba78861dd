"""Every endpoint and method, asked by the owner, a teammate (a member), an outsider and a stranger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from http.cookies import SimpleCookie

import pytest
from django.db import transaction
from pytest_django.plugin import DjangoDbBlocker

from tests.controlplane.test_api_access import ROWS, Row, filled, values
from tests.controlplane.world import Json, make_world


@dataclass(frozen=True)
class Shared:
    """What leads to one of everything, and who is logged in."""

    values: dict[str, str]
    cookies: dict[str, SimpleCookie]

    def client(self, who: str) -> Json:
        client = Json()
        client.cookies.update(self.cookies[who])
        return client


@pytest.fixture(scope="module")
def made(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Shared]:
    """Made once: for each of a thousand tests it would take four times as long as what they are about."""
    with django_db_blocker.unblock(), transaction.atomic():
        world = make_world()
        cookies = {who: Json(user).cookies for who, user in world.people.items()}
        yield Shared(values(world), cookies)
        transaction.set_rollback(True)


@pytest.fixture
def shared(made: Shared) -> Iterator[Shared]:
    """What a test does to it is undone."""
    with transaction.atomic():
        yield made
        transaction.set_rollback(True)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.method} {row.pattern}")
@pytest.mark.parametrize("who", ["owner", "teammate", "outsider", "anonymous"])
def test_each_of_the_four_is_answered_as_their_role_says(shared: Shared, row: Row, who: str) -> None:
    answer = shared.client(who).call(row.method, filled(row.pattern, shared.values), row.body)
    assert answer.status_code == getattr(row, who), answer.content


@pytest.mark.parametrize("row", [row for row in ROWS if "tenant>" in row.pattern], ids=lambda row: row.pattern)
def test_a_foreign_and_an_absent_tenant_look_alike(shared: Shared, row: Row) -> None:
    foreign = filled(row.pattern, shared.values)
    absent = foreign.replace("/acme/", "/nothing/")
    client = shared.client("outsider")
    answers = [client.call(row.method, path, row.body).json() for path in (foreign, absent)]
    for answer in answers:
        del answer["instance"], answer["request_id"]
    assert answers[0] == answers[1]
