"""Alerts in the console: what is shown, to whom, and what people do about it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.alerts.channels import channel_create, channel_list
from controlplane.alerts.messages import payload_of
from controlplane.alerts.models import Alert, AlertChannel, AlertDelivery, AlertRule, AlertSilence, AlertState
from controlplane.billing.models import Budget
from controlplane.clusters.models import Cluster, ClusterState
from controlplane.clusters.secrets import secret_decrypt
from tests.console.browser import LogIn, look_at
from tests.console.world import World, make_cluster
from tests.controlplane.world import alert_of


def some_alerts(world: World) -> Alert:
    """One that is loud, one that is looked after, one that ended; returns the loud one."""
    now = timezone.now()
    alert_of(
        world.cluster,
        "lag_seconds",
        subject="billing on payments",
        value=1200,
        threshold=900,
        acknowledged_at=now,
        acknowledged_by="bob@example.com",
        note="two consumers are added",
    )
    alert_of(
        world.cluster,
        "leader_missing",
        subject="broker-a",
        value=1,
        threshold=1,
        state=AlertState.RESOLVED,
        resolved_at=now,
        resolved_because="Back to normal.",
    )
    return alert_of(world.cluster)


def test_a_member_sees_what_is_wrong_the_loud_first(world: World) -> None:
    some_alerts(world)
    page = world.client(world.bob).get(world.path("alerts/")).content.decode()
    assert page.index("95 % full") < page.index("20 min behind on payments") < page.index("has no leader")
    assert "two consumers are added" in page
    assert "New silence" not in page


def test_the_navigation_counts_what_no_one_looks_after(world: World) -> None:
    some_alerts(world)
    page = world.client(world.alice).get(world.path("limits/")).content.decode()
    assert 'Alerts <span class="count">1<' in page


def test_a_clusters_tab_counts_its_own(world: World) -> None:
    some_alerts(world)
    alert_of(make_cluster(world.tenant, "staging"))
    page = world.client(world.alice).get(world.cluster_path()).content.decode()
    assert 'Alerts <span class="count">1<' in page[page.index("tab-nav") :]


def test_an_empty_page_says_why_it_is_empty(world: World) -> None:
    client = world.client(world.alice)
    assert "Nothing is wrong that we know of" in client.get(world.path("alerts/")).content.decode()
    Cluster.objects.filter(tenant=world.tenant).update(state=ClusterState.FAILED)
    assert "Nothing is watched" in client.get(world.path("alerts/")).content.decode()


def test_someone_looks_after_an_alert(world: World) -> None:
    alert = alert_of(world.cluster)
    world.client(world.alice).post(world.path(f"alerts/{alert.pk}/"), {"note": "a disk is added"})
    alert.refresh_from_db()
    assert (alert.acknowledged_by, alert.note) == ("alice@example.com", "a disk is added")


def test_who_may_not_manage_alerts_is_refused(world: World) -> None:
    alert = alert_of(world.cluster)
    assert world.client(world.bob).post(world.path(f"alerts/{alert.pk}/"), {}).status_code in (200, 403, 422)
    alert.refresh_from_db()
    assert alert.acknowledged_at is None


def test_an_alert_is_silenced_for_its_subject_only(world: World) -> None:
    alert = alert_of(world.cluster, "group_stuck", subject="billing on payments", value=1, threshold=1)
    answer = world.client(world.alice).post(
        world.path(f"alerts/{alert.pk}/silence/"), {"hours": "720", "reason": "known"}
    )
    assert answer.status_code == 302, answer.content
    silence = AlertSilence.objects.get()
    assert (silence.cluster, silence.kind, silence.subject) == (world.cluster, "group_stuck", "billing on payments")


def test_an_alert_that_is_acknowledged_and_silenced_says_both(world: World) -> None:
    alert = alert_of(world.cluster, "group_stuck", subject="billing on payments", value=1, threshold=1)
    client, path = world.client(world.alice), world.path(f"alerts/{alert.pk}/")
    client.post(path, {"note": ""})
    client.post(f"{path}silence/", {"hours": "1", "reason": "known"})
    client.get(path)  # takes the notice of what was done
    page = client.get(path).content.decode()
    assert ("Acknowledged</span>" in page, "Silenced</span>" in page) == (True, True)


def test_a_silence_needs_a_reason(world: World) -> None:
    answer = world.client(world.alice).post(world.path("alerts/"), {"hours": "4", "reason": ""})
    assert answer.status_code == 422
    assert not AlertSilence.objects.exists()


def test_a_tenant_is_silenced_and_the_silence_ended(world: World) -> None:
    client = world.client(world.alice)
    assert client.post(world.path("alerts/"), {"hours": "4", "reason": "upkeep"}).status_code == 302
    silence = AlertSilence.objects.get()
    assert (silence.cluster, silence.kind) == (None, "")
    client.post(world.path(f"silences/{silence.pk}/end/"))
    silence.refresh_from_db()
    assert silence.until <= timezone.now()


def test_a_rule_is_typed_in_the_units_that_people_use(world: World) -> None:
    path = world.cluster_path("alerts/replica_behind/")
    client = world.client(world.alice)
    page = client.get(path).content.decode()
    assert "in MiB" in page
    assert 'value="64"' in page
    assert client.post(path, {"is_on": "on", "threshold": "128", "duration_s": "60"}).status_code == 302
    assert AlertRule.objects.get().threshold == 128 * 2**20


def test_a_rule_out_of_bounds_is_refused_beside_the_field(world: World) -> None:
    answer = world.client(world.alice).post(
        world.cluster_path("alerts/disk_used/"), {"is_on": "on", "threshold": "150", "duration_s": "60"}
    )
    assert answer.status_code == 422
    assert "Use a number from 1 to 100" in answer.content.decode()


def test_a_rule_is_switched_off_and_reset(world: World) -> None:
    path = world.cluster_path("alerts/leader_missing/")
    client = world.client(world.alice)
    client.post(path, {"duration_s": "15"})
    assert not AlertRule.objects.get().is_on
    assert "Off" in client.get(world.cluster_path("alerts/")).content.decode()
    client.post(path, {"reset": "1"})
    assert not AlertRule.objects.exists()


def test_a_webhooks_secret_is_shown_once(world: World) -> None:
    client = world.client(world.alice)
    form = {"kind": "webhook", "name": "pager", "address": "https://example.com/hook"}
    answer = client.post(world.path("alerts/channels/"), form)
    secret = secret_decrypt(AlertChannel.objects.get(name="pager").secret_encrypted)
    assert secret in answer.content.decode()
    assert answer.headers["Cache-Control"] == "no-store, private"
    assert secret not in client.get(world.path("alerts/channels/")).content.decode()


def test_an_inner_address_is_refused_beside_the_field(world: World) -> None:
    form = {"kind": "slack", "name": "chat", "address": "https://10.0.0.1/"}
    answer = world.client(world.alice).post(world.path("alerts/channels/"), form)
    assert answer.status_code == 422
    assert "not on the public internet. An operator of the platform can allow" in answer.content.decode()


@pytest.mark.parametrize(
    ("act", "field", "value"),
    [
        ("off", "is_on", False),
        ("on", "is_on", True),
        ("critical", "critical_only", True),
        ("all", "critical_only", False),
    ],
)
def test_a_channel_is_switched(world: World, act: str, field: str, value: bool) -> None:
    email = channel_list(world.tenant).get()
    AlertChannel.objects.filter(pk=email.pk).update(**{field: not value})
    world.client(world.alice).post(world.path(f"alerts/channels/{email.pk}/"), {"act": act})
    assert getattr(AlertChannel.objects.get(pk=email.pk), field) is value


def test_a_channel_is_tested_the_message_sent_again_and_the_channel_deleted(world: World) -> None:
    client = world.client(world.alice)
    channel, _ = channel_create(
        actor=world.alice, tenant=world.tenant, kind="slack", name="chat", address="https://hooks.example.com/x"
    )
    client.post(world.path(f"alerts/channels/{channel.pk}/"), {"act": "test"})
    delivery = AlertDelivery.objects.get()
    client.post(world.path(f"alerts/deliveries/{delivery.pk}/again/"))
    assert AlertDelivery.objects.filter(is_again_of=delivery).count() == 1
    client.post(world.path(f"alerts/channels/{channel.pk}/"), {"act": "delete"})
    assert not AlertChannel.objects.filter(pk=channel.pk).exists()


@pytest.mark.django_db(transaction=True)
def test_an_operator_acknowledges_with_the_keyboard_alone(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn
) -> None:
    some_alerts(world)
    log_in(world.alice)
    page.goto(live_server.url + world.path("alerts/"))
    page.get_by_role("link", name="The disk is filling up").focus()
    page.keyboard.press("Enter")
    page.get_by_label("Note").fill("a disk is added")
    page.keyboard.press("Enter")
    expect(page.get_by_text("It stays open until what is wrong is right.")).to_be_visible()
    expect(page.get_by_text("a disk is added")).to_be_visible()


@pytest.mark.django_db(transaction=True)
def test_the_pages_of_alerts_look_right(page: Page, live_server: LiveServer, world: World, log_in: LogIn) -> None:
    alert = some_alerts(world)
    AlertSilence.objects.create(
        tenant=world.tenant,
        until=timezone.now() + timedelta(hours=4),
        reason="the nightly import",
        created_by="alice@example.com",
        kind="lag_seconds",
    )
    chat, _ = channel_create(
        actor=world.alice, tenant=world.tenant, kind="feishu", name="On call", address="https://open.feishu.example/x"
    )
    reported = payload_of("acme", "Acme", [alert], [], "https://highwater.example")
    for state, error in (("delivered", ""), ("queued", "open.feishu.example does not answer: timed out")):
        AlertDelivery.objects.create(
            channel=chat, payload=reported, not_before=timezone.now(), state=state, attempts=1, error=error
        )
    log_in(world.alice)
    for name, path in (
        ("alert channels", world.path("alerts/channels/")),
        ("alerts", world.path("alerts/")),
        ("alert", world.path(f"alerts/{alert.pk}/")),
        ("cluster alerts", world.cluster_path("alerts/")),
        ("alert rule", world.cluster_path("alerts/disk_used/")),
    ):
        page.goto(live_server.url + path)
        look_at(page, name)


def test_the_budget_is_among_the_rules_with_its_thresholds(world: World) -> None:
    client = world.client(world.alice)
    assert "No budget is set." in client.get(world.cluster_path("alerts/")).content.decode()
    Budget.objects.create(tenant=world.tenant, amount=100, currency="EUR")
    assert "50 %, 80 %, 100 %" in client.get(world.cluster_path("alerts/")).content.decode()
