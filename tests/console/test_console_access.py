"""Who may open and change what: an owner, a member, a viewer, an outsider of another tenant, and no one."""

import re
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from django.core.mail import send_mail
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.html import escape

from controlplane.alerts.channels import channel_list
from controlplane.alerts.messages import trial_payload
from controlplane.alerts.models import Alert, AlertDelivery, AlertSilence
from controlplane.billing.periods import Month
from controlplane.clusters.models import ClusterState, Operation, OperationState, OperationType
from controlplane.clusters.operations import operation_start
from controlplane.common.models import AuditEvent
from controlplane.console.views import operator_machine
from controlplane.consumers.models import DeadLetterReplay
from controlplane.failover.models import DivergedResend, Drill, Failover, FailoverKind
from controlplane.provisioning.drivers.base import DaemonProcess
from controlplane.provisioning.isolation import shared_user_reason
from controlplane.tenants.invitation_services import invitation_create
from controlplane.tenants.models import Membership, Role
from controlplane.tenants.service_account_services import service_account_create
from controlplane.tenants.token_services import api_token_issue
from controlplane.topics.masking_rules import masking_rule_create
from controlplane.topics.models import Topic
from tests.console.world import World, make_cluster, make_operation, make_schema, make_topic
from tests.controlplane.billing_world import make_plan, use
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import SYSTEM, alert_of, dead_letter_replay, diverged_resend, drill_window, offset_reset


