"""Two tenants on a running platform. Members of one with every role, its keys and strangers go for the other, all at once.

What they ask for is what the platform says that it has: each address and method of its OpenAPI document, each request code
of its brokers and name servers.
"""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from brokerd.acl_needs import NEEDS, Level
from deploy.local.leftovers import find_leftovers
from deploy.local.secrets_file import load_secrets
from mqwire.acl import SessionCredentials
from mqwire.bodies import ConsumerData, HeartbeatData, SubscriptionData
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from namesrvd.processor import LISTING_CODES, OPEN_CODES
from tests.brokerd.acl_accounts import SEND_FIELDS
from tests.interop.platform_cluster import PlatformCluster, platform_cluster
from tests.remoting import connect, exchange, signed, topic_route
from tests.security.test_name_server_rights import MACHINE_CODES as NAME_SERVERS_MACHINE_CODES
from tests.support.platform_stack import PlatformStack

ROLES = ("owner", "admin", "operator", "developer", "viewer", "billing")
TOPIC = "payments"
# What the role may do in its own tenant: method, path below the tenant, body, and who is not refused. The bodies are such that
# nothing happens where they are let through; only the topic that each role has for that is deleted.
WITHIN = [
    ("PATCH", "", {"name": ""}, {"owner", "admin"}),
    ("GET", "audit-events/", None, {"owner", "admin", "operator"}),
    ("POST", "invitations/", {"email": "no address", "role": "owner"}, {"owner", "admin"}),
    ("POST", "tokens/", {"name": ""}, {"owner", "admin", "operator"}),
    ("PUT", "budget/", {"amount": "none"}, {"owner", "admin", "billing"}),
    ("GET", "invoices/", None, set(ROLES)),
    ("POST", "clusters/", {"slug": "?"}, {"owner", "admin", "operator"}),
    ("PATCH", "clusters/main/", {"name": ""}, {"owner", "admin", "operator"}),
    ("POST", "clusters/main/mode/", {"mode": "?"}, {"owner", "admin", "operator"}),
    ("POST", "clusters/main/groups/broker-a/promote/", {"replica": -1}, {"owner", "admin", "operator"}),
    ("POST", "clusters/main/groups/broker-a/drill/", {"confirm": "?"}, {"owner", "admin", "operator"}),
    ("POST", "clusters/main/credentials/", {"name": ""}, {"owner", "admin", "operator"}),
    ("DELETE", "clusters/main/topics/of-{role}/", None, {"owner", "admin", "operator"}),
    ("POST", "clusters/main/topics/", {"name": "?"}, {"owner", "admin", "operator", "developer"}),
    ("POST", f"clusters/main/topics/{TOPIC}/messages/", {"odd": 1}, {"owner", "admin", "operator", "developer"}),
    ("GET", f"clusters/main/topics/{TOPIC}/messages/", None, {"owner", "admin", "operator", "developer"}),
    ("POST", "clusters/main/consumer-groups/g/offset-resets/", {"topic": ""}, {"owner", "admin", "operator"}),
    (
        "POST",
        "clusters/main/consumer-groups/g/dead-letter-replays/",
        {"odd": 1},
        {"owner", "admin", "operator", "developer"},
    ),
    ("POST", "alert-silences/", {"until": "?"}, {"owner", "admin", "operator"}),
    ("POST", "alert-channels/", {"kind": "?"}, {"owner", "admin", "operator"}),
]


@dataclass(frozen=True)
class Tenant:
    """A tenant with a running cluster `main` that has a topic, a message in it, and an administrator's key."""

    name: str
    cluster: PlatformCluster
    admin_key: SessionCredentials

    @property
    def app_key(self) -> SessionCredentials:
        cluster = self.cluster.cluster
        return SessionCredentials(cluster.access_key or "", cluster.secret_key or "")

    @property
    def namesrv(self) -> str:
        return self.cluster.cluster.namesrv

    @property
    def broker(self) -> str:
        route = topic_route(self.namesrv, TOPIC)
        assert route is not None
        return route.broker_datas[0].broker_addrs[0]

    def state(self) -> dict[str, Any]:
        """What no one else may change."""
        api, below = self.cluster.api, self.cluster.path
        found = {
            kind: api.get(f"tenants/{self.name}/{kind}/").json()["results"]
            for kind in ("members", "tokens", "invitations", "alert-channels", "operations", "audit-events")
        }
        found["topics"] = sorted(topic["name"] for topic in api.get(f"{below}topics/").json()["results"])
        found["keys"] = sorted(key["access_key"] for key in api.get(f"{below}credentials/").json()["results"])
        found["tenant"] = api.get(f"tenants/{self.name}/").json()
        for token in found["tokens"]:
            token.pop("last_used_at", None)
        return found


