"""The whole way through, nothing replaced: REST API, Celery worker and beat, supervisord, namesrvd and brokerd, SDK.

One cluster serves the whole module, in order: it is created, used, hurt and deleted.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from highwater import (
    Admin,
    ConsumeFrom,
    Credentials,
    HighwaterError,
    Message,
    PermissionDeniedError,
    Producer,
    PushConsumer,
    ReceivedMessage,
    RetryLater,
)
from tests.processes import wait_until
from tests.support.platform_stack import PlatformStack

TENANT = "endtoend"
SECONDS_MAX = 90


@dataclass
class LiveCluster:
    """A cluster made through the API of a running platform."""

    platform: PlatformStack
    api: httpx.Client
    path: str
    id: str
    operation: dict[str, Any]

    def get(self, rest: str = "") -> dict[str, Any]:
        answer = self.api.get(self.path + rest)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def wait(self, condition: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        return _wait(lambda: self.get(), condition, what)

    @property
    def credentials(self) -> Credentials:
        """The tenant's first credential, which provisioning made."""
        access_key = self.get("credentials/")["results"][0]["access_key"]
        secret = self.api.post(f"{self.path}credentials/{access_key}/reveal/").json()["secret_key"]
        return Credentials(access_key, secret)

    @property
    def process_prefix(self) -> str:
        """Other tests' clusters may run on the same platform."""
        return f"hw-{self.id.replace('-', '')[:12]}-"

    def pid(self, name: str) -> int:
        processes = self.platform.stack.processes() or []
        return next(process.pid for process in processes if process.name == self.process_prefix + name)