def addresses(world: World) -> list[str]:
    """Every kind of address below /t/<tenant>/, with ids that exist."""
    make_schema(make_topic(world.cluster, "payments"))
    access_key = world.cluster.credentials.get(is_control=False).access_key
    operation = make_operation(make_cluster(world.tenant, "staging", ClusterState.FAILED), OperationState.FAILED, 2)
    token = api_token_issue(actor=world.alice, tenant=world.tenant, name="script").token
    membership = world.tenant.memberships.get(user=world.bob)
    invitation = invitation_create(
        actor=world.alice, tenant=world.tenant, email="x@example.com", role="viewer"
    ).invitation
    account = service_account_create(actor=world.alice, tenant=world.tenant, name="ci", role="developer")
    rule = masking_rule_create(
        actor=world.alice, tenant=world.tenant, topic="*", part="property", pattern="row", visible_from="admin"
    )
    # What reads nothing, the rule withholds from no developer.
    world.cluster.credentials.filter(is_control=False).update(default_topic_perm="PUB", default_group_perm="DENY")
    failover = Failover.objects.create(
        operation=operation,
        cluster=world.cluster,
        group_name="broker-a",
        kind=FailoverKind.PROMOTE,
        requested_by="alice@example.com",
        candidate_id=1,
    )
    drill = Drill.objects.create(
        operation=operation,
        failover=failover,
        cluster=world.cluster,
        group_name="broker-a",
        mode="sync",
        requested_by="alice@example.com",
        leader_id=0,
    )
    alert = Alert.objects.first() or alert_of(world.cluster)
    delivery = AlertDelivery.objects.create(
        channel=channel_list(world.tenant)[0],
        payload=trial_payload("acme", "Acme", "https://highwater.example"),
        not_before=datetime.now(UTC),
    )
    silence = AlertSilence.objects.create(
        tenant=world.tenant, until=datetime.now(UTC) + timedelta(hours=1), reason="upkeep", kind="lag_seconds"
    )
    use(world.cluster, datetime.now(UTC), "1.5", price=make_plan().prices.get())
    draft = f"draft-{Month.of(datetime.now(UTC))}-eur"
    return [
        world.path(rest)
        for rest in (
            "",
            "new-cluster/",
            "audit/",
            "audit/csv/",
            "members/",
            f"members/{membership.pk}/",
            f"members/{membership.pk}/remove/",
            f"invitations/{invitation.pk}/revoke/",
            "usage/",
            "usage/export/csv/",
            "usage/records/",
            "budget/",
            "invoices/",
            f"invoices/{draft}/",
            f"invoices/{draft}/csv/",
            f"invoices/{draft}/pdf/",
            f"invoices/{draft}/lines/1/",
            "settings/",
            "alerts/",
            "alerts/channels/",
            f"alerts/channels/{delivery.channel_id}/",
            f"alerts/deliveries/{delivery.pk}/again/",
            f"alerts/{alert.pk}/",
            f"alerts/{alert.pk}/silence/",
            f"silences/{silence.pk}/end/",
            "clusters/orders/alerts/",
            "clusters/orders/alerts/disk_used/",
            "limits/",
            "masking/",
            f"masking/{rule.pk}/delete/",
            "service-accounts/",
            f"service-accounts/{account.pk}/",
            f"service-accounts/{account.pk}/delete/",
            "tokens/",
            f"tokens/{token.pk}/revoke/",
            f"operations/{operation.pk}/",
            f"operations/{operation.pk}/progress/",
            f"operations/{operation.pk}/retry/",
            f"operations/{operation.pk}/cancel/",
            "clusters/orders/",
            "clusters/orders/ca.pem",
            "clusters/orders/health/",
            "clusters/orders/figures/",
            "clusters/orders/curves/",
            "clusters/orders/connect/",
            "clusters/orders/lag/",
            "clusters/orders/lag/billing/",
            "clusters/orders/lag/billing/thresholds/",
            "clusters/orders/lag/billing/member/",
            "clusters/orders/lag/billing/reset/",
            f"clusters/orders/lag/billing/resets/{offset_reset(world.cluster).pk}/undo/",
            "clusters/orders/connect/reveal/",
            "clusters/orders/roles/",
            "clusters/orders/groups/broker-a/promote/",
            "clusters/orders/groups/broker-a/switchover/",
            "clusters/orders/groups/broker-a/transfer/",
            "clusters/orders/groups/broker-a/prefer/",
            "clusters/orders/groups/broker-a/replace/",
            "clusters/orders/groups/broker-a/recover/",
            "clusters/orders/groups/broker-a/resize/",
            "clusters/orders/groups/broker-a/drill/",
            "clusters/orders/drills/",
            "clusters/orders/drills/windows/",
            f"clusters/orders/drills/windows/{drill_window(world.cluster).pk}/cancel/",
            f"clusters/orders/drills/{drill.pk}/",
            f"clusters/orders/drills/{drill.pk}/report/",
            "clusters/orders/failovers/",
            f"clusters/orders/failovers/{failover.pk}/",
            f"clusters/orders/failovers/{failover.pk}/timeline/",
            "clusters/orders/message-trace/",
            "clusters/orders/diverged/",
            "clusters/orders/diverged/broker-a/0/cut-00000000000000004096/",
            "clusters/orders/diverged/broker-a/0/cut-00000000000000004096/export/",
            "clusters/orders/diverged/broker-a/0/cut-00000000000000004096/done/",
            "clusters/orders/diverged/broker-a/0/cut-00000000000000004096/delete/",
            f"clusters/orders/diverged-resends/{resend_of(world).pk}/",
            f"clusters/orders/diverged-resends/{resend_of(world).pk}/cancel/",
            f"clusters/orders/diverged-resends/{resend_of(world).pk}/continue/",
            "clusters/orders/lag/billing/dead-letters/",
            "clusters/orders/lag/billing/dead-letters/export/csv/",
            f"clusters/orders/lag/billing/replays/{replay_of(world).pk}/",
            f"clusters/orders/lag/billing/replays/{replay_of(world).pk}/cancel/",
            f"clusters/orders/lag/billing/replays/{replay_of(world).pk}/continue/",
            "clusters/orders/settings/",
            "clusters/orders/settings/name/",
            "clusters/orders/settings/labels/",
            "clusters/orders/settings/suspend/",
            "clusters/orders/settings/purge/",
            "clusters/orders/resume/",
            "clusters/orders/restore/",
            "clusters/orders/settings/policy/",
            "clusters/orders/settings/mode/",
            "clusters/orders/settings/configuration/",
            "clusters/orders/settings/configuration/apply/",
            "clusters/orders/settings/restart/",
            "clusters/orders/settings/certificate-authority/",
            "clusters/orders/settings/grow/",
            "clusters/orders/credentials/",
            f"clusters/orders/credentials/{access_key}/reveal/",
            f"clusters/orders/credentials/{access_key}/delete/",
            f"clusters/orders/credentials/{access_key}/rotate/",
            f"clusters/orders/credentials/{access_key}/quotas/",
            "clusters/orders/topics/",
            "clusters/orders/topics-csv/",
            "clusters/orders/lag-csv/",
            "clusters/orders/topics/payments/messages/search/csv/",
            "clusters/orders/new-topic/",
            "clusters/orders/topics/payments/",
            "clusters/orders/topics/payments/change/",
            "clusters/orders/topics/payments/retry/",
            "clusters/orders/topics/payments/delete/",
            "clusters/orders/topics/payments/queues/",
            "clusters/orders/topics/payments/route/",
            "clusters/orders/topics/payments/schema/",
            "clusters/orders/topics/payments/schema/delete/",
            "clusters/orders/topics/payments/send/",
            "clusters/orders/topics/payments/messages/",
            "clusters/orders/topics/payments/messages/search/",
            "clusters/orders/topics/payments/messages/tail/",
            "clusters/orders/topics/payments/messages/broker-a/0/0/",
            "clusters/orders/topics/payments/messages/broker-a/0/0/resend/",
            "clusters/orders/topics/payments/messages/broker-a/0/0/consume/",
        )
    ]