def tenant_of(stack: ExitStack, platform: PlatformStack, name: str) -> Tenant:
    cluster = stack.enter_context(platform_cluster(platform, name, "main"))
    cluster.create_topic(TOPIC, queues=1)
    answer = cluster.api.post(f"{cluster.path}credentials/", json={"name": "administration", "role": "admin"})
    assert answer.status_code == 201, answer.text
    secret = cluster.api.post(f"{cluster.path}credentials/{answer.json()['access_key']}/reveal/").json()["secret_key"]
    tenant = Tenant(name, cluster, SessionCredentials(answer.json()["access_key"], secret))
    assert send(tenant, tenant.app_key).code == ResponseCode.SUCCESS
    return tenant


@pytest.fixture(scope="module")
def tenants(platform_stack: PlatformStack) -> Iterator[tuple[Tenant, Tenant]]:
    """The hostile one and its victim."""
    with ExitStack() as stack:
        yield tenant_of(stack, platform_stack, "hostile"), tenant_of(stack, platform_stack, "victim")


def tokens_of(platform: PlatformStack, tenant: Tenant) -> dict[str, str]:
    """One for each role."""
    return {role: platform.manage("issue_token", tenant.name, "--role", role).strip() for role in ROLES}


def send(tenant: Tenant, key: SessionCredentials) -> RemotingCommand:
    fields = {**SEND_FIELDS, "b": TOPIC}
    request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=b"victims-message")
    with connect(tenant.broker) as stream:
        return exchange(stream, signed(request, key))


def all_at_once(attacks: Sequence[Callable[[], list[str]]], victim: Tenant) -> list[str]:
    """What went wrong, while the victim's producer went on: each of its sends must succeed."""
    stop = threading.Event()

    def produce() -> list[str]:
        sent = 0
        while not stop.is_set() or sent < 10:
            if (reply := send(victim, victim.app_key)).code != ResponseCode.SUCCESS:
                return [f"the victim's send: {reply.code} {reply.remark}"]
            sent += 1
        return []

    with ThreadPoolExecutor(len(attacks) + 1) as pool:
        good = pool.submit(produce)
        try:
            found = [line for attack in [pool.submit(attack) for attack in attacks] for line in attack.result()]
        finally:
            stop.set()
        return found + good.result()


def answered(api: httpx.Client, method: str, path: str, body: Any) -> httpx.Response:
    """The answer to a request that was looked at: all come from one address here, which a fast machine tells to come again."""
    for _ in range(30):
        answer = api.request(method, path, json=body)
        if answer.status_code != httpx.codes.TOO_MANY_REQUESTS:
            break
        time.sleep(float(answer.headers["Retry-After"]))
    return answer


def addresses(platform: PlatformStack, victim: Tenant) -> list[tuple[str, str]]:
    """(method, path) of all that the API says to have, with the victim's own names in it."""
    api, below = victim.cluster.api, victim.cluster.path
    document = api.get("schema/", headers={"Accept": "application/json"}).json()
    first = {
        kind: api.get(f"tenants/{victim.name}/{kind}/").json()["results"]
        for kind in ("tokens", "operations", "alert-channels")
    }
    known = {
        "tenant": victim.name,
        "cluster": "main",
        "topic": TOPIC,
        "group": "broker-a",
        "access_key": victim.app_key.access_key,
        "token_id": first["tokens"][0]["id"],
        "operation_id": first["operations"][0]["id"],
        "channel_id": first["alert-channels"][0]["id"],
        "cluster_id": api.get(below).json()["id"],
        "position": "1",
        "kind": "csv",
    }
    found = []
    for path, methods in document["paths"].items():
        if "{tenant}" in path or "{operation_id}" in path or "/operator/" in path:
            filled = re.sub(r"{(\w+)}", lambda name: known.get(name[1], str(uuid.UUID(int=0))), path)
            found += [
                (method.upper(), filled) for method in methods if method in ("get", "post", "put", "patch", "delete")
            ]
    return found


def test_the_api_has_more_than_a_hundred_addresses_of_tenants(
    platform_stack: PlatformStack, tenants: tuple[Tenant, Tenant]
) -> None:
    assert len(addresses(platform_stack, tenants[1])) > 100


