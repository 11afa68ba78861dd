"""Suspended and resumed, deleted and restored, with real daemons: what was acknowledged before is there after."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from highwater import HighwaterError, Message, Producer
from tests.failover.live_group import LiveGroup, wait_for
from tests.failover.load import Sender, send_ok, stored
from tests.support.platform_stack import PlatformStack

TENANT = "resting"
TOPIC = "payments"


@pytest.fixture(scope="module", params=["single", "dledger"])
def live(request: pytest.FixtureRequest, platform_stack: PlatformStack) -> Iterator[LiveGroup]:
    """One cluster for each mode; the tests hurt it in order."""
    tenant = f"{TENANT}-{request.param}"
    platform_stack.manage("create_tenant", tenant)
    with platform_stack.api(platform_stack.token(tenant)) as api:
        live = LiveGroup.create(platform_stack, api, tenant, "rest", mode=request.param)
        answer = api.post(f"{live.path}topics/", json={"name": TOPIC, "read_queue_nums": 2, "write_queue_nums": 2})
        assert answer.status_code == 201, answer.text
        yield live


def _do(live: LiveGroup, act: str) -> None:
    answer = live.api.delete(live.path) if act == "delete" else live.api.post(f"{live.path}{act}/", json={})
    assert answer.status_code == 202, answer.text
    operation = live.finished(answer.json())
    assert operation["state"] == "completed", json.dumps(operation, indent=1)


def _processes(live: LiveGroup) -> list[str]:
    prefix = f"hw-{live.id.replace('-', '')[:12]}-"
    return [one.name for one in live.platform.stack.processes() or [] if one.name.startswith(prefix)]


def _load(live: LiveGroup) -> set[str]:
    """Send until some are acknowledged; returns the bodies of those."""
    with Sender(live, TOPIC) as sender:
        wait_for(lambda: len(sender.acknowledged), lambda found: found > 20, "load")
    return set(sender.acknowledged)


def _elections(live: LiveGroup) -> int:
    return sum(one["kind"] == "election" for one in live.get("failovers/")["results"])


@pytest.mark.parametrize(("stop", "start"), [("suspend", "resume"), ("delete", "restore")])
def test_a_stopped_cluster_refuses_connections_and_comes_back_with_every_acknowledged_message(
    live: LiveGroup, stop: str, start: str
) -> None:
    sent = _load(live)
    before, elections = live.get(), _elections(live)
    credentials = live.credentials
    _do(live, stop)
    assert _processes(live) == []
    host, _, port = before["namesrv_addr"].split(";")[0].partition(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5)
    with (
        pytest.raises(HighwaterError),
        Producer(before["namesrv_addr"], "early", credentials=credentials, timeout_ms=1000) as producer,
    ):
        producer.send(Message(TOPIC, b"too early"))
    assert live.get()["stopped"]["since"] is not None
    _do(live, start)
    after = live.get()
    assert (after["state"], after["stopped"], after["namesrv_addr"]) == ("running", None, before["namesrv_addr"])
    assert sent <= set(stored(live, TOPIC))
    assert send_ok(live, TOPIC) == "SEND_OK"
    live.wait_group(lambda group: group["state"] == "healthy", "healthy")
    assert _elections(live) == elections  # that it elects again when it starts cut no one off


def test_deleted_for_good_nothing_is_left(live: LiveGroup) -> None:
    _do(live, "delete")
    assert live.store(0).exists()
    answer = live.api.post(f"{live.path}purge/", json={"confirm": "rest"})
    operation = live.finished(answer.json())
    assert operation["state"] == "completed", json.dumps(operation, indent=1)
    assert live.api.get(live.path).status_code == 404
    assert not live.store(0).exists()
