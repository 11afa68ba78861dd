"""Every address that is not below a tenant x who asks; the addresses below tenants are in `addresses`, the API's in `ROWS`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from controlplane.billing.models import Plan
from controlplane.billing.periods import Month
from controlplane.clusters.models import OperationState
from controlplane.console.views import operator_machine
from controlplane.insight.models import JobRunState
from controlplane.status.models import Incident, Maintenance
from tests.console.world import World, make_operation
from tests.controlplane.billing_world import make_plan, make_run
from tests.controlplane.driver_twin import DriverTwin

OPEN = {
    # Probes, and what a browser fetches by itself.
    "healthz": 200,
    "readyz": 200,
    "favicon.ico": 302,
    "status/": 200,
    "status/feed/": 200,
    "": 200,
    # Choices of the browser, by POST.
    "theme/": 405,
    "language/": 405,
    # How one gets in.
    "login/": 200,
    "signup/": 200,
    "logout/": 302,
    "inactive/": 200,
    "confirm-email/": 200,
    "^confirm-email/(?P<key>[-:\\w]+)/$": 200,
    "password/reset/": 200,
    "password/reset/done/": 200,
    "password/reset/key/done/": 200,
    "^password/reset/key/(?P<uidb36>[0-9A-Za-z]+)-(?P<key>.+)/$": 200,
    "invitations/": 404,
    "invitations/<str:secret>/": 404,
    # Steps of a log-in that has not begun lead to its beginning.
    "login/code/confirm/": 302,
    "2fa/authenticate/": 302,
    "2fa/webauthn/login/": 302,
    "3rdparty/login/cancelled/": 200,
    "3rdparty/login/error/": 401,
    "3rdparty/signup/": 302,
    "social/login/cancelled/": 301,
    "social/login/error/": 301,
    "social/signup/": 301,
    "social/connections/": 301,
    # There is no such provider.
    "oidc/<slug:provider_id>/login/": 405,  # by POST
    "oidc/<slug:provider_id>/callback/": 404,
    "oidc/<slug:provider_id>/log-out/": 404,
}
# The account's own: a stranger is led to the log-in.
OWN = {
    "sessions/",
    "sessions/end-others/",
    "sessions/<int:session>/end/",
    "identities/",
    "identities/<int:identity>/remove/",
    "tenants/",
    "tenants/new/",
    "reauthenticate/",
    "email/",
    "password/change/",
    "password/set/",
    "2fa/",
    "2fa/reauthenticate/",
    "2fa/totp/activate/",
    "2fa/totp/deactivate/",
    "2fa/recovery-codes/",
    "2fa/recovery-codes/generate/",
    "2fa/recovery-codes/download/",
    "2fa/webauthn/",
    "2fa/webauthn/add/",
    "2fa/webauthn/reauthenticate/",
    "2fa/webauthn/keys/<int:pk>/remove/",
    "2fa/webauthn/keys/<int:pk>/edit/",
    "3rdparty/",
}
ELSEWHERE = ("api/v1/", "t/<str:tenant>/")  # `tests/controlplane/test_api_access.py`, `test_console_access.py`
OPERATOR = "operator/"


def patterns(resolver: URLResolver, before: str = "") -> Iterator[str]:
    for entry in resolver.url_patterns:
        pattern = before + str(entry.pattern)
        if isinstance(entry, URLPattern):
            yield pattern
        else:
            yield from patterns(entry, pattern)


def outside_tenants() -> list[str]:
    return sorted({pattern for pattern in patterns(get_resolver()) if not pattern.startswith(ELSEWHERE)})


def operator_addresses(world: World) -> list[str]:
    """Every operator's address, with rows that there are."""
    plan = Plan.objects.filter(slug="standard").first() or make_plan()
    now = datetime.now(UTC)
    incident = Incident.objects.create(title="x", impact="down", parts=["api"], state="investigating")
    window = Maintenance.objects.create(
        title="x", text="x", parts=["api"], starts_at=now, ends_at=now + timedelta(hours=1)
    )
    values = {
        "<str:plan>": plan.slug,
        "<uuid:price>": str(plan.prices.get().pk),
        "<uuid:incident>": str(incident.pk),
        "<uuid:maintenance>": str(window.pk),
        "<uuid:run>": str(make_run(JobRunState.FAILED).pk),
        "<uuid:cluster>": str(world.cluster.pk),
        "<uuid:operation>": str(make_operation(world.cluster, OperationState.IN_PROGRESS, 2).pk),
        "<str:invoice>": f"draft-{Month.of(datetime.now(UTC))}-eur",
        "<slug:tenant>": "acme",
    }
    found = [pattern for pattern in outside_tenants() if pattern.startswith(OPERATOR)]
    return [address_of(pattern, values) for pattern in found]


def address_of(pattern: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        pattern = pattern.replace(name, value)
    return f"/{pattern}"


ABSENT = {
    "<int:session>": "1",
    "<int:identity>": "1",
    "<int:pk>": "1",
    "<str:secret>": "wrong",
    "<slug:provider_id>": "none",
    "^confirm-email/(?P<key>[-:\\w]+)/$": "confirm-email/wrong/",
    "^password/reset/key/(?P<uidb36>[0-9A-Za-z]+)-(?P<key>.+)/$": "password/reset/key/1-wrong/",
}


def leads_to_log_in(client: Client, address: str) -> bool:
    answer = client.get(address)
    if answer.status_code == 405:
        answer = client.post(address)
    return answer.status_code == 302 and answer.headers["Location"].startswith("/login/")


def test_every_address_outside_tenants_is_said_to_be_open_or_someones() -> None:
    known = OPEN.keys() | OWN
    found = {pattern for pattern in outside_tenants() if not pattern.startswith(OPERATOR)}
    assert found - known == set(), "say in OPEN or OWN who may open it"
    assert known - found == set(), "there is no such address"


@pytest.mark.django_db
def test_a_stranger_is_answered_what_the_table_says() -> None:
    wrong = []
    for pattern, status in OPEN.items():
        answer = Client().get(address_of(pattern, ABSENT))
        if answer.status_code != status:
            wrong.append(f"{pattern}: {answer.status_code} {answer.headers.get('Location', '')}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.django_db
def test_a_stranger_is_led_to_the_log_in_from_what_is_someones() -> None:
    assert [one for one in sorted(OWN) if not leads_to_log_in(Client(), address_of(one, ABSENT))] == []


def test_no_one_but_operators_finds_their_pages(world: World) -> None:
    found = operator_addresses(world)
    assert [address for address in found if not leads_to_log_in(Client(), address)] == []
    for user in (world.alice, world.bob, world.victor, world.charlie):
        client = world.client(user)
        for address in found:
            statuses = {client.get(address).status_code, client.post(address).status_code}
            assert statuses <= {404, 405}, f"{user}: {address}: {statuses}"
            assert 404 in statuses, f"{user}: {address}: {statuses}"


def test_an_operator_finds_them_all_without_a_role_in_any_tenant(world: World, tmp_path: Path) -> None:
    world.charlie.is_staff = True
    world.charlie.save()
    client = world.client(world.charlie)
    wrong = []
    with patch.object(operator_machine, "get_driver", return_value=DriverTwin(tmp_path)):
        for address in operator_addresses(world):
            answer = client.get(address)
            status = client.post(address).status_code if answer.status_code == 405 else answer.status_code
            # No invoice of that number was issued.
            if (status in (403, 404) or status >= 500) and "/invoices/draft-" not in address:
                wrong.append(f"{address}: {status}")
    assert not wrong, "\n".join(wrong)
    assert client.get(world.path("")).status_code == 404
