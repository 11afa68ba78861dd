"""Log-ins by an OpenID Connect provider, in a real browser against a real provider: what opens an account, and what does not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import TOTP
from allauth.socialaccount.models import SocialAccount
from django.test import Client
from playwright.sync_api import Page, expect
from pytest_django.fixtures import Settings
from pytest_django.live_server_helper import LiveServer

from controlplane.accounts.identity_claims import identity_of
from controlplane.accounts.identity_settings import IdentityProvider
from controlplane.accounts.models import User
from controlplane.common.models import AuditEvent
from tests.console.browser import LogIn, look_at
from tests.console.test_console_fresh_factor import given
from tests.console.world import PASSWORD, World
from tests.support.identity_provider import Provider, identity_provider


@pytest.fixture
def corp(settings: Settings) -> Iterator[Provider]:
    with identity_provider() as provider:
        configure(settings, provider)
        yield provider


def configure(settings: Settings, provider: Provider, **more: Any) -> None:
    settings.HIGHWATER_IDENTITY_PROVIDERS = (IdentityProvider(**provider.setting(**more)),)


def connect(corp: Provider, user: User) -> SocialAccount:
    """The user's identity at the provider, as a connection leaves it."""
    account: SocialAccount = SocialAccount.objects.create(
        user=user,
        provider="corp",
        uid=identity_of(corp.issuer, corp.subject),
        extra_data={"issuer": corp.issuer, "subject": corp.subject, "email": "dora@example.com"},
    )
    return account


def go_through(page: Page, server: LiveServer, *, by: str = "/login/", act: str = "Agree") -> None:
    """Log in at the provider, as far as the page that we show afterwards."""
    page.goto(server.url + by)
    page.get_by_role("button", name="Continue with Example Corp").click()
    page.get_by_role("button", name=act).click()
    page.wait_for_url(re.compile(re.escape(server.url)))


def is_logged_in(page: Page, server: LiveServer) -> bool:
    """Whether the browser's session is someone's."""
    return page.context.request.get(f"{server.url}/sessions/", max_redirects=0).status == 200


def test_a_known_identity_logs_in_with_state_nonce_and_pkce(
    page: Page, live_server: LiveServer, world: World, corp: Provider
) -> None:
    connect(corp, world.alice)
    go_through(page, live_server)
    expect(page.get_by_role("heading", name="Clusters", level=1)).to_be_visible()
    page.goto(f"{live_server.url}/identities/")
    expect(page.get_by_role("row", name="Example Corp")).to_contain_text("dora@example.com")
    begun = corp.requests[0]
    assert begun["code_challenge_method"] == "S256"
    assert len(begun["nonce"]) == 64
    assert begun["redirect_uri"] == f"{live_server.url}/oidc/corp/callback/"
    assert begun["scope"].split().sort() == ["email", "openid"].sort()


def test_an_unknown_identity_makes_an_account_only_when_its_user_says_so(
    page: Page, live_server: LiveServer, world: World, corp: Provider
) -> None:
    go_through(page, live_server, by="/signup/")
    expect(page.get_by_text("Your identity at Example Corp is not connected to an account here yet.")).to_be_visible()
    assert not User.objects.filter(email="dora@example.com").exists()
    look_at(page, "identity sign-up")
    page.get_by_role("button", name="Create account").click()
    expect(page.get_by_role("button", name="Create tenant")).to_be_visible()
    dora = User.objects.get(email="dora@example.com")
    assert not dora.has_usable_password()
    assert not EmailAddress.objects.get(user=dora).verified, "the provider's word does not count for this domain"
    assert AuditEvent.objects.get(action="identity.sign_up").details["subject"] == "u-1001"
    page.goto(f"{live_server.url}/identities/")
    expect(page.get_by_text("Your only way in")).to_be_visible()


def test_the_providers_word_confirms_addresses_of_the_domains_that_are_set(
    page: Page, live_server: LiveServer, world: World, corp: Provider, settings: Settings
) -> None:
    settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"
    configure(settings, corp, email_domains=["example.com"])
    go_through(page, live_server)
    page.get_by_role("button", name="Create account").click()
    expect(page.get_by_role("button", name="Create tenant")).to_be_visible()
    assert EmailAddress.objects.get(email="dora@example.com").verified


