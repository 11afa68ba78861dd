"""A new user's first five minutes, through the whole platform: real web server, worker, name server, broker and browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.browser import DESKTOP, look_at, screenshot
from tests.support.platform_stack import PlatformStack

# Provisioning takes about ten seconds on a quiet machine; other tests may be running.
PATIENCE_MS = 120_000


@pytest.mark.timeout(600)
def test_a_new_user_creates_a_cluster_and_a_topic_and_sends_a_message(
    platform_stack: PlatformStack, browser: Browser
) -> None:
    context = browser.new_context(base_url=platform_stack.console_url, viewport=DESKTOP)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)

    _sign_up(page)
    _create_tenant(page)
    _create_cluster(page)
    _create_topic(page)
    _send_and_browse(page)
    _see_how_to_connect(page)
    _make_and_delete_a_key_pair(page)
    _delete_cluster(page)
    _log_out(page)
    context.close()


def _sign_up(page: Page) -> None:
    page.goto("/")
    page.get_by_role("main").get_by_role("link", name="Sign up").click()
    page.get_by_label("Email").fill("newcomer@example.com")
    page.get_by_label("Password", exact=True).fill("correct-horse-battery-7")
    page.get_by_label("Password (again)").fill("correct-horse-battery-7")
    page.get_by_role("button", name="Sign up").click()
    expect(page.get_by_role("heading", name="Welcome. First, a tenant")).to_be_visible()


def _create_tenant(page: Page) -> None:
    page.get_by_label("Name", exact=True).fill("First Steps")
    page.get_by_role("button", name="Create tenant").click()
    expect(page.get_by_role("heading", name="No cluster yet")).to_be_visible()


def _create_cluster(page: Page) -> None:
    page.get_by_role("link", name="Create a cluster").click()
    page.get_by_label("Name", exact=True).fill("orders")
    page.get_by_role("button", name="Create cluster").click()
    progress = page.locator("#progress")
    expect(progress).to_have_attribute("data-state", "in_progress")
    screenshot(page, "end to end progress")
    expect(progress).to_have_attribute("data-state", "completed")
    expect(progress).to_have_attribute("aria-busy", "false")
    expect(page.get_by_role("heading", name="The cluster is running")).to_be_visible()
    look_at(page, "end to end created")
    page.get_by_role("link", name="Open cluster").click()
    expect(page.get_by_role("heading", name="orders")).to_be_visible()


def _create_topic(page: Page) -> None:
    page.get_by_role("link", name="New topic").click()
    page.get_by_label("Name").fill("payments")
    page.get_by_label("What it is for").fill("Every payment that was taken")
    page.get_by_role("button", name="Create topic").click()
    expect(page.get_by_role("heading", name="payments")).to_be_visible()
    expect(page.get_by_role("heading", name="No messages yet")).to_be_visible()


def _send_and_browse(page: Page) -> None:
    body = '{"order": "o-1", "amount": "12.50 €", "note": "grüße, 你好"}'
    page.get_by_label("Body").fill(body)
    page.get_by_label("Tag").fill("paid")
    page.get_by_label("Keys").fill("o-1 customer-7")
    page.get_by_label("Properties").fill("colour=blue")
    page.get_by_role("button", name="Send message").click()
    expect(page.locator("[data-sent=SEND_OK]")).to_be_visible()

    # The list of the newest messages refreshes by itself after a send.
    messages = page.locator("#messages")
    expect(messages).to_have_attribute("data-count", "1")
    row = messages.get_by_role("row").nth(1)
    expect(row).to_contain_text(body)
    expect(row).to_contain_text("customer-7")
    expect(row).to_contain_text("UTF-8 text")
    expect(page.locator("#queues")).to_contain_text("1 message,")
    look_at(page, "end to end topic")

    _find_it(page, body)

    page.locator("#messages").get_by_role("link", name=re.compile("^Open")).click()
    expect(page.get_by_role("heading", name="Message in queue")).to_be_visible()
    expect(page.locator("#message-body")).to_have_text(body)
    properties = page.get_by_role("table", name="Properties")
    expect(properties.get_by_role("row", name="colour blue")).to_be_visible()
    look_at(page, "end to end message")


def _find_it(page: Page, body: str) -> None:
    search = page.locator("#search")
    search.get_by_role("button", name="Find messages").click()
    expect(search.get_by_text("Give a key or a message id.")).to_be_visible()
    search.get_by_label("Key or message id").fill("customer-8")
    search.get_by_role("button", name="Find messages").click()
    expect(search.get_by_role("status")).to_contain_text("No message of payments has the key or id customer-8.")
    look_at(page, "end to end nothing found")
    search.get_by_label("Key or message id").fill("customer-7")
    search.get_by_label("Stored from (UTC)").fill("2026-01-01 00:00")
    search.get_by_role("button", name="Find messages").click()
    expect(search.locator("#found")).to_have_attribute("data-count", "1")
    expect(search.get_by_role("row").nth(1)).to_contain_text(body)
    look_at(page, "end to end found")


def _see_how_to_connect(page: Page) -> None:
    page.get_by_role("navigation", name="Breadcrumb").get_by_role("link", name="orders").click()
    expect(page.locator("#health [data-health]")).to_have_attribute("data-health", "good")
    expect(page.locator("#figures [data-state]")).to_have_attribute("data-state", "live")
    expect(page.locator("#figures [data-figure=backlog]")).to_contain_text("Backlog0")
    page.get_by_role("navigation", name="Cluster").get_by_role("link", name="Connect").click()
    address = page.locator("#namesrv-addr")
    expect(address).to_have_text(re.compile(r"^127\.0\.0\.1:\d+$"))
    page.get_by_role("button", name="Copy name-server address").click()
    assert page.evaluate("navigator.clipboard.readText()") == address.text_content()

    page.get_by_role("button", name="Reveal and fill in the SecretKey").click()
    secret = page.locator("#secret-key")
    expect(secret).to_have_text(re.compile(r"^[A-Za-z0-9]{40}$"))
    for language in ("Go", "Node", "Python", "Java"):
        page.get_by_role("tab", name=language).click()
        program = page.get_by_role("tabpanel", name=language)
        for value in (address, page.locator("#access-key"), secret):
            expect(program).to_contain_text(value.text_content() or "")
        expect(program).to_contain_text("payments")
    look_at(page, "end to end connect")


def _make_and_delete_a_key_pair(page: Page) -> None:
    page.get_by_role("link", name="Credentials").click()
    page.get_by_label("Name").fill("checkout")
    page.get_by_label("Only send").check()
    page.get_by_role("button", name="Create key pair").click()
    expect(page.get_by_role("status").filter(has_text="“checkout” works from now on")).to_be_visible()
    page.get_by_role("button", name="Reveal the SecretKey of checkout").click()
    expect(page.get_by_role("button", name="Copy SecretKey of checkout")).to_be_visible()
    look_at(page, "end to end credentials")
    page.get_by_role("link", name="Delete checkout").click()
    page.get_by_role("button", name="Delete key pair").click()
    expect(page.get_by_role("status").filter(has_text="“checkout” is deleted")).to_be_visible()


def _delete_cluster(page: Page) -> None:
    """It is stopped, can be restored, and is gone when that is not wanted."""
    page.get_by_role("navigation", name="Cluster").get_by_role("link", name="Settings").click()
    page.get_by_label("Type orders to confirm").fill("orders")
    page.get_by_role("button", name="Delete cluster").click()
    expect(page.locator("#progress")).to_have_attribute("data-state", "completed")
    expect(page.get_by_role("heading", name="The cluster is stopped, and can still be restored")).to_be_visible()
    page.get_by_role("link", name="Open cluster").click()
    expect(page.get_by_role("button", name="Restore cluster")).to_be_visible()
    page.get_by_role("link", name="Delete it for good now").click()
    page.get_by_label("Type orders to confirm").fill("orders")
    page.get_by_role("button", name="Delete it for good now").click()
    expect(page.locator("#progress")).to_have_attribute("data-state", "completed")
    expect(page.get_by_role("heading", name="The cluster is deleted")).to_be_visible()
    page.get_by_role("link", name="Back to clusters").click()
    expect(page.get_by_role("heading", name="No cluster yet")).to_be_visible()


def _log_out(page: Page) -> None:
    page.locator("summary", has_text="Account menu").click()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("main").get_by_role("link", name="Sign up")).to_be_visible()
