"""The frame of the pages and the log-in page are in the reader's language; the REST API is in English."""

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.template import engines
from django.template.base import Template
from django.templatetags.i18n import BlockTranslateNode, TranslateNode
from django.test import Client

from controlplane.common.catalogues import read_catalogue

CONVERTED = (
    "account/account_inactive.html",
    "account/email.html",
    "account/email_confirm.html",
    "account/login.html",
    "account/logout.html",
    "account/password_change.html",
    "account/password_reset.html",
    "account/password_reset_done.html",
    "account/password_reset_from_key.html",
    "account/password_reset_from_key_done.html",
    "account/password_set.html",
    "account/reauthenticate.html",
    "account/signup.html",
    "account/signup_closed.html",
    "account/verification_sent.html",
    "account/verified_email_required.html",
    "console/base.html",
    "console/clusters.html",
    "console/identities.html",
    "console/message_resend.html",
    "console/parts/identity_buttons.html",
    "console/parts/language_switch.html",
    "console/parts/resends.html",
    "console/parts/theme_switch.html",
    "console/parts/top_bar.html",
    "console/tenant_new.html",
    "console/tenants.html",
    "socialaccount/authentication_error.html",
    "socialaccount/leave.html",
    "socialaccount/signup.html",
    "socialaccount/still_logged_in.html",
)
CHINESE = {"Accept-Language": "zh-CN,zh;q=0.9"}


@pytest.mark.parametrize("name", CONVERTED)
def test_every_message_of_a_converted_template_has_a_chinese_one_with_its_placeholders(name: str) -> None:
    chinese = read_catalogue(Path(settings.ROOT_DIR) / "web" / "locale" / "zh_Hans")
    template: Template = engines["django"].get_template(name).template  # type: ignore[attr-defined] # Django's own backend
    messages: list[str] = []
    for node in template.nodelist.get_nodes_by_type(TranslateNode):
        assert isinstance(node, TranslateNode)
        messages.append(str(node.filter_expression.var.literal))
    for node in template.nodelist.get_nodes_by_type(BlockTranslateNode):
        assert isinstance(node, BlockTranslateNode)
        messages.append(node.render_token_list(node.singular)[0])
    assert messages
    for message in messages:
        assert sorted(re.findall(r"%\(\w+\)s", chinese[message])) == sorted(re.findall(r"%\(\w+\)s", message)), message


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


def test_the_language_switch_leads_to_no_other_site(client: Client) -> None:
    assert client.post("/language/", {"language": "en", "next": "https://example.org/"})["Location"] == "/"


@pytest.mark.django_db
def test_the_rest_api_is_english_for_who_reads_pages_in_chinese(client: Client) -> None:
    client.post("/language/", {"language": "zh-hans", "next": "/login/"})
    answer = client.get("/api/v1/tenants/", headers=CHINESE)
    assert answer["Content-Language"] == "en"
    assert answer.json()["detail"].isascii()