def _wait(read: Callable[[], dict[str, Any]], condition: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition(found := read()):
        assert time.monotonic() < deadline, f"{what}: {found}"
        time.sleep(0.2)
    return found


def _finished(api: httpx.Client, operation: dict[str, Any]) -> dict[str, Any]:
    return _wait(
        lambda: api.get(f"operations/{operation['id']}/").json(),
        lambda found: found["state"] != "in_progress",
        "operation",
    )


@pytest.fixture(scope="module")
def cluster(platform_stack: PlatformStack) -> Iterator[LiveCluster]:
    platform_stack.manage("create_tenant", TENANT)
    with platform_stack.api(platform_stack.token(TENANT)) as api:
        answer = api.post(f"tenants/{TENANT}/clusters/", json={"slug": "orders", "flush_disk_type": "SYNC_FLUSH"})
        assert answer.status_code == 202, answer.text
        operation = _finished(api, answer.json())
        path = f"tenants/{TENANT}/clusters/orders/"
        yield LiveCluster(platform_stack, api, path, api.get(path).json()["id"], operation)


def test_the_operation_completes_with_every_step(cluster: LiveCluster) -> None:
    assert cluster.operation["state"] == "completed", cluster.operation
    assert cluster.operation["progress_percent"] == 100
    assert {step["state"] for step in cluster.operation["steps"]} == {"completed"}


def test_the_cluster_is_running_and_shows_its_address(cluster: LiveCluster) -> None:
    found = cluster.get()
    assert found["state"] == "running"
    host, _, port = found["namesrv_addr"].partition(":")
    with socket.create_connection((host, int(port)), timeout=5):
        pass


def test_a_topic_is_created_on_the_broker_and_shows_its_offsets(cluster: LiveCluster) -> None:
    answer = cluster.api.post(
        f"{cluster.path}topics/", json={"name": "invoices", "read_queue_nums": 4, "write_queue_nums": 4}
    )
    assert answer.status_code == 201, answer.text
    live = _wait(lambda: cluster.get("topics/invoices/")["live"], lambda live: live["state"] == "live", "offsets")
    assert [queue["max_offset"] for queue in live["queues"]] == ["0", "0", "0", "0"]


def test_a_program_sends_with_the_tenants_credential_and_the_api_browses_it(cluster: LiveCluster) -> None:
    addresses = cluster.get()["namesrv_addr"]
    with Producer(namesrv=addresses, group="end-to-end", credentials=cluster.credentials) as producer:
        sent = producer.send(Message("invoices", "Größe: 漢字".encode(), tags="paid", keys=["i-1"]))
    found = cluster.get("topics/invoices/messages/?limit=5")["results"]
    assert [message["message_id"] for message in found] == [sent.message_id]
    assert found[0]["body"] == {
        "encoding": "utf-8",
        "text": "Größe: 漢字",
        "size_bytes": len("Größe: 漢字".encode()),
        "shown_bytes": len("Größe: 漢字".encode()),
        "truncated": False,
        "masking": "none",
        "note": "",
    }
    assert (found[0]["tags"], found[0]["keys"]) == ("paid", ["i-1"])


def test_a_test_message_of_the_api_is_stored(cluster: LiveCluster) -> None:
    answer = cluster.api.post(f"{cluster.path}topics/invoices/messages/", json={"body": "hello", "tags": "t"})
    assert answer.status_code == 201, answer.text
    assert answer.json()["status"] == "SEND_OK"
    assert any(
        message["message_id"] == answer.json()["message_id"]
        for message in cluster.get("topics/invoices/messages/")["results"]
    )


def test_a_message_is_found_by_its_key_and_by_both_of_its_ids(cluster: LiveCluster) -> None:
    addresses = cluster.get()["namesrv_addr"]
    with Producer(namesrv=addresses, group="end-to-end", credentials=cluster.credentials) as producer:
        sent = producer.send(Message("invoices", b"wanted", keys=["find-me", "other"]))
        producer.send(Message("invoices", b"not wanted", keys=["find-me-not"]))

    def search(query: str) -> dict[str, Any]:
        found: dict[str, Any] = cluster.get(f"topics/invoices/messages/search/?{query}")
        return found

    _wait(lambda: search("key=find-me"), lambda found: bool(found["results"]), "the index has the key")
    for key in ("find-me", "other", sent.message_id, sent.offset_message_id):
        found = search(f"key={key}")
        assert [message["body"]["text"] for message in found["results"]] == ["wanted"], key
        assert found["reasons"] == []
        traced = cluster.get(f"message-trace/?q={key}")
        assert (traced["message"]["body"]["text"], traced["topic"], traced["is_confirmed"]) == (
            "wanted",
            "invoices",
            True,
        )
        assert {replica["holding"] for replica in traced["replicas"]} == {"holds"}
    nowhere = cluster.get("message-trace/?q=7F0000010000000100000000000000FF&topic=invoice")
    assert [one["cause"] for one in nowhere["reasons"]] == ["unknown_topic", "other_cluster", "no_such_key"]
    early = search("key=find-me&until=2020-01-01T00:00:00Z")
    assert early["results"] == []
    assert any("between the beginning and 2020-01-01 00:00:00 UTC" in reason for reason in early["reasons"])
    foreign = search(
        "key=7F0000010000000100000000000000FF"
    )  # an id of a broker that is not this topic's: it is not asked
    assert foreign["results"] == []
    assert "compared whole" in foreign["reasons"][-1]


def test_a_group_is_reset_after_a_preview_and_taken_back(cluster: LiveCluster) -> None:
    stored = sum(int(queue["max_offset"]) for queue in cluster.get("topics/invoices/")["live"]["queues"])
    received: list[str] = []
    consumer = PushConsumer(
        cluster.get()["namesrv_addr"], "readers", credentials=cluster.credentials, consume_from=ConsumeFrom.FIRST_OFFSET
    )
    consumer.subscribe("invoices", handler=lambda message: received.append(message.message_id))
    group = f"{cluster.path}consumer-groups/readers/"
    resets = f"{group}offset-resets/"
    with consumer:
        _until(lambda: len(received) >= stored, "all are received")
        (member,) = cluster.api.get(f"{group}members/").json()["members"]
        assert member["client_id"] == consumer.client_id
        asked_of = {"client_id": consumer.client_id, "stack": "true"}
        running = cluster.api.get(f"{group}members/running/", params=asked_of).json()
        assert "invoices" in {queue["topic"] for queue in running["queues"]}, running
        assert "MainThread" in running["stack"]
        absent = cluster.api.get(f"{group}members/running/", params={"client_id": "nobody@1"})
        assert absent.status_code == 404, absent.text
    _until(lambda: _lag(cluster, "readers") == 0, "offsets are committed")
    asked = {"topic": "invoices", "target": "earliest"}
    preview = cluster.api.post(resets, json={**asked, "dry_run": True})
    assert (preview.status_code, preview.json()["again"]) == (200, str(stored)), preview.text
    assert _lag(cluster, "readers") == 0
    made = cluster.api.post(resets, json=asked)
    assert made.status_code == 201, made.text
    assert {queue["outcome"] for queue in made.json()["queues"]} == {"done"}
    assert _lag(cluster, "readers") == stored
    undone = cluster.api.post(f"{resets}{made.json()['id']}/undo/", json={})
    assert undone.status_code == 201, undone.text
    assert _lag(cluster, "readers") == 0
    held = [queue for queue in cluster.get("topics/invoices/")["live"]["queues"] if queue["max_offset"] != "0"]
    exact = [f"{queue['broker_name']}:{queue['queue_id']}:{int(queue['max_offset']) - 1}" for queue in held]
    one_each = cluster.api.post(resets, json={"topic": "invoices", "target": "offsets", "offsets": exact})
    assert one_each.status_code == 201, one_each.text
    assert _lag(cluster, "readers") == len(held)
    assert cluster.api.post(f"{resets}{one_each.json()['id']}/undo/", json={}).status_code == 201
    again = cluster.api.post(f"{resets}{made.json()['id']}/undo/", json={})
    assert (again.status_code, again.json()["code"]) == (409, "already_undone")


def test_a_dead_letter_is_replayed_to_its_group_and_traced(cluster: LiveCluster) -> None:
    addresses, is_fixed = cluster.get()["namesrv_addr"], threading.Event()
    received: list[str] = []

    def handle(message: ReceivedMessage) -> None:
        if not is_fixed.is_set():
            raise RetryLater("not fixed yet", delay_time_level=-1)
        received.append(f"{message.topic} {message.body.decode()}")

    consumer = PushConsumer(addresses, "menders", credentials=cluster.credentials)
    consumer.subscribe("invoices", "broken", handler=handle)
    group = f"{cluster.path}consumer-groups/menders/"
    with consumer, Producer(namesrv=addresses, group="end-to-end", credentials=cluster.credentials) as producer:
        sent = producer.send(Message("invoices", b"mend me", tags="broken", keys=["broken-1"]))
        _wait(
            lambda: cluster.api.get(f"{group}dead-letters/").json(),
            lambda found: found.get("total") == "1",
            "there is a dead letter",
        )
        (letter,) = cluster.api.get(f"{group}dead-letters/").json()["results"]
        assert (letter["topic"], letter["tries"], letter["body"]["text"]) == ("invoices", 1, "mend me")
        assert "mend me" in cluster.api.get(f"{group}dead-letters/export/?kind=csv").text
        (standing,) = (
            one
            for one in cluster.get(f"message-trace/?q={sent.offset_message_id}")["groups"]
            if one["group"] == "menders"
        )
        assert standing["standing"] == "dead_letter"
        is_fixed.set()
        made = cluster.api.post(f"{group}dead-letter-replays/", json={"places": [letter["place"]]})
        assert made.status_code == 202, made.text
        _until(lambda: received == ["invoices mend me"], "the group has it again, under its topic")
        done = _wait(
            lambda: cluster.api.get(f"{group}dead-letter-replays/{made.json()['id']}/").json(),
            lambda replay: replay["state"] != "running",
            "the replay has ended",
        )
        assert (done["state"], done["sent"], done["outcomes"]) == ("completed", "1", [])


def test_a_reset_of_what_is_not_there_says_what_is_missing(cluster: LiveCluster) -> None:
    groups = f"{cluster.path}consumer-groups/"
    asked = {"topic": "invoices", "target": "earliest"}
    assert cluster.api.post(f"{groups}unknown/offset-resets/", json=asked).status_code == 404
    for body, field in (
        ({**asked, "topic": "none"}, "topic"),
        ({**asked, "target": "time"}, "at"),
        ({**asked, "target": "shift"}, "shift"),
        ({**asked, "target": "offsets", "offsets": ["no-broker:0:0"]}, "offsets"),
        ({**asked, "target": "group", "source_group": "unknown"}, "source_group"),
    ):
        answer = cluster.api.post(f"{groups}readers/offset-resets/", json=body)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, field), answer.text


