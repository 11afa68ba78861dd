"""The status page for everyone, the operators' page behind it, and what every page of the console shows."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.accounts.operators import OPERATE_SCOPE
from controlplane.status.models import Incident, Maintenance
from controlplane.status.services import incident_open, incident_update, maintenance_plan
from controlplane.tenants.token_services import ALL_SCOPES, api_token_issue
from tests.console.browser import LogIn, look_at
from tests.console.test_console_curl import body_of, commands, run
from tests.console.world import World
from tests.controlplane.world import SYSTEM

INCIDENT = {
    "what": "incident",
    "incident-title": "Changes of clusters are slow",
    "incident-text": "We look into it.",
    "incident-impact": "degraded",
    "incident-parts": ["workers"],
}


def announce(world: World) -> Incident:
    """An open incident, a resolved one, and a window that begins in an hour."""
    past = incident_open(actor=SYSTEM, title="Log-ins failed", text="Why?", impact="down", parts=["console", "api"])
    incident_update(actor=SYSTEM, incident=past, state="resolved", text="A certificate had expired.")
    now = timezone.now()
    maintenance_plan(
        actor=SYSTEM,
        title="New disks",
        text="Short breaks of each cluster.",
        parts=["name_servers"],
        starts_at=now + timedelta(hours=1),
        ends_at=now + timedelta(hours=3),
    )
    return incident_open(
        actor=SYSTEM, title="Changes are slow", text="We look into it.", impact="degraded", parts=["workers"]
    )


def test_a_stranger_reads_the_status(page: Page, live_server: LiveServer, world: World) -> None:
    announce(world)
    page.goto(f"{live_server.url}/login/")
    page.get_by_role("link", name="Status", exact=True).click()
    expect(page.get_by_role("row", name="Changes of clusters")).to_contain_text("Degraded")
    expect(page.get_by_role("article", name="Changes are slow")).to_contain_text("We look into it.")
    expect(page.get_by_role("article", name="New disks")).to_contain_text("Scheduled")
    expect(page.get_by_role("article", name="Log-ins failed")).to_contain_text("A certificate had expired.")
    look_at(page, "platform status")


def test_a_quiet_platform_says_so(page: Page, live_server: LiveServer, world: World) -> None:
    page.goto(f"{live_server.url}/status/")
    expect(page.get_by_text("No incident.")).to_be_visible()
    look_at(page, "platform status quiet")


def test_the_pages_of_the_console_show_open_incidents_and_near_maintenance(world: World) -> None:
    incident = announce(world)
    page = world.client(world.alice).get("/t/acme/").content.decode()
    assert 'data-banner="incident"' in page
    assert f"/status/#incident-{incident.pk}" in page
    assert "New disks" in page
    assert "Log-ins failed" not in page
    Maintenance.objects.update(starts_at=timezone.now() + timedelta(days=2), ends_at=timezone.now() + timedelta(days=3))
    incident_update(actor=SYSTEM, incident=incident, state="resolved", text="Done.")
    assert "data-banner" not in world.client(world.alice).get("/t/acme/").content.decode()


def test_an_operator_opens_and_resolves_an_incident(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn
) -> None:
    world.alice.is_staff = True
    world.alice.save()
    announce(world)
    log_in(world.alice)
    page.goto(f"{live_server.url}/operator/status/")
    look_at(page, "operator status")
    form = page.locator("form", has=page.get_by_role("button", name="Open an incident"))
    form.get_by_label("Title").fill("The API is slow")
    form.get_by_label("What everyone should know").fill("First line.\nSecond line.")
    form.get_by_label("API", exact=True).check()
    form.get_by_role("button", name="Open an incident").click()
    expect(page.get_by_text("Everyone sees the incident now.")).to_be_visible()
    look_at(page, "operator incident")
    page.get_by_label("State").select_option("resolved")
    page.get_by_label("What is new").fill("All is well.")
    page.get_by_role("button", name="Add update").click()
    expect(page.get_by_text("The incident is resolved.")).to_be_visible()
    expect(page.get_by_role("button", name="Add update")).to_have_count(0)
    page.goto(f"{live_server.url}/operator/status/")
    page.get_by_role("button", name="Cancel New disks").click()
    expect(page.get_by_text("The maintenance is cancelled.")).to_be_visible()


def test_the_operators_pages_of_the_status_do_not_exist_for_others(world: World) -> None:
    incident = announce(world)
    window = Maintenance.objects.get()
    for address in (
        "/operator/status/",
        f"/operator/status/{incident.pk}/",
        f"/operator/status/maintenance/{window.pk}/cancel/",
    ):
        assert world.client(world.alice).post(address, INCIDENT).status_code == 404
        assert world.client(None).post(address, INCIDENT).headers["Location"].startswith("/login/")
    assert Incident.objects.count() == 2
    window.refresh_from_db()
    assert window.cancelled_at is None


def test_every_curl_line_of_the_operators_pages_is_a_request_that_the_api_takes(world: World) -> None:
    incident = announce(world)
    world.alice.is_staff = True
    world.alice.save()
    scopes = (*ALL_SCOPES, OPERATE_SCOPE)
    token = api_token_issue(actor=SYSTEM, tenant=world.tenant, name="op", user=world.alice, scopes=scopes).text
    client = world.client(world.alice)
    for address in ("/operator/status/", f"/operator/status/{incident.pk}/"):
        lines = commands(client.get(address).content.decode())
        assert lines
        for line in lines:
            assert run(line, token).status_code == (204 if "-X DELETE" in line else 201), line


def test_a_form_with_an_error_says_it_and_its_curl_is_what_was_typed(world: World) -> None:
    world.alice.is_staff = True
    world.alice.save()
    client = world.client(world.alice)
    answer = client.post("/operator/status/", {**INCIDENT, "incident-title": "A\u202ename"})
    assert answer.status_code == 422
    bodies = [body_of(command) for command in commands(answer.content.decode())]
    assert {
        "title": "A\u202ename",
        "text": "We look into it.",
        "impact": "degraded",
        "parts": ["workers"],
    } in bodies
    window = {
        "what": "maintenance",
        "maintenance-title": "Disks",
        "maintenance-text": "x",
        "maintenance-parts": ["jobs"],
        "maintenance-starts_at": "2030-01-01 02:00",
        "maintenance-ends_at": "2030-01-01 01:00",
    }
    answer = client.post("/operator/status/", window)
    assert answer.status_code == 422
    assert "ends after its start" in answer.content.decode()
    typed = client.post("/operator/status/", window, headers={"X-Wants": "curl"}).json()["curl"]
    assert body_of(typed)["starts_at"] == "2030-01-01T02:00:00+00:00"


def test_the_curl_line_of_an_update_is_what_was_typed(world: World) -> None:
    incident = announce(world)
    world.alice.is_staff = True
    world.alice.save()
    typed = {"state": "monitoring", "text": "It's better."}
    answer = world.client(world.alice).post(f"/operator/status/{incident.pk}/", typed, headers={"X-Wants": "curl"})
    assert body_of(answer.json()["curl"]) == typed


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_the_status_page_is_in_the_readers_language(world: World, language: str) -> None:
    announce(world)
    client = world.client(None)
    client.post("/language/", {"language": language, "next": "/"})
    page = client.get("/status/").content.decode()
    assert ("Changes of clusters" in page) is (language == "en")
    assert ("集群变更" in page) is (language == "zh-hans")
