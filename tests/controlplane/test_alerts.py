"""Alerts over real rows: what is read as fact, what is written, and what people may do about it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.alerts.engine import alerts_evaluate, alerts_expire
from controlplane.alerts.facts import facts_now
from controlplane.alerts.kinds import KINDS
from controlplane.alerts.models import Alert, AlertRule, AlertSilence, AlertState
from controlplane.alerts.selectors import firing_count
from controlplane.alerts.silences import Silences
from controlplane.clusters.models import Cluster, ClusterMode, ClusterState, Health, NameServer, Replica
from controlplane.common.audit import audit_event_record
from controlplane.common.models import AuditEvent
from controlplane.failover.models import ReplicaSample
from controlplane.insight.models import LAG_NEWS_MS, ClusterFigures, ClusterGroups, DrainState, LagWindow
from controlplane.topics.models import Topic
from tests.controlplane.world import SYSTEM, Json, World, make_cluster

ACME = "/api/v1/tenants/acme/"
RULES = f"{ACME}clusters/orders/alert-rules/"


def healthy(cluster: Cluster, now: datetime) -> None:
    for model, rows in ((NameServer, {"cluster": cluster}), (Replica, {"group__cluster": cluster})):
        model.objects.filter(**rows).update(health=Health.HEALTHY, sampled_at=now, health_message="")


def figures(cluster: Cluster, now: datetime, disk_used: float | None = None, **values: Any) -> None:
    ClusterFigures.objects.create(cluster=cluster, sampled_at=now, disk_used=disk_used, **values)


def window(cluster: Cluster, now: datetime, **changes: Any) -> LagWindow:
    values: dict[str, Any] = {
        "consumer_group": "billing",
        "topic": "payments",
        "queue_id": -1,
        "window_start": now - timedelta(minutes=6),
        "window_seconds": 300,
        "samples": 10,
        "drain_state": DrainState.DRAINED,
        "stuck": False,
        "lag_ms_last": 0,
        "run_id": cluster.pk,
    }
    for name in ("p50", "p95", "p99", "max", "last"):
        values[f"lag_messages_{name}"] = 0
    return LagWindow.objects.create(cluster=cluster, **{**values, **changes})


def known(cluster: Cluster, now: datetime) -> dict[str, float | None]:
    """The facts of one cluster by kind and subject."""
    found = facts_now(now, [])
    return {f"{one.key.kind} {one.key.subject}": one.value for one in found if one.key.cluster_id == cluster.pk}


def fire(cluster: Cluster, share: float = 0.95) -> Alert:
    """Let the disk of a cluster be full for long enough."""
    now = timezone.now()
    for seconds in (0, 60):
        healthy(cluster, now + timedelta(seconds=seconds))
        figures(cluster, now + timedelta(seconds=seconds), share)
        alerts_evaluate(now + timedelta(seconds=seconds))
    return Alert.objects.get(cluster=cluster, kind="disk_used")


def test_a_cluster_that_no_one_looked_at_is_unknown(world: World) -> None:
    assert set(known(world.cluster, timezone.now()).values()) == {None}


def test_a_healthy_cluster_has_no_alert(world: World) -> None:
    now = timezone.now()
    healthy(world.cluster, now)
    figures(world.cluster, now, 0.2)
    assert alerts_evaluate(now) == 0
    assert not Alert.objects.exists()


def test_daemons_that_are_down_are_facts(world: World) -> None:
    now = timezone.now()
    healthy(world.cluster, now)
    Replica.objects.update(health=Health.DOWN, health_message="The broker broker-a is down.")
    found = known(world.cluster, now)
    assert (found["daemon_down broker-a"], found["leader_missing broker-a"]) == (1.0, 1.0)
    assert found["daemon_down name server 1"] == 0.0


def test_a_sample_that_is_old_is_unknown(world: World) -> None:
    now = timezone.now()
    healthy(world.cluster, now - timedelta(minutes=5))
    figures(world.cluster, now - timedelta(minutes=5), 0.99)
    assert set(known(world.cluster, now).values()) == {None}


@pytest.fixture
def pair(world: World) -> tuple[Cluster, ReplicaSample, ReplicaSample]:
    """A group of two, as last looked at now: 0 leads, 1 follows."""
    Cluster.objects.filter(pk=world.cluster.pk).update(mode=ClusterMode.SYNC)
    first = Replica.objects.get(group__cluster=world.cluster)
    second = Replica.objects.create(group=first.group, broker_id=1, host="127.0.0.99", port=3)
    now = timezone.now()
    return (
        world.cluster,
        ReplicaSample.objects.create(replica=first, sampled_at=now, last_seen_at=now, role="master", gap_bytes=0),
        ReplicaSample.objects.create(replica=second, sampled_at=now, last_seen_at=now, role="slave", gap_bytes=4096),
    )


def test_a_group_with_a_leader_that_answers_has_one(pair: tuple[Cluster, ReplicaSample, ReplicaSample]) -> None:
    found = known(pair[0], timezone.now())
    assert found["leader_missing broker-a"] == 0.0
    assert found["replica_behind broker-a replica 1"] == 4096.0


def test_a_group_whose_leader_is_silent_has_none_and_its_gaps_are_unknown(
    pair: tuple[Cluster, ReplicaSample, ReplicaSample],
) -> None:
    ReplicaSample.objects.filter(pk=pair[1].pk).update(unreachable_since=timezone.now())
    found = known(pair[0], timezone.now())
    assert found["leader_missing broker-a"] == 1.0
    assert found["replica_behind broker-a replica 1"] is None


def test_a_group_of_which_a_replica_was_not_looked_at_may_have_a_leader(
    pair: tuple[Cluster, ReplicaSample, ReplicaSample],
) -> None:
    ReplicaSample.objects.filter(pk=pair[1].pk).update(sampled_at=timezone.now() - timedelta(minutes=5))
    assert known(pair[0], timezone.now())["leader_missing broker-a"] is None


def test_groups_are_late_stuck_or_about_to_lose_messages(world: World) -> None:
    now = timezone.now()
    window(world.cluster, now, lag_ms_last=1_200_000, stuck=True, loses_data_at=now + timedelta(hours=3))
    found = known(world.cluster, now)
    assert found["lag_seconds billing on payments"] == 1200.0
    assert found["group_stuck billing on payments"] == 1.0
    assert found["loss_ahead billing on payments"] == pytest.approx(3)


def test_a_group_without_consumers_is_not_called_stuck_as_well(world: World) -> None:
    now = timezone.now()
    window(world.cluster, now, lag_ms_last=1_200_000, stuck=True)
    figures(world.cluster, now, groups_away=["billing"])
    found = known(world.cluster, now)
    assert (found["no_consumers billing"], found["group_stuck billing on payments"]) == (1.0, 0.0)


def test_a_group_that_is_not_late_is_no_fact_until_an_alert_wants_to_know(world: World) -> None:
    now = timezone.now()
    late = window(world.cluster, now, lag_ms_last=3_600_000)
    alerts_evaluate(now)
    alerts_evaluate(now + timedelta(seconds=301))
    assert Alert.objects.get(kind="lag_seconds").state == AlertState.FIRING
    LagWindow.objects.filter(pk=late.pk).update(lag_ms_last=0)
    assert "lag_seconds billing on payments" not in known(world.cluster, now)
    for seconds in (310, 371):
        alerts_evaluate(now + timedelta(seconds=seconds))
    assert Alert.objects.get(kind="lag_seconds").state == AlertState.RESOLVED


def test_a_group_whose_windows_no_one_counts_any_more_is_unknown(world: World) -> None:
    now = timezone.now()
    window(world.cluster, now, lag_ms_last=3_600_000, window_start=now - timedelta(hours=1))
    assert not [one for one in known(world.cluster, now) if one.startswith("lag_seconds")]


def test_dead_letters_are_those_of_the_last_hour(world: World) -> None:
    now = timezone.now()
    for minutes, count in ((90, 2), (50, 5), (0, 9)):
        figures(world.cluster, now - timedelta(minutes=minutes), dead_letters=count)
    assert known(world.cluster, now)["dead_letters "] == 4.0


def test_groups_without_consumers_are_reported_and_end_when_one_connects(world: World) -> None:
    now = timezone.now()
    for seconds in (0, 121):
        figures(world.cluster, now + timedelta(seconds=seconds), groups_away=["billing"])
        alerts_evaluate(now + timedelta(seconds=seconds))
    alert = Alert.objects.get(kind="no_consumers")
    assert (alert.subject, alert.state) == ("billing", AlertState.FIRING)
    for seconds in (130, 191):
        figures(world.cluster, now + timedelta(seconds=seconds), groups_away=[])
        alerts_evaluate(now + timedelta(seconds=seconds))
    alert.refresh_from_db()
    assert alert.state == AlertState.RESOLVED


def test_of_a_group_past_those_that_brokers_name_nothing_is_known(world: World) -> None:
    now = timezone.now()
    for seconds in (0, 121):
        figures(world.cluster, now + timedelta(seconds=seconds), groups_away=["alpha", "zeta"])
        alerts_evaluate(now + timedelta(seconds=seconds))
    for seconds in (130, 191):
        figures(
            world.cluster,
            now + timedelta(seconds=seconds),
            groups_away=["beta"],
            groups_away_known_to="beta",
            groups_away_count=170,
        )
        alerts_evaluate(now + timedelta(seconds=seconds))
    states = dict(Alert.objects.filter(kind="no_consumers").values_list("subject", "state"))
    assert (states["alpha"], states["zeta"]) == (AlertState.RESOLVED, AlertState.FIRING)
    assert "170 groups of this cluster have no consumer" in Alert.objects.get(subject="beta").detail


def known_groups(cluster: Cluster, now: datetime, *names: str) -> None:
    ClusterGroups.objects.update_or_create(cluster=cluster, defaults={"names": names, "sampled_at": now})


def test_an_alert_of_a_deleted_group_ends_at_once_and_does_not_begin_again(world: World) -> None:
    now = timezone.now()
    window(world.cluster, now, lag_ms_last=3_600_000)
    known_groups(world.cluster, now - timedelta(seconds=1), "billing")
    for seconds in (0, 301):
        alerts_evaluate(now + timedelta(seconds=seconds))
    alert = Alert.objects.get(kind="lag_seconds")
    assert alert.state == AlertState.FIRING
    known_groups(world.cluster, now + timedelta(seconds=310), "shipping")
    for seconds in (315, 330):
        alerts_evaluate(now + timedelta(seconds=seconds))
    alert = Alert.objects.get(kind="lag_seconds")
    assert (alert.state, alert.resolved_because) == (AlertState.RESOLVED, "The consumer group was deleted.")


def fired_lag(cluster: Cluster, now: datetime) -> Alert:
    window(cluster, now, lag_ms_last=3_600_000)
    for seconds in (0, 301):
        alerts_evaluate(now + timedelta(seconds=seconds))
    return Alert.objects.get(kind="lag_seconds")


@pytest.mark.parametrize(("topics", "state"), [(["shipments"], "resolved"), (["payments"], "firing"), (None, "firing")])
def test_an_alert_ends_once_the_brokers_know_its_topic_no_more(
    world: World, topics: list[str] | None, state: str
) -> None:
    now = timezone.now()
    fired_lag(world.cluster, now)
    known_at = now + timedelta(seconds=310)
    ClusterGroups.objects.create(cluster=world.cluster, names=["billing"], topics=topics, sampled_at=known_at)
    alerts_evaluate(now + timedelta(seconds=315))
    assert Alert.objects.get(kind="lag_seconds").state == state


def topic_deleted(cluster: Cluster, name: str, at: datetime) -> None:
    path = Topic(cluster=cluster, name=name).path
    audit_event_record(actor=SYSTEM, action="topic.delete", resource=path, tenant_id=cluster.tenant_id)
    AuditEvent.objects.filter(resource=path).update(created_at=at)


def test_an_alert_of_a_deleted_topic_ends_at_once_and_does_not_begin_again(world: World) -> None:
    now = timezone.now()
    topic = fired_lag(world.cluster, now).subject.partition(" on ")[2]
    topic_deleted(world.cluster, topic, now + timedelta(seconds=305))
    for seconds in (315, 330):
        alerts_evaluate(now + timedelta(seconds=seconds))
    alert = Alert.objects.get(kind="lag_seconds")
    assert (alert.state, alert.resolved_because) == (AlertState.RESOLVED, "The topic was deleted.")


def test_an_alert_of_a_topic_that_was_made_again_goes_on(world: World) -> None:
    now = timezone.now()
    topic = fired_lag(world.cluster, now).subject.partition(" on ")[2]
    topic_deleted(world.cluster, topic, now + timedelta(seconds=305))
    Topic.objects.create(cluster=world.cluster, name=topic)
    alerts_evaluate(now + timedelta(seconds=315))
    assert Alert.objects.get(kind="lag_seconds").state == AlertState.FIRING


def test_a_group_that_was_not_there_before_its_alert_is_not_taken_for_deleted(world: World) -> None:
    now = timezone.now()
    known_groups(world.cluster, now - timedelta(minutes=7), "shipping")
    window(world.cluster, now, lag_ms_last=3_600_000)
    for seconds in (0, 301):
        alerts_evaluate(now + timedelta(seconds=seconds))
    assert Alert.objects.get(kind="lag_seconds").state == AlertState.FIRING


def test_a_deleted_group_waits_for_no_consumers(world: World) -> None:
    now = timezone.now()
    for seconds in (0, 121):
        figures(world.cluster, now + timedelta(seconds=seconds), groups_away=["billing"])
        alerts_evaluate(now + timedelta(seconds=seconds))
    figures(world.cluster, now + timedelta(seconds=130), groups_away=[])
    known_groups(world.cluster, now + timedelta(seconds=130), "shipping")
    alerts_evaluate(now + timedelta(seconds=130))
    alert = Alert.objects.get(kind="no_consumers")
    assert (alert.state, alert.resolved_because) == (AlertState.RESOLVED, "The consumer group was deleted.")


def test_the_quota_that_is_used_most_is_a_fact(world: World) -> None:
    now = timezone.now()
    figures(world.cluster, now, quota_used=0.95)
    assert known(world.cluster, now)["quota_used "] == pytest.approx(95)


def test_a_group_that_caught_up_since_is_not_late(world: World) -> None:
    now = timezone.now()
    window(world.cluster, now, lag_ms_last=3_600_000)
    window(world.cluster, now, window_start=now - timedelta(minutes=1))
    assert not [one for one in known(world.cluster, now) if one.startswith("lag_seconds")]


def test_a_window_with_one_sample_leaves_the_one_before_it_standing(world: World) -> None:
    now = timezone.now()
    window(world.cluster, now, lag_ms_last=3_600_000)
    window(world.cluster, now, window_start=now - timedelta(minutes=1), samples=1)
    assert known(world.cluster, now)["lag_seconds billing on payments"] == 3600.0


def test_the_index_of_late_groups_has_all_that_a_rule_may_call_late() -> None:
    assert KINDS["lag_seconds"].least * 1000 == LAG_NEWS_MS


def test_one_cluster_with_many_late_groups_is_read_in_part_and_the_others_wholly(world: World) -> None:
    now = timezone.now()
    for number in range(12):
        window(world.cluster, now, consumer_group=f"group-{number}", lag_ms_last=3_600_000 + number)
    other = make_cluster(world.globex, "theirs")
    window(other, now, lag_ms_last=3_600_000)
    with patch("controlplane.alerts.facts._NEWS_MAX", 10):
        late = [one for one in known(world.cluster, now) if one.startswith("lag_seconds")]
        assert "lag_seconds billing on payments" in known(other, now)
    assert len(late) == 10
    assert "lag_seconds group-11 on payments" in late


def test_many_open_alerts_are_written_at_once(world: World) -> None:
    now = timezone.now()
    Alert.objects.bulk_create(
        Alert(
            cluster=world.cluster,
            kind="lag_seconds",
            subject=f"group-{number} on payments",
            value=3600,
            threshold=900,
            since=now,
            known_at=now,
        )
        for number in range(600)
    )
    for number in range(600):
        window(world.cluster, now, consumer_group=f"group-{number}", lag_ms_last=3_600_000)
    with CaptureQueriesContext(connection) as captured:
        alerts_evaluate(now + timedelta(seconds=301))
    assert Alert.objects.filter(state=AlertState.FIRING).count() == 600
    written = [one for one in captured.captured_queries if "fired_at = new.fired_at" in one["sql"]]
    assert len(written) == 1


def test_a_channel_can_not_be_deleted_below_an_evaluation(world: World) -> None:
    with CaptureQueriesContext(connection) as captured:
        fire(world.cluster)
    read = [one["sql"] for one in captured.captured_queries if 'FROM "alerts_alertchannel"' in one["sql"]]
    assert any(one.endswith("FOR NO KEY UPDATE") for one in read)


def test_certificates_that_are_not_renewed_are_reported(world: World) -> None:
    now = timezone.now()
    Cluster.objects.filter(pk=world.cluster.pk).update(tls_renew_at=now - timedelta(days=2))
    assert known(world.cluster, now)["certificate_old "] == pytest.approx(2)


def test_many_clusters_cost_as_many_queries_as_one(world: World) -> None:
    now = timezone.now()

    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as captured:
            alerts_evaluate(now)
        return len(captured)

    alone = queries()
    for number in range(5):
        make_cluster(world.acme, f"more-{number}")
    assert queries() == alone


def test_an_alert_is_written_as_it_lives(world: World) -> None:
    alert = fire(world.cluster)
    assert (alert.state, alert.value, alert.threshold) == (AlertState.FIRING, 95.0, 85.0)
    now = timezone.now() + timedelta(minutes=5)
    for seconds in (0, 60):
        figures(world.cluster, now + timedelta(seconds=seconds), 0.5)
        alerts_evaluate(now + timedelta(seconds=seconds))
    alert.refresh_from_db()
    assert (alert.state, alert.resolved_because) == (AlertState.RESOLVED, "Back to normal.")


def test_what_was_unknown_for_long_has_not_lasted(world: World) -> None:
    now = timezone.now()
    for minutes in (0, 11):
        figures(world.cluster, now + timedelta(minutes=minutes), 0.95)
        alerts_evaluate(now + timedelta(minutes=minutes))
    alert = Alert.objects.get()
    assert (alert.state, alert.since) == (AlertState.PENDING, now + timedelta(minutes=11))


def test_a_cluster_that_no_longer_runs_has_no_open_alert(world: World) -> None:
    alert = fire(world.cluster)
    Cluster.objects.filter(pk=world.cluster.pk).update(state=ClusterState.DELETING)
    alerts_evaluate(timezone.now())
    alert.refresh_from_db()
    assert alert.state == AlertState.RESOLVED


def test_a_tenants_rule_holds_in_its_cluster_only(world: World) -> None:
    other = make_cluster(world.globex, "theirs")
    AlertRule.objects.create(cluster=other, kind="disk_used", threshold=99, duration_s=0)
    now = timezone.now()
    for cluster in (world.cluster, other):
        figures(cluster, now, 0.9)
    alerts_evaluate(now)
    assert [alert.cluster for alert in Alert.objects.filter(kind="disk_used")] == [world.cluster]


@pytest.mark.django_db(transaction=True)
def test_two_workers_do_not_evaluate_at_once(world: World) -> None:
    answers: list[int | None] = []

    def other_worker() -> None:
        answers.append(alerts_evaluate())
        connection.close()

    with transaction.atomic():
        alerts_evaluate()
        thread = threading.Thread(target=other_worker)
        thread.start()
        thread.join(30)
    assert answers == [None]


def test_what_ended_long_ago_is_deleted(world: World) -> None:
    alert = fire(world.cluster)
    Alert.objects.filter(pk=alert.pk).update(state=AlertState.RESOLVED, resolved_at=timezone.now() - timedelta(days=91))
    assert alerts_expire() == 1
    assert not Alert.objects.exists()


def test_a_cluster_keeps_a_bounded_number_of_ended_alerts(world: World) -> None:
    now = timezone.now()
    rows = [
        Alert(
            cluster=world.cluster,
            kind="lag_seconds",
            subject=str(number),
            state=AlertState.RESOLVED,
            value=1,
            threshold=1,
            since=now,
            known_at=now,
            resolved_at=now,
        )
        for number in range(5)
    ]
    for row in rows:
        row.save()
    with patch("controlplane.alerts.engine.ENDED_MAX", 3):
        assert alerts_expire() == 2
    assert set(Alert.objects.values_list("subject", flat=True)) == {"2", "3", "4"}


# -- what people do


def test_alerts_are_listed_with_a_sentence(world: World, api: Callable[..., Json]) -> None:
    fire(world.cluster)
    (found,) = api(world.bob).call("GET", f"{ACME}alerts/").json()["results"]
    assert (found["kind"], found["cluster"], found["state"], found["unit"]) == (
        "disk_used",
        "orders",
        "firing",
        "percent",
    )
    assert found["sentence"] == "The fullest disk of the cluster is 95 % full."


def test_an_alert_that_has_not_lasted_is_not_listed(world: World, api: Callable[..., Json]) -> None:
    now = timezone.now()
    figures(world.cluster, now, 0.99)
    alerts_evaluate(now)
    assert Alert.objects.get().state == AlertState.PENDING
    assert api(world.bob).call("GET", f"{ACME}alerts/").json()["results"] == []


@pytest.mark.parametrize(("query", "count"), [("state=firing", 1), ("state=resolved", 0), ("cluster=none", 0)])
def test_alerts_are_filtered(world: World, api: Callable[..., Json], query: str, count: int) -> None:
    fire(world.cluster)
    assert len(api(world.bob).call("GET", f"{ACME}alerts/?{query}").json()["results"]) == count


def test_the_first_who_acknowledges_stands(world: World, api: Callable[..., Json]) -> None:
    alert = fire(world.cluster)
    path = f"{ACME}alerts/{alert.pk}/acknowledge/"
    assert api(world.alice).call("POST", path, {"note": "adding a disk"}).json()["note"] == "adding a disk"
    assert api(world.alice).call("POST", path, {"note": "me too"}).json()["note"] == "adding a disk"
    assert AuditEvent.objects.filter(action="alert.acknowledge").count() == 1
    assert firing_count(world.acme) == 0


def test_an_alert_that_ended_is_not_acknowledged(world: World, api: Callable[..., Json]) -> None:
    alert = fire(world.cluster)
    Alert.objects.filter(pk=alert.pk).update(state=AlertState.RESOLVED, resolved_at=timezone.now())
    answer = api(world.alice).call("POST", f"{ACME}alerts/{alert.pk}/acknowledge/", {})
    assert (answer.status_code, answer.json()["code"]) == (409, "alert_ended")


def test_another_tenants_alert_looks_absent(world: World, api: Callable[..., Json]) -> None:
    alert = fire(make_cluster(world.globex, "theirs"))
    assert api(world.alice).call("GET", f"{ACME}alerts/{alert.pk}/").status_code == 404


def test_rules_are_there_from_the_clusters_birth(world: World, api: Callable[..., Json]) -> None:
    found = api(world.bob).call("GET", RULES).json()["results"]
    assert {rule["kind"] for rule in found} >= {"leader_missing", "disk_used", "lag_seconds"}
    assert all(rule["is_on"] and rule["is_default"] for rule in found)


def test_a_rule_is_changed_in_part_and_reset(world: World, api: Callable[..., Json]) -> None:
    client = api(world.alice)
    changed = client.call("PATCH", f"{RULES}disk_used/", {"threshold": 70}).json()
    assert (changed["threshold"], changed["duration_s"], changed["is_default"]) == (70, 60, False)
    assert client.call("PATCH", f"{RULES}disk_used/", {"is_on": False}).json()["threshold"] == 70
    assert client.call("DELETE", f"{RULES}disk_used/").json()["is_default"]
    events = AuditEvent.objects.filter(action__startswith="alert_rule.").order_by("created_at")
    assert [event.action for event in events] == ["alert_rule.set", "alert_rule.set", "alert_rule.reset"]


@pytest.mark.parametrize(
    ("kind", "body", "field"),
    [
        ("disk_used", {"threshold": 101}, "threshold"),
        ("disk_used", {"threshold": 10**400}, "threshold"),
        ("disk_used", {"threshold": "nan"}, "threshold"),
        ("leader_missing", {"threshold": 3}, "threshold"),
        ("disk_used", {"duration_s": -1}, "duration_s"),
        ("disk_used", {"duration": 5}, "duration"),
    ],
)
def test_a_rule_out_of_bounds_is_refused_at_its_field(
    world: World, api: Callable[..., Json], kind: str, body: dict[str, Any], field: str
) -> None:
    answer = api(world.alice).call("PATCH", f"{RULES}{kind}/", body)
    assert answer.status_code == 400
    assert field in answer.content.decode()
    assert not AlertRule.objects.exists()


def test_a_rule_of_no_kind_is_not_found(world: World, api: Callable[..., Json]) -> None:
    assert api(world.alice).call("PATCH", f"{RULES}nothing/", {"is_on": False}).status_code == 404


def test_a_silence_takes_an_alert_out_of_the_count_and_ends(world: World, api: Callable[..., Json]) -> None:
    fire(world.cluster)
    client = api(world.alice)
    until = (timezone.now() + timedelta(hours=1)).isoformat()
    made = client.call(
        "POST", f"{ACME}alert-silences/", {"cluster": "orders", "kind": "disk_used", "until": until, "reason": "upkeep"}
    )
    assert made.status_code == 201, made.content
    assert firing_count(world.acme) == 0
    assert client.call("DELETE", f"{ACME}alert-silences/{made.json()['id']}/").status_code == 204
    assert firing_count(world.acme) == 1
    assert client.call("GET", f"{ACME}alert-silences/").json()["results"] == []


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"until": "2020-01-01T00:00:00Z"}, "until"),
        ({"until": "2999-01-01T00:00:00Z"}, "until"),
        ({"kind": "nothing"}, "kind"),
        ({"subject": "broker-a"}, "subject"),
        ({"reason": ""}, "reason"),
    ],
)
def test_a_silence_that_makes_no_sense_is_refused_at_its_field(
    world: World, api: Callable[..., Json], changes: dict[str, str], field: str
) -> None:
    body = {"until": (timezone.now() + timedelta(hours=1)).isoformat(), "reason": "upkeep", **changes}
    answer = api(world.alice).call("POST", f"{ACME}alert-silences/", body)
    assert answer.status_code == 400
    assert field in answer.content.decode()
    assert not AlertSilence.objects.exists()


def test_a_silence_for_one_group_silences_no_other(world: World) -> None:
    silences = Silences([AlertSilence(tenant=world.acme, cluster=world.cluster, kind="group_stuck", subject="a on t")])
    assert silences.fit(Alert(cluster=world.cluster, kind="group_stuck", subject="a on t"))
    assert not silences.fit(Alert(cluster=world.cluster, kind="group_stuck", subject="b on t"))
    assert not silences.fit(Alert(cluster=world.cluster, kind="lag_seconds", subject="a on t"))


def test_a_silence_of_one_tenant_silences_no_other(world: World) -> None:
    silences = Silences([AlertSilence(tenant=world.acme)])
    assert silences.fit(Alert(cluster=world.cluster, kind="group_stuck", subject="a on t"))
    assert not silences.fit(Alert(cluster=make_cluster(world.globex, "theirs"), kind="group_stuck", subject="a on t"))
