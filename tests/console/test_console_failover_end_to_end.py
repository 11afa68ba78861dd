"""The promote button, through the whole platform: a master's machine is lost, an operator sees it and presses the button."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.browser import DESKTOP, screenshot, sign_up
from tests.failover.live_group import LiveGroup
from tests.support.platform_stack import PlatformStack

PATIENCE_MS = 120_000
TENANT = "night-watch"


@pytest.mark.timeout(600)
def test_an_operator_promotes_a_replica_when_the_master_is_lost(
    platform_stack: PlatformStack, browser: Browser
) -> None:
    context = browser.new_context(base_url=platform_stack.console_url, viewport=DESKTOP)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    sign_up(page, "watch@example.com", "Night Watch")
    _create_synchronous_cluster(page)
    _send(page, "before")
    with platform_stack.api(platform_stack.token(TENANT)) as api:
        path = f"tenants/{TENANT}/clusters/ledger/"
        live = LiveGroup(platform_stack, api, path, api.get(path).json()["id"])
        live.wait_group(lambda group: bool(group["state"] == "healthy"), "healthy")
        page.goto(f"/t/{TENANT}/clusters/ledger/")
        expect(page.locator("#roles [data-group=broker-a]")).to_have_attribute("data-state", "healthy")
        live.lose_machine(0)
        # The page sees it by itself.
        expect(page.locator("#roles")).to_contain_text("replica 0 is down")
        expect(page.locator("#roles")).to_contain_text("Replica 1 can be promoted")
        screenshot(page, "failover end to end dead master")
        page.get_by_role("link", name="Promote a replica").click()
        expect(page.get_by_text("Nothing is lost", exact=True)).to_be_visible()
        screenshot(page, "failover end to end preflight")
        page.get_by_role("button", name="Promote replica 1").click()
        timeline = page.locator("#timeline")
        expect(timeline.locator("[data-step=first_write]")).to_be_visible()
        live.machine_is_back(0)
        expect(timeline).to_have_attribute("data-state", "completed")
        expect(timeline.locator("[data-step=rejoined]")).to_be_visible()
        expect(timeline.locator("[data-outage]")).to_be_visible()
        screenshot(page, "failover end to end timeline")
        page.get_by_role("link", name="Back to the cluster").click()
        expect(page.locator("#roles [data-replica='1']")).to_have_attribute("data-role", "master")
        expect(page.locator("#roles [data-group=broker-a]")).to_have_attribute("data-state", "healthy")
        screenshot(page, "failover end to end healthy again")
        page.goto(f"/t/{TENANT}/clusters/ledger/topics/payments/")
        _send(page, "after", again=True)
        api.delete(path)
    context.close()


def _create_synchronous_cluster(page: Page) -> None:
    page.get_by_role("link", name="Create a cluster").click()
    page.get_by_label("Name", exact=True).fill("ledger")
    page.get_by_label("Keep reading, lose nothing").check()
    screenshot(page, "failover end to end new cluster")
    page.get_by_role("button", name="Create cluster").click()
    expect(page.locator("#progress")).to_have_attribute("data-state", "completed")
    page.goto(f"/t/{TENANT}/clusters/ledger/new-topic/")
    page.get_by_label("Name").fill("payments")
    page.get_by_role("button", name="Create topic").click()
    expect(page.get_by_role("heading", name="No messages yet")).to_be_visible()


def _send(page: Page, body: str, *, again: bool = False) -> None:
    if again:
        expect(page.locator("#messages")).to_have_attribute("data-count", "1")
    page.get_by_label("Body").fill(body)
    page.get_by_role("button", name="Send message").click()
    expect(page.locator("[data-sent=SEND_OK]")).to_be_visible()
