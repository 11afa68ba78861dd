"""The reference page of the API in a browser, under our own Content-Security-Policy."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer


@pytest.mark.django_db(transaction=True)
def test_the_reference_lists_the_operations_and_loads_nothing_from_elsewhere(
    live_server: LiveServer, page: Page
) -> None:
    foreign: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: foreign.append(request.url) if live_server.url not in request.url else None)
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.goto(f"{live_server.url}/api/v1/docs/")
    groups = page.locator(".opblock-tag")
    expect(groups.filter(has_text="topics")).to_be_visible()
    paths = page.request.get(f"{live_server.url}/api/v1/schema/?format=json").json()["paths"]
    expect(groups).to_have_count(
        len({tag for path in paths.values() for one in _operations(path) for tag in one["tags"]})
    )
    groups.filter(has_text="clusters").click()
    expect(
        page.get_by_role("button", name="POST /api/v1/tenants/{tenant}/clusters/", exact=False).first
    ).to_be_visible()
    assert [url for url in foreign if not url.startswith("data:")] == []
    assert complaints == []


def _operations(path: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for method, one in path.items() if method in ("get", "post", "put", "patch", "delete")]