def test_an_address_that_belongs_to_another_account_opens_nothing(
    page: Page, live_server: LiveServer, world: World, corp: Provider, settings: Settings
) -> None:
    configure(settings, corp, email_domains=["example.com"])
    EmailAddress.objects.create(user=world.alice, email=world.alice.email, verified=True, primary=True)
    corp.claims = {"email": world.alice.email}
    go_through(page, live_server)
    page.get_by_role("button", name="Create account").click()
    expect(page.get_by_text("An account already exists with this email address")).to_be_visible()
    assert not is_logged_in(page, live_server)
    assert not SocialAccount.objects.exists()


@pytest.mark.parametrize(
    ("claims", "more"),
    [
        ({"iss": "https://evil.example"}, {}),
        ({"nonce": "of-another-log-in"}, {}),
        ({"nonce": None}, {}),
        ({"aud": "another-client"}, {}),
        ({"aud": ["highwater", "another-client"]}, {}),
        ({"azp": "another-client"}, {}),
        ({"exp": 1_600_000_000}, {}),
        ({"sub": ""}, {}),
        ({}, {"algorithm": "none"}),
        ({}, {"algorithm": "HS256"}),
        ({}, {"document": {"issuer": "https://evil.example"}}),
        ({}, {"document": {"jwks_uri": "http://127.0.0.2:1/keys"}}),
        ({}, {"user_info": {"sub": "someone-else", "email": "alice@example.com"}}),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_can_not_be_trusted_logs_no_one_in(
    live_server: LiveServer, world: World, corp: Provider, claims: dict[str, Any], more: dict[str, Any]
) -> None:
    connect(corp, world.alice)
    corp.claims = claims
    for name, value in more.items():
        setattr(corp, name, value)
    client = Client()
    answer = client.post("/oidc/corp/login/")
    if "document" not in more:
        answer = come_back(client, corp, answer)
    assert answer.status_code == 401
    assert "can’t be trusted" in answer.content.decode()
    assert client.get("/sessions/").status_code == 302


def come_back(client: Client, corp: Provider, begun: Any) -> Any:
    """Agree at the provider without a browser, and return what we answer to the code."""
    asked = asked_of(begun)
    corp.codes["a-code"] = asked
    return client.get("/oidc/corp/callback/", {"code": "a-code", "state": asked["state"]})


def test_a_token_signed_by_another_key_logs_no_one_in(world: World, corp: Provider) -> None:
    connect(corp, world.alice)
    client = Client()
    begun = client.post("/oidc/corp/login/")
    corp.published = Provider("http://127.0.0.1").published
    assert come_back(client, corp, begun).status_code == 401


def test_an_answer_counts_once_and_in_the_browser_that_asked(world: World, corp: Provider) -> None:
    connect(corp, world.alice)
    desk, stranger = Client(), Client()
    begun = desk.post("/oidc/corp/login/")
    assert "begun in another browser" in come_back(stranger, corp, begun).content.decode()
    assert come_back(desk, corp, begun).status_code == 302
    assert "expired" in come_back(desk, corp, begun).content.decode()


def test_an_answer_of_one_provider_is_none_of_another(world: World, corp: Provider, settings: Settings) -> None:
    """A mix-up: a provider that means harm leads the browser back to another one's address, with that one's code or its own."""
    connect(corp, world.alice)
    with identity_provider() as evil:
        settings.HIGHWATER_IDENTITY_PROVIDERS = (
            IdentityProvider(**corp.setting()),
            IdentityProvider(**evil.setting(id="evil", name="Evil")),
        )
        evil.subject = corp.subject
        for begun_at, back_to, code_of in (("evil", "corp", corp), ("corp", "evil", evil), ("evil", "corp", evil)):
            client = Client()
            asked = asked_of(client.post(f"/oidc/{begun_at}/login/"))
            code_of.codes["a-code"] = asked
            answer = client.get(f"/oidc/{back_to}/callback/", {"code": "a-code", "state": asked["state"]})
            assert answer.status_code == 401, (begun_at, back_to)
            assert client.get("/sessions/").status_code == 302
        # And in order: what the evil one says of the same subject opens its own identity alone, which is no one's.
        client = Client()
        asked = asked_of(client.post("/oidc/evil/login/"))
        evil.codes["a-code"] = asked
        answer = client.get("/oidc/evil/callback/", {"code": "a-code", "state": asked["state"]})
        assert answer.headers["Location"] == "/3rdparty/signup/"
        assert client.get("/sessions/").status_code == 302


def asked_of(begun: Any) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(begun.context["address"]).query))