def test_no_role_of_another_tenant_gets_or_changes_anything_by_the_api(
    platform_stack: PlatformStack, tenants: tuple[Tenant, Tenant]
) -> None:
    hostile, victim = tenants
    asked = addresses(platform_stack, victim)
    before = victim.state()

    def attack(token: str, role: str) -> list[str]:
        with platform_stack.api(token) as api:
            return [
                f"{role}: {method} {path}: {answer.status_code} {answer.text[:200]}"
                for method, path in asked
                if (answer := answered(api, method, path, {} if method != "GET" else None)).status_code != 404
                or "victims-message" in answer.text
            ]

    tokens = tokens_of(platform_stack, hostile)
    assert all_at_once([partial(attack, token, role) for role, token in tokens.items()], victim) == []
    assert victim.state() == before


def test_each_role_is_refused_what_is_above_it_in_its_own_tenant(
    platform_stack: PlatformStack, tenants: tuple[Tenant, Tenant]
) -> None:
    hostile, victim = tenants
    before = hostile.state()
    tokens = tokens_of(platform_stack, hostile)
    for role in ROLES:
        hostile.cluster.create_topic(f"of-{role}", queues=1)

    def attack(role: str, token: str) -> list[str]:
        wrong = []
        with platform_stack.api(token) as api:
            for method, path, body, allowed in WITHIN:
                answer = answered(api, method, f"tenants/{hostile.name}/{path.format(role=role)}", body)
                if (answer.status_code == httpx.codes.FORBIDDEN) is (role in allowed) or answer.is_server_error:
                    wrong.append(f"{role}: {method} {path}: {answer.status_code} {answer.text[:200]}")
        return wrong

    assert all_at_once([partial(attack, role, token) for role, token in tokens.items()], victim) == []
    after = hostile.state()
    assert after["topics"] == sorted([*before["topics"], "of-billing", "of-developer", "of-viewer"])
    assert [after[name] for name in ("members", "keys", "tenant")] == [
        before[name] for name in ("members", "keys", "tenant")
    ]


def requests_to_a_broker() -> list[RemotingCommand]:
    fields = {**SEND_FIELDS, "b": TOPIC, "topic": TOPIC, "group": "g", "consumerGroup": "g", "producerGroup": "g"}
    fields |= {
        "queueId": "0",
        "offset": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
    }
    fields |= {"suspendTimeoutMillis": "0", "subVersion": "0", "subscription": "*", "timestamp": "0", "isForce": "true"}
    fields |= {"clientID": "c", "clientId": "c"}
    consumer = ConsumerData(group_name="g", subscription_data_set=[SubscriptionData(topic=TOPIC, sub_string="*")])
    heartbeat = HeartbeatData(client_id="c", consumer_data_set=[consumer]).to_json()
    queue = {"topic": TOPIC, "brokerName": "broker-a", "queueId": 0}
    locks = json.dumps({"consumerGroup": "g", "clientId": "c", "mqSet": [queue]}).encode()
    bodies: dict[int, bytes] = {
        RequestCode.HEART_BEAT: heartbeat,
        RequestCode.LOCK_BATCH_MQ: locks,
        RequestCode.UNLOCK_BATCH_MQ: locks,
        RequestCode.CHECK_CLIENT_CONFIG: json.dumps({"clientId": "c", "group": "g"}).encode(),
    }
    return [
        RemotingCommand.request(code, ext_fields=dict(fields), body=bodies.get(code, b"")) for code in sorted(NEEDS)
    ]


def answered_otherwise(
    address: str, requests: list[RemotingCommand], key: SessionCredentials | None, who: str
) -> list[str]:
    """Requests that are not refused for want of a permission."""
    wrong = []
    for request in requests:
        with connect(address) as stream:
            reply = exchange(stream, signed(request, key))
        if reply.code != ResponseCode.NO_PERMISSION or b"victims-message" in bytes(reply.body):
            wrong.append(f"{who}: request {request.code} at {address}: {reply.code} {reply.remark}")
    return wrong