def test_a_topic_is_changed_and_deleted_on_the_broker(cluster: LiveCluster) -> None:
    topics = f"{cluster.path}topics/"
    assert cluster.api.post(topics, json={"name": "short-lived", "message_type": "FIFO"}).status_code == 201
    change = {"read_queue_nums": 2, "write_queue_nums": 2}
    assert cluster.api.patch(f"{topics}short-lived/", json=change).status_code == 200
    _wait(
        lambda: cluster.get("topics/short-lived/")["live"],
        lambda live: live["state"] == "live" and len(live["queues"]) == 2,
        "two queues",
    )
    assert cluster.api.delete(f"{topics}short-lived/").status_code == 204
    assert cluster.api.get(f"{topics}short-lived/").status_code == 404
    with (
        Producer(namesrv=cluster.get()["namesrv_addr"], group="late", credentials=cluster.credentials) as producer,
        pytest.raises(HighwaterError),
    ):
        producer.send(Message("short-lived", b"no"))


def test_an_admin_credential_may_administer_and_an_ordinary_one_may_not(cluster: LiveCluster) -> None:
    answer = cluster.api.post(f"{cluster.path}credentials/", json={"name": "mqadmin", "role": "admin"}).json()
    addresses = cluster.get()["namesrv_addr"]
    broker = cluster.get()["broker_groups"][0]["replicas"][0]
    address = f"{broker['host']}:{broker['port']}"
    with Admin(addresses, credentials=Credentials(answer["access_key"], answer["secret_key"])) as admin:
        assert admin.broker_config(address)["brokerName"] == "broker-a"
    with Admin(addresses, credentials=cluster.credentials) as admin, pytest.raises(PermissionDeniedError):
        admin.broker_config(address)


