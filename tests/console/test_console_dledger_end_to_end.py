"""A group that elects its leader, through the whole platform: made in the browser, watched, and its leadership transferred."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.console.browser import DESKTOP, PHONE, assert_accessible, look_at, screenshot, sign_up
from tests.support.platform_stack import PlatformStack

PATIENCE_MS = 120_000
TENANT = "day-watch"
PATH = f"/t/{TENANT}/clusters/votes/"


@pytest.mark.timeout(600)
def test_an_operator_makes_a_group_that_elects_and_transfers_its_leadership(
    platform_stack: PlatformStack, browser: Browser
) -> None:
    context = browser.new_context(base_url=platform_stack.console_url, viewport=DESKTOP)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    sign_up(page, "day@example.com", "Day Watch")
    page.get_by_role("link", name="Create a cluster").click()
    page.get_by_label("Name", exact=True).fill("votes")
    page.get_by_label("Recover by itself, lose nothing").check()
    assert_accessible(page, "new cluster")
    page.get_by_role("button", name="Create cluster").click()
    expect(page.locator("#progress")).to_have_attribute("data-state", "completed")
    page.goto(PATH)
    roles = page.locator("#roles [data-group=broker-a]")
    expect(roles).to_have_attribute("data-state", "healthy")
    expect(roles.locator("[data-role=leader]")).to_have_count(1)
    expect(roles.locator("[data-role=follower]")).to_have_count(2)
    assert_accessible(page, "roles of an electing group")
    screenshot(page, "dledger end to end roles")
    old = str(roles.locator("[data-role=leader]").get_attribute("data-replica"))
    page.get_by_role("link", name="Transfer leadership").click()
    radio = page.get_by_role("radio").first
    target = str(radio.get_attribute("value"))
    assert target != old
    radio.check()
    page.get_by_role("button", name="Show what would happen").click()
    expect(page.get_by_text("Nothing is lost", exact=True)).to_be_visible()
    look_at(page, "dledger end to end preview")
    page.get_by_role("button", name="Transfer leadership").click()
    timeline = page.locator("#timeline")
    expect(timeline).to_have_attribute("data-state", "completed")
    for step in ("requested", "sends_held", "elected", "registered", "first_write"):
        expect(timeline.locator(f"[data-step={step}]")).to_be_visible()
    expect(timeline.locator("[data-outage]")).to_be_visible()
    look_at(page, "dledger end to end timeline")
    page.get_by_role("link", name="Back to the cluster").click()
    expect(page.locator(f"#roles [data-replica='{target}']")).to_have_attribute("data-role", "leader")
    expect(page.locator(f"#roles [data-replica='{old}']")).to_have_attribute("data-role", "follower")
    expect(roles).to_have_attribute("data-state", "healthy")
    page.set_viewport_size(PHONE)
    screenshot(page, "dledger end to end roles phone")
    assert_accessible(page, "roles on a phone", rules=["scrollable-region-focusable", "target-size"])
    with platform_stack.api(platform_stack.token(TENANT)) as api:
        assert api.delete(f"tenants/{TENANT}/clusters/votes/").status_code == 202
    context.close()
