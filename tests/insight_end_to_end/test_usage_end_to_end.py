"""From a stock client to the browser: what the pages say is what was sent and delivered, exactly, with a broker's machine lost
and a Spark job killed on the way. A platform of its own, whose jobs run when they are asked for.
"""

from __future__ import annotations

import array
import fcntl
import json
import logging
import os
import re
import signal
import termios
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from highwater import Admin, Credentials, HighwaterError
from mqwire.metering import MeteringRecord, decode_metering_record
from mqwire.names import RMQ_SYS_METERING
from tests.console.browser import DESKTOP, look_at, sign_up
from tests.failover.live_group import LiveGroup, wait_for
from tests.interop.clients import Cluster, JavaClient
from tests.interop.content import plans
from tests.processes import wait_until
from tests.support.platform_stack import PlatformStack, running_platform

PATIENCE_MS = 120_000
JOB_SECONDS_MAX = 300.0  # ten on a quiet machine
TENANT = "measured"
OWNER = "measure@example.com"
TOPIC, GROUP = "payments", "ledger"
SIZES = (1, 100, 1024, 4095)  # up to one unit each, and nothing that the client compresses
BEFORE, UNMETERED, AFTER = 120, 40, 80
SPARK = {
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, java_home: Path) -> Iterator[PlatformStack]:
    variables = {
        "HIGHWATER_JOBS": "on",
        "HIGHWATER_JOB_INTERVALS_S": "",
        "HIGHWATER_SPARK_MASTER": "local[2]",
        "HIGHWATER_SPARK_CONF": json.dumps(SPARK),
        "HIGHWATER_METERING_INTERVAL_MS": "1000",
    }
    with running_platform(tmp_path_factory.mktemp("insight"), variables) as platform:
        yield platform


@pytest.fixture(scope="module")
def stock_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    with JavaClient(tmp_path_factory.mktemp("java-client")) as client:
        yield client


@pytest.mark.timeout(900)
def test_the_pages_say_exactly_what_was_sent_and_delivered(
    platform: PlatformStack, stock_client: JavaClient, browser: Browser
) -> None:
    logging.getLogger("httpx").setLevel(logging.WARNING)  # hundreds of polls
    context = browser.new_context(base_url=platform.console_url, viewport=DESKTOP)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    sign_up(page, OWNER, "Measured")
    platform.manage("make_operator", OWNER)
    token = platform.manage("issue_token", TENANT, "--operator", OWNER).strip()
    with platform.api(token) as api:
        _make_a_plan(api)
        live = LiveGroup.create(platform, api, TENANT, "pair", mode="sync", replicas=2)
        topic = {"name": TOPIC, "read_queue_nums": 2, "write_queue_nums": 2}
        assert api.post(f"{live.path}topics/", json=topic).status_code == 201
        keys = live.credentials
        cluster = Cluster(live.get()["namesrv_addr"], keys.access_key, keys.secret_key)
        control = _control_keys(platform)

        sent = _send(stock_client, cluster, "before", BEFORE)
        _wait_metered(cluster.namesrv, control, sent=BEFORE, delivered=0)
        # What follows is in the log, and in no record, when the master goes.
        sent += _send(stock_client, cluster, "unmetered", UNMETERED)
        _fail_over(live)
        sent += _send(stock_client, cluster, "after", AFTER)
        count = BEFORE + UNMETERED + AFTER
        with stock_client.consumer(cluster, TOPIC, group=GROUP, from_where="CONSUME_FROM_FIRST_OFFSET") as consumer:
            received = consumer.receive(count)
        assert len(received) == count
        _wait_metered(cluster.namesrv, control, sent=count, delivered=count)

        _completed(api, "ingest")
        _kill_while_it_runs(api, platform, "usage_billing")
        _completed(api, "lag_analytics")

        found = api.get(f"tenants/{TENANT}/usage/").json()["total"]
        assert (found["messages_in"], found["bytes_in"]) == (str(count), str(sum(sent)))
        assert (found["messages_out"], found["bytes_out"]) == (str(count), str(sum(sent)))
        assert {name: Decimal(amount) for name, amount in found["amounts"].items()} == {"EUR": count * Decimal("0.06")}
        _see_usage(page, count, sum(sent))
        _see_the_invoice(page, count)
        _see_lag(page)
    context.close()


