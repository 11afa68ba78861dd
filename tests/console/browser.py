"""Looks at a page the way people do: light, dark and on a phone, with axe's eyes; leaves pictures for `./dev screenshots`, eight of
each page: in light and dark, in English and Chinese, on a desktop and on a phone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from axe_playwright_python.base import AxeResults
from axe_playwright_python.sync_playwright import Axe
from django.conf import settings
from django.urls import resolve
from playwright.sync_api import Page, ViewportSize, expect

from controlplane.accounts.models import User
from tests.console.looks import ERROR_PAGES, LOOKED_AT

LogIn = Callable[[User], None]
_VIEWS_LOOKED_AT = {name: view for view, name in LOOKED_AT.items()}

# Only `./dev screenshots` wants pictures: drawing and packing three whole pages takes longer than all that is judged.
SCREENSHOTS = Path(folder) if (folder := os.environ.get("HIGHWATER_SCREENSHOTS")) else None
AXE_SCRIPT = Axe().axe_script
# A new theme begins its transitions with the next frame, and one may begin another. One of a part that is not drawn never ends.
SETTLED = """async () => {
    const isMoving = animation => animation instanceof CSSTransition && animation.playState === "running";
    for (let frame = 0, still = 0; frame < 120 && still < 2; frame++) {
        await new Promise(requestAnimationFrame);
        still = document.getAnimations().some(isMoving) ? 0 : still + 1;
    }
}"""
DESKTOP: ViewportSize = {"width": 1280, "height": 860}
PHONE: ViewportSize = {"width": 360, "height": 740}


def look_at(page: Page, name: str, reach: Callable[[Page], None] | None = None) -> None:
    """Assert that the open page has no accessibility violation, in light and dark, and that nothing is wider than a phone.

    `reach` opens it in another window, where its address alone does not lead to what is shown: it has to choose by the names of
    fields, as the labels there are Chinese.
    """
    if (view := _VIEWS_LOOKED_AT.get(name)) is not None:
        assert resolve(urlsplit(page.url).path).url_name == view, (
            f"{name} is to be the picture of {view}, not of {page.url}"
        )
    page.set_viewport_size(DESKTOP)
    # Half of all that a look costs would be frames of transitions from one theme to the other.
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    screenshot(page, f"{name}-english-light")
    assert_accessible(page, name)
    assert not (cut := _cut_panels(page)), f"{name}: something is wider than its panel: {cut}"
    assert not (outside := _menus_outside(page)), f"{name}: a menu opens off the screen: {outside}"
    page.emulate_media(color_scheme="dark")
    screenshot(page, f"{name}-english-dark")
    # What a theme or a width changes is contrast and room; the other rules see the same document as before.
    assert_accessible(page, f"{name} (dark)", rules=["color-contrast"])
    page.set_viewport_size(PHONE)
    screenshot(page, f"{name}-english-dark-phone")
    page.emulate_media(color_scheme="light")
    screenshot(page, f"{name}-english-light-phone")
    assert not (outside := _menus_outside(page)), f"{name}: a menu opens off a phone's screen: {outside}"
    assert not (hidden := _hidden_navigation(page)), f"{name}: a phone hides entries of the navigation: {hidden}"
    _assert_narrow(page, name)
    # Neither rule looks at colours.
    assert_accessible(page, f"{name} (phone)", rules=["scrollable-region-focusable", "target-size"], afresh=False)
    page.set_viewport_size(DESKTOP)
    page.emulate_media(reduced_motion="no-preference")
    if SCREENSHOTS is not None:
        _look_at_in_chinese(page, name, reach)


def _look_at_in_chinese(page: Page, name: str, reach: Callable[[Page], None] | None) -> None:
    """Keep pictures of the page in Chinese, as it is when its address is opened; nothing may stick out there either."""
    assert page.context.browser is not None
    # In a window of its own: the test goes on in English, and what it has typed stays.
    with page.context.browser.new_context(storage_state=page.context.storage_state(), viewport=DESKTOP) as context:
        root = urljoin(page.url, "/")
        context.add_cookies([{"name": settings.LANGUAGE_COOKIE_NAME, "value": "zh-hans", "url": root}])
        chinese = context.new_page()
        if reach is None:
            chinese.goto(page.url)
        else:
            reach(chinese)
        statuses = [_status(page), _status(chinese)]
        if statuses[1] == 405 and name != ERROR_PAGES[405]:  # the address of a form's answer alone
            return
        assert None in statuses or statuses[0] == statuses[1], f"{name}: {statuses[0]}, in Chinese {statuses[1]}"
        # What a form's answer or a script has brought is not there when the address is opened: the pictures say so.
        language = "chinese" if _parts(page) == _parts(chinese) else "chinese-as-opened"
        screenshot(chinese, f"{name}-{language}-light")
        chinese.emulate_media(color_scheme="dark")
        screenshot(chinese, f"{name}-{language}-dark")
        assert not (cut := _cut_panels(chinese)), f"{name}: in Chinese something is wider than its panel: {cut}"
        chinese.set_viewport_size(PHONE)
        screenshot(chinese, f"{name}-{language}-dark-phone")
        chinese.emulate_media(color_scheme="light")
        screenshot(chinese, f"{name}-{language}-light-phone")
        _assert_narrow(chinese, f"{name}, in Chinese,")


def _status(page: Page) -> int | None:
    """The status with which the open page was answered; None where a test holds the clock, and with it the browser's record."""
    status: int | None = page.evaluate("performance.getEntriesByType('navigation')[0]?.responseStatus ?? null")
    return status


