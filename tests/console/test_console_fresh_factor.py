"""Sensitive acts ask for the second factor again, where the tenant wants it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.core.cache import cache
from django.test import Client

import controlplane
from controlplane.accounts.models import User
from controlplane.clusters.models import Credential, CredentialKnower
from controlplane.common.models import AuditEvent
from controlplane.tenants.models import ServiceAccount, Tenant
from controlplane.tenants.sensitive import SENSITIVE_ACTS
from tests.console.test_console_second_factor import code_of, log_in, set_up
from tests.console.world import World, make_topic

ASKED = "/2fa/reauthenticate/"


@pytest.fixture
def asking(world: World) -> World:
    """A tenant that wants it, and Alice with an authenticator app."""
    Tenant.objects.update(wants_second_factor=True)
    Authenticator.objects.create(user=world.alice, type=Authenticator.Type.TOTP, data={"secret": ""})
    return world


def given(client: Client, user: User, seconds_ago: float) -> Client:
    """The client's session as it is so long after a second factor was given."""
    session = client.session
    session["account_authentication_methods"] = [{"method": "mfa", "at": time.time() - seconds_ago}]
    session["account_authentication_methods_user"] = str(user.pk)
    session.save()
    return client


def key_of(world: World) -> Credential:
    return Credential.objects.get(cluster=world.cluster, is_control=False)


def reveal(world: World, client: Client, **headers: str) -> Any:
    page = world.cluster_path("credentials/")
    return client.post(
        f"{page}{key_of(world).access_key}/reveal/", headers={"referer": f"http://testserver{page}", **headers}
    )


def was_revealed() -> bool:
    return AuditEvent.objects.filter(action="credential.reveal").exists()


def test_nothing_is_asked_where_the_tenant_does_not_want_it(world: World) -> None:
    assert reveal(world, world.client(world.alice)).status_code == 200


def test_a_secret_is_shown_after_the_factor_was_given_again(asking: World) -> None:
    answer = reveal(asking, asking.client(asking.alice))
    page = asking.cluster_path("credentials/")
    assert answer.status_code == 302
    assert answer.headers["Location"].startswith(ASKED)
    assert page.replace("/", "%2F") in answer.headers["Location"]
    assert not was_revealed()
    assert reveal(asking, given(asking.client(asking.alice), asking.alice, 14 * 60)).status_code == 200
    assert was_revealed()


def test_a_factor_of_long_ago_does_not_count(asking: World) -> None:
    answer = reveal(asking, given(asking.client(asking.alice), asking.alice, 16 * 60))
    assert answer.headers["Location"].startswith(ASKED)


def test_a_part_of_a_page_leads_the_whole_page_to_the_question(asking: World) -> None:
    answer = reveal(asking, asking.client(asking.alice), **{"hx-request": "true"})
    assert answer.headers["HX-Redirect"].startswith(ASKED)


def test_who_has_no_second_factor_is_refused_with_the_way_out(asking: World) -> None:
    Authenticator.objects.all().delete()
    answer = reveal(asking, asking.client(asking.alice))
    assert answer.status_code == 403
    assert "/2fa/" in answer.content.decode()
    assert not was_revealed()


def test_a_forms_act_is_not_done_before_the_factor_is_given(asking: World) -> None:
    make_topic(asking.cluster, "payments")
    client = asking.client(asking.alice)
    answer = client.post(asking.cluster_path("topics/payments/delete/"), {"typed": "payments"})
    assert answer.headers["Location"].startswith(ASKED)
    answer = client.post(asking.cluster_path("settings/"), {"typed": asking.cluster.slug})
    assert answer.headers["Location"].startswith(ASKED)
    answer = client.post(
        asking.path("tokens/"), {"name": "ci", "role": "viewer", "scopes": ["read"], "life_days": "30"}
    )
    assert answer.headers["Location"].startswith(ASKED)