def _make_a_plan(api: httpx.Client) -> None:
    """A message sent costs 4 cents, one delivered 2, as each is one unit; storing costs nothing."""
    assert api.post("operator/plans/", json={"slug": "standard", "currency": "EUR"}).status_code == 201
    begin = datetime.now(UTC).replace(month=1, day=1, hour=0, minute=0, second=0, microsecond=0).isoformat()
    rates = {"per_million_units": "40000", "per_million_units_out": "20000", "per_gib_month_stored": "0"}
    made = api.post("operator/plans/standard/prices/", json={**rates, "valid_from": begin})
    assert made.status_code == 201, made.text
    given = {"tenant": TENANT, "plan": "standard", "valid_from": begin}
    assert api.post("operator/subscriptions/", json=given).status_code == 201


def _send(client: JavaClient, cluster: Cluster, seed: str, count: int) -> list[int]:
    """Send, and return the sizes of the bodies; every send was acknowledged."""
    messages = plans(seed, count, sizes=SIZES)
    outcomes = client.produce(cluster, TOPIC, messages, poll_ms=1000)
    assert [outcome["status"] for outcome in outcomes] == ["SEND_OK"] * count
    return [int(message["size"]) for message in messages]


def _fail_over(live: LiveGroup) -> None:
    live.wait_group(lambda group: group["replicas"][1]["in_sync"] is True, "the slave in sync")
    live.lose_machine(0)
    live.wait_group(lambda group: bool(group["state"] == "no_master"), "the master is missed")
    answer = live.ask("promote")
    assert answer.status_code == 202, answer.text
    live.wait_group(lambda group: group["replicas"][1]["role"] == "master", "the slave leads")
    live.machine_is_back(0)
    assert live.finished(answer.json())["state"] == "completed"


def _control_keys(platform: PlatformStack) -> Credentials:
    """The control plane's own key pair of the cluster: the metering topic is not for tenants."""
    code = (
        "from controlplane.clusters.models import Cluster; from controlplane.clusters.remoting import control_credentials;"
        " keys = control_credentials(Cluster.objects.get(slug='pair')); print(keys.access_key, keys.secret_key)"
    )
    access_key, secret_key = platform.manage("shell", "--no-imports", "-c", code).split()
    return Credentials(access_key, secret_key)


def _records(namesrv: str, keys: Credentials) -> list[MeteringRecord]:
    """What the metering topic holds now; nothing while no master answers."""
    found: list[MeteringRecord] = []
    try:
        with Admin(namesrv, credentials=keys) as admin:
            for queue in admin.topic_route(RMQ_SYS_METERING).subscribe_queues:
                position = admin.min_offset(queue)
                while messages := admin.pull(queue, position):
                    found += [decode_metering_record(message.body) for message in messages]
                    position = messages[-1].queue_offset + 1
    except HighwaterError:
        return []
    return found


def _wait_metered(namesrv: str, keys: Credentials, *, sent: int, delivered: int) -> None:
    def counted() -> tuple[int, int]:
        records = _records(namesrv, keys)
        return (
            sum(row.messages for one in records for row in one.messages_in if row.topic == TOPIC),
            sum(row.messages for one in records for row in one.messages_out if row.topic == TOPIC),
        )

    wait_for(counted, lambda found: bool(found == (sent, delivered)), "messages in and out are metered")


def _started(api: httpx.Client, job: str) -> str:
    answer = api.post("operator/job-runs/", json={"job": job})
    assert answer.status_code == 202, answer.text
    path: str = answer.json()["path"].removeprefix("/api/v1/")
    return path


def _ended(api: httpx.Client, path: str) -> dict[str, Any]:
    def ended() -> bool:
        return api.get(path).json()["state"] in ("completed", "failed")

    wait_until(ended, timeout_s=JOB_SECONDS_MAX, what="the job's end", interval_s=0.3)
    found: dict[str, Any] = api.get(path).json()
    return found


