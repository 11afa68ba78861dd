"""Alerts on their way to people: what is queued, tried, given up and sent again, with a real receiver."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from unittest.mock import patch

import pytest
from django.core import mail
from django.db import connection
from django.utils import timezone, translation

from controlplane.accounts.models import User
from controlplane.alerts.channels import CHANNELS_MAX, channel_create, channel_list
from controlplane.alerts.deliveries import ASKED_FOR_MAX, PAUSES_S, deliveries_resume, delivery_try
from controlplane.alerts.engine import alerts_evaluate, alerts_expire
from controlplane.alerts.messages import text, title, webhook_signature
from controlplane.alerts.models import Alert, AlertChannel, AlertDelivery, AlertSilence, AlertState, ChannelKind
from controlplane.billing.models import BudgetAlert
from controlplane.clusters.models import Cluster
from controlplane.common.models import AuditEvent
from controlplane.common.sentences import in_words
from controlplane.insight.models import ClusterFigures
from tests.controlplane.world import SYSTEM, Json, World, make_cluster

ACME = "/api/v1/tenants/acme/"


class Receiver:
    """A web server that keeps what it gets, and answers as set."""

    def __init__(self) -> None:
        self.status = 200
        self.requests: list[tuple[dict[str, str], bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append((dict(self.headers), body))
                self.send_response(receiver.status)
                self.send_header("Location", "http://127.0.0.1/")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    settings.HIGHWATER_WEBHOOK_NETWORKS = ["127.0.0.0/8"]
    receiver = Receiver()
    thread = threading.Thread(target=receiver.server.serve_forever)
    thread.start()
    yield receiver
    receiver.server.shutdown()
    thread.join()
    receiver.server.server_close()


def webhook(world: World, url: str = "https://example.com/hook", **options: Any) -> tuple[AlertChannel, str]:
    return channel_create(actor=SYSTEM, tenant=world.acme, kind="webhook", name="pager", address=url, **options)


def only_webhook(world: World, receiver: Receiver) -> tuple[AlertChannel, str]:
    channel_list(world.acme).update(is_on=False)
    return webhook(world, receiver.url)


def look(cluster: Cluster, share: float, after: timedelta = timedelta()) -> datetime:
    now = timezone.now() + after
    ClusterFigures.objects.create(cluster=cluster, sampled_at=now, disk_used=share)
    alerts_evaluate(now)
    return now


def fire(cluster: Cluster) -> None:
    look(cluster, 0.95)
    look(cluster, 0.95, timedelta(seconds=61))


def end(cluster: Cluster) -> None:
    look(cluster, 0.1, timedelta(seconds=120))
    look(cluster, 0.1, timedelta(seconds=181))


def queued() -> list[AlertDelivery]:
    return list(AlertDelivery.objects.order_by("created_at"))


def soon() -> datetime:
    return timezone.now() + timedelta(hours=2)


def test_the_owners_are_mailed_without_anyone_having_set_it_up(world: World) -> None:
    fire(world.cluster)
    (delivery,) = queued()
    assert delivery_try(delivery.pk, soon()) == "delivered"
    (sent,) = mail.outbox
    assert (sent.to, sent.subject) == (
        ["alice@example.com"],
        "[Highwater] Acme: The disk is filling up in orders",
    )
    assert "95 % full" in sent.body


def test_each_receiver_is_mailed_an_alert_and_its_end_in_their_language(world: World) -> None:
    User.objects.filter(email="alice@example.com").update(language="zh-hans")
    fire(world.cluster)
    end(world.cluster)
    assert [delivery_try(one.pk, soon()) for one in queued()] == ["delivered", "delivered"]
    began, ended = mail.outbox
    assert began.subject.endswith("orders 磁盘空间不足")
    assert "集群中使用率最高的磁盘已用 95%。" in began.body
    assert "已结束" in ended.subject
    assert "【已结束】orders" in ended.body


def test_a_message_from_before_payloads_kept_sentences_is_mailed(world: World) -> None:
    User.objects.filter(email="alice@example.com").update(language="zh-hans")
    fire(world.cluster)
    (delivery,) = queued()
    old = json.loads(json.dumps(delivery.payload))
    with connection.cursor() as cursor:
        cursor.execute("update alerts_alertdelivery set payload = %s", [json.dumps(old)])
    assert delivery_try(delivery.pk, soon()) == "delivered"
    (sent,) = mail.outbox
    assert sent.subject.endswith("orders 磁盘空间不足")
    assert "The fullest disk of the cluster is 95 % full." in sent.body


def test_why_a_message_was_not_taken_is_kept_as_a_sentence(world: World, receiver: Receiver) -> None:
    only_webhook(world, receiver)
    receiver.status = 500
    fire(world.cluster)
    (delivery,) = queued()
    delivery_try(delivery.pk, soon())
    delivery.refresh_from_db()
    assert delivery.error == "It answered HTTP 500"
    with translation.override("zh-hans"):
        assert in_words(delivery.error) == "对方返回 HTTP 500"


def test_an_alert_is_sent_once_and_its_end_too(world: World) -> None:
    fire(world.cluster)
    look(world.cluster, 0.96, timedelta(seconds=76))
    assert len(queued()) == 1
    end(world.cluster)
    assert [bool(one.payload["resolved"]) for one in queued()] == [False, True]


def test_what_was_silenced_is_not_sent_and_neither_is_its_end(world: World) -> None:
    AlertSilence.objects.create(tenant=world.acme, until=soon(), reason="upkeep")
    fire(world.cluster)
    end(world.cluster)
    assert Alert.objects.get().state == AlertState.RESOLVED
    assert queued() == []


def test_what_still_fires_when_its_silence_ends_is_sent_then(world: World) -> None:
    silence = AlertSilence.objects.create(tenant=world.acme, until=soon(), reason="upkeep")
    fire(world.cluster)
    AlertSilence.objects.filter(pk=silence.pk).update(until=timezone.now())
    look(world.cluster, 0.95, timedelta(seconds=76))
    assert len(queued()) == 1


def test_a_channel_for_critical_alerts_gets_no_warnings(world: World) -> None:
    channel_list(world.acme).update(critical_only=True)
    now = timezone.now()
    Alert.objects.create(
        cluster=world.cluster,
        kind="daemon_down",
        subject="broker-a",
        value=1,
        threshold=1,
        state=AlertState.FIRING,
        since=now,
        known_at=now,
        fired_at=now,
    )
    alerts_evaluate(now)
    assert queued() == []


def test_a_storm_is_one_message(world: World) -> None:
    clusters = [world.cluster, *(make_cluster(world.acme, f"more-{number}") for number in range(3))]
    for cluster in clusters:
        look(cluster, 0.95)
    later = timezone.now() + timedelta(seconds=61)
    for cluster in clusters:
        ClusterFigures.objects.create(cluster=cluster, sampled_at=later, disk_used=0.95)
    alerts_evaluate(later)
    (delivery,) = queued()
    assert len(delivery.payload["fired"]) == 4


def test_another_tenants_channel_hears_nothing(world: World) -> None:
    channel_create(actor=SYSTEM, tenant=world.globex, kind="webhook", name="theirs", address="https://example.com/")
    fire(world.cluster)
    assert {one.channel.tenant for one in queued()} == {world.acme}


def test_a_webhook_gets_a_signed_message(world: World, receiver: Receiver) -> None:
    _, secret = only_webhook(world, receiver)
    fire(world.cluster)
    (delivery,) = queued()
    assert delivery_try(delivery.pk, soon()) == "delivered"
    ((headers, body),) = receiver.requests
    assert headers["Highwater-Signature"] == f"v1={webhook_signature(secret, headers['Highwater-Timestamp'], body)}"
    assert json.loads(body)["fired"][0]["kind"] == "disk_used"
    delivery.refresh_from_db()
    assert (delivery.http_status, delivery.attempts, delivery.error) == (200, 1, "")


@pytest.mark.parametrize("status", [302, 404, 500])
def test_a_message_that_is_not_taken_is_tried_again_and_then_given_up(
    world: World, receiver: Receiver, status: int
) -> None:
    only_webhook(world, receiver)
    receiver.status = status
    fire(world.cluster)
    (delivery,) = queued()
    now = soon()
    for pause_s in PAUSES_S:
        assert delivery_try(delivery.pk, now) == "queued"
        assert delivery_try(delivery.pk, now + timedelta(seconds=pause_s - 1)) is None
        now += timedelta(seconds=pause_s)
    assert delivery_try(delivery.pk, now) == "failed"
    assert delivery_try(delivery.pk, now + timedelta(days=1)) is None
    delivery.refresh_from_db()
    assert len(receiver.requests) == delivery.attempts == len(PAUSES_S) + 1
    assert f"HTTP {status}" in delivery.error


def test_a_try_whose_worker_died_is_made_again(world: World, receiver: Receiver) -> None:
    only_webhook(world, receiver)
    fire(world.cluster)
    (delivery,) = queued()
    now = soon()
    AlertDelivery.objects.update(attempts=1, not_before=now)
    assert deliveries_resume(now - timedelta(seconds=1)) == 0
    assert deliveries_resume(now) == 1
    assert delivery_try(delivery.pk, now) == "delivered"


def test_no_message_reaches_the_platforms_own_network(world: World, receiver: Receiver, settings: Any) -> None:
    only_webhook(world, receiver)
    settings.HIGHWATER_WEBHOOK_NETWORKS = []
    fire(world.cluster)
    (delivery,) = queued()
    delivery_try(delivery.pk, soon())
    delivery.refresh_from_db()
    assert receiver.requests == []
    assert delivery.error


def budget_alert(world: World, percent: int) -> BudgetAlert:
    return BudgetAlert.objects.create(
        tenant=world.acme,
        month=timezone.now().date().replace(day=1),
        threshold_percent=percent,
        spent=percent,
        budget=100,
        currency="EUR",
    )


def test_a_budgets_threshold_is_sent_once_and_not_by_a_second_mail(world: World) -> None:
    webhook(world)
    budget_alert(world, 80)
    for _ in range(2):
        alerts_evaluate()
    (delivery,) = queued()
    assert (delivery.channel.kind, delivery.payload["event"]) == ("webhook", "budget")
    assert title(delivery.payload) == "[Highwater] Acme: 80 % of the budget is spent"
    assert "80.00 of 100.00 EUR" in text(delivery.payload)


def test_a_channel_for_critical_alerts_hears_of_a_spent_budget_only(world: World) -> None:
    webhook(world, critical_only=True)
    budget_alert(world, 80)
    budget_alert(world, 100)
    alerts_evaluate()
    assert [one.payload["threshold_percent"] for one in queued()] == [100]


def test_a_threshold_that_was_reached_long_ago_is_no_news(world: World) -> None:
    webhook(world)
    old = budget_alert(world, 80)
    BudgetAlert.objects.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(hours=2))
    alerts_evaluate()
    assert queued() == []


# -- what people do


def test_a_webhooks_secret_and_address_are_shown_once_and_never(world: World, api: Callable[..., Json]) -> None:
    client = api(world.alice)
    body = {"kind": "webhook", "name": "pager", "address": "https://example.com:8443/secret-path"}
    made = client.call("POST", f"{ACME}alert-channels/", body).json()
    assert len(made["secret"]) == 40
    listed = client.call("GET", f"{ACME}alert-channels/").content.decode()
    assert made["secret"] not in listed
    assert "secret-path" not in listed
    assert "https://example.com:8443/…" in listed
    stored = AlertChannel.objects.get(name="pager")
    assert b"secret-path" not in bytes(stored.address_encrypted)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"address": "https://127.0.0.1/"}, "address"),
        ({"address": "http://example.com/"}, "address"),
        ({"kind": "email"}, "kind"),
        ({"kind": "slack", "secret": "x"}, "secret"),
        ({"adress": "x"}, "adress"),
    ],
)
def test_a_channel_that_can_not_work_is_refused_at_its_field(
    world: World, api: Callable[..., Json], changes: dict[str, str], field: str
) -> None:
    body = {"kind": "webhook", "name": "pager", "address": "https://example.com/hook", **changes}
    answer = api(world.alice).call("POST", f"{ACME}alert-channels/", body)
    assert answer.status_code == 400
    assert field in answer.content.decode()


def test_two_channels_have_two_names(world: World, api: Callable[..., Json]) -> None:
    webhook(world)
    body = {"kind": "slack", "name": "pager", "address": "https://hooks.example.com/"}
    assert api(world.alice).call("POST", f"{ACME}alert-channels/", body).json()["code"] == "name_taken"


def test_a_tenant_has_a_bounded_number_of_channels(world: World, api: Callable[..., Json]) -> None:
    for number in range(CHANNELS_MAX - 1):
        AlertChannel.objects.create(tenant=world.acme, kind=ChannelKind.SLACK, name=str(number))
    body = {"kind": "slack", "name": "one more", "address": "https://hooks.example.com/"}
    assert api(world.alice).call("POST", f"{ACME}alert-channels/", body).json()["code"] == "over_limit"


def test_mail_is_switched_off_and_not_deleted(world: World, api: Callable[..., Json]) -> None:
    client = api(world.alice)
    (email,) = client.call("GET", f"{ACME}alert-channels/").json()["results"]
    path = f"{ACME}alert-channels/{email['id']}/"
    assert client.call("DELETE", path).json()["code"] == "email_stays"
    assert client.call("PATCH", path, {"is_on": False}).json()["is_on"] is False
    fire(world.cluster)
    assert queued() == []
    event = AuditEvent.objects.get(action="alert_channel.update")
    assert event.details["changes"] == {"is_on": [True, False]}


def test_a_test_message_arrives_and_the_log_says_so(world: World, api: Callable[..., Json], receiver: Receiver) -> None:
    channel, _ = webhook(world, receiver.url)
    client = api(world.alice)
    asked = client.call("POST", f"{ACME}alert-channels/{channel.pk}/test/").json()
    delivery_try(asked["id"], soon())
    found = client.call("GET", f"{ACME}alert-deliveries/{asked['id']}/").json()
    assert (found["state"], found["http_status"], found["payload"]["event"]) == ("delivered", 200, "test")


def test_a_delivery_is_sent_again_as_a_new_one(world: World, api: Callable[..., Json], receiver: Receiver) -> None:
    only_webhook(world, receiver)
    fire(world.cluster)
    (first,) = queued()
    again = api(world.alice).call("POST", f"{ACME}alert-deliveries/{first.pk}/again/").json()
    assert again["is_again_of"] == str(first.pk)
    for one in queued():
        delivery_try(one.pk, soon())
    bodies = [json.loads(body)["fired"] for _, body in receiver.requests]
    assert bodies[0] == bodies[1]


def test_messages_that_people_ask_for_are_bounded(world: World, api: Callable[..., Json]) -> None:
    channel, _ = webhook(world)
    client = api(world.alice)
    answers = [client.call("POST", f"{ACME}alert-channels/{channel.pk}/test/").status_code for _ in range(11)]
    assert answers == [202] * 10 + [409]


def test_a_deleted_channel_does_not_make_room_for_more_messages(world: World, api: Callable[..., Json]) -> None:
    client = api(world.alice)
    answers = []
    for _ in range(ASKED_FOR_MAX + 1):
        channel, _secret = webhook(world)
        answers.append(client.call("POST", f"{ACME}alert-channels/{channel.pk}/test/").status_code)
        client.call("DELETE", f"{ACME}alert-channels/{channel.pk}/")
    assert answers == [202] * ASKED_FOR_MAX + [409]


def test_a_channels_log_is_bounded(world: World) -> None:
    channel, _ = webhook(world)
    for _ in range(5):
        AlertDelivery.objects.create(channel=channel, payload={}, not_before=timezone.now())
    newest = AlertDelivery.objects.order_by("-created_at").first()
    with patch("controlplane.alerts.engine.DELIVERIES_MAX", 2):
        assert alerts_expire() == 3
    assert newest in AlertDelivery.objects.all()


def test_a_channel_whose_address_can_not_be_read_any_more_can_be_deleted(
    world: World, api: Callable[..., Json]
) -> None:
    channel, _ = webhook(world)
    AlertChannel.objects.filter(pk=channel.pk).update(address_encrypted=b"of another key")
    client = api(world.alice)
    listed = client.call("GET", f"{ACME}alert-channels/").json()["results"]
    assert listed[1]["address"].startswith("unreadable")
    assert client.call("DELETE", f"{ACME}alert-channels/{channel.pk}/").status_code == 204


def test_a_deleted_channel_is_gone_and_the_trail_knows_it(world: World, api: Callable[..., Json]) -> None:
    channel, _ = webhook(world)
    assert api(world.alice).call("DELETE", f"{ACME}alert-channels/{channel.pk}/").status_code == 204
    actions = AuditEvent.objects.filter(action__startswith="alert_channel.").order_by("created_at")
    assert [event.action for event in actions] == ["alert_channel.create", "alert_channel.delete"]