def test_a_log_in_is_begun_by_a_form_of_ours_only(world: World, corp: Provider) -> None:
    stranger = Client(enforce_csrf_checks=True)
    assert stranger.post("/oidc/corp/login/", {"process": "connect"}).status_code == 403
    assert not corp.requests


def test_a_connection_that_one_person_began_is_not_finished_as_anothers(world: World, corp: Provider) -> None:
    client = world.client(world.alice)
    begun = client.post("/oidc/corp/login/", {"process": "connect"})
    client.force_login(world.bob, backend="django.contrib.auth.backends.ModelBackend")
    assert come_back(client, corp, begun).status_code == 401
    assert not SocialAccount.objects.exists()


@pytest.mark.parametrize("next_page", ["https://evil.example/", "//evil.example/", "/\\evil.example"])
def test_a_log_in_leads_to_no_other_site(world: World, corp: Provider, next_page: str) -> None:
    connect(corp, world.alice)
    client = Client()
    answer = come_back(client, corp, client.post("/oidc/corp/login/", {"next": next_page}))
    assert answer.status_code == 302
    assert "evil" not in answer.headers["Location"]


def test_the_address_of_a_person_whose_id_token_has_none_comes_from_user_info(world: World, corp: Provider) -> None:
    corp.user_info = {"sub": corp.subject, "email": "dora@example.com"}
    client = Client()
    assert come_back(client, corp, client.post("/oidc/corp/login/")).headers["Location"] == "/3rdparty/signup/"
    assert 'value="dora@example.com"' in client.get("/3rdparty/signup/").content.decode()


def test_a_request_adds_no_parameter_of_its_own(world: World, corp: Provider) -> None:
    begun = Client().post("/oidc/corp/login/?auth_params=prompt%3Dnone%26nonce%3Dx&scope=offline_access")
    assert "offline_access" not in begun.context["address"]
    assert "prompt" not in begun.context["address"]
    assert Client().get("/oidc/corp/login/").status_code == 405
    assert Client().post("/oidc/other/login/").status_code == 404


def test_a_provider_that_is_down_is_said_with_a_way_out(
    page: Page, live_server: LiveServer, world: World, settings: Settings
) -> None:
    with identity_provider() as gone:
        configure(settings, gone)
    page.goto(f"{live_server.url}/login/")
    look_at(page, "log in by a provider")
    page.get_by_role("button", name="Continue with Example Corp").click()
    expect(page.get_by_role("alert")).to_contain_text("Example Corp does not answer. Try again in a minute")
    look_at(page, "identity provider down")
    page.get_by_role("link", name="Back to the log-in").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()


def test_who_does_not_agree_is_not_logged_in(page: Page, live_server: LiveServer, world: World, corp: Provider) -> None:
    go_through(page, live_server, act="Cancel")
    expect(page.get_by_role("alert")).to_contain_text("you did not agree")


def test_an_identity_is_connected_by_someone_logged_in_and_opens_nothing_once_removed(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn, corp: Provider
) -> None:
    log_in(world.alice)
    page.goto(f"{live_server.url}/identities/")
    look_at(page, "identities empty")
    page.get_by_role("button", name="Connect Example Corp").click()
    page.get_by_role("button", name="Agree").click()
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Confirm").click()
    expect(page.get_by_text("The identity is connected")).to_be_visible()
    look_at(page, "identities")
    page.get_by_role("button", name="Remove Example Corp").click()
    expect(page.get_by_text("That identity no longer opens your account.")).to_be_visible()
    assert [event.action for event in AuditEvent.objects.order_by("sequence")][-2:] == [
        "identity.connect",
        "identity.remove",
    ]
    page.context.clear_cookies()
    go_through(page, live_server)
    expect(page.get_by_role("heading", name="Create your account")).to_be_visible()


def test_an_account_with_a_second_factor_gives_it_before_an_identity_is_connected(world: World, corp: Provider) -> None:
    Authenticator.objects.create(user=world.alice, type=Authenticator.Type.TOTP, data={"secret": ""})
    client = world.client(world.alice)
    asked = client.post("/oidc/corp/login/", {"process": "connect"})
    assert (asked.status_code, asked.headers["Location"].split("?")[0]) == (302, "/2fa/reauthenticate/")
    led = given(client, world.alice, seconds_ago=60).post("/oidc/corp/login/", {"process": "connect"})
    assert (led.status_code, corp.issuer in led.content.decode()) == (200, True)


