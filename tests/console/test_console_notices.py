"""Mail about one's account: a log-in from a new browser, and each change of what protects it."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from unittest.mock import patch

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.totp.internal.auth import TOTP
from django.core import mail
from django.test import Client
from django.utils import timezone, translation
from pytest_django import DjangoCaptureOnCommitCallbacks
from pytest_django.fixtures import Settings

from controlplane.accounts import notices
from controlplane.accounts.adapter import AccountAdapter
from controlplane.accounts.models import AccountNotice, KnownBrowser, User
from controlplane.accounts.notices import notice_mail, notices_mail
from controlplane.accounts.second_factor import second_factor_remove
from controlplane.common.models import AuditEvent
from controlplane.tenants.token_services import api_token_issue
from deploy.local.demo import browser_id
from tests.console.test_console_second_factor import confirm_password, recovery_codes, set_up
from tests.console.test_console_second_factor import log_in as log_in_alice
from tests.console.world import PASSWORD, World

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
COOKIE = "browser"


def log_in(client: Client, world: World, *, user_agent: str = FIREFOX) -> None:
    answer = client.post(
        "/login/", {"login": world.alice.email, "password": PASSWORD}, headers={"User-Agent": user_agent}
    )
    assert answer.status_code == 302


def mailed() -> list[tuple[str, str]]:
    """Subject and text of what was written since the last call, as the worker mails it."""
    mail.outbox.clear()
    for notice in AccountNotice.objects.filter(mailed_at=None).order_by("created_at"):
        assert notice_mail(notice.pk)
    return [(str(message.subject), str(message.body)) for message in mail.outbox]


def kinds() -> list[str]:
    return list(AccountNotice.objects.order_by("created_at").values_list("kind", flat=True))


def test_the_first_log_in_and_a_known_browser_are_no_news(world: World) -> None:
    desk = Client()
    for _ in range(2):
        log_in(desk, world)
        desk.post("/logout/")
    assert kinds() == []
    assert len(desk.cookies[COOKIE].value) >= 40
    assert desk.cookies[COOKIE]["httponly"]
    assert desk.cookies[COOKIE].value not in str(KnownBrowser.objects.values_list("hash", flat=True))


def test_however_often_dev_logs_in_it_is_one_browser(world: World) -> None:
    for _ in range(2):
        desk = Client()
        desk.cookies[COOKIE] = browser_id("a password")
        log_in(desk, world)
    assert kinds() == []


def test_a_log_in_from_a_new_browser_is_reported_with_when_where_and_what_to_do(world: World) -> None:
    log_in(Client(), world)
    stranger = Client(REMOTE_ADDR="203.0.113.9")
    log_in(stranger, world)
    [(subject, text)] = mailed()
    assert subject == "[Highwater] New log-in: Firefox on Linux"
    for words in ("alice@example.com", "203.0.113.9", f"{timezone.now():%Y-%m-%d}", "/password/change/", "/2fa/"):
        assert words in text
    assert mail.outbox[0].to == ["alice@example.com"]
    stranger.post("/logout/")
    log_in(stranger, world)
    assert mailed() == []


def test_a_browser_that_is_known_to_one_account_is_new_to_another(world: World) -> None:
    desk, laptop = Client(), Client()
    log_in(desk, world)
    laptop.post("/login/", {"login": world.bob.email, "password": PASSWORD})
    laptop.post("/logout/")
    log_in(laptop, world)
    assert kinds() == ["new_browser"]


def test_words_that_a_stranger_chose_are_not_mailed(world: World) -> None:
    log_in(Client(), world)
    log_in(Client(), world, user_agent="Call 0190 123 to keep your account")
    [(subject, text)] = mailed()
    assert subject == "[Highwater] New log-in: unknown browser"
    assert "0190" not in text


def test_a_strangers_log_in_chooses_no_language_for_the_account(world: World) -> None:
    log_in(Client(), world)
    stranger = Client()
    stranger.post("/language/", {"language": "zh-hans", "next": "/login/"})
    log_in(stranger, world)
    [(subject, _)] = mailed()
    assert subject == "[Highwater] New log-in: Firefox on Linux"
    assert User.objects.get(pk=world.alice.pk).language == ""


def test_the_notice_is_in_the_language_of_the_account(world: World) -> None:
    User.objects.filter(pk=world.alice.pk).update(language="zh-hans")
    log_in(Client(), world)
    log_in(Client(), world)
    [(subject, text)] = mailed()
    assert "新登录" in subject
    assert "更改密码" in text


def test_a_link_for_a_new_password_is_mailed_in_the_language_of_the_account_and_whole(world: World) -> None:
    User.objects.filter(pk=world.alice.pk).update(language="zh-hans")
    Client().post("/password/reset/", {"email": world.alice.email})
    (sent,) = mail.outbox
    assert sent.subject == "[Highwater] 设置新密码"
    assert set(re.findall(r"[A-Za-z]{2,}", re.sub(r"http\S+", "", str(sent.body)))) == {"Highwater"}


@pytest.mark.parametrize(
    "name", ["account_already_exists", "email_confirmation", "email_confirmation_signup", "unknown_account"]
)
def test_each_mail_about_an_address_is_whole_in_chinese(name: str) -> None:
    with translation.override("zh-hans"):
        written = AccountAdapter().render_mail(f"account/email/{name}", "a@b.example", {"email": "a@b.example"})
    text = f"{written.subject} {written.body}".replace("a@b.example", "")
    assert set(re.findall(r"[A-Za-z]{2,}", text)) == {"Highwater"}


def change_password(client: Client, world: World) -> None:
    new = {"oldpassword": PASSWORD, "password1": "another-long-password", "password2": "another-long-password"}
    assert client.post("/password/change/", new).status_code == 302


def add_address(client: Client, world: World) -> None:
    EmailAddress.objects.create(user=world.alice, email=world.alice.email, verified=True, primary=True)
    client.post("/email/", {"action_add": "", "email": "alice@example.org"})


def make_codes(client: Client, world: World) -> None:
    TOTP.activate(world.alice, "JBSWY3DPEHPK3PXP")
    client.post("/2fa/recovery-codes/generate/")
    assert recovery_codes(client)


def make_token(client: Client, world: World) -> None:
    api_token_issue(actor=world.alice, tenant=world.tenant, name="deploy")


def take_off(client: Client, world: World) -> None:
    TOTP.activate(world.alice, "JBSWY3DPEHPK3PXP")
    assert second_factor_remove(actor="operator", user=world.alice)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (change_password, "The password of your account was changed."),
        (add_address, "alice@example.org was added"),
        (make_codes, "New recovery codes were made"),
        (make_token, "deploy, for the tenant acme"),
        (take_off, "An operator of the platform took all second factors off"),
    ],
)
def test_a_change_of_what_protects_the_account_is_reported(
    world: World,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
    change: Callable[[Client, World], None],
    words: str,
) -> None:
    client = log_in_alice(world)
    confirm_password(client)
    with django_capture_on_commit_callbacks(execute=True):
        change(client, world)
    texts = [text for _, text in mailed()]
    assert len(texts) == 1, texts
    assert words in texts[0]


def test_an_added_and_a_removed_factor_are_reported(
    world: World, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        client, _ = set_up(world)
        assert "factor_added" not in kinds(), "before it is certain"
    assert "factor_added" in kinds()
    confirm_password(client)
    with django_capture_on_commit_callbacks(execute=True):
        client.post("/2fa/totp/deactivate/")
    assert kinds()[-1] == "factor_removed"
    assert "authenticator app" in mailed()[0][1]


def test_a_changed_address_is_announced_to_the_one_before(world: World) -> None:
    client = log_in_alice(world)
    EmailAddress.objects.create(user=world.alice, email=world.alice.email, verified=True, primary=True)
    EmailAddress.objects.create(user=world.alice, email="alice@example.org", verified=True)
    client.post("/reauthenticate/", {"password": PASSWORD})
    client.post("/email/", {"action_primary": "", "email": "alice@example.org"})
    [(_, text)] = mailed()
    assert "is now alice@example.org" in text
    assert mail.outbox[0].to == ["alice@example.com"]


def test_a_notice_waits_for_a_mail_server_and_is_mailed_once(
    world: World, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    make_token(Client(), world)
    notice = AccountNotice.objects.get()
    with patch.object(notices, "send_mail", side_effect=ConnectionRefusedError), pytest.raises(ConnectionRefusedError):
        notice_mail(notice.pk)
    AccountNotice.objects.update(created_at=timezone.now() - timedelta(minutes=2))
    with django_capture_on_commit_callbacks():
        assert notices_mail() == 1
    assert [notice_mail(notice.pk), notice_mail(notice.pk)] == [True, False]
    assert notices_mail() == 0


@pytest.mark.parametrize(("proxies", "address"), [(0, "192.0.2.1"), (1, "203.0.113.7")])
def test_the_address_behind_a_trusted_proxy_is_the_one_that_it_names(
    world: World, settings: Settings, proxies: int, address: str
) -> None:
    settings.ALLAUTH_TRUSTED_PROXY_COUNT = proxies
    client = Client(REMOTE_ADDR="192.0.2.1", headers={"X-Forwarded-For": "198.51.100.1, 203.0.113.7"})
    client.force_login(world.alice, backend="django.contrib.auth.backends.ModelBackend")
    client.post("/reauthenticate/", {"password": PASSWORD})
    client.post("/sessions/end-others/")
    assert AuditEvent.objects.get(action="session.end_others").address == address
