"""Every page below a tenant, at a cluster whose every message holds secrets; and the page of the rules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import Client
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.tenants.models import Role
from controlplane.topics.masking import MASK
from controlplane.topics.models import MaskingRule
from controlplane.topics.tail_cursor import cursor_of
from tests.console.browser import LogIn, look_at
from tests.console.test_console_access import addresses
from tests.console.world import World, make_topic
from tests.controlplane.secret_twin import MESSAGE_ID, SECRET, hide_the_secrets, secret_messages

# What a page needs to find the message.
QUERIES = {
    "messages/search/csv/": f"?key={MESSAGE_ID}",
    "messages/search/": f"?key={MESSAGE_ID}",
    "messages/tail/": f"?cursor={cursor_of({})}",
    "message-trace/": f"?q={MESSAGE_ID}",
}
GIVES = (
    "topics/payments/",
    "topics/payments/messages/",
    "topics/payments/messages/search/",
    "topics/payments/messages/search/csv/",
    "topics/payments/messages/tail/",
    "topics/payments/messages/broker-a/0/0/",
    "topics/payments/messages/broker-a/0/0/resend/",
    "message-trace/",
    "lag/billing/dead-letters/",
    "lag/billing/dead-letters/export/csv/",
    "diverged/broker-a/0/cut-00000000000000004096/",
    "diverged/broker-a/0/cut-00000000000000004096/export/",
)


@pytest.fixture
def secrets(world: World) -> Iterator[World]:
    hide_the_secrets(world.tenant)
    with secret_messages():
        yield world


def texts(client: Client, found: list[str]) -> Iterator[tuple[str, str]]:
    for address in found:
        query = next((query for end, query in QUERIES.items() if address.endswith(end)), "")
        answer = client.get(address + query)
        yield address, str(answer.getvalue(), "utf-8", "replace")


@pytest.mark.parametrize("role", [Role.VIEWER, Role.DEVELOPER, Role.OPERATOR])
def test_no_page_shows_a_masked_role_what_is_hidden(secrets: World, role: Role) -> None:
    found = addresses(secrets)
    secrets.tenant.memberships.filter(user=secrets.bob).update(role=role)
    assert not [address for address, text in texts(secrets.client(secrets.bob), found) if SECRET in text]


def test_every_page_with_messages_says_what_is_masked(secrets: World) -> None:
    found = addresses(secrets)
    masked = {address for address, text in texts(secrets.client(secrets.bob), found) if MASK in text}
    assert masked - {secrets.path("masking/")} == {secrets.cluster_path(rest) for rest in GIVES}


def test_who_sees_what_is_hidden_sees_it_on_the_same_pages(secrets: World) -> None:
    found = addresses(secrets)
    shown = {address for address, text in texts(secrets.client(secrets.alice), found) if SECRET in text}
    assert shown == {secrets.cluster_path(rest) for rest in GIVES}


def test_a_masked_message_looks_right(page: Page, live_server: LiveServer, secrets: World, log_in: LogIn) -> None:
    make_topic(secrets.cluster, "payments")
    log_in(secrets.bob)
    page.goto(live_server.url + secrets.cluster_path("topics/payments/messages/broker-a/0/0/"))
    expect(page.locator("[data-masked]")).to_contain_text("Masked for your role: body, KEYS, TAGS, phone")
    look_at(page, "message masked")


def test_a_rule_is_made_and_deleted_on_its_page(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn
) -> None:
    log_in(world.alice)
    page.goto(live_server.url + world.path("masking/"))
    page.get_by_label("Path or name").fill("card")
    page.get_by_role("button", name="Create rule").click()
    expect(page.get_by_text("Write a path such as")).to_be_visible()
    page.get_by_label("Path or name").fill("$.card.number")
    page.get_by_role("button", name="Create rule").click()
    expect(page.get_by_role("row", name="$.card.number")).to_be_visible()
    page.get_by_role("link", name="Delete $.card.number").click()
    page.get_by_role("button", name="Delete rule").click()
    expect(page.get_by_text("Nothing is masked")).to_be_visible()
    assert not MaskingRule.objects.exists()


def test_the_page_says_where_trace_records_need_a_rule_of_their_own(secrets: World) -> None:
    answer = secrets.client(secrets.bob).get(secrets.path("masking/"))
    assert "add a rule for that topic with the path $" in answer.content.decode()


def test_a_developer_sees_the_rules_and_changes_none(secrets: World) -> None:
    answer = secrets.client(secrets.bob).get(secrets.path("masking/"))
    assert "$.card.number" in answer.content.decode()
    assert "Create rule" not in answer.content.decode()
    assert secrets.client(secrets.bob).post(secrets.path("masking/"), {"pattern": "$"}).status_code == 403