def test_a_credential_for_one_topic_reaches_no_other(cluster: LiveCluster) -> None:
    body = {"name": "narrow", "default_topic_perm": "DENY", "topic_perms": {"invoices": "PUB"}}
    answer = cluster.api.post(f"{cluster.path}credentials/", json=body).json()
    assert cluster.api.post(f"{cluster.path}topics/", json={"name": "payroll"}).status_code == 201
    credentials = Credentials(answer["access_key"], answer["secret_key"])
    with Producer(namesrv=cluster.get()["namesrv_addr"], group="narrow", credentials=credentials) as producer:
        producer.send(Message("invoices", b"yes"))
        with pytest.raises(PermissionDeniedError):
            producer.send(Message("payroll", b"no"))


def test_a_key_has_quotas_of_its_own_at_once_and_after_a_broker_was_killed(cluster: LiveCluster) -> None:
    cluster.api.post(f"{cluster.path}topics/", json={"name": "metered"})
    made = cluster.api.post(f"{cluster.path}credentials/", json={"name": "slow"}).json()
    key = f"{cluster.path}credentials/{made['access_key']}/"

    def refusals() -> set[str]:
        """What refused sends of this key say."""
        credentials = Credentials(made["access_key"], made["secret_key"])
        found = set()
        with Producer(
            namesrv=cluster.get()["namesrv_addr"], group="slow", credentials=credentials, retry_times_when_send_failed=0
        ) as producer:
            for _ in range(5):
                try:
                    producer.send(Message("metered", b"x"))
                except HighwaterError as error:
                    found.add(str(error))
        return found

    assert refusals() == set()
    answer = cluster.api.patch(key, json={"quota_messages_per_second": 1})
    assert (answer.status_code, answer.json()["missing_daemons"]) == (200, []), answer.text
    named = f"credential {made['access_key']} is over its quota quotaMessagesPerSecond"
    assert any(named in text for text in refusals())
    (broker,) = cluster.get(key.removeprefix(cluster.path) + "quotas/")["brokers"]
    assert ("quotaMessagesPerSecond", 1) in {(quota["quota"], quota["limit"]) for quota in broker["quotas"]}
    os.kill(cluster.pid("broker-a-0"), signal.SIGKILL)
    wait_until(
        lambda: any(named in text for text in refusals()),
        timeout_s=SECONDS_MAX,
        what="the quota counts after a restart",
    )
    cluster.api.patch(key, json={"quota_messages_per_second": None})
    assert refusals() == set()


