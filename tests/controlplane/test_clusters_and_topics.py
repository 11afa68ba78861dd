"""Clusters, credentials and topics where no daemon answers: rules, secrets, and truth about what isn't known."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest
from django.test import override_settings
from django.utils import timezone

from brokerd.acl_file import parse
from brokerd.topic_validator import invalid_group, invalid_topic
from controlplane.clusters import replica_remoting
from controlplane.clusters.credential_services import (
    EXCEPTIONS_MAX,
    Permissions,
    acl_account,
    credential_create,
    credential_reveal,
)
from controlplane.clusters.models import (
    BrokerGroup,
    Cluster,
    ClusterState,
    Credential,
    Health,
    NameServer,
    OperationState,
    Replica,
)
from controlplane.clusters.secrets import SecretUnreadable, secret_decrypt, secret_encrypt
from controlplane.clusters.selectors import cluster_health
from controlplane.clusters.services import cluster_create
from controlplane.common.errors import (
    BrokerRefused,
    BrokerUnreachable,
    Conflict,
    InvalidInput,
    NotAllowed,
)
from controlplane.common.models import AuditEvent
from controlplane.provisioning.drivers.base import ProcessState, ProcessStatus
from controlplane.provisioning.health import judge
from controlplane.provisioning.probe import Registration
from controlplane.provisioning.rendering import render_plain_acl
from controlplane.topics import services
from controlplane.topics.bodies import body_shown
from controlplane.topics.gateway import TestMessage
from controlplane.topics.models import Topic, TopicState
from controlplane.topics.names import topic_name_check
from controlplane.topics.selectors import LiveState, topics_live
from controlplane.topics.services import TopicOptions, topic_create, topic_delete, topic_update
from highwater import ClusterInfo
from mqwire.bodies import TopicConfig
from tests.controlplane.brokers_twin import BrokersTwin, brokers_that_answer
from tests.controlplane.world import Json, World, make_cluster

NOW = datetime(2026, 11, 21, 3, 31, 7, tzinfo=UTC)


def test_a_new_cluster_is_requested_with_its_operation(world: World) -> None:
    cluster, operation = cluster_create(actor=world.alice, tenant=world.acme, slug="fresh")
    assert (cluster.state, operation.state) == (ClusterState.REQUESTED, OperationState.IN_PROGRESS)
    assert operation.requested_by == "alice@example.com"


def test_two_tenants_may_use_the_same_name(world: World) -> None:
    cluster_create(actor=world.charlie, tenant=world.globex, slug="orders")


def test_a_secret_is_encrypted_at_rest(world: World) -> None:
    credential = Credential.objects.filter(is_control=False).get()
    secret = secret_decrypt(credential.secret_encrypted)
    assert len(secret) == 40
    assert secret.encode() not in bytes(credential.secret_encrypted)


def test_secrets_survive_a_rotation_of_the_key() -> None:
    ciphertext = secret_encrypt("s3cret")
    from django.conf import settings

    former = settings.SECRET_KEY
    with override_settings(SECRET_KEY="another", SECRET_KEY_FALLBACKS=[former]):
        assert secret_decrypt(ciphertext) == "s3cret"
    with override_settings(SECRET_KEY="another", SECRET_KEY_FALLBACKS=[]), pytest.raises(SecretUnreadable):
        secret_decrypt(ciphertext)


def test_each_look_at_a_secret_is_in_the_audit_trail(world: World) -> None:
    credential = Credential.objects.filter(is_control=False).get()
    credential_reveal(actor=world.bob, credential=credential)
    assert AuditEvent.objects.get(action="credential.reveal").actor == "bob@example.com"


def test_a_credential_that_no_broker_took_is_not_kept(world: World) -> None:
    before = Credential.objects.count()
    with pytest.raises(BrokerUnreachable):
        credential_create(actor=world.alice, cluster=world.cluster, name="billing")
    assert Credential.objects.count() == before


@pytest.mark.parametrize(
    "permissions",
    [
        Permissions(default_topic_perm="ALL"),
        Permissions(default_group_perm="PUB"),
        Permissions(topic_perms={"invoices": "WRITE"}),
        Permissions(group_perms={"a=b,c": "SUB"}),
    ],
)
def test_permissions_that_rocketmq_does_not_know_are_refused(world: World, permissions: Permissions) -> None:
    with pytest.raises(InvalidInput):
        credential_create(actor=world.alice, cluster=world.cluster, name="x", permissions=permissions)


def test_a_key_with_hundreds_of_exceptions_is_refused(world: World) -> None:
    many = {f"topic-{number}": "PUB" for number in range(EXCEPTIONS_MAX)}
    permissions = Permissions(topic_perms=many, group_perms={"billing": "SUB"})
    with pytest.raises(InvalidInput, match="at most 200"):
        credential_create(actor=world.alice, cluster=world.cluster, name="x", permissions=permissions)


@pytest.mark.parametrize("length", [1, 120, 121, 127, 128, 255, 256])
@pytest.mark.parametrize("prefix", ["", "%RETRY%", "%DLQ%"])
def test_a_key_names_only_topics_and_groups_that_brokers_take(prefix: str, length: int) -> None:
    name = prefix + "x" * (length - len(prefix))
    for permissions, refusal in (
        (Permissions(topic_perms={name: "PUB"}), invalid_topic(name)),
        (Permissions(group_perms={name: "SUB"}), invalid_group(name)),
    ):
        with pytest.raises(InvalidInput) if refusal else nullcontext():
            permissions.check()


def test_brokers_read_the_accounts_whatever_an_older_row_names(world: World) -> None:
    credential = world.cluster.credentials.get(is_control=False)
    credential.topic_perms, credential.group_perms = {"x" * 128: "PUB", "invoices": "PUB"}, {"x" * 121: "SUB"}
    control = acl_account(world.cluster.credentials.get(is_control=True))
    read = parse(render_plain_acl(control, [acl_account(credential)]).encode()).accounts[credential.access_key]
    assert (list(read.topic_perms), list(read.group_perms)) == (["invoices"], [])


def test_a_cluster_that_does_not_run_takes_no_topic(world: World) -> None:
    cluster = make_cluster(world.acme, "stopped", ClusterState.FAILED)
    with pytest.raises(Conflict, match="failed"):
        topic_create(actor=world.alice, cluster=cluster, name="invoices")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a b",
        "é",
        "x" * 128,
        "%RETRY%group",
        "%DLQ%group",
        "%LMQ%x",
        "TBW102",
        "rmq_sys_x",
        "RMQ_SYS_TRACE_TOPIC",
        "a/b",
    ],
)
def test_a_topic_name_that_rocketmq_refuses_or_keeps_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        topic_name_check(name)


@pytest.mark.parametrize("name", ["invoices", "A-b_c", "a%b|c", "x" * 127, "0"])
def test_a_topic_name_that_rocketmq_takes_is_taken(name: str) -> None:
    assert topic_name_check(name) == name


@pytest.mark.parametrize(
    "options",
    [
        TopicOptions(read_queue_nums=0),
        TopicOptions(write_queue_nums=1000),
        TopicOptions(perm=1),
        TopicOptions(message_type="PRIORITY"),
        TopicOptions(description="x" * 501),
    ],
)
def test_topic_options_out_of_range_are_refused(world: World, options: TopicOptions) -> None:
    with pytest.raises(InvalidInput):
        topic_create(actor=world.alice, cluster=world.cluster, name="invoices", options=options)


def test_a_topic_that_no_broker_took_stays_as_failed_with_its_cause_and_can_be_asked_for_again(world: World) -> None:
    with pytest.raises(BrokerUnreachable):
        topic_create(actor=world.alice, cluster=world.cluster, name="invoices")
    topic = Topic.objects.get()
    assert topic.state == TopicState.FAILED
    assert topic.error is not None
    assert "does not answer" in topic.error["cause"]
    with patch.object(services, "topic_apply"):
        again = topic_create(actor=world.alice, cluster=world.cluster, name="invoices")
    assert (again.pk, again.state, again.error) == (topic.pk, TopicState.ACTIVE, None)


def test_a_topic_that_exists_is_a_conflict(world: World) -> None:
    Topic.objects.create(cluster=world.cluster, name="invoices", state=TopicState.ACTIVE)
    with pytest.raises(Conflict):
        topic_create(actor=world.alice, cluster=world.cluster, name="invoices")


def test_a_topic_keeps_its_message_type(world: World) -> None:
    topic = Topic.objects.create(cluster=world.cluster, name="invoices", state=TopicState.ACTIVE)
    with pytest.raises(InvalidInput):
        topic_update(actor=world.alice, topic=topic, options=TopicOptions(message_type="FIFO"))


def test_a_topic_whose_deletion_went_unanswered_can_be_deleted_again(world: World) -> None:
    topic = Topic.objects.create(cluster=world.cluster, name="invoices", state=TopicState.ACTIVE)
    for _ in range(2):
        with pytest.raises(BrokerUnreachable):
            topic_delete(actor=world.alice, topic=topic)
    assert Topic.objects.get().state == TopicState.FAILED


def test_a_topic_is_made_while_a_growth_waits_that_has_no_ports_yet(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may wait for hours, or have failed: the new group gets its share when it is there."""
    group = BrokerGroup.objects.create(cluster=world.cluster, name="broker-b")
    Replica.objects.create(group=group, host="127.0.0.1")
    made: list[int] = []

    def create(self: BrokersTwin, name: str, *, write_queue_nums: int, **others: object) -> None:
        made.append(write_queue_nums)

    monkeypatch.setattr(BrokersTwin, "create_topic", create)
    monkeypatch.setattr(services, "_present", lambda admin, topic, address: None)
    with brokers_that_answer():
        topic = topic_create(actor=world.alice, cluster=world.cluster, name="invoices")
    assert (topic.state, made) == (TopicState.ACTIVE, [8])
    assert len(topics_lacked(world, monkeypatch)) == 0