def resend_of(world: World) -> DivergedResend:
    return DivergedResend.objects.first() or diverged_resend(world.cluster)


def replay_of(world: World) -> DeadLetterReplay:
    return DeadLetterReplay.objects.first() or dead_letter_replay(world.cluster)


def test_the_list_of_addresses_is_complete(world: World) -> None:
    from controlplane.console import urls

    named = {pattern.name for pattern in [*urls._tenant, *urls._cluster, *urls._topic] if hasattr(pattern, "name")}
    assert len(addresses(world)) == len(named)


def test_an_outsider_gets_404_from_every_address_by_any_method(world: World) -> None:
    client = world.client(world.charlie)
    for address in addresses(world):
        for method in ("get", "post"):
            status = getattr(client, method)(address).status_code
            # 405 comes before the tenant is looked up, so it is the same for a tenant that doesn't exist.
            assert status in (404, 405), f"{method} {address}: {status}"
            absent = getattr(client, method)(address.replace("/t/acme/", "/t/no-such-tenant/")).status_code
            assert status == absent


def test_an_outsider_changes_nothing(world: World) -> None:
    client = world.client(world.charlie)
    client.post(world.path("members/"), {"email": "charlie@example.com", "role": "owner"})
    client.post(world.cluster_path("settings/"), {"typed": "orders"})
    world.cluster.refresh_from_db()
    assert world.cluster.state == ClusterState.RUNNING
    assert not Membership.objects.filter(tenant=world.tenant, user=world.charlie).exists()


def test_what_belongs_to_another_tenant_is_not_found_below_ones_own(world: World) -> None:
    foreign = make_cluster(world.foreign_tenant, "secret")
    operation = make_operation(foreign, OperationState.COMPLETED, 7)
    membership = world.foreign_tenant.memberships.get()
    token = api_token_issue(actor=world.charlie, tenant=world.foreign_tenant, name="script").token
    access_key = foreign.credentials.get(is_control=False).access_key
    client = world.client(world.alice)
    for rest in (
        "clusters/secret/",
        f"operations/{operation.pk}/",
        f"members/{membership.pk}/remove/",
        f"tokens/{token.pk}/revoke/",
        f"clusters/orders/credentials/{access_key}/delete/",
        f"operations/{uuid.uuid4()}/",
    ):
        assert client.get(world.path(rest)).status_code == 404, rest


def test_each_row_of_another_tenant_is_not_found_by_its_id(world: World) -> None:
    """Charlie has a cluster and a topic of the same names, so that only the ids are foreign."""
    with_ids = [address for address in addresses(world) if re.search(r"/[0-9a-f]{8}-", address)]
    make_topic(make_cluster(world.foreign_tenant, world.cluster.slug), "payments")
    client = world.client(world.charlie)
    before = AuditEvent.objects.filter(tenant_id=world.tenant.pk).count()
    wrong = []
    for address in with_ids:
        foreign = address.replace(f"/t/{world.tenant.slug}/", f"/t/{world.foreign_tenant.slug}/")
        absent = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", str(uuid.uuid4()), foreign)
        asked = [client.get(foreign), client.post(foreign), client.get(absent), client.post(absent)]
        statuses = [answer.status_code for answer in asked]
        # A form that finds no row leads back to its page, which says so.
        if statuses[:2] != statuses[2:] or statuses[0] not in (404, 405) or statuses[1] not in (302, 404, 405):
            wrong.append(f"{foreign}: {statuses}")
    assert len(with_ids) > 25
    assert wrong == []
    assert AuditEvent.objects.filter(tenant_id=world.tenant.pk).count() == before