def _parts(page: Page) -> list[str]:
    """The ids of what the open page shows."""
    found: list[str] = page.evaluate("[...document.querySelectorAll('main [id]')].map(element => element.id)")
    return found


def _assert_narrow(page: Page, name: str) -> None:
    """Assert that nothing on a page of a phone's size is wider than the phone."""
    width = page.evaluate(
        """() => {
            // What is folded away is looked at as well.
            const folded = [...document.querySelectorAll("details:not(.menu):not([open])")];
            folded.forEach(details => details.open = true);
            const width = document.documentElement.scrollWidth;
            folded.forEach(details => details.open = false);
            return width;
        }"""
    )
    assert width <= PHONE["width"], f"{name} is {width} px wide on a phone of {PHONE['width']} px: {_widest(page)}"


def assert_accessible(page: Page, name: str, rules: list[str] | None = None, *, afresh: bool = True) -> None:
    """Run axe on the open page: all its rules, or only some; the axe that is there already where it is not to be `afresh`."""
    page.evaluate(SETTLED)
    if afresh:  # it remembers colours that a new theme has changed
        page.evaluate(AXE_SCRIPT)
    # Nodes that pass are not reported: thousands on a long page, which would all be carried over.
    options = {"resultTypes": ["violations"], **({"runOnly": {"type": "rule", "values": rules}} if rules else {})}
    results = AxeResults(page.evaluate("options => axe.run(document, options)", options))
    assert results.violations_count == 0, f"{name}\n{results.generate_report()}"


def assert_drawn(page: Page, chart: str) -> None:
    """Assert that a chart shows a curve: many of its pixels have the colour of the first."""
    pixels: int = page.evaluate(
        """id => {
            const canvas = document.querySelector(`#${id} canvas`);
            const probe = document.createElement("canvas").getContext("2d");
            probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent");
            probe.fillRect(0, 0, 1, 1);
            const [red, green, blue] = probe.getImageData(0, 0, 1, 1).data;
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            let found = 0;
            for (let at = 0; at < data.length; at += 4) {
                found += data[at] === red && data[at + 1] === green && data[at + 2] === blue && data[at + 3] === 255;
            }
            return found;
        }""",
        chart,
    )
    assert pixels > 200, f"{chart} has {pixels} pixels of its curve"


def is_painted(page: Page, chart: str, height: float, *widths: float) -> list[bool]:
    """Whether something is painted on a chart at these places: shares of its height and its width."""
    found: list[bool] = page.evaluate(
        """([id, height, widths]) => {
            const canvas = document.querySelector(`#${id} canvas`);
            const line = canvas.getContext("2d").getImageData(0, Math.round(canvas.height * height), canvas.width, 1).data;
            return widths.map(width => line[4 * Math.round(canvas.width * width) + 3] > 0);
        }""",
        [chart, height, list(widths)],
    )
    return found


def screenshot(page: Page, name: str) -> None:
    """Save the whole page as a picture, where pictures are wanted."""
    if SCREENSHOTS is None:
        return
    page.evaluate(SETTLED)
    # Packed as JPEG a picture takes a third of the time that PNG does: there are more than a thousand.
    path = SCREENSHOTS / f"{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}.jpg"
    # To hide the caret, playwright gives fields a style and leaves an empty one, which htmx copies and our policy refuses.
    page.screenshot(path=path, full_page=True, animations="disabled", caret="initial", type="jpeg", quality=80)


def _cut_panels(page: Page) -> list[str]:
    """The panels whose content sticks out of them."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll(".panel")]
            .filter(panel => panel.scrollWidth > panel.clientWidth + 1)
            .map(panel => panel.textContent.trim().slice(0, 60))"""
    )
    return found


def _menus_outside(page: Page) -> list[str]:
    """The menus whose sheet, once opened, sticks out of the window to the left or right."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll("details.menu")].filter(menu => {
            menu.open = true;
            const sheet = menu.querySelector(".menu__sheet").getBoundingClientRect();
            menu.open = false;
            return sheet.left < 0 || sheet.right > innerWidth;
        }).map(menu => menu.textContent.trim().slice(0, 60))"""
    )
    return found


def _hidden_navigation(page: Page) -> list[str]:
    """The entries of navigations that can't be seen without scrolling sideways."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll(".main-nav a, .tab-nav a")]
            .filter(link => link.getBoundingClientRect().right > innerWidth)
            .map(link => link.textContent.trim())"""
    )
    return found


def _widest(page: Page) -> str:
    """The elements that stick out, for the message of a failed test: not what scrolls within another."""
    found: str = page.evaluate(
        """() => [...document.querySelectorAll("body *")]
            .filter(element => element.getBoundingClientRect().right > innerWidth + 1)
            .filter(element => {
                for (let outer = element.parentElement; outer; outer = outer.parentElement) {
                    if (getComputedStyle(outer).overflowX !== "visible") return false;
                }
                return true;
            })
            .slice(0, 5)
            .map(element => element.outerHTML.slice(0, 120))
            .join("\\n")"""
    )
    return found


def sign_up(page: Page, email: str, tenant: str) -> None:
    """Make an account and its first tenant, as a newcomer does."""
    password = "correct-horse-battery-9"
    page.goto("/signup/")
    page.get_by_label("Email").fill(email)
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_label("Password (again)").fill(password)
    page.get_by_role("button", name="Sign up").click()
    page.get_by_label("Name", exact=True).fill(tenant)
    page.get_by_role("button", name="Create tenant").click()
    expect(page.get_by_role("heading", name="No cluster yet")).to_be_visible()