def topics_lacked(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a new master is said to lack that keeps all eight queues."""
    table = {"invoices": TopicConfig(topic_name="invoices", read_queue_nums=8, write_queue_nums=8)}
    monkeypatch.setattr(replica_remoting, "topic_table", lambda cluster, address: table)
    return services.topics_assert(world.cluster, "broker-a", "127.0.0.1:1")


def test_a_topic_is_not_said_to_be_deleted_while_a_group_that_has_it_has_no_master(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the row gone no one could ask again, and the group would bring the topic back with its messages."""
    group = BrokerGroup.objects.create(cluster=world.cluster, name="broker-b")
    replica = Replica.objects.create(group=group, host="127.0.0.1", port=29_990)
    topic = Topic.objects.create(cluster=world.cluster, name="invoices", state=TopicState.ACTIVE)
    deleted: list[str] = []
    monkeypatch.setattr(BrokersTwin, "delete_topic", lambda self, name, *, cluster: deleted.append(name))
    with brokers_that_answer():
        present = BrokersTwin().cluster_info
        others = ClusterInfo({"broker-a": present().broker_addr_table["broker-a"]}, {})
        monkeypatch.setattr(BrokersTwin, "cluster_info", lambda self: others)
        with pytest.raises(Conflict, match="broker-b has no master"):
            topic_delete(actor=world.alice, topic=topic)
        assert (deleted, Topic.objects.get().state) == (["invoices"], TopicState.FAILED)
        Replica.objects.filter(pk=replica.pk).update(port=None)  # it has never run
        topic_delete(actor=world.alice, topic=topic)
    assert not Topic.objects.exists()


def test_offsets_that_are_not_known_are_null_and_never_zero(world: World, api: Callable[..., Json]) -> None:
    Topic.objects.create(cluster=world.cluster, name="invoices", state=TopicState.ACTIVE)
    answer = api(world.alice).call("GET", "/api/v1/tenants/acme/clusters/orders/topics/").json()
    live = answer["results"][0]["live"]
    assert (live["state"], live["queues"], live["message_count"], live["last_update"]) == (
        "unreachable",
        None,
        None,
        None,
    )
    assert live["message"]


def test_offsets_of_a_cluster_that_does_not_run_are_not_asked_for(world: World) -> None:
    cluster = make_cluster(world.acme, "stopped", ClusterState.FAILED)
    topic = Topic.objects.create(cluster=cluster, name="invoices")
    assert topics_live(cluster, [topic])["invoices"].state == LiveState.NOT_RUNNING


def test_a_listing_can_do_without_the_brokers(world: World, api: Callable[..., Json]) -> None:
    Topic.objects.create(cluster=world.cluster, name="a%b|c", state=TopicState.ACTIVE)
    answer = api(world.alice).call("GET", "/api/v1/tenants/acme/clusters/orders/topics/?live=false").json()
    assert answer["results"][0]["live"] is None
    assert answer["results"][0]["path"].endswith("/topics/a%25b%7Cc/")
    assert api(world.alice).call("GET", f"{answer['results'][0]['path']}?live=false").status_code == 200


@pytest.mark.parametrize(
    ("body", "limit", "encoding", "text", "shown"),
    [
        (b"hello", 100, "utf-8", "hello", 5),
        ("Größe\n".encode(), 100, "utf-8", "Größe\n", 8),
        ("漢字".encode(), 4, "utf-8", "漢", 3),
        (b"hello", 2, "utf-8", "he", 2),
        (b"\x00\x01", 100, "hex", "0001", 2),
        (b"\xff\xfe\xfd", 2, "hex", "fffe", 2),
        ("漢字".encode()[:-1], 100, "hex", "e6bca2e5ad", 5),
        (b"", 100, "utf-8", "", 0),
        (b"x", 0, "utf-8", "", 0),
        (b"a\x1b[31m", 100, "hex", "611b5b33316d", 6),
    ],
)
def test_a_body_is_shown_with_its_encoding_and_where_it_was_cut(
    body: bytes, limit: int, encoding: str, text: str, shown: int
) -> None:
    found = body_shown(body, limit)
    assert (found.encoding, found.text, found.shown_bytes, found.size_bytes) == (encoding, text, shown, len(body))
    assert found.truncated == (shown < len(body))


def test_no_more_than_64_kib_of_a_body_is_ever_shown() -> None:
    assert body_shown(b"x" * 100_000, 10**9).shown_bytes == 64 * 1024


@pytest.mark.parametrize(
    "message",
    [
        TestMessage(b"x" * (256 * 1024 + 1)),
        TestMessage(b"", keys=("two words",)),
        TestMessage(b"", keys=("",)),
        TestMessage(b"", tags="a\x01b"),
        TestMessage(b"", properties={"a\x02": "b"}),
        TestMessage(b"", properties={"": "b"}),
        TestMessage(b"", properties={str(number): "" for number in range(51)}),
    ],
)
def test_a_test_message_that_would_break_the_property_format_is_refused(message: TestMessage) -> None:
    with pytest.raises(InvalidInput):
        message.check()


@pytest.mark.parametrize("body", [{}, {"body": "a", "body_base64": "YQ=="}, {"body_base64": "no base64!"}])
def test_a_test_message_has_one_body(world: World, api: Callable[..., Json], body: dict[str, str]) -> None:
    Topic.objects.create(cluster=world.cluster, name="invoices", state=TopicState.ACTIVE)
    path = "/api/v1/tenants/acme/clusters/orders/topics/invoices/messages/"
    assert api(world.alice).call("POST", path, body).status_code == 400


def test_a_viewer_does_not_read_messages(world: World) -> None:
    from controlplane.topics.gateway import messages_browse

    world.bob.memberships.update(role="viewer")
    topic = Topic.objects.create(cluster=world.cluster, name="invoices", state=TopicState.ACTIVE)
    with pytest.raises(NotAllowed):
        messages_browse(actor=world.bob, topic=topic)


def test_what_a_broker_refuses_is_reported_with_its_code() -> None:
    from controlplane.clusters.remoting import remoting_errors
    from highwater.errors import broker_error

    with pytest.raises(BrokerRefused, match="queue is full") as caught, remoting_errors():
        raise broker_error(2, "queue is full", "127.0.0.1:1")
    assert caught.value.extra == {"response_code": 2, "response_name": "system_busy"}


def _replica(world: World) -> Replica:
    return Replica.objects.get(group__cluster=world.cluster)


def _running(**changes: Any) -> ProcessStatus:
    return ProcessStatus("hw-x", **{"state": ProcessState.RUNNING, "started_at": NOW, **changes})


def test_a_registered_running_broker_is_healthy(world: World) -> None:
    replica = _replica(world)
    judgement = judge(replica, _running(), [Registration("ns", frozenset({replica.address}))])
    assert (judgement.health, judgement.registered) == (Health.HEALTHY, True)


def test_a_broker_that_ended_is_down_since_it_ended(world: World) -> None:
    status = _running(state=ProcessState.BACKOFF, stopped_at=NOW, description="Exited too quickly")
    judgement = judge(_replica(world), status, [])
    assert (judgement.health, judgement.since) == (Health.DOWN, NOW)
    assert judgement.message == "The broker broker-a is down since 03:31:07 UTC: backoff, Exited too quickly."


def test_a_broker_that_was_just_added_is_not_down_while_it_starts(world: World) -> None:
    replica = _replica(world)
    status = _running(state=ProcessState.STARTING)
    judgement = judge(replica, status, [])
    assert (judgement.health, judgement.message) == (Health.UNKNOWN, "The broker broker-a is starting.")
    replica.health_since = NOW
    assert judge(replica, status, []).health == Health.DOWN


def test_a_running_broker_that_a_name_server_does_not_know_is_down(world: World) -> None:
    judgement = judge(_replica(world), _running(), [Registration("127.0.0.1:20001")])
    assert (judgement.health, judgement.registered) == (Health.DOWN, False)
    assert "127.0.0.1:20001" in judgement.message


def test_what_a_name_server_does_not_say_is_unknown_and_not_healthy(world: World) -> None:
    judgement = judge(_replica(world), _running(), [Registration("ns", error="timed out")])
    assert (judgement.health, judgement.registered) == (Health.UNKNOWN, None)


def test_a_cluster_without_a_sample_is_not_called_healthy(world: World) -> None:
    assert cluster_health(world.cluster).status == Health.UNKNOWN


def test_an_old_sample_is_not_called_healthy(world: World) -> None:
    _all_healthy_at(timezone.now() - timedelta(minutes=2))
    health = cluster_health(world.cluster)
    assert (health.status, health.sentences) == (Health.UNKNOWN, ["There is no recent data about this cluster."])


def _all_healthy_at(time: datetime) -> None:
    for model in (NameServer, Replica):
        model.objects.update(health=Health.HEALTHY, sampled_at=time, health_since=time)


def test_a_daemon_is_not_said_to_have_answered_for_longer_than_its_process_lives(world: World) -> None:
    now = timezone.now()
    _all_healthy_at(now)
    NameServer.objects.update(health_since=now - timedelta(hours=1), process_started_at=now - timedelta(minutes=9))
    Replica.objects.update(health_since=now - timedelta(hours=1), process_started_at=now - timedelta(minutes=8))
    assert cluster_health(Cluster.objects.get(pk=world.cluster.pk)).since == now - timedelta(minutes=8)


def test_a_cluster_is_down_when_one_daemon_is(world: World) -> None:
    _all_healthy_at(timezone.now())
    assert cluster_health(world.cluster).status == Health.HEALTHY
    since = NOW - timedelta(minutes=1)
    Replica.objects.update(health=Health.DOWN, health_message="The broker broker-a is down.", health_since=since)
    health = cluster_health(Cluster.objects.get(pk=world.cluster.pk))
    assert (health.status, health.sentences, health.since) == (Health.DOWN, ["The broker broker-a is down."], since)


@pytest.mark.parametrize("name", ["orders", "broker-a"])
def test_a_topic_is_not_named_like_its_cluster_or_a_broker_group(world: World, name: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        topic_create(actor=world.alice, cluster=world.cluster, name=name)
    assert refused.value.errors[0].field == "name"


def test_a_topic_that_is_being_deleted_is_not_changed(world: World) -> None:
    topic = Topic.objects.create(cluster=world.cluster, name="payments", state=TopicState.ACTIVE)
    Topic.objects.filter(pk=topic.pk).update(state=TopicState.DELETING)  # by someone else, after it was read
    with pytest.raises(Conflict):
        topic_update(actor=world.alice, topic=topic, options=TopicOptions(description="new"))
    assert Topic.objects.get(pk=topic.pk).state == TopicState.DELETING


@pytest.mark.parametrize("gone", [True, False])
def test_a_change_that_a_deletion_overtakes_brings_the_topic_not_back(world: World, gone: bool) -> None:
    topic = Topic.objects.create(cluster=world.cluster, name="payments", state=TopicState.ACTIVE)

    def overtaken(topic: Topic, *, keep_read_queues: bool) -> None:
        rows = Topic.objects.filter(pk=topic.pk)
        rows.delete() if gone else rows.update(state=TopicState.DELETING)

    with patch.object(services, "topic_apply", overtaken), pytest.raises(Conflict):
        topic_update(actor=world.alice, topic=topic, options=TopicOptions(description="new"))
    assert not Topic.objects.filter(cluster=world.cluster, name="payments").exclude(state=TopicState.DELETING).exists()