def test_a_stranger_without_credentials_is_refused(cluster: LiveCluster) -> None:
    with (
        Producer(namesrv=cluster.get()["namesrv_addr"], group="stranger") as producer,
        pytest.raises(PermissionDeniedError),
    ):
        producer.send(Message("invoices", b"no"))


def test_a_new_credential_works_at_once_and_a_deleted_one_no_more(cluster: LiveCluster) -> None:
    created = cluster.api.post(f"{cluster.path}credentials/", json={"name": "billing"}).json()
    credentials = Credentials(created["access_key"], created["secret_key"])
    addresses = cluster.get()["namesrv_addr"]
    with Producer(namesrv=addresses, group="billing", credentials=credentials) as producer:
        producer.send(Message("invoices", b"yes"))
        assert cluster.api.delete(f"{cluster.path}credentials/{created['access_key']}/").status_code == 204
        with pytest.raises(PermissionDeniedError):
            producer.send(Message("invoices", b"no"))


def test_a_killed_broker_is_restarted_by_the_supervisor_and_keeps_what_it_acknowledged(cluster: LiveCluster) -> None:
    before = {message["message_id"] for message in cluster.get("topics/invoices/messages/")["results"]}
    pid = cluster.pid("broker-a-0")
    os.kill(pid, signal.SIGKILL)
    _wait(
        lambda: cluster.get("topics/invoices/")["live"],
        lambda live: live["state"] == "live" and cluster.pid("broker-a-0") != pid,
        "restart",
    )
    after = {message["message_id"] for message in cluster.get("topics/invoices/messages/")["results"]}
    assert before <= after


def test_a_broker_that_no_one_restarts_is_noticed_and_started_again(cluster: LiveCluster) -> None:
    """Stopped by hand at the supervisor: only the health sampling brings it back."""
    pid = cluster.pid("broker-a-0")
    _supervisor(cluster.platform).stop(f"{cluster.process_prefix}broker-a-0")
    cluster.wait(lambda found: found["health"]["status"] == "down", "noticed")
    cluster.wait(lambda found: found["health"]["status"] == "healthy", "healed")
    assert cluster.pid("broker-a-0") not in (0, pid)


def test_daemons_survive_a_restart_of_web_and_worker(cluster: LiveCluster) -> None:
    pids = [cluster.pid("broker-a-0"), cluster.pid("namesrv-0")]
    rpc = _supervisor(cluster.platform)
    for name in ("worker", "web"):
        rpc.stop(name)
        rpc.start(name)
    _wait(lambda: {"status": _ready(cluster.api)}, lambda found: found["status"] == 200, "web")
    assert pids == [cluster.pid("broker-a-0"), cluster.pid("namesrv-0")]


def test_deleting_the_cluster_stops_its_daemons_and_frees_everything(cluster: LiveCluster) -> None:
    answer = cluster.api.delete(cluster.path)
    assert answer.status_code == 202, answer.text
    operation = _finished(cluster.api, answer.json())
    assert operation["state"] == "completed", json.dumps(operation, indent=1)
    answer = cluster.api.post(f"{cluster.path}purge/", json={"confirm": "orders"})
    assert answer.status_code == 202, answer.text
    operation = _finished(cluster.api, answer.json())
    assert operation["state"] == "completed", json.dumps(operation, indent=1)
    assert cluster.api.get(cluster.path).status_code == 404
    names = [process.name for process in cluster.platform.stack.processes() or []]
    assert not [name for name in names if name.startswith(cluster.process_prefix)]
    assert not (cluster.platform.state_dir / "clusters" / cluster.id).exists()
    assert not list((cluster.platform.state_dir / "supervisor" / "conf.d").glob(f"{cluster.process_prefix}*"))


def _lag(cluster: LiveCluster, group: str) -> int:
    return int(cluster.get(f"lag/{group}/")["lag_messages"] or 0)


def _until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def _supervisor(platform: PlatformStack) -> Any:
    from controlplane.provisioning.drivers.supervisor_rpc import SupervisorRpc  # Django is set up by now

    return SupervisorRpc(str(platform.stack.layout.supervisor_socket))


def _ready(api: httpx.Client) -> int:
    try:
        return api.get(f"{str(api.base_url).split('/api/')[0]}/readyz").status_code
    except httpx.TransportError:
        return 0
