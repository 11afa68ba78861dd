"""The command line against a running cluster: what it prints and how it exits."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from highwater import Message, Producer
from highwater._cli_admin import app
from tests.highwater.cluster import Cluster
from tests.highwater.collector import Collector, wait_until

pytestmark = pytest.mark.parametrize("cluster", ["highwater"], indirect=True)


def run(*arguments: str, **environment: str) -> Result:
    """One run of the program, with nothing of the cluster in its environment but what is given."""
    clean = {"HIGHWATER_ENDPOINT": "", "NAMESRV_ADDR": "", "HIGHWATER_KEY": "", "HIGHWATER_SECRET": ""}
    return CliRunner().invoke(app, ["admin", *arguments], env={**clean, **environment}, catch_exceptions=False)


def succeed(*arguments: str) -> str:
    done = run(*arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def as_json(*arguments: str) -> Any:
    return json.loads(succeed(*arguments, "--json"))


@pytest.fixture
def n(cluster: Cluster) -> tuple[str, str]:
    return ("-n", cluster.namesrv)


def test_clusters_are_listed(cluster: Cluster, n: tuple[str, str]) -> None:
    (row,) = as_json("clusterList", *n)
    assert (row["cluster"], row["broker"], row["id"]) == ("DefaultCluster", cluster.broker_name, 0)
    assert row["address"] == cluster.broker_address
    assert cluster.broker_address in succeed("clusterList", *n, "-c", "DefaultCluster")


def test_a_topic_is_made_shown_and_deleted(cluster: Cluster, n: tuple[str, str], unique: str) -> None:
    made = succeed("updateTopic", *n, "-t", unique, "-c", "DefaultCluster", "-r", "2", "-w", "3", "-o", "false")
    assert made == f"topic {unique} is on {cluster.broker_address}\n"
    wait_until(lambda: {"topic": unique} in as_json("topicList", *n), "the topic is listed")
    (row,) = as_json("topicRoute", *n, "-t", unique)
    assert (row["read_queues"], row["write_queues"]) == (2, 3)
    assert as_json("topicClusterList", *n, "-t", unique) == [{"cluster": "DefaultCluster"}]
    succeed("deleteTopic", *n, "-t", unique, "-c", "DefaultCluster")
    wait_until(lambda: run("topicRoute", *n, "-t", unique).exit_code == 5, "the topic is gone")


def test_system_topics_are_listed_only_when_asked_for(n: tuple[str, str], topic: str) -> None:
    shown = [row["topic"] for row in as_json("topicList", *n)]
    everything = [row["topic"] for row in as_json("topicList", *n, "--all")]
    assert topic in shown
    assert {"TBW102", "DefaultCluster"} & set(everything)
    assert not {"TBW102", "DefaultCluster"} & set(shown)


def test_messages_are_printed_as_they_are_stored_and_not_consumed(
    cluster: Cluster, n: tuple[str, str], topic: str
) -> None:
    succeed("sendMessage", *n, "-t", topic, "-p", "before", "-k", "k1")
    # Whoever runs the tests in the background has us, and so the program, ignore SIGINT.
    heeding = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", f"{heeding}; from highwater.cli import main; main()", "admin", "tailMessages"]
    program = subprocess.Popen(
        [*command, *n, "-t", topic, "-k", "k1", "--text", "GRÜ", "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(program.stdout or ()), daemon=True)
    reader.start()

    def is_seen() -> bool:
        for body, key in (("grüße", "k1"), ("grüße", "k2"), ("adieu", "k1")):
            succeed("sendMessage", *n, "-t", topic, "-p", body, "-k", key)
        return bool(lines)

    wait_until(is_seen, "a message is printed")
    program.send_signal(signal.SIGINT)
    assert program.wait(30) == 0
    reader.join(30)
    assert {(json.loads(line)["body"], json.loads(line)["keys"]) for line in lines} == {("grüße", "k1")}


def test_a_tail_ends_after_its_seconds(n: tuple[str, str], topic: str) -> None:
    assert succeed("tailMessages", *n, "-t", topic, "--seconds", "1") == ""


def test_a_message_is_sent_and_found_again(n: tuple[str, str], topic: str) -> None:
    sent = as_json("sendMessage", *n, "-t", topic, "-p", "grüße", "-k", "k1 k2", "-c", "paid")
    assert sent["status"] == "SEND_OK"
    place = ["-b", sent["broker"], "-i", str(sent["queue"])]
    by_id = as_json("queryMsgById", *n, "-i", sent["offset_message_id"])
    by_offset = as_json("queryMsgByOffset", *n, "-t", topic, *place, "-o", str(sent["queue_offset"]))
    assert (by_id["body"], by_id["tags"], by_id["keys"]) == ("grüße", "paid", "k1 k2")
    assert by_offset["message_id"] == by_id["message_id"] == sent["message_id"]
    (row,) = as_json("consumeMessage", *n, "-t", topic)
    assert (row["body"], row["offset"]) == ("grüße", 0)
    assert run("queryMsgByOffset", *n, "-t", topic, *place, "-o", "99").exit_code == 5


def test_messages_are_found_by_key_and_by_unique_id(n: tuple[str, str], topic: str) -> None:
    sent = as_json("sendMessage", *n, "-t", topic, "-p", "wanted", "-k", "order-1 other")
    by_key = ("queryMsgByKey", *n, "-t", topic, "-k", "order-1")
    wait_until(lambda: run(*by_key).exit_code == 0, "the index has the key")
    (row,) = as_json(*by_key)
    by_id = as_json("queryMsgByUniqueKey", *n, "-t", topic, "-i", sent["message_id"])
    assert row["message_id"] == by_id["message_id"] == sent["message_id"]
    assert run(*by_key, "-e", "2020-01-01T00:00:00").exit_code == 5
    nothing = run("queryMsgByKey", *n, "-t", topic, "-k", "order-2")
    assert nothing.exit_code == 5
    assert "has the key order-2" in nothing.output
    assert "can not find message" in nothing.output


def test_messages_are_listed_in_a_span_of_time(n: tuple[str, str], topic: str, producer: Producer) -> None:
    queue = producer.publish_queues(topic)[0]
    for number in range(40):
        producer.send(Message(topic, b"%d" % number), queue=queue)
    assert len(as_json("consumeMessage", *n, "-t", topic)) == 40
    assert len(as_json("consumeMessage", *n, "-t", topic, "-c", "5")) == 5
    assert as_json("consumeMessage", *n, "-t", topic, "-e", "2000-01-01T00:00:00") == []
    assert as_json("consumeMessage", *n, "-t", topic, "-s", "2100-01-01T00:00:00") == []


def test_a_topics_state_is_shown_and_what_is_unknown_is_not_zero(
    n: tuple[str, str], topic: str, producer: Producer
) -> None:
    producer.send(Message(topic, b"x"), queue=producer.publish_queues(topic)[0])
    rows = as_json("topicStatus", *n, "-t", topic)
    assert [row["max_offset"] for row in rows] == [1, 0, 0, 0]
    assert [row["last_updated"] is None for row in rows] == [False, True, True, True]
    assert " -" in succeed("topicStatus", *n, "-t", topic)


def test_a_group_is_made_shown_reset_and_deleted(n: tuple[str, str], topic: str, producer: Producer) -> None:
    group = f"g-{topic}"
    producer.send(Message(topic, b"x"), queue=producer.publish_queues(topic)[0])
    succeed("updateSubGroup", *n, "-g", group, "-c", "DefaultCluster", "-s", "true", "-r", "3")
    (config,) = as_json("getConsumerConfig", *n, "-g", group)
    assert (config["retry_max_times"], config["enabled"]) == (3, True)
    assert as_json("consumerConnection", *n, "-g", group) == []
    offsets = as_json("resetOffsetByTime", *n, "-g", group, "-t", topic, "-s", "-1")
    assert [row["offset"] for row in offsets] == [1, 0, 0, 0]
    one = as_json("resetOffsetByTime", *n, "-g", group, "-t", topic, "-b", "broker-a", "-q", "0", "-o", "0")
    assert [(row["queue"], row["offset"]) for row in one] == [(0, 0)]
    assert [row["consumer_offset"] for row in as_json("consumerProgress", *n, "-g", group)] == [0, 0, 0, 0]
    assert group in {row["group"] for row in as_json("consumerProgress", *n)}
    succeed("deleteSubGroup", *n, "-g", group, "-c", "DefaultCluster", "-r", "true")
    assert group not in {row["group"] for row in as_json("consumerProgress", *n)}


def test_a_groups_progress_is_shown(cluster: Cluster, n: tuple[str, str], topic: str, producer: Producer) -> None:
    producer.send(Message(topic, b"x"))
    collector = Collector()
    with cluster.consumer(f"g-{topic}", collector, topic):
        collector.wait(1)
        (member,) = as_json("consumerConnection", *n, "-g", f"g-{topic}")
        assert member["language"] == "PYTHON"
    assert "Consume Diff Total: 0" in succeed("consumerProgress", *n, "-g", f"g-{topic}")


def test_a_groups_members_report_how_they_are_doing(
    cluster: Cluster, n: tuple[str, str], topic: str, producer: Producer
) -> None:
    producer.send(Message(topic, b"x"))
    group = f"g-{topic}"
    collector = Collector()
    consumer = cluster.consumer(group, collector, topic)
    with consumer:
        collector.wait(1)
        wait_until(
            lambda: len(consumer.assigned_queues()) == 5, "the topic's four queues and that of retries are assigned"
        )
        (member,) = as_json("consumerStatus", *n, "-g", group)
        assert (member["client"], member["queues"], member["error"]) == (consumer.client_id, 5, None)
        one = ("consumerStatus", *n, "-g", group, "-i", consumer.client_id)
        reported = as_json(*one)
        assert reported["subscriptions"][topic] == "*"
        assert {row["queue"] for row in reported["queues"] if row["topic"] == topic} == {0, 1, 2, 3}
        assert reported["stack"] is None
        assert "MainThread" in succeed(*one, "-s")
        assert run("consumerStatus", *n, "-g", group, "-i", "nobody@1").exit_code == 1
    assert run("consumerStatus", *n, "-g", group, "-s").exit_code == 2


def test_a_message_is_handed_to_one_member(
    cluster: Cluster, n: tuple[str, str], topic: str, producer: Producer
) -> None:
    sent = producer.send(Message(topic, b"x"))
    group = f"g-{topic}"
    collector = Collector()
    consumer = cluster.consumer(group, collector, topic)
    by_id = ("queryMsgById", *n, "-i", sent.offset_message_id, "-g", group)
    with consumer:
        collector.wait(1)
        assert as_json(*by_id, "-d", consumer.client_id)["result"] == "CR_SUCCESS"
        collector.wait(2)
    assert run(*by_id).exit_code == 2


def test_a_brokers_state_and_configuration_are_shown(cluster: Cluster, n: tuple[str, str]) -> None:
    assert "bootTimestamp" in as_json("brokerStatus", *n, "-b", cluster.broker_address)
    assert as_json("getBrokerConfig", *n, "-b", cluster.broker_address)["brokerName"] == cluster.broker_name
    assert "brokerName" in succeed("getBrokerConfig", *n, "-c", "DefaultCluster")


def test_write_permission_is_taken_and_given(cluster: Cluster, n: tuple[str, str], topic: str) -> None:
    assert as_json("wipeWritePerm", *n, "-b", cluster.broker_name)["topics"] > 0
    assert as_json("topicRoute", *n, "-t", topic)[0]["write_queues"] == 0
    assert as_json("addWritePerm", *n, "-b", cluster.broker_name)["topics"] > 0
    assert as_json("topicRoute", *n, "-t", topic)[0]["write_queues"] == 4


def test_values_are_kept_and_forgotten(n: tuple[str, str], unique: str) -> None:
    assert succeed("updateKvConfig", *n, "-s", unique, "-k", "k", "-v", "v") == f"{unique}/k is set\n"
    assert succeed("deleteKvConfig", *n, "-s", unique, "-k", "k") == f"{unique}/k is gone\n"


def test_the_cluster_may_be_named_by_the_environment(cluster: Cluster) -> None:
    assert run("clusterList", HIGHWATER_ENDPOINT=cluster.namesrv).exit_code == 0
    assert run("clusterList", NAMESRV_ADDR=cluster.namesrv).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "exit_code", "complaint"),
    [
        (["clusterList"], 2, "HIGHWATER_ENDPOINT"),
        (["clusterList", "-n", "nonsense"], 2, "host:port"),
        (["clusterList", "-n", "127.0.0.1:1"], 3, "cannot connect"),
        (["clusterList", "-n", "127.0.0.1:1", "--access-key", "k"], 2, "go together"),
        (["topicRoute"], 2, "topic"),
        (["nonsense"], 2, "nonsense"),
    ],
)
def test_exit_codes_say_what_went_wrong(cluster: Cluster, arguments: list[str], exit_code: int, complaint: str) -> None:
    done = run(*arguments)
    assert done.exit_code == exit_code
    assert complaint in done.stderr
    assert done.stdout == ""


def test_a_refusal_is_one_line_on_standard_error(n: tuple[str, str]) -> None:
    done = run("queryMsgById", *n, "-i", "nonsense")
    assert done.exit_code == 2
    assert done.stderr.startswith("highwater: 'nonsense' is not a message id")


def test_without_rights_the_exit_code_says_so(running_clusters: Any, cluster: Cluster) -> None:
    secured: Cluster = running_clusters.get("highwater", secured=True)
    arguments = ["getBrokerConfig", "-n", secured.namesrv, "-b", secured.broker_address]
    refused = run(*arguments)
    assert refused.exit_code == 4
    assert "may Administer" in refused.stderr
    credentials = secured.credentials
    assert credentials is not None
    assert (
        run(*arguments, "--access-key", credentials.access_key, "--secret-key", credentials.secret_key).exit_code == 0
    )
    environment = {"HIGHWATER_KEY": credentials.access_key, "HIGHWATER_SECRET": credentials.secret_key}
    assert run(*arguments, **environment).exit_code == 0


def test_where_a_message_is_reported_with_its_groups_and_where_not_with_the_reasons(
    n: tuple[str, str], producer: Producer, topic: str
) -> None:
    sent = producer.send(Message(topic, b"here", keys=["k"]))
    found = as_json("whereIsMyMessage", *n, "-i", sent.offset_message_id)
    assert (found["topic"], found["body"], found["groups"]) == (topic, "here", [])
    nowhere = run("whereIsMyMessage", *n, "-i", "k", "-t", f"{topic}x")
    assert (nowhere.exit_code, f"no topic {topic}x" in nowhere.output) == (5, True)


def test_the_messages_of_a_file_are_sent_after_a_look_at_the_whole_file(
    n: tuple[str, str], topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "letters.ndjson"
    rows = [{"topic": topic, "body": f"body {number}", "keys": [f"k{number}"]} for number in range(4)]
    file.write_text("\n".join(map(json.dumps, rows)) + '\n{"topic": "cut", "body": "x", "body_truncated": true}\n')
    command = ["sendFile", *n, "-f", str(file)]
    refused = run(*command)
    assert refused.exit_code == 2
    assert "1 of 5 lines are no whole message, and nothing was sent: line 5: its body was cut" in refused.stderr
    planned = as_json(*command, "--skip", "--dry-run")
    assert planned == {"would_send": 4, "left_out": 1, "topics": topic}
    assert as_json("consumeMessage", *n, "-t", topic) == []
    began = time.monotonic()
    done = as_json(*command, "--skip", "--rate", "4", "--from-line", "2")
    assert time.monotonic() - began > 0.4  # three messages at four a second
    assert done == {"sent": 3, "failed": 0, "left_out": 1, "last_line": 4, "stopped": False}
    stored = as_json("consumeMessage", *n, "-t", topic)
    assert sorted((row["body"], row["keys"]) for row in stored) == [(f"body {one}", f"k{one}") for one in (1, 2, 3)]


def test_a_file_whose_sends_fail_is_stopped_by_the_rule(n: tuple[str, str], tmp_path: Path) -> None:
    file = tmp_path / "lost.ndjson"
    file.write_text("".join(json.dumps({"topic": "no-such-topic", "body": "x"}) + "\n" for _ in range(3)))
    done = run("sendFile", *n, "-f", str(file), "--stop-after-failures", "2", "--rate", "1000", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout) == {"sent": 0, "failed": 2, "left_out": 0, "last_line": 2, "stopped": True}
    assert done.stderr.count("it was not stored, or no one knows") == 2
    assert run("sendFile", *n, "-f", str(tmp_path / "none")).exit_code == 2
