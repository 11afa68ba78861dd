"""Every page is in the reader's language, and whole; the REST API is in English."""

import ast
import functools
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from smtplib import SMTPRecipientsRefused

import pytest
from allauth.core.ratelimit import respond_429
from django.conf import settings
from django.core.mail import EmailMessage
from django.core.mail.backends.locmem import EmailBackend
from django.template.base import Lexer, TokenType
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import translation
from django.utils.translation import gettext
from django.utils.translation.template import templatize
from pytest_django.fixtures import Settings

from controlplane.accounts.models import User
from controlplane.clusters.models import OperationState
from controlplane.common.catalogues import read_catalogue
from controlplane.common.mails import mail_each
from controlplane.common.sentences import say
from tests.console.test_console_access import addresses
from tests.console.world import PASSWORD, World, make_operation
from tests.controlplane.billing_world import make_plan, make_run

_ROOT = Path(settings.ROOT_DIR)
_TEMPLATES = _ROOT / "web" / "templates"
_PYTHON = _ROOT / "platform" / "controlplane"
CHINESE = {"Accept-Language": "zh-CN,zh;q=0.9"}
# Functions whose first text, or first two, are messages of a catalogue.
_ONE = {"_", "say", "gettext", "gettext_lazy", "gettext_noop"}
_TWO = {"say_count", "ngettext", "ngettext_lazy"}
_WITH_CONTEXT = {"say_as", "pgettext", "pgettext_lazy", "npgettext"}
# Names, and what a client or a file says in the same letters in every language.
_NAMES = {
    "AccessKey", "API", "Apache", "async", "Broker", "brokerClusterName", "CA", "CSV", "curl", "dledger", "DLedger", "English",
    "Epoch", "FIFO", "FinOps", "FOCUS", "Follower", "gRPC", "Go", "Highwater", "ID", "IP", "Java", "JavaScript", "Key", "Leader",
    "MiB", "mode", "mqadmin", "multi", "NameServer", "Node", "NORMAL", "npm", "Observer", "offsetMsgId", "OpenAPI", "Parquet",
    "PDF", "POST", "Python", "Remoting", "REST", "RocketMQ", "RPO", "RTO", "SecretKey", "Shell", "single", "Slack", "sync", "Tag",
    "TLS", "URL", "UTC", "Webhook", "ali-ons", "rocketmq-client-go", "rocketmq-client-nodejs", "GiB", "highwater", "JSON", "KEYS",
    "TAGS", "Debian", "KiB", "protoc", "Protobuf", "Schema", "Ubuntu",
}  # fmt: skip
# What people and programs of the tests' world have said, the names of what they have, and fields as the API has them.
_TYPED = (
    r"acme|Acme Trading|Acme|orders|payments|billing|staging|broker-a|script|upkeep|default|EUR|What payments are for"
    r"|checkout service|sharding key|Prometheus|Grafana"
    r"|Port 20017 is in use by another program\.|Stop that program, then retry\."
    r"|visible.from|withholds|card\.number|\[masked\]|\btrue\b"
    r"|\b(?:credentials|manage|messages|read)\b|\b(?:admin|part|pattern|property|row|topic)\b|\b(?:ci|developer|email|id|name|operator|public|role|scopes|viewer)\b"
)
# A string of the source that Django makes of a template.
_TEXT = r"""u?(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_SHOWN_ATTRIBUTES = {"alt", "aria-label", "data-label", "data-tabs", "data-title", "placeholder", "title"}


def _templates() -> list[str]:
    return sorted(str(path.relative_to(_TEMPLATES)) for path in _TEMPLATES.rglob("*.*") if "i18n" in path.read_text())


def _python_files() -> list[str]:
    return sorted(str(path.relative_to(_PYTHON)) for path in _PYTHON.rglob("*.py") if "migrations" not in path.parts)


def _messages(source: str) -> Iterator[str]:
    """Yield the messages of Python source as a catalogue has them: the plural after its singular, with a NUL between."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        texts = [part.value for part in node.args if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        if node.func.id in _WITH_CONTEXT:
            yield texts[0] + "\x04" + "\0".join(texts[1:3])
        elif node.func.id in _TWO:
            yield "\0".join(texts[:2])
        elif node.func.id in _ONE and texts:
            yield texts[0]


def _template_messages(text: str) -> Iterator[str]:
    """Yield the messages of a template."""
    for call in re.findall(rf"(?:n?p?gettext|_)\({_TEXT}(?:, {_TEXT})*", templatize(text)):
        yield from _messages(f"{call})")


@functools.cache
def _chinese() -> dict[str, str]:
    return read_catalogue(_ROOT / "web" / "locale" / "zh_Hans")