def test_no_key_of_another_tenant_is_anything_to_a_broker_or_name_server(tenants: tuple[Tenant, Tenant]) -> None:
    hostile, victim = tenants
    before = victim.state()
    keys = {
        "the hostile program": hostile.app_key,
        "the hostile administrator": hostile.admin_key,
        "the victim's name with a guessed secret": SessionCredentials(
            victim.admin_key.access_key, hostile.admin_key.secret_key
        ),
        "a stranger": None,
    }
    closed = sorted({*LISTING_CODES, *NAME_SERVERS_MACHINE_CODES} - OPEN_CODES)

    def attack(who: str, key: SessionCredentials | None) -> list[str]:
        listing = [RemotingCommand.request(code, ext_fields={"topic": TOPIC}) for code in closed]
        return [
            *answered_otherwise(victim.broker, requests_to_a_broker(), key, who),
            *answered_otherwise(victim.namesrv, listing, key, who),
        ]

    assert all_at_once([partial(attack, who, key) for who, key in keys.items()], victim) == []
    assert victim.state() == before


def test_a_key_of_few_rights_gets_no_more_of_its_own_cluster(tenants: tuple[Tenant, Tenant]) -> None:
    hostile, victim = tenants
    body = {
        "name": "sender",
        "default_topic_perm": "DENY",
        "default_group_perm": "DENY",
        "topic_perms": {"other": "PUB"},
    }
    made = hostile.cluster.api.post(f"{hostile.cluster.path}credentials/", json=body)
    assert made.status_code == 201, made.text
    access_key = made.json()["access_key"]
    path = f"{hostile.cluster.path}credentials/{access_key}/"
    key = SessionCredentials(access_key, hostile.cluster.api.post(f"{path}reveal/").json()["secret_key"])
    # Whoever has a key may ask these; what they answer about is checked by the processor.
    by_the_message = {code for code, needs in NEEDS.items() if needs is Level.AUTHENTICATED}
    requests = [request for request in requests_to_a_broker() if request.code not in by_the_message]
    machine = [request for request in requests_to_a_broker() if NEEDS[request.code] is Level.INFRASTRUCTURE]
    attacks = [
        partial(answered_otherwise, hostile.broker, requests, key, "a sender to another topic"),
        partial(answered_otherwise, hostile.broker, machine, hostile.app_key, "a program"),
        partial(answered_otherwise, hostile.broker, machine, hostile.admin_key, "an administrator's key"),
    ]
    assert all_at_once(attacks, victim) == []
    assert hostile.cluster.api.delete(path).status_code == 204
    everything = requests_to_a_broker()
    assert answered_otherwise(hostile.broker, everything, key, "a deleted key") == []


@dataclass(frozen=True)
class Shown:
    """What every user of the machine, or the process' own, reads of a process."""

    pid: int
    arguments: bytes
    environment: bytes

    @property
    def is_daemon(self) -> bool:
        return any(program in self.arguments.split(b"\0") for program in (b"brokerd", b"namesrvd"))


def shown_by_processes(platform: PlatformStack) -> list[Shown]:
    found = []
    for process in find_leftovers(platform.state_dir):
        folder = Path("/proc") / str(process.pid)
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            found.append(
                Shown(process.pid, (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()),
            )
    return found


def test_no_process_shows_a_secret_in_its_arguments_and_no_daemon_in_its_environment(
    platform_stack: PlatformStack, tenants: tuple[Tenant, Tenant]
) -> None:
    stored = load_secrets(platform_stack.stack.layout.secrets_file)
    own = {secret for secret in stored.values() if len(secret) >= 16}  # the others are words of the tests' own
    assert stored["django"] in own
    of_tenants = {key.secret_key for tenant in tenants for key in (tenant.app_key, tenant.admin_key)}
    of_tenants |= set(tokens_of(platform_stack, tenants[0]).values())
    for file in platform_stack.state_dir.rglob("plain_acl.yml"):
        of_tenants |= {str(account["secretKey"]) for account in yaml.safe_load(file.read_text())["accounts"]}
    assert len(of_tenants) > 4 + len(ROLES)  # the infrastructure's of each cluster is among them
    assert min(map(len, of_tenants)) >= 16
    processes = shown_by_processes(platform_stack)
    assert sum(process.is_daemon for process in processes) >= 4
    assert len(processes) > 10  # supervisord, the web's, workers, beat
    leaks = []
    for process in processes:
        for secret in map(str.encode, of_tenants | own):
            if secret in process.arguments:
                leaks.append(f"in the arguments of {process.pid}: {process.arguments!r}")
            # The platform's programs are given the platform's own secrets by their environment, as docs/settings.md has it.
            if secret in process.environment and (process.is_daemon or secret.decode() in of_tenants):
                leaks.append(f"in the environment of {process.pid}: {process.arguments!r}")
        if process.is_daemon and b"PRIVATE KEY" in process.environment + process.arguments:
            leaks.append(f"a private key of {process.pid}")
    assert leaks == []