def test_a_page_asks_once_for_its_readers_role(world: World) -> None:
    client = world.client(world.alice)
    with CaptureQueriesContext(connection) as captured:
        assert client.get(world.cluster_path()).status_code == 200
    assert sum('"tenants_membership"."role"' in query["sql"] for query in captured) == 1


def test_a_role_that_is_taken_away_opens_no_further_page(world: World) -> None:
    client = world.client(world.bob)
    assert client.get(world.cluster_path()).status_code == 200
    world.bob.memberships.all().delete()
    assert client.get(world.cluster_path()).status_code == 404


def test_a_stranger_is_sent_to_the_log_in(world: World) -> None:
    client = world.client(None)
    for address in addresses(world):
        response = client.get(address)
        assert response.status_code in (302, 405), address
        if response.status_code == 302:
            assert response.headers["Location"].startswith("/login/?next=")


@pytest.mark.parametrize("rest", ["new-cluster/", "tokens/", "clusters/orders/settings/", "clusters/orders/new-topic/"])
def test_a_viewer_is_told_which_role_a_page_needs(world: World, rest: str) -> None:
    response = world.client(world.victor).get(world.path(rest))
    assert response.status_code == 403
    assert "This needs the role" in response.content.decode()


def test_a_viewer_sees_no_secret_and_no_button_that_would_be_refused(world: World) -> None:
    make_topic(world.cluster, "payments")
    client = world.client(world.victor)
    overview = client.get(world.cluster_path()).content.decode()
    topic = client.get(world.cluster_path("topics/payments/")).content.decode()
    assert "Reveal" not in overview
    assert "New topic" not in overview
    assert "Delete" not in topic
    assert "Send message" not in topic


def test_a_member_can_not_create_a_cluster_by_posting_either(world: World) -> None:
    response = world.client(world.bob).post(world.path("new-cluster/"), {"slug": "mine"})
    assert response.status_code == 403
    assert not world.tenant.clusters.filter(slug="mine").exists()


def test_a_form_without_a_csrf_token_changes_nothing(world: World) -> None:
    from django.test import Client

    client = Client(enforce_csrf_checks=True)
    client.force_login(world.alice, backend="django.contrib.auth.backends.ModelBackend")
    assert client.post(world.path("new-cluster/"), {"slug": "forged"}).status_code == 403
    assert not world.tenant.clusters.filter(slug="forged").exists()


def test_a_member_may_leave_but_the_last_owner_may_not(world: World) -> None:
    bobs = world.tenant.memberships.get(user=world.bob)
    alices = world.tenant.memberships.get(user=world.alice)
    world.client(world.bob).post(world.path(f"members/{bobs.pk}/remove/"))
    response = world.client(world.alice).post(world.path(f"members/{alices.pk}/remove/"))
    assert not Membership.objects.filter(pk=bobs.pk).exists()
    assert Membership.objects.get(pk=alices.pk).role == Role.OWNER
    assert "A tenant needs an owner" in response.content.decode()


def test_a_topic_name_in_the_page_is_text_not_markup(world: World) -> None:
    Topic.objects.create(cluster=world.cluster, name="x", description="<script>alert(1)</script>")
    page = world.client(world.alice).get(world.cluster_path("topics/")).content.decode()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_the_operators_page_says_what_keeps_clusters_apart_and_what_of_the_disk_is_promised(
    world: World, settings: Any, tmp_path: Path
) -> None:
    settings.HIGHWATER_STATE_DIR = tmp_path
    assert world.client(world.alice).get("/operator/machine/").status_code == 404
    world.alice.is_staff = True
    world.alice.save()
    page = world.client(world.alice).get("/operator/machine/").content.decode()
    reason = shared_user_reason()
    assert ("The daemons of all clusters run as one user." in page) is bool(reason)
    assert escape(reason) in page
    with patch("shutil.disk_usage", return_value=SimpleNamespace(total=1, free=1, used=0)):
        assert "are promised more than is free" in world.client(world.alice).get("/operator/machine/").content.decode()


