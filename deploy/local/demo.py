"""The demo of `./dev up`: what a new user does, done for them through the same doors (sign-up page, REST API, SDK).

    python -m deploy.local.demo ensure|snippets ...

Runs in the environment, unlike the rest of this folder. Each step looks first, so running it again is quick and harmless.
"""

from __future__ import annotations

import argparse
import hmac
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx

from controlplane.console.snippets import Snippet, Values, snippets_render
from deploy.local.layout import Layout
from deploy.local.secrets_file import load_secrets
from deploy.local.stack import OPERATOR_EMAIL
from deploy.local.terminal import DevError, Terminal
from highwater import Admin, Credentials, HighwaterError, Message, Producer, ReceivedMessage

EMAIL = "demo@highwater.example"
TENANT = "demo"
CLUSTER = "demo"
TOPIC = "orders"
CLUSTER_PATH = f"/api/v1/tenants/{TENANT}/clusters/{CLUSTER}/"
PLAN = "local"
PLANS_PATH = "/api/v1/operator/plans/"
# Small sums, but not zero, after minutes of the demo's load.
PLAN_BODY = {
    "slug": PLAN,
    "name": "Local",
    "description": "Made by ./dev up, so that usage has a price. Every tenant without a plan gets it.",
    "currency": "USD",
    "is_default": True,
}
RATES = {"per_million_units": "50", "per_million_units_out": "20", "per_gib_month_stored": "0.25"}
# Of the load alone: a first program that was tried on TOPIC leaves a group there, whose backlog the load would let grow for ever.
LOAD_TOPIC = "shop"
TOPICS = {TOPIC: "Made by ./dev up, for first programs", LOAD_TOPIC: "Made by ./dev up, for the demo's load"}

REQUEST_TIMEOUT_S = 30.0
OPERATION_SECONDS_MAX = 120
# After ./dev down and up, daemons start again, and a broker registers as soon as it serves.
SEND_SECONDS_MAX = 45


@dataclass(frozen=True)
class DemoCluster:
    """What a client program needs."""

    namesrv_addr: str
    access_key: str
    secret_key: str
    tls_ca: str = ""

    @property
    def snippets(self) -> list[Snippet]:
        return snippets_render(Values(self.namesrv_addr, self.access_key, self.secret_key, TOPIC, self.tls_ca))


def browser_id(password: str) -> str:
    """What the console knows our browser by: each run of ours is the same one, so that none is mailed about as a stranger's."""
    return hmac.digest(password.encode(), b"browser", "sha256").hex()