def _completed(api: httpx.Client, job: str) -> None:
    run = _ended(api, _started(api, job))
    assert (run["state"], run["error"]) == ("completed", ""), run
    assert run["rows_quarantined"] in ("0", None)


def _kill_while_it_runs(api: httpx.Client, platform: PlatformStack, job: str) -> None:
    """Run the job, kill the Spark session that has got it, see that the run failed, and retry it."""
    before = _sessions(platform)
    for pid in before:
        os.kill(pid, signal.SIGSTOP)  # else it could be done before it is killed
    path = _started(api, job)
    try:
        wait_for(lambda: _has_the_run(platform, before), bool, "a session has got the run")
    finally:
        for pid in _sessions(platform):
            os.kill(pid, signal.SIGKILL)
    run = _ended(api, path)
    assert run["state"] == "failed"
    assert "ended with status" in run["error"]
    again = api.post(f"{path}retry/")
    assert again.status_code == 202, again.text
    retried = _ended(api, again.json()["path"].removeprefix("/api/v1/"))
    assert (retried["state"], retried["attempt"]) == ("completed", 2), retried


def _sessions(platform: PlatformStack) -> list[int]:
    """The resident Spark sessions of this platform's workers, one for each that has run a job."""
    log = _session_log(platform)
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            is_ours = (process / "fd" / "1").readlink() == log
        except OSError:
            continue
        if is_ours and any(word in (b"resident", b"spark_etl.jobs.resident") for word in words):
            found.append(int(process.name))
    return found


def _session_log(platform: PlatformStack) -> Path:
    return platform.state_dir / "jobs" / "resident.log"


def _has_the_run(platform: PlatformStack, stopped: list[int]) -> bool:
    """Whether the order waits in the pipe of a session that is stopped, or another worker has started one for it."""
    if any(pid not in stopped for pid in _sessions(platform)):
        return "Setting default log level" in _session_log(platform).read_text(errors="replace")
    return any(_unread_bytes(Path(f"/proc/{pid}/fd/0")) for pid in stopped)


def _unread_bytes(pipe: Path) -> int:
    with pipe.open("rb", buffering=0) as end:
        return int(array.array("i", fcntl.ioctl(end, termios.FIONREAD, bytes(4)))[0])


def _see_usage(page: Page, count: int, size: int) -> None:
    page.goto(f"/t/{TENANT}/usage/")
    for figure, words in (("sent", str(count)), ("delivered", str(count)), ("cost", f"{count * 0.06:.2f} EUR")):
        expect(page.locator(f'[data-figure="{figure}"] dd').first).to_have_text(words)
    for by, name in (("topic", TOPIC), ("group", GROUP), ("credential", re.compile("^default "))):
        row = (
            page.locator(f'[data-breakdown="{by}"]').get_by_role("row").filter(has=page.get_by_role("link", name=name))
        )
        expect(row).to_contain_text(str(count))
    sums = page.locator('[data-twin="sent"] tbody td').all_text_contents()
    assert sum(int(words) for words in sums if words != "not known") == count
    assert "not known" in sums or datetime.now(UTC).day > 27  # days to come are not 0
    look_at(page, "end to end usage")


def _see_the_invoice(page: Page, count: int) -> None:
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Invoices").click()
    page.get_by_role("link", name=re.compile("^Draft for")).click()
    expect(page.locator("[data-total]")).to_have_text(f"{count * 0.06:.2f} EUR")
    page.get_by_role("link", name=re.compile("^1. Sent")).click()
    exact = format((count * Decimal("0.04")).normalize(), "f")
    expect(page.locator("[data-line-sum]")).to_contain_text(f"together {exact} EUR")


def _see_lag(page: Page) -> None:
    page.goto(f"/t/{TENANT}/clusters/pair/lag/")
    row = page.locator(f'[data-group="{GROUP}"]')
    expect(row.locator("[data-lag]")).to_have_text("0")
    expect(row).to_contain_text("caught up")
    row.get_by_role("link", name=GROUP).click()
    expect(page.locator('[data-figure="lag"] dd').first).to_have_text("0")
    expect(page.locator("#lag-messages")).to_have_attribute("data-state", "drawn")
    look_at(page, "end to end lag")