def test_operators_alone_read_the_mails_of_a_platform_without_a_mail_server(
    world: World, settings: Any, tmp_path: Path
) -> None:
    settings.EMAIL_FILE_PATH = str(tmp_path)
    settings.EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
    send_mail("Your link", "Open http://127.0.0.1:8000/email/ <now>", None, ["bob@example.com"])
    assert world.client(world.alice).get("/operator/mail/").status_code == 404
    world.alice.is_staff = True
    world.alice.save()
    page = world.client(world.alice).get("/operator/mail/").content.decode()
    assert "Your link · bob@example.com" in page
    assert '<a href="http://127.0.0.1:8000/email/" rel="nofollow">' in page
    assert "&lt;now&gt;" in page


def test_an_operation_that_does_not_go_on_is_put_back_or_ended_on_the_machine_page(
    world: World, tmp_path: Path
) -> None:
    operation = operation_start(actor=SYSTEM, cluster=world.cluster, operation_type=OperationType.GROUP_TRANSFER)
    Operation.objects.filter(pk=operation.pk).update(created_at=timezone.now() - timedelta(minutes=5))
    world.alice.is_staff = True
    world.alice.save()
    client = world.client(world.alice)
    with patch.object(operator_machine, "get_driver", return_value=DriverTwin(tmp_path)):
        page = client.get("/operator/machine/").content.decode()
        assert "The group has a leader, the old one or the new one." in page
        again = client.post(f"/operator/operations/{operation.pk}/requeue/", follow=True).content.decode()
        assert "It is in the queue again." in again
        refused = client.post(f"/operator/operations/{operation.pk}/fail/", {"reason": ""})
        assert (refused.status_code, "This field is required" in refused.content.decode()) == (422, True)
        ended = client.post(f"/operator/operations/{operation.pk}/fail/", {"reason": "it hangs"}, follow=True)
        assert "its tenant can retry it" in ended.content.decode()
    operation.refresh_from_db()
    assert operation.state == OperationState.FAILED


def test_the_machine_page_shows_what_fits_no_row_and_clears_it(world: World, tmp_path: Path) -> None:
    world.alice.is_staff = True
    world.alice.save()
    driver = DriverTwin(tmp_path)
    driver.process_start(DaemonProcess("hw-6f0a2a536d0c-broker-a-0", uuid.uuid4(), [], ""))
    driver.files_write(world.cluster.pk, {"broker-a-0/broker.conf": ""})
    client = world.client(world.alice)
    with patch.object(operator_machine, "get_driver", return_value=driver):
        assert "hw-6f0a2a536d0c-broker-a-0" in client.get("/operator/machine/").content.decode()
        assert client.post("/operator/machine/clear/").status_code == 302
        page = client.get("/operator/machine/").content.decode()
    assert "Every daemon, directory and port belongs to a cluster" in page


def test_directories_of_no_cluster_are_deleted_on_the_machine_page_once_their_number_is_typed(
    world: World, tmp_path: Path
) -> None:
    world.alice.is_staff = True
    world.alice.save()
    driver, gone = DriverTwin(tmp_path), uuid.uuid4()
    for cluster_id in (world.cluster.pk, gone):
        driver.files_write(cluster_id, {"broker-a-0/broker.conf": ""})
    client = world.client(world.alice)
    with patch.object(operator_machine, "get_driver", return_value=driver):
        refused = client.post("/operator/machine/delete/", {"confirm": "2"}, follow=True).content.decode()
        assert "Type 1." in refused
        assert gone in driver.inventory().clusters
        client.post("/operator/machine/delete/", {"confirm": "1"})
    assert list(driver.inventory().clusters) == [world.cluster.pk]


@pytest.mark.parametrize("act", ["clear", "delete"])
def test_no_one_but_operators_clears_the_machine(world: World, act: str) -> None:
    assert world.client(world.alice).post(f"/operator/machine/{act}/").status_code == 404