class Console:
    """A user's browser: a session cookie and its CSRF token."""

    def __init__(self, url: str, password: str, email: str = EMAIL) -> None:
        # No proxies: it is the loopback.
        self._http = httpx.Client(
            base_url=url, timeout=REQUEST_TIMEOUT_S, trust_env=False, cookies={"browser": browser_id(password)}
        )
        self._password = password
        self._email = email

    def log_in(self) -> bool:
        """False when the password is not the one that was made here."""
        return self._submit("/login/", {"login": self._email, "password": self._password})

    def enter(self) -> None:
        """Logs in, or signs up the first time. Raises DevError."""
        if not self.log_in():
            form = {"email": self._email, "password1": self._password, "password2": self._password}
            if not self._submit("/signup/", form):
                raise DevError(
                    f"{self._email} can neither log in with the password in .local/secrets.json nor sign up.",
                    "if you have changed the demo user's password, use ./dev up --no-demo from now on; else ./dev logs web",
                )

    def _submit(self, path: str, form: dict[str, str]) -> bool:
        """Fills in one of the site's forms; True when it let us in."""
        page = self._http.get(path)
        match = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
        if page.status_code != httpx.codes.OK or match is None:
            raise DevError(f"{path} answers {page.status_code} instead of a form.", "look into ./dev logs web")
        answer = self._http.post(path, data={**form, "csrfmiddlewaretoken": match.group(1)})
        return answer.is_redirect and "sessionid" in self._http.cookies

    def get(self, path: str) -> dict[str, Any] | None:
        """None when there is no such thing."""
        return self._call("GET", path, None)

    def post(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        return self._call("POST", path, body) or {}

    def _call(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any] | None:
        headers = {"X-CSRFToken": self._http.cookies.get("csrftoken") or ""}
        answer = self._http.request(method, path, json=body, headers=headers)
        if answer.status_code == httpx.codes.NOT_FOUND and method == "GET":
            return None
        if answer.is_error:
            raise DevError(
                f"{method} {path} answers {answer.status_code}: {_problem(answer)}", "look into ./dev logs web"
            )
        found: dict[str, Any] = answer.json()
        return found

    def finish(self, operation: dict[str, Any]) -> None:
        """Waits for an operation; tries a failed one again once. Raises DevError with its cause and hint."""
        path = f"/api/v1/operations/{operation['id']}/"
        deadline = time.monotonic() + OPERATION_SECONDS_MAX
        while operation["state"] == "in_progress":
            if time.monotonic() > deadline:
                raise DevError(
                    f"The cluster is still being made after {OPERATION_SECONDS_MAX} s.", "look into ./dev logs worker"
                )
            time.sleep(0.2)
            operation = self.get(path) or operation
        if operation["state"] == "failed":
            error = operation.get("error") or {}
            raise DevError(
                f"Making the cluster failed: {error.get('cause', 'no cause was given')}",
                f"{error.get('hint') or 'look into ./dev logs worker.'} ./dev up tries again.",
            )


def _problem(answer: httpx.Response) -> str:
    """The sentence of a problem+json body."""
    try:
        body = answer.json()
    except ValueError:
        return answer.text[:300]
    return f"{body.get('title', '')} {body.get('detail', '')} {body.get('errors') or ''}".strip()


def ensure_cluster(console: Console) -> None:
    """Tenant and cluster, each made unless it is there."""
    if console.get(f"/api/v1/tenants/{TENANT}/") is None:
        console.post("/api/v1/tenants/", {"slug": TENANT, "name": "Demo"})
    cluster = console.get(CLUSTER_PATH)
    if cluster is None:
        console.finish(console.post(f"/api/v1/tenants/{TENANT}/clusters/", {"slug": CLUSTER, "name": "Demo"}))
    elif cluster["state"] != "running":
        latest = (console.get(f"/api/v1/tenants/{TENANT}/operations/?cluster={CLUSTER}") or {})["results"][0]
        if latest["state"] == "failed":
            latest = console.post(f"/api/v1/operations/{latest['id']}/retry/")
        console.finish(latest)


def ensure_prices(operator: Console, now: datetime) -> None:
    """A default plan with prices, unless the operator has made plans already. The control plane gives it to the tenant."""
    if (operator.get(PLANS_PATH) or {})["results"]:
        return
    operator.post(PLANS_PATH, PLAN_BODY)
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    operator.post(f"{PLANS_PATH}{PLAN}/prices/", {**RATES, "valid_from": month.isoformat()})


def topic_is_there(console: Console, topic: str) -> bool:
    """False also for a topic whose creation failed: creating it again is how to retry."""
    found = console.get(f"{CLUSTER_PATH}topics/{topic}/?live=false")
    return found is not None and found["state"] == "active"


def describe_cluster(console: Console) -> DemoCluster:
    """Its address, and the first credential that an application may use. Raises DevError when there is none."""
    cluster = console.get(CLUSTER_PATH)
    credentials = (console.get(f"{CLUSTER_PATH}credentials/") or {"results": []})["results"]
    app = next((credential for credential in credentials if credential["role"] == "app"), None)
    if cluster is None or cluster["state"] != "running" or app is None:
        raise DevError("There is no running demo cluster with a credential.", "./dev up")
    revealed = console.post(f"{CLUSTER_PATH}credentials/{app['access_key']}/reveal/")
    return DemoCluster(cluster["namesrv_addr"], revealed["access_key"], revealed["secret_key"], cluster["tls_ca"])


def send_and_read_back(cluster: DemoCluster) -> ReceivedMessage:
    """One message through the cluster, by the SDK with the tenant's own credentials. Raises DevError."""
    credentials = Credentials(cluster.access_key, cluster.secret_key)
    body = f"Hello from ./dev up at {time.strftime('%H:%M:%S')}".encode()
    deadline = time.monotonic() + SEND_SECONDS_MAX
    while True:
        try:
            with Producer(cluster.namesrv_addr, "dev-up", credentials=credentials) as producer:
                result = producer.send(Message(TOPIC, body, tags="hello", keys=["first"]))
            with Admin(cluster.namesrv_addr, credentials=credentials) as admin:
                messages = admin.pull(result.queue, result.queue_offset, max_messages=1)
        except HighwaterError as exc:
            if time.monotonic() > deadline:
                raise DevError(f"The demo cluster does not take a message: {exc}", "./dev status, ./dev logs") from exc
            time.sleep(0.3)
            continue
        if [message.body for message in messages] != [body]:
            raise DevError(
                f"What was sent did not come back: {messages}", "./dev logs; this is a bug, please report it"
            )
        return messages[0]


def print_snippets(terminal: Terminal, cluster: DemoCluster, languages: list[str]) -> None:
    known = [snippet.name for snippet in cluster.snippets]
    if unknown := set(languages).difference(known):
        raise DevError(f"There is no first program in {', '.join(unknown)}.", f"choose from {', '.join(known)}")
    for snippet in cluster.snippets:
        if languages and snippet.name not in languages:
            continue
        terminal.say(terminal.paint(f"\n──── {snippet.title} " + "─" * (70 - len(snippet.title)), "1"))
        terminal.say(snippet.note)
        for file in snippet.files:
            terminal.say(terminal.paint(f"\n── {file.title}", "36"))
            terminal.say(file.text)


def print_summary(terminal: Terminal, url: str, secrets: Mapping[str, str], cluster: DemoCluster) -> None:
    lines = {
        "Console": url,
        "Log in": f"{EMAIL}  {secrets['demo']}",
        "Operator": f"{OPERATOR_EMAIL}  {secrets['operator']}",
        "Name server": cluster.namesrv_addr,
        "Access key": cluster.access_key,
        "Secret key": cluster.secret_key,
        "Topic": TOPIC,
    }
    terminal.say()
    for name, value in lines.items():
        terminal.say(f"  {name:<12}{terminal.paint(value, '1')}")
    languages = "|".join(snippet.name for snippet in cluster.snippets)
    terminal.say(f"\n  First programs, filled in:  ./dev snippets [{languages}]")
    terminal.say(f"  A token for the REST API:   ./dev token {TENANT}")


def ensure(terminal: Terminal, url: str, secrets: Mapping[str, str]) -> None:
    """The whole demo; prints the first programs when the topic was made by this call, and what to know in any case."""
    operator = Console(url, secrets["operator"], OPERATOR_EMAIL)
    if operator.log_in():
        ensure_prices(operator, datetime.now(UTC))
    else:
        terminal.warn(f"{OPERATOR_EMAIL} has another password now: the demo gets no plan unless you give it one")
    console = Console(url, secrets["demo"])
    console.enter()
    cluster_row = console.get(CLUSTER_PATH)
    if cluster_row is None or cluster_row["state"] != "running":
        with terminal.step("Making the demo cluster, by the REST API"):
            ensure_cluster(console)
    missing = [topic for topic in TOPICS if not topic_is_there(console, topic)]
    for topic in missing:
        with terminal.step(f"Making its topic {topic}"):
            body = {"name": topic, "read_queue_nums": 4, "write_queue_nums": 4, "description": TOPICS[topic]}
            console.post(f"{CLUSTER_PATH}topics/", body)
    cluster = describe_cluster(console)
    with terminal.step("Sending a message and reading it back"):
        message = send_and_read_back(cluster)
    terminal.say(
        f"    “{message.body.decode()}” lies at offset {message.queue_offset} of queue {message.queue.queue_id}"
    )
    if TOPIC in missing:
        print_snippets(terminal, cluster, [])
    print_summary(terminal, url, secrets, cluster)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("what", choices=["ensure", "snippets"])
    parser.add_argument("languages", nargs="*")
    options = parser.parse_args(arguments)
    terminal = Terminal()
    secrets = load_secrets(Layout.from_environment().secrets_file)
    try:
        if options.what == "ensure":
            ensure(terminal, options.url, secrets)
        else:
            console = Console(options.url, secrets["demo"])
            console.enter()
            print_snippets(terminal, describe_cluster(console), options.languages)
    except DevError as exc:
        terminal.error(exc)
        return exc.exit_code
    except httpx.TransportError as exc:
        terminal.error(DevError(f"The web server does not answer: {exc}", "look into ./dev logs web"))
        return 1
    except KeyboardInterrupt:
        return 130  # ./dev says the rest
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