def test_whom_programs_and_people_are_known_by_is_not_deleted_before_the_factor_is_given(asking: World) -> None:
    program = ServiceAccount.objects.create(tenant=asking.tenant, name="ci", role="viewer")
    victor = asking.tenant.memberships.get(user=asking.victor)
    client = asking.client(asking.alice)
    for page in (
        asking.cluster_path(f"credentials/{key_of(asking).access_key}/delete/"),
        asking.path(f"members/{victor.pk}/remove/"),
        asking.path(f"service-accounts/{program.pk}/delete/"),
    ):
        assert client.post(page).headers["Location"].startswith(ASKED), page
    assert ServiceAccount.objects.exists()
    assert asking.tenant.memberships.filter(user=asking.victor).exists()


def test_who_leaves_is_not_asked(asking: World) -> None:
    victor = asking.tenant.memberships.get(user=asking.victor)
    asking.client(asking.victor).post(asking.path(f"members/{victor.pk}/remove/"))
    assert not asking.tenant.memberships.filter(user=asking.victor).exists()


def test_a_lower_role_that_ends_key_pairs_asks_for_the_factor(asking: World) -> None:
    key = key_of(asking)
    CredentialKnower.objects.create(credential=key, user=asking.bob, made=True)
    bob = asking.tenant.memberships.get(user=asking.bob)
    values = {"role": "viewer", "is_confirmed": "1", "revoke": [str(key.pk)]}
    answer = asking.client(asking.alice).post(asking.path(f"members/{bob.pk}/"), values)
    assert answer.headers["Location"].startswith(ASKED)
    bob.refresh_from_db()
    assert bob.role == "developer"


def test_the_password_is_no_answer_and_the_code_leads_back(world: World) -> None:
    client, secret = set_up(world)
    Tenant.objects.update(wants_second_factor=True)
    client = log_in(world)
    cache.clear()
    for _ in range(2):
        client.post("/2fa/authenticate/", {"code": code_of(secret)})
    given(client, world.alice, 3600)
    asked = reveal(world, client).headers["Location"]
    page = client.get(asked).content.decode()
    assert "Use your password" not in page
    cache.clear()
    back = world.cluster_path("credentials/")
    answers = [client.post(asked, {"code": code_of(secret), "next": back}) for _ in range(2)]
    assert back in [answer.headers.get("Location") for answer in answers]
    assert reveal(world, client).status_code == 200


def test_the_api_refuses_a_session_and_takes_a_token(asking: World) -> None:
    path = f"{asking.cluster.path}credentials/{key_of(asking).access_key}/reveal/"
    answer = asking.client(asking.alice).post(path)
    assert (answer.status_code, answer.json()["code"]) == (403, "factor_needed")
    assert given(asking.client(asking.alice), asking.alice, 60).post(path).status_code == 200


def test_only_who_has_a_second_factor_turns_the_question_on(world: World) -> None:
    client = world.client(world.alice)
    values = {"name": "Acme", "time_zone": "UTC", "wants_second_factor": "on"}
    answer = client.post(world.path("settings/"), values)
    assert answer.status_code == 422
    assert "Set up a second factor of your own first" in answer.content.decode()
    Authenticator.objects.create(user=world.alice, type=Authenticator.Type.TOTP, data={"secret": ""})
    assert client.post(world.path("settings/"), values).status_code == 302
    world.tenant.refresh_from_db()
    assert world.tenant.wants_second_factor


def test_turning_the_question_off_asks_it(asking: World) -> None:
    values = {"name": "Acme", "time_zone": "UTC"}
    answer = asking.client(asking.alice).post(asking.path("settings/"), values)
    assert answer.headers["Location"].startswith(ASKED)
    asking.tenant.refresh_from_db()
    assert asking.tenant.wants_second_factor


def test_each_sensitive_act_is_asked_for_somewhere() -> None:
    folder = Path(controlplane.__file__).parent
    code = "".join(path.read_text("utf-8") for path in folder.glob("**/*.py") if path.name != "sensitive.py")
    assert [act for act in SENSITIVE_ACTS if f'factor_require(actor, "{act}"' not in code] == []
