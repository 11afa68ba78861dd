"""Tokens end with their issuer, guesses are counted without locking others out, and names show all that they are."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from unittest.mock import patch
from urllib.parse import urlencode

import pytest
from django.core import mail
from django.core.mail import BadHeaderError
from django.test import Client, override_settings
from django.utils import timezone

from controlplane.accounts.actors import TokenActor
from controlplane.accounts.authentication import token_authenticate
from controlplane.accounts.models import ApiToken, User
from controlplane.alerts.services import silence_create
from controlplane.common import throttling
from controlplane.common.errors import InvalidInput, LimitReached
from controlplane.common.logging import loggable_path
from controlplane.common.mails import mail_each
from controlplane.tenants import token_services
from controlplane.tenants.models import Membership, Role
from controlplane.tenants.services import membership_remove, membership_update, tenant_create, tenant_update
from controlplane.tenants.token_services import IssuedToken, api_token_issue
from controlplane.topics.services import TopicOptions
from tests.controlplane.world import Json, World

PASSWORD = "correct horse battery staple"


@pytest.fixture
def operator(world: World) -> Membership:
    membership = world.bob.memberships.get()
    membership.role = Role.OPERATOR
    membership.save()
    return membership


def works(issued: IssuedToken) -> bool:
    return token_authenticate(issued.text) is not None


def test_service_tokens_end_when_their_issuer_is_removed(world: World, operator: Membership) -> None:
    own = api_token_issue(actor=world.bob, tenant=world.acme, name="deploy")
    grandchild = api_token_issue(actor=TokenActor(own.token), tenant=world.acme, name="deploy of deploy")
    others = api_token_issue(actor=world.alice, tenant=world.acme, name="alice's")
    membership_remove(actor=world.alice, membership=operator)
    assert [works(own), works(grandchild), works(others)] == [False, False, True]


def test_a_lower_role_ends_the_tokens_above_it(world: World, operator: Membership) -> None:
    high = api_token_issue(actor=world.bob, tenant=world.acme, name="high", role=Role.OPERATOR)
    low = api_token_issue(actor=world.bob, tenant=world.acme, name="low", role=Role.VIEWER)
    membership_update(actor=world.alice, membership=operator, role=Role.DEVELOPER)
    assert [works(high), works(low)] == [False, True]


def test_a_token_never_outlives_the_token_that_issues_it(world: World) -> None:
    parent = api_token_issue(actor=world.alice, tenant=world.acme, name="parent", days=1)
    for days in (None, 30):
        child = api_token_issue(actor=TokenActor(parent.token), tenant=world.acme, name="child", days=days)
        assert child.token.expires_at == parent.token.expires_at
    shorter = api_token_issue(actor=world.alice, tenant=world.acme, name="short", days=1).token.expires_at
    assert shorter is not None
    assert shorter < timezone.now() + timedelta(days=1, seconds=1)


def test_guessed_tokens_are_throttled_by_address_and_right_ones_are_not(world: World, api: Callable[..., Json]) -> None:
    right = api_token_issue(actor=world.alice, tenant=world.acme, name="right").text
    stranger, client = api(token="hw_test_0123456789abcdef_guess"), api(token=right)
    with patch.dict(throttling.ApiThrottle.THROTTLE_RATES, {"anonymous": "3/min"}):
        statuses = [stranger.call("GET", "/api/v1/tenants/").status_code for _ in range(5)]
        assert statuses == [401, 401, 401, 429, 429]
        assert client.call("GET", "/api/v1/tenants/").status_code == 200


def test_many_tokens_of_a_tenant_ask_no_oftener_together_than_it_may(world: World, api: Callable[..., Json]) -> None:
    texts = [api_token_issue(actor=world.alice, tenant=world.acme, name=f"t{number}").text for number in range(4)]
    foreign = api_token_issue(actor=world.charlie, tenant=world.globex, name="foreign").text
    with (
        patch.object(throttling.TenantThrottle, "requests_per_minute", 3),
        patch("controlplane.common.throttling.time.time", lambda: 60e6),
    ):
        answers = [api(token=text).call("GET", "/api/v1/tenants/") for text in texts]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert answers[-1]["Retry-After"] == "61"
        assert api(token=foreign).call("GET", "/api/v1/tenants/").status_code == 200
        assert api(world.alice).call("GET", "/api/v1/tenants/").status_code == 200


def test_a_tenant_has_a_bounded_number_of_valid_tokens(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_services, "TOKENS_MAX", 2)
    first = api_token_issue(actor=world.alice, tenant=world.acme, name="first").token
    ApiToken.objects.filter(pk=first.pk).update(expires_at=timezone.now())
    for name in ("second", "third"):
        api_token_issue(actor=world.alice, tenant=world.acme, name=name)
    with pytest.raises(LimitReached):
        api_token_issue(actor=world.alice, tenant=world.acme, name="fourth")
    api_token_issue(actor=world.charlie, tenant=world.globex, name="foreign")


def log_in(address: str, password: str) -> int:
    form = {"login": "dora@example.com", "password": password}
    return Client(REMOTE_ADDR=address).post("/login/", form).status_code


@override_settings(ACCOUNT_RATE_LIMITS={})
def test_a_strangers_guesses_do_not_lock_the_account_for_its_owner(db: None) -> None:
    User.objects.create_user("dora@example.com", PASSWORD)
    for _ in range(8):
        assert log_in("203.0.113.9", "guess") == 200
    assert log_in("203.0.113.9", PASSWORD) == 200, "too many guesses from there"
    assert log_in("198.51.100.7", PASSWORD) == 302


@override_settings(ACCOUNT_RATE_LIMITS={})
def test_from_one_address_no_one_signs_up_without_end(db: None) -> None:
    form = {"email": "dora@example.com", "password1": "x", "password2": "y"}
    answers = [Client(REMOTE_ADDR="203.0.113.9").post("/signup/", form).status_code for _ in range(21)]
    assert answers == [200] * 20 + [429]
    assert Client(REMOTE_ADDR="198.51.100.7").post("/signup/", form).status_code == 200


def test_a_subject_of_two_lines_makes_no_second_header(db: None) -> None:
    with pytest.raises(BadHeaderError):
        mail_each("x", {"a@example.com": ""}, lambda: ("An alert\nBcc: thief@example.com", "text"))
    assert mail.outbox == []


@pytest.mark.parametrize("character", ["\n", "\x1b", "\x00", "\u202e", "\u200b", "\u2028"])
def test_a_name_with_characters_that_cannot_be_seen_is_refused(world: World, character: str) -> None:
    with pytest.raises(InvalidInput, match=r"U\+"):
        tenant_create(actor=world.alice, slug="fresh", name=f"Ac{character}me")
    with pytest.raises(InvalidInput, match=r"U\+"):
        tenant_update(actor=world.alice, tenant=world.acme, name=f"Ac{character}me")


def test_names_of_all_languages_are_kept(world: World) -> None:
    assert tenant_update(actor=world.alice, tenant=world.acme, name=" Ünïcode 消息 ").name == "Ünïcode 消息"


@pytest.mark.parametrize(
    ("path", "logged"),
    [
        ("/password/reset/key/4-cq1abc-0123456789/", "/password/reset/key/…/"),
        ("/confirm-email/MQ:1abcde:signature/", "/confirm-email/…/"),
        ("/t/acme/confirm-email/", "/t/acme/confirm-email/"),
    ],
)
def test_links_that_were_mailed_stay_out_of_the_log(path: str, logged: str) -> None:
    assert loggable_path(path) == logged


@override_settings(EMAIL_BACKEND="django.core.mail.backends.smtp.EmailBackend", EMAIL_HOST="127.0.0.1", EMAIL_PORT=1)
def test_a_mail_server_that_is_away_is_said_and_no_fault_of_the_page(client: Client, world: World) -> None:
    answer = client.post("/password/reset/", {"email": "alice@example.com"})
    assert answer.status_code == 503
    assert "did not take our mail to alice@example.com" in answer.content.decode()


@pytest.mark.parametrize("character", ["\n", "\x1b", "\u202e"])
def test_a_topics_description_and_a_silences_reason_show_all_that_they_are(world: World, character: str) -> None:
    with pytest.raises(InvalidInput, match=r"U\+"):
        TopicOptions(description=f"for{character}us").check(world.cluster)
    until = timezone.now() + timedelta(hours=1)
    with pytest.raises(InvalidInput, match=r"U\+"):
        silence_create(actor=world.alice, tenant=world.acme, until=until, reason=f"up{character}keep")


FOREIGN = "evil.example"


@override_settings(ALLOWED_HOSTS=["testserver"])
def test_a_foreign_host_is_refused_and_a_forwarded_one_stands_in_no_mail(client: Client, world: World) -> None:
    assert client.get("/login/", headers={"host": FOREIGN}).status_code == 400
    form = {"email": "alice@example.com"}
    assert client.post("/password/reset/", form, headers={"x-forwarded-host": FOREIGN}).status_code == 302
    (sent,) = mail.outbox
    assert "/password/reset/key/" in sent.body
    assert FOREIGN not in sent.body


@pytest.mark.parametrize("address", [f"https://{FOREIGN}/", f"//{FOREIGN}/", f"/\\{FOREIGN}/"])
def test_a_log_in_leads_to_no_other_site(client: Client, db: None, address: str) -> None:
    User.objects.create_user("dora@example.com", PASSWORD)
    form = {"login": "dora@example.com", "password": PASSWORD, "next": address}
    answer = client.post(f"/login/?{urlencode({'next': address})}", form)
    assert answer.status_code == 302
    assert FOREIGN not in answer.headers["Location"]


def test_a_mailed_link_whose_page_fails_stays_out_of_the_log(db: None, caplog: pytest.LogCaptureFixture) -> None:
    client = Client(raise_request_exception=False)
    with patch("allauth.account.views.PasswordResetFromKeyView.dispatch", side_effect=RuntimeError("odd")):
        assert client.get("/password/reset/key/4-cq1abc-0123456789/").status_code == 500
    assert "/password/reset/key/…/" in caplog.text
    assert "0123456789" not in caplog.text