def _assert_translated(messages: Iterator[str]) -> None:
    chinese = _chinese()
    for message in messages:
        assert message in chinese, message
        both = (message, chinese[message])
        placeholders = [set(re.findall(r"%\(\w+\)[sd]|%%", text)) for text in both]
        assert placeholders[0] == placeholders[1], message
        # A sentence is put together by `%`, which takes one that stands for itself for a placeholder.
        alone = ["%" in re.sub(r"%\(\w+\)[sd]|%%", "", text) for text in both]
        assert alone[0] or not alone[1], message


class _Visible(HTMLParser):
    """Collects what of a page is read: its text, and the attributes that are shown or spoken. Code is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._silent: list[str] = []
        self._value: str | None = None

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in ("code", "pre", "script", "style", "svg", "textarea"):
            self._silent.append(tag)
        self._value = dict(attributes).get("value") if tag == "option" else None
        self.texts += [value for name, value in attributes if name in _SHOWN_ATTRIBUTES and value]

    def handle_endtag(self, tag: str) -> None:
        if self._silent and self._silent[-1] == tag:
            self._silent.pop()

    def handle_data(self, data: str) -> None:
        # An option that is sent as it reads is a name: of a topic, a currency, a time zone.
        if not self._silent and data != (self._value or "").replace("_", " "):
            self.texts.append(data)


def _english(html: str, typed: str = "(?!)") -> list[str]:
    """Return the words of a page that are neither translated nor a name nor `typed`. Addresses, files and constants are names."""
    visible = _Visible()
    visible.feed(html)
    texts = (re.sub(typed, "", text) for text in visible.texts)
    parts = (part.strip(".:-") for text in texts for part in re.findall(r"[A-Za-z0-9_.@/:=-]+", text))
    return [part for part in parts if re.fullmatch(r"[A-Za-z][A-Za-z-]*[A-Za-z]", part) and part not in _NAMES]


@pytest.mark.parametrize("name", _templates())
def test_every_message_of_a_template_has_a_chinese_one_with_its_placeholders(name: str) -> None:
    _assert_translated(_template_messages((_TEMPLATES / name).read_text("utf-8")))


@pytest.mark.parametrize("name", _python_files())
def test_every_message_of_the_code_has_a_chinese_one_with_its_placeholders(name: str) -> None:
    _assert_translated(_messages((_PYTHON / name).read_text("utf-8")))


@pytest.mark.parametrize("name", _templates())
def test_every_word_of_a_template_is_translated_or_a_name(name: str) -> None:
    tokens = Lexer((_TEMPLATES / name).read_text("utf-8")).tokenize()
    left, is_message = [], False
    for token in tokens:
        if token.token_type == TokenType.BLOCK:
            is_message = token.contents.startswith("blocktrans") or (
                is_message and "endblocktrans" not in token.contents
            )
        elif token.token_type == TokenType.TEXT and not is_message:
            left.append(token.contents)
    assert _english("".join(left)) == []


@pytest.mark.django_db
def test_a_page_is_english_until_another_language_is_chosen(client: Client) -> None:
    page = client.get("/login/", headers=CHINESE).content.decode()
    assert '<html lang="en"' in page
    assert "New here?" in page


@pytest.mark.django_db
def test_who_has_chosen_chinese_gets_the_log_in_page_in_chinese(client: Client) -> None:
    client.post("/language/", {"language": "zh-hans", "next": "/login/"})
    page = client.get("/login/").content.decode()
    assert '<html lang="zh-Hans"' in page
    assert "创建账号" in page


@pytest.mark.django_db
def test_a_language_that_is_chosen_before_or_after_the_log_in_is_kept_with_the_account(world: World) -> None:
    client = Client()
    for language in ("zh-hans", "en"):  # in the account's first browser, then in a known one
        client.post("/language/", {"language": language, "next": "/login/"})
        client.post("/login/", {"login": world.alice.email, "password": PASSWORD})
        assert User.objects.get(pk=world.alice.pk).language == language
        client.post("/logout/")
    client.post("/login/", {"login": world.alice.email, "password": PASSWORD})
    client.post("/language/", {"language": "zh-hans", "next": "/"})
    assert User.objects.get(pk=world.alice.pk).language == "zh-hans"


@pytest.mark.django_db
def test_each_receiver_of_a_mail_gets_it_in_their_language_and_english_without_one(
    mailoutbox: list[EmailMessage],
) -> None:
    receivers = {"b@x.example": "", "a@x.example": "en", "c@x.example": "zh-hans", "d@x.example": "xx"}
    mail_each("news", receivers, lambda: (gettext("Account"), gettext("Account")))
    assert [(message.to, message.subject) for message in mailoutbox] == [
        (["a@x.example", "b@x.example", "d@x.example"], "Account"),
        (["c@x.example"], "账号"),
    ]


@pytest.mark.django_db
def test_a_mail_that_is_tried_again_goes_only_to_those_whose_language_no_server_took(
    mailoutbox: list[EmailMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    receivers = {"a@x.example": "en", "c@x.example": "zh-hans"}
    send = EmailBackend.send_messages

    def refuse_chinese(backend: EmailBackend, messages: list[EmailMessage]) -> int:
        if messages[0].to == ["c@x.example"]:
            raise SMTPRecipientsRefused({"c@x.example": (550, b"no such mailbox")})
        return send(backend, messages)

    with monkeypatch.context() as patch:
        patch.setattr(EmailBackend, "send_messages", refuse_chinese)
        for _ in range(2):
            with pytest.raises(SMTPRecipientsRefused):
                mail_each("news", receivers, lambda: ("", ""))
    mail_each("news", receivers, lambda: ("", ""))
    assert [message.to for message in mailoutbox] == [["a@x.example"], ["c@x.example"]]


def test_the_language_switch_leads_to_no_other_site(client: Client) -> None:
    assert client.post("/language/", {"language": "en", "next": "https://example.org/"})["Location"] == "/"


def test_who_asks_too_often_or_sends_too_much_reads_why_in_chinese(client: Client, settings: Settings) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10
    client.cookies["language"] = "zh-hans"
    refused = client.post("/login/", {"login": "a@b.example", "password": PASSWORD})
    assert refused.status_code == 400
    with translation.override("zh-hans"):
        too_often = respond_429(RequestFactory().get("/login/"))
    assert too_often.status_code == 429
    assert [_english(answer.content.decode()) for answer in (refused, too_often)] == [[], []]
    assert "8 MiB" in refused.content.decode()


@pytest.mark.django_db
def test_the_rest_api_is_english_for_who_reads_pages_in_chinese(client: Client) -> None:
    client.post("/language/", {"language": "zh-hans", "next": "/login/"})
    answer = client.get("/api/v1/tenants/", headers=CHINESE)
    assert answer["Content-Language"] == "en"
    assert answer.json()["detail"].isascii()


@pytest.mark.django_db
def test_a_page_in_chinese_has_no_english_words(world: World) -> None:
    client = world.client(world.alice)
    client.cookies[settings.LANGUAGE_COOKIE_NAME] = "zh-hans"
    found = {}
    for address in addresses(world):
        answer = client.get(address)
        if not answer.headers.get("Content-Type", "").startswith("text/html"):
            continue
        if left := sorted(set(_english(answer.content.decode(), _TYPED))):
            found[address] = left
    assert found == {}


@pytest.mark.django_db
def test_an_operators_page_in_chinese_has_no_english_words(world: World) -> None:
    plan, run = make_plan(), make_run()
    client = world.client(User.objects.create_user("olga@example.com", is_staff=True))
    client.cookies[settings.LANGUAGE_COOKIE_NAME] = "zh-hans"
    pages = [
        reverse(f"console:operator-{name}")
        for name in ("plans", "subscriptions", "invoices", "jobs", "machine", "hosts", "limits", "troubles", "mail")
    ]
    pages += [
        reverse("console:operator-plan", args=[plan.slug]),
        reverse("console:operator-job", args=[run.pk]),
        reverse("console:operator-cluster-metering", args=[world.cluster.pk]),
        reverse("console:operator-limits-tenant", args=[world.tenant.slug]),
    ]
    for page in pages:
        answer = client.get(page)
        assert answer.status_code == 200, page
        words = _english(
            answer.content.decode(),
            rf"{_TYPED}|[Gg]lobex|olga|Standard|GiB|KiB|HIGHWATER_\w+(?:=off)?|ingest|\b[A-Z]{{3}}\b|root|chmod"
            r"|supervisord does not answer on .*",
        )
        assert [word for word in words if word not in ("GB", "MB")] == [], page


@pytest.mark.django_db
@pytest.mark.parametrize(("language", "words"), [("en", "Replica 1 does not answer."), ("zh-hans", "副本 1 无响应。")])
def test_what_a_step_waits_for_is_stored_once_and_read_in_each_language(
    world: World, language: str, words: str
) -> None:
    operation = make_operation(world.cluster, OperationState.IN_PROGRESS, 2)
    operation.steps.filter(position=2).update(message=say("Replica %(replica_id)s does not answer.", replica_id=1))
    client = world.client(world.alice)
    client.cookies[settings.LANGUAGE_COOKIE_NAME] = language
    assert words in client.get(world.path(f"operations/{operation.pk}/progress/")).content.decode()


@pytest.mark.django_db
def test_the_rest_api_returns_a_stored_sentence_in_english(world: World) -> None:
    operation = make_operation(world.cluster, OperationState.FAILED, 2)
    operation.error = {"cause": say("Replica %(replica_id)s does not answer.", replica_id=1), "hint": "", "step": ""}
    operation.save()
    client = world.client(world.alice)
    client.cookies[settings.LANGUAGE_COOKIE_NAME] = "zh-hans"
    assert client.get(operation.path).json()["error"]["cause"] == "Replica 1 does not answer."
