"""Each page in a real browser, without daemons: accessible in light and dark, whole on a phone, nothing blocked by the policy."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.db.models import F
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.clusters import configuration, limits
from controlplane.clusters.broker_keys import BROKER_KEYS
from controlplane.clusters.models import (
    BrokerGroup,
    ClusterState,
    ConfigurationChange,
    Credential,
    Operation,
    OperationState,
    OperationStep,
    OperationType,
    Replica,
)
from controlplane.clusters.replica_remoting import BrokerQuota
from controlplane.clusters.workflows import WORKFLOWS
from controlplane.console.views import dead_letters, diverged, message_trace, rolling, topic_parts
from controlplane.consumers import route_map
from controlplane.consumers.dead_letters import DeadLetter, DeadLetters
from controlplane.consumers.models import ReplayState
from controlplane.failover.diverged.cuts import CutMessage, CutPage, SavedCut, SavedCuts, SilentReplica, TopicCount
from controlplane.failover.rolling.plan import PlannedRestart
from controlplane.failover.rolling.services import RollingPlan
from controlplane.insight.whereabouts import Holding, ReplicaHolding, Whereabouts
from controlplane.provisioning.certificate_files import authority_ensure
from controlplane.provisioning.hosts import hosts_sample, placements
from controlplane.provisioning.models import HostSample
from controlplane.provisioning.versions import DaemonVersion
from controlplane.tenants.invitation_services import invitation_create
from controlplane.tenants.service_account_services import service_account_create
from controlplane.tenants.token_services import api_token_issue
from controlplane.topics.bodies import ShownBody
from controlplane.topics.gateway import BrowsedMessage
from controlplane.topics.masking_rules import masking_rule_create
from controlplane.topics.models import Topic, TopicState
from controlplane.topics.selectors import LimitUse, LiveState, QueueOffsets, TopicLive
from highwater.diverged import Fate
from highwater.trace_story import TracedDelivery, TracedSend, TracedTransaction, TraceStory
from highwater.whereabouts import GroupStanding, IdReading, SearchFacts, Standing, why_not_found
from tests.console.browser import LogIn, look_at
from tests.console.world import World, make_cluster, make_operation, make_schema, make_topic
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.route_twin import RouteTwin
from tests.controlplane.test_hosts import host_usage, usage
from tests.controlplane.world import alert_of, dead_letter_replay, diverged_resend


@pytest.mark.parametrize(
    ("name", "path"),
    [("front page", "/"), ("log in", "/login/"), ("sign up", "/signup/"), ("reset password", "/password/reset/")],
)
@pytest.mark.django_db(transaction=True)
def test_a_page_for_strangers_looks_right(page: Page, live_server: LiveServer, name: str, path: str) -> None:
    page.goto(live_server.url + path)
    look_at(page, name)


PAGES = (
    ("tenants", "/tenants/"),
    ("tenant new", "/tenants/new/"),
    ("clusters", "/t/acme/"),
    ("cluster new", "/t/acme/new-cluster/"),
    ("cluster", "/t/acme/clusters/orders/"),
    ("cluster connect", "/t/acme/clusters/orders/connect/"),
    ("cluster settings", "/t/acme/clusters/orders/settings/"),
    ("configuration", "/t/acme/clusters/orders/settings/configuration/"),
    ("credentials", "/t/acme/clusters/orders/credentials/"),
    ("credential quotas", "/t/acme/clusters/orders/credentials/{access_key}/quotas/"),
    ("credential rotate", "/t/acme/clusters/orders/credentials/{access_key}/rotate/"),
    ("credential delete", "/t/acme/clusters/orders/credentials/{access_key}/delete/"),
    ("topics", "/t/acme/clusters/orders/topics/"),
    ("topic new", "/t/acme/clusters/orders/new-topic/"),
    ("topic unreachable", "/t/acme/clusters/orders/topics/payments/"),
    ("topic change", "/t/acme/clusters/orders/topics/payments/change/"),
    ("topic schema", "/t/acme/clusters/orders/topics/payments/schema/"),
    ("topic delete", "/t/acme/clusters/orders/topics/payments/delete/"),
    ("members", "/t/acme/members/"),
    ("invitation", "{invitation}"),
    ("operator machine", "/operator/machine/"),
    ("operator mail", "/operator/mail/"),
    ("operator limits", "/operator/limits/"),
    ("operator limits of a tenant", "/operator/limits/acme/"),
    ("audit", "/t/acme/audit/"),
    ("limits", "/t/acme/limits/"),
    ("budget", "/t/acme/budget/"),
    ("usage records", "/t/acme/usage/records/"),
    ("group reset", "/t/acme/clusters/orders/lag/billing/reset/"),
    ("restart", "/t/acme/clusters/orders/settings/restart/"),
    ("certificate authority", "/t/acme/clusters/orders/settings/certificate-authority/"),
    ("tokens", "/t/acme/tokens/"),
    ("service accounts", "/t/acme/service-accounts/"),
    ("masking", "/t/acme/masking/"),
    ("service account", "/t/acme/service-accounts/{account}/"),
    ("not found", "/t/globex/"),
    ("e-mail addresses", "/email/"),
    ("change password", "/password/change/"),
)


def test_the_pages_of_a_tenant_look_right(page: Page, live_server: LiveServer, world: World, log_in: LogIn) -> None:
    authority_ensure(world.cluster, datetime.now(UTC))
    make_schema(make_topic(world.cluster, "payments"))
    make_topic(world.cluster, "a-topic-with-a-rather-long-name-that-somebody-liked_2026", TopicState.FAILED)
    make_cluster(world.tenant, "staging", ClusterState.PROVISIONING)
    make_cluster(world.tenant, "broken", ClusterState.FAILED)
    api_token_issue(actor=world.alice, tenant=world.tenant, name="deployment script", days=90)
    account = service_account_create(actor=world.alice, tenant=world.tenant, name="deployment", role="operator")
    api_token_issue(actor=world.alice, tenant=world.tenant, name="first", role="operator", service_account=account)
    for topic, part, pattern in (
        ("payments", "body", "$.card.number"),
        ("*", "body", "*.email"),
        ("*", "property", "KEYS"),
    ):
        masking_rule_create(
            actor=world.alice, tenant=world.tenant, topic=topic, part=part, pattern=pattern, visible_from="admin"
        )
    credential = world.cluster.credentials.get(is_control=False)
    invitation_create(actor=world.alice, tenant=world.tenant, email="dora.with.a.long.name@example.com", role="viewer")
    to_alice = invitation_create(
        actor=world.charlie, tenant=world.foreign_tenant, email=world.alice.email, role="operator"
    )
    invitation = to_alice.link[to_alice.link.index("/invitations/") :]
    log_in(world.alice)
    for name, path in PAGES:
        world.alice.is_staff = name.startswith("operator")
        world.alice.save()
        values = {"access_key": credential.access_key, "invitation": invitation, "account": account.pk}
        page.goto(live_server.url + path.format(**values))
        look_at(page, name)


@pytest.mark.parametrize(
    ("name", "path"),
    [("clusters", "/t/acme/"), ("topics", "/t/acme/clusters/orders/topics/"), ("tokens", "/t/acme/tokens/")],
)
def test_an_empty_list_says_what_to_do_next(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn, name: str, path: str
) -> None:
    if name == "clusters":
        world.cluster.delete()
    log_in(world.alice)
    page.goto(live_server.url + path)
    look_at(page, f"{name} empty")


@pytest.mark.parametrize(
    ("state", "done"), [(OperationState.IN_PROGRESS, 3), (OperationState.FAILED, 2), (OperationState.COMPLETED, 8)]
)
def test_progress_looks_right(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn, state: OperationState, done: int
) -> None:
    cluster_state = {
        OperationState.IN_PROGRESS: ClusterState.PROVISIONING,
        OperationState.FAILED: ClusterState.FAILED,
        OperationState.COMPLETED: ClusterState.RUNNING,
    }[state]
    operation = make_operation(make_cluster(world.tenant, "staging", cluster_state), state, done)
    log_in(world.alice)
    page.goto(f"{live_server.url}/t/acme/operations/{operation.pk}/")
    expect(page.locator("#progress")).to_have_attribute("data-state", state)
    look_at(page, f"progress {state}")


def test_a_topic_with_limits_looks_right(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(world.cluster, "payments")
    Topic.objects.filter(pk=topic.pk).update(retention_hours=24, retention_bytes=10 * 1024**3)
    limits = [
        LimitUse("broker-a", "reserve.time", 24, None),
        LimitUse("broker-a", "quota.messages.per.second", 500, 120),
        LimitUse("broker-a", "quota.stored.bytes", 1024**3, 1_020_000_000),
    ]
    queues = [QueueOffsets("broker-a", number, 1_200, 48_213, datetime.now(UTC)) for number in range(4)]
    live = TopicLive(LiveState.LIVE, datetime.now(UTC), queues, limits=limits)
    monkeypatch.setattr(topic_parts, "topics_live", lambda *_, **__: {"payments": live})
    log_in(world.bob)
    page.goto(f"{live_server.url}/t/acme/clusters/orders/topics/payments/")
    expect(page.locator("#limits tbody tr")).to_have_count(3)
    look_at(page, "topic limits")
    page.goto(f"{live_server.url}/t/acme/clusters/orders/topics/payments/change/")
    expect(page.get_by_label("Keep at most")).to_have_value("10 GiB")
    look_at(page, "topic change limits")
    page.goto(f"{live_server.url}/t/acme/clusters/orders/new-topic/")
    page.get_by_text("Retention and quotas").click()
    look_at(page, "topic new limits")


def test_the_quotas_of_a_key_pair_look_right(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = world.cluster.credentials.get(is_control=False).access_key
    Credential.objects.filter(access_key=key).update(quota_messages_per_second=500, quota_bytes_per_second=2 * 1024**2)
    quotas = (
        BrokerQuota("quotaMessagesPerSecond", f"{key} (send)", 480, 500),
        BrokerQuota("quotaBytesPerSecond", f"{key} (pull)", 1024**2, 2 * 1024**2),
        BrokerQuota("quotaCredentialConnections", key, 12, 5_000),
    )
    monkeypatch.setattr(limits, "broker_quotas", lambda brokers: [quotas for _ in brokers])
    log_in(world.alice)
    page.goto(f"{live_server.url}/t/acme/clusters/orders/credentials/{key}/quotas/")
    expect(page.get_by_label("Bytes a second")).to_have_value("2 MiB")
    look_at(page, "credential quotas with use")


def test_a_topics_route_looks_right(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(world.cluster, "payments")
    group = BrokerGroup.objects.create(cluster=world.cluster, name="broker-b")
    Replica.objects.create(group=group, host="127.0.0.9", port=3)
    brokers = RouteTwin()
    del brokers.addresses["broker-b"]
    brokers.members["two@2"] = []
    monkeypatch.setattr(route_map, "cluster_admin", brokers.cluster_admin)
    log_in(world.bob)
    page.goto(f"{live_server.url}/t/acme/clusters/orders/topics/payments/")
    expect(page.locator("#route tbody tr")).to_have_count(2)
    look_at(page, "topic with route")
    page.get_by_role("button", name="Ask its members").click()
    expect(page.locator("#readers tbody tr")).to_have_count(2)
    look_at(page, "topic route")


def test_where_a_message_is_looks_right(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(world.cluster, "payments")
    monkeypatch.setattr(message_trace, "message_whereabouts", lambda **asked: traced(str(asked["text"])))
    log_in(world.bob)
    page.goto(f"{live_server.url}/t/acme/clusters/orders/message-trace/?q=o-1")
    expect(page.locator("#found")).to_be_visible()
    look_at(page, "message trace")
    page.get_by_label("Key or message id").fill("nowhere")
    page.get_by_role("button", name="Find message").click()
    expect(page.locator("#not-found li")).to_have_count(2)
    look_at(page, "message trace not found")


def test_dead_letters_look_right(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(UTC)
    letters = [
        DeadLetter(
            broker_name="broker-a",
            queue_id=0,
            queue_offset=offset,
            topic="payments",
            died_at=now,
            born_at=now,
            tries=17,
            tags="",
            keys=(f"o-{offset}",),
            message_id="7F0000010000000100000000000000FF",
            offset_message_id="7F00000100002A9F0000000000001000",
            body=ShownBody("utf-8", '{"order": 1234, "amount": "12.00"}', 40, 40),
            masked=(),
        )
        for offset in (8, 7)
    ]
    monkeypatch.setattr(dead_letters, "dead_letters", lambda **_: DeadLetters(letters, 9, complete=True))
    outcome = {"broker_name": "broker-a", "queue_id": 0, "offset": 3, "outcome": "unknown", "reason": "No answer came."}
    replay = dead_letter_replay(
        world.cluster, ReplayState.STOPPED, unknown=1, outcomes=[outcome], message="The rule is to stop after 1."
    )
    log_in(world.bob)
    page.goto(f"{live_server.url}/t/acme/clusters/orders/lag/billing/dead-letters/")
    expect(page.locator("#letters tbody tr")).to_have_count(2)
    look_at(page, "dead letters")
    page.get_by_role("button", name="Start the replay").click()
    expect(page.get_by_text("Select at least one dead letter, or replay all.")).to_be_visible()
    page.goto(f"{live_server.url}/t/acme/clusters/orders/lag/billing/replays/{replay.pk}/")
    expect(page.locator("#replay")).to_have_attribute("data-state", "stopped")
    look_at(page, "dead letter replay")


def test_diverged_messages_look_right(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = saved_cut(world)
    messages = [
        cut_message(0, Fate.REPLACED, ""),
        cut_message(310, Fate.MOVED, "payments / broker-a / 0 / 12"),
        cut_message(620, None, ""),
    ]
    monkeypatch.setattr(diverged, "saved_cuts", lambda **_: SavedCuts([cut], [SilentReplica("broker-a", 1, "away")]))
    monkeypatch.setattr(diverged, "saved_cut", lambda **_: cut)
    monkeypatch.setattr(diverged, "cut_messages", lambda **_: CutPage(messages, 2, 930))
    outcome = {
        "position": 310,
        "topic": "payments",
        "queue_id": 0,
        "offset": 4,
        "outcome": "skipped",
        "reason": "There.",
    }
    resend = diverged_resend(world.cluster, ReplayState.COMPLETED, sent=3, skipped=1, outcomes=[outcome])
    log_in(world.alice)
    base = f"{live_server.url}/t/acme/clusters/orders/"
    page.goto(f"{base}diverged/")
    expect(page.locator("#cuts tbody tr")).to_have_count(1)
    look_at(page, "diverged messages")
    page.locator("#cuts a").first.click()
    expect(page.locator("#cut-messages tbody tr")).to_have_count(3)
    look_at(page, "diverged file")
    page.get_by_role("button", name="Start the resend").click()
    expect(page.get_by_text("Select at least one message, or send all.")).to_be_visible()
    page.goto(f"{base}diverged-resends/{resend.pk}/")
    expect(page.locator("#replay")).to_have_attribute("data-state", "completed")
    look_at(page, "diverged resend")
    page.goto(f"{base}diverged/broker-a/0/{cut.name}/delete/")
    look_at(page, "diverged delete")


def test_the_operators_pages_of_hosts_look_right(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn, tmp_path: Path
) -> None:
    world.alice.is_staff = True
    world.alice.save()
    placed = placements()
    host = placed[0].host
    Replica.objects.create(group=world.cluster.broker_groups.get(), broker_id=1, host=host)
    driver = DriverTwin(tmp_path)
    for minute in range(3):
        driver.hosts = [host_usage(host, cpu_busy_s=100.0 + 40 * minute, cpu_total_s=1000.0 + 60 * minute)]
        driver.usages = [usage(one.process, host, cpu_s=10.0 + 20 * minute) for one in placed]
        hosts_sample(driver)
        HostSample.objects.update(sampled_at=F("sampled_at") - timedelta(seconds=60))
    alert_of(world.cluster, "leader_missing", subject="broker-a")
    log_in(world.alice)
    page.goto(f"{live_server.url}/operator/hosts/")
    expect(page.locator("#hosts tbody tr")).to_have_count(1)
    expect(page.locator("#placements tbody tr")).to_have_count(len(placed) + 1)
    look_at(page, "operator hosts")
    page.goto(f"{live_server.url}/operator/troubles/")
    expect(page.locator("#troubles tbody tr")).to_have_count(1)
    look_at(page, "operator troubles")
    page.get_by_role("link", name="Open an incident").click()
    expect(page.locator("input[name=incident-title]")).to_have_value("A cluster has no leader")


def saved_cut(world: World) -> SavedCut:
    """Three messages of a former leader."""
    now = datetime.now(UTC)
    return SavedCut(
        cluster=world.cluster,
        group_name="broker-a",
        replica_id=0,
        address="10.0.0.1:10911",
        name=f"3-{4096:020d}-{5026:020d}-1700000000000.log",
        reason="diverged",
        epoch=3,
        cut_at=now,
        begin_offset=4096,
        size_bytes=930,
        left_out_bytes=4096,
        is_counted=True,
        messages=3,
        own_records=2,
        topics=[TopicCount("payments", 2), TopicCount("%RETRY%billing", 1)],
        first_stored_at=now,
        last_stored_at=now,
        done=None,
    )


def cut_message(position: int, fate: Fate | None, place: str) -> CutMessage:
    now = datetime.now(UTC)
    message = BrowsedMessage(
        message_id="7F0000010000000100000000000000FF",
        offset_message_id="7F00000100002A9F0000000000001000",
        broker_name="broker-a",
        queue_id=0,
        queue_offset=position // 310 + 4,
        born_at=now,
        stored_at=now,
        born_host="10.0.0.7",
        tags="",
        keys=(f"o-{position}",),
        properties={},
        reconsume_times=0,
        body=ShownBody("utf-8", '{"order": 1234, "amount": "12.00"}', 40, 40),
    )
    return CutMessage(position, "payments", message, fate, place, "")


def traced(text: str) -> Whereabouts:
    """A message with a replica and a group in each state; any text but o-1 finds nothing."""
    now = datetime.now(UTC)
    message = BrowsedMessage(
        message_id="7F0000010000000100000000000000FF",
        offset_message_id="7F00000100002A9F0000000000001000",
        broker_name="broker-a",
        queue_id=2,
        queue_offset=140,
        born_at=now,
        stored_at=now,
        born_host="10.0.0.7",
        tags="paid",
        keys=("o-1",),
        properties={},
        reconsume_times=0,
        body=ShownBody("utf-8", "hello", 5, 5),
        clock_note="Its sender’s clock is ahead of the broker’s by at least 5 minutes.",
    )
    groups = [
        GroupStanding(f"{standing}-group", standing, "A sentence that says where the message stands.", next_ms=1)
        for standing in Standing
    ]
    holdings = [
        ReplicaHolding(number, "slave", holding, "A sentence about this replica.", now)
        for number, holding in enumerate(Holding)
    ]
    is_found = text == "o-1"
    return Whereabouts(
        text=text,
        reading=IdReading(),
        matches=[message, message] if is_found else [],
        message=message if is_found else None,
        topic="payments" if is_found else "",
        original_is_gone=False,
        delayed_until=None,
        is_half=False,
        is_confirmed=True if is_found else None,
        replicas=holdings if is_found else [],
        groups=groups if is_found else [],
        groups_left_out=0,
        reasons=[] if is_found else why_not_found(SearchFacts(IdReading(), unindexed=["broker-a"]), 0),
        traces=traces() if is_found else None,
    )


def traces() -> TraceStory:
    """A send, a delivery with each result, and the end of a transaction."""
    send = TracedSend(
        1_795_560_000_000, "10.0.0.7", "shop", "payments", "10.0.0.1:10911", 41, 100, "normal", True, False
    )
    deliveries = [
        TracedDelivery(
            1_795_560_000_000 + 1000 * number,
            "10.0.0.8",
            "billing",
            number,
            24 if result else None,
            result,
            number != 1,
        )
        for number, result in enumerate(("failed", "time_out", "exception", "returned_null", "success", ""))
    ]
    ended = TracedTransaction(1_795_560_000_050, "10.0.0.7", "shop", "COMMIT_MESSAGE")
    return TraceStory((send,), tuple(deliveries), (ended,))


@pytest.mark.parametrize("language", ["English", "简体中文"])
def test_the_configuration_with_brokers_that_differ_and_a_change_looks_right(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn, monkeypatch: pytest.MonkeyPatch, language: str
) -> None:
    reported = {key.name: key.text_of(key.default) for key in BROKER_KEYS.values()}
    reported |= {"traceTopicEnable": "false", "brokerPermission": "4"}
    monkeypatch.setattr(configuration, "broker_configurations", lambda _, addresses: dict.fromkeys(addresses, reported))
    ConfigurationChange.objects.create(
        cluster=world.cluster,
        number=1,
        changes={"deleteWhen": [4, 3], "fileReservedTime": [72, 96]},
        configuration={"deleteWhen": 3, "fileReservedTime": 96},
        changed_by="alice@example.com",
    )
    log_in(world.alice)
    page.goto(f"{live_server.url}/t/acme/clusters/orders/settings/configuration/")
    page.get_by_role("button", name=language).click()
    named = "chinese" if language != "English" else "english"
    look_at(page, f"configuration differs {named}")
    page.locator("#id_fileReservedTime").fill("240")
    page.locator("#id_autoCreateTopicEnable").check()
    page.locator('form[data-curl="curl-configuration"] button[type=submit]').click()
    expect(page.locator("#plan-title")).to_be_visible()
    look_at(page, f"configuration change {named}")


@pytest.mark.parametrize("language", ["English", "简体中文"])
def test_a_rolling_upgrade_looks_right(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn, monkeypatch: pytest.MonkeyPatch, language: str
) -> None:
    named = "chinese" if language != "English" else "english"
    daemons = [
        DaemonVersion("broker-a #0", "broker", "127.0.0.2:3", "0.1.0+3fa2c1b", "0.1.0+8c75804"),
        DaemonVersion("broker-a #1", "broker", "127.0.0.2:4", "", "0.1.0+8c75804"),
        DaemonVersion("broker-a #2", "broker", "127.0.0.2:5", None, "0.1.0+8c75804"),
    ]
    follower = PlannedRestart("broker-a #1", "127.0.0.2:4")
    leader = PlannedRestart("broker-a #0", "127.0.0.2:3", moves_leadership=True)
    monkeypatch.setattr(rolling, "cluster_versions", lambda cluster: daemons)
    monkeypatch.setattr(rolling, "rolling_plan", lambda **_: RollingPlan((), (follower, leader)))
    log_in(world.alice)
    page.goto(f"{live_server.url}/t/acme/clusters/orders/settings/restart/")
    page.get_by_role("button", name=language).click()
    look_at(page, f"restart {named}")
    shared = {"kind": "broker", "group": "broker-a", "address": "127.0.0.2:3", "version_before": "0.1.0+3fa2c1b"}
    done = {
        **shared,
        "name": "broker-a #1",
        "row": "1",
        "replica": 1,
        "version_after": "0.1.0+8c75804",
        "stopped_at": "2026-11-25T02:00:00+00:00",
        "back_at": "2026-11-25T02:00:04+00:00",
        "leadership_moved_to": None,
        "sends_refused_ms": 0,
    }
    waiting = {**done, "name": "broker-a #2", "version_after": None, "stopped_at": None, "back_at": None}
    led = {**done, "name": "broker-a #0", "replica": 0, "leadership_moved_to": 1, "sends_refused_ms": 1288}
    operation = Operation.objects.create(
        tenant=world.tenant,
        cluster=world.cluster,
        type=OperationType.CLUSTER_UPGRADE,
        resource=world.cluster.path,
        requested_by="alice@example.com",
        metadata={"purpose": "upgrade", "daemons": [done, led, waiting]},
    )
    for position, definition in enumerate(WORKFLOWS[OperationType.CLUSTER_UPGRADE]):
        OperationStep.objects.create(operation=operation, position=position, name=definition.name)
    page.goto(f"{live_server.url}/t/acme/operations/{operation.pk}/")
    expect(page.get_by_text("1.29")).to_be_visible()
    look_at(page, f"rolling progress {named}")