def test_an_identity_of_another_account_is_not_taken_over(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn, corp: Provider
) -> None:
    connect(corp, world.bob)
    client = Client()
    client.post("/login/", {"login": world.alice.email, "password": PASSWORD})
    client.post("/reauthenticate/", {"password": PASSWORD})
    come_back(client, corp, client.post("/oidc/corp/login/", {"process": "connect"}))
    assert "opens another account" in client.get("/identities/").content.decode()
    assert SocialAccount.objects.get().user == world.bob


def test_the_last_way_in_and_another_persons_identity_stay(world: World, corp: Provider) -> None:
    account = connect(corp, world.alice)
    world.alice.set_unusable_password()
    world.alice.save()
    client = Client()
    come_back(client, corp, client.post("/oidc/corp/login/"))
    remove = f"/identities/{account.pk}/remove/"
    answer = client.post(remove)
    assert answer.status_code == 409
    assert "Set a password first" in answer.content.decode()
    bob = Client()
    bob.post("/login/", {"login": world.bob.email, "password": PASSWORD})
    bob.post("/reauthenticate/", {"password": PASSWORD})
    assert bob.post(remove).status_code == 404
    assert client.get(remove).status_code == 405
    assert Client().post(remove).headers["Location"].startswith("/login/")
    assert SocialAccount.objects.filter(pk=account.pk).exists()


@pytest.mark.parametrize(
    ("more", "claims", "is_asked"),
    [
        ({}, {}, True),
        ({}, {"amr": ["pwd", "mfa"]}, True),
        ({"second_factor_amr": ["mfa"]}, {"amr": ["pwd", "mfa"]}, False),
        ({"second_factor_amr": ["mfa"]}, {"amr": ["pwd"]}, True),
        ({"second_factor_acr": ["phr"]}, {"acr": "phr"}, False),
        ({"second_factor_acr": ["phr"]}, {"acr": ["phr"]}, True),
    ],
)
def test_the_second_factor_is_asked_for_unless_the_setting_trusts_the_providers(
    world: World,
    corp: Provider,
    settings: Settings,
    more: dict[str, Any],
    claims: dict[str, Any],
    is_asked: bool,
) -> None:
    configure(settings, corp, **more)
    connect(corp, world.alice)
    TOTP.activate(world.alice, "JBSWY3DPEHPK3PXP")
    assert Authenticator.objects.filter(user=world.alice).exists()
    corp.claims = claims
    client = Client()
    answer = come_back(client, corp, client.post("/oidc/corp/login/"))
    assert (answer.headers["Location"] == "/2fa/authenticate/") is is_asked
    assert (client.get("/sessions/").status_code == 200) is not is_asked


def test_a_log_out_ends_the_providers_session_where_the_setting_wants_it(
    page: Page, live_server: LiveServer, world: World, corp: Provider, settings: Settings
) -> None:
    configure(settings, corp, log_out=True)
    connect(corp, world.alice)
    go_through(page, live_server)
    page.locator("summary.avatar").click()
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url(f"{live_server.url}/")
    assert corp.ended == [{"client_id": "highwater", "post_logout_redirect_uri": f"{live_server.url}/"}]
    assert not is_logged_in(page, live_server)


@pytest.mark.parametrize(("sign_up", "by_form", "by_identity"), [("identity", False, True), ("closed", False, False)])
def test_sign_up_may_be_closed(
    world: World, corp: Provider, settings: Settings, sign_up: str, by_form: bool, by_identity: bool
) -> None:
    settings.HIGHWATER_SIGN_UP = sign_up
    form = {"email": "eve@example.com", "password1": "a-long-password-9", "password2": "a-long-password-9"}
    Client().post("/signup/", form)
    assert User.objects.filter(email="eve@example.com").exists() is by_form
    client = Client()
    come_back(client, corp, client.post("/oidc/corp/login/"))
    client.post("/3rdparty/signup/", {"email": "dora@example.com"})
    assert User.objects.filter(email="dora@example.com").exists() is by_identity
