"""What the few scripts do, in a real browser; and that the forms work without them."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.clusters.models import ClusterState, Operation, OperationState, StepState
from tests.console.browser import LogIn, screenshot
from tests.console.world import PASSWORD, World, make_cluster, make_operation, make_topic


def test_tabs_are_worked_by_the_arrow_keys_and_the_language_is_remembered(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn
) -> None:
    log_in(world.alice)
    address = f"{live_server.url}/t/acme/clusters/orders/connect/"
    page.goto(address)
    page.get_by_role("tab", name="Java").click()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Go")).to_be_focused()
    expect(page.get_by_role("tab", name="Go")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("tabpanel")).to_contain_text("rocketmq-client-go")
    page.keyboard.press("End")
    expect(page.get_by_role("tab", name="Python")).to_be_focused()
    page.goto(address)
    expect(page.get_by_role("tab", name="Python")).to_have_attribute("aria-selected", "true")


def test_the_theme_is_switched_at_once_and_remembered(page: Page, live_server: LiveServer, world: World) -> None:
    page.goto(live_server.url)
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate(background) != light
    page.goto(f"{live_server.url}/login/")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.get_by_role("button", name="Dark")).to_have_attribute("aria-pressed", "true")


def test_the_keyboard_alone_reaches_the_content_first(page: Page, live_server: LiveServer, world: World) -> None:
    page.goto(f"{live_server.url}/login/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    screenshot(page, "skip link")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Email")).to_be_focused()


def test_a_menu_closes_with_escape_and_gives_the_focus_back(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn
) -> None:
    log_in(world.alice)
    page.goto(f"{live_server.url}/t/acme/")
    summary = page.locator("summary", has_text="Acme Trading")
    summary.click()
    expect(page.get_by_role("link", name="New tenant")).to_be_visible()
    screenshot(page, "tenant menu")
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="New tenant")).to_be_hidden()
    expect(summary).to_be_focused()


def test_the_form_of_a_new_cluster_asks_only_what_its_mode_has(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn
) -> None:
    log_in(world.alice)
    page.goto(f"{live_server.url}/t/acme/new-cluster/")
    names = ("Broker groups", "Replicas of each group", "Highwater, when nothing acknowledged is lost")
    for mode, asked in {
        "single": (),
        "multi": names[:1],
        "async": names,
        "sync": names,
        "dledger": names[:2],
    }.items():
        page.locator(f"[name=mode][value={mode}]").check()
        assert tuple(name for name in names if page.get_by_label(name).is_visible()) == asked, mode


def test_the_delete_button_waits_for_the_typed_name(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn
) -> None:
    log_in(world.alice)
    page.goto(f"{live_server.url}/t/acme/clusters/orders/settings/")
    button = page.get_by_role("button", name="Delete cluster")
    expect(button).to_be_disabled()
    page.get_by_label("Type orders to confirm").fill("order")
    expect(button).to_be_disabled()
    page.get_by_label("Type orders to confirm").fill("orders")
    expect(button).to_be_enabled()


def test_an_error_takes_the_cursor_into_its_field(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn
) -> None:
    log_in(world.alice)
    page.goto(f"{live_server.url}/t/acme/clusters/orders/new-topic/")
    page.get_by_label("Name").fill("not a topic")
    page.get_by_role("button", name="Create topic").click()
    name = page.get_by_label("Name")
    expect(name).to_be_focused()
    expect(name).to_have_attribute("aria-invalid", "true")
    expect(name).to_have_accessible_description(re.compile("Use letters, digits"))
    screenshot(page, "form error")


def test_progress_follows_the_operation_and_stops_asking_when_it_is_over(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn
) -> None:
    operation = make_operation(
        make_cluster(world.tenant, "staging", ClusterState.PROVISIONING), OperationState.IN_PROGRESS, 3
    )
    log_in(world.alice)
    page.goto(f"{live_server.url}/t/acme/operations/{operation.pk}/")
    expect(page.locator("#progress")).to_have_attribute("aria-busy", "true")
    expect(page.get_by_role("status").filter(has_text="Step 4 of 8")).to_be_attached()

    operation.steps.filter(position=3).update(state=StepState.COMPLETED)
    operation.steps.filter(position=4).update(state=StepState.RUNNING)
    expect(page.get_by_role("status").filter(has_text="Step 5 of 8")).to_be_attached()

    error = {"cause": "The broker did not register.", "hint": "Look at its log.", "step": "wait_for_registration"}
    operation.steps.filter(position=4).update(state=StepState.FAILED)
    Operation.objects.filter(pk=operation.pk).update(state=OperationState.FAILED, error=error)
    expect(page.locator("#progress")).to_have_attribute("data-state", "failed")
    expect(page.locator("#progress")).to_have_attribute("aria-busy", "false")
    expect(page.get_by_role("alert")).to_contain_text("The broker did not register.")
    expect(page.get_by_role("button", name="Retry")).to_be_visible()
    assert page.locator("#progress").get_attribute("data-hx-get") is None


@pytest.mark.django_db(transaction=True)
def test_the_forms_work_without_scripts(browser: Browser, live_server: LiveServer, world: World) -> None:
    make_topic(world.cluster, "payments")
    with browser.new_context(java_script_enabled=False, base_url=live_server.url) as context:
        page = context.new_page()
        page.goto("/login/")
        page.get_by_label("Email").fill("alice@example.com")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in", exact=True).click()
        page.get_by_role("link", name="orders").click()
        page.get_by_role("link", name="Connect", exact=True).click()
        # All programs stand one below the other, and nothing offers what needs a script.
        expect(page.get_by_role("heading", name="Python")).to_be_visible()
        expect(page.get_by_role("button", name="Copy")).to_have_count(0)
        page.get_by_role("button", name="Reveal and fill in").click()
        expect(page.locator("#secret-key")).to_be_visible()
        page.get_by_role("link", name="Topics").click()
        page.get_by_role("link", name="payments").click()
        page.get_by_label("Body").fill("sent without scripts")
        page.get_by_role("button", name="Send message").click()
        expect(page.get_by_role("alert")).to_contain_text("The cluster does not answer")
        page.get_by_role("button", name="Dark").click()
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
