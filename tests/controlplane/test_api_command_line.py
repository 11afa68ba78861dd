"""`highwater NOUN VERB` against the real API: the commands are those of its description."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from django.http import StreamingHttpResponse
from django.test import Client

from controlplane.clusters import credential_quotas
from controlplane.clusters.account_distribution import Distribution
from controlplane.clusters.models import OperationState
from controlplane.common.schema import EXAMPLES
from controlplane.topics.models import Topic, TopicState
from highwater import _api_client, _cli_api
from highwater._api_client import Api
from highwater.api_commands import commands_of
from highwater.errors import ConfigurationError
from tests.controlplane.world import World

Issue = Callable[..., str]


def answered(request: httpx.Request) -> httpx.Response:
    """Django's answer, within the test's transaction."""
    headers = {name: value for name, value in request.headers.items() if name not in ("content-type", "content-length")}
    answer = Client().generic(
        request.method,
        request.url.raw_path.decode(),
        request.content,
        request.headers.get("Content-Type", ""),
        headers=headers,
    )
    content = b"".join(answer) if isinstance(answer, StreamingHttpResponse) else answer.content
    return httpx.Response(answer.status_code, headers=dict(answer.headers), content=content)


THE_API = httpx.MockTransport(answered)


class Run(NamedTuple):
    exit_code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


Highwater = Callable[..., Run]


@pytest.fixture
def highwater(
    world: World,
    token: Issue,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Highwater:
    """Runs the command line with an operator's token of acme and nothing else of the world."""
    monkeypatch.setenv("HIGHWATER_URL", "http://testserver")
    monkeypatch.setenv("HIGHWATER_TOKEN", token(role="admin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("HIGHWATER_TENANT", raising=False)

    def run(*words: str) -> Run:
        exit_code = _cli_api.run(words, THE_API)
        out, err = capsys.readouterr()
        return Run(exit_code, out, err)

    return run


def test_a_list_is_a_table(highwater: Highwater) -> None:
    done = highwater("cluster", "list")
    assert (done.exit_code, done.err) == (0, "")
    heads, row = done.out.splitlines()
    assert "slug" in heads.split()
    assert "orders" in row.split()


def test_a_list_as_json_has_every_member(highwater: Highwater) -> None:
    (row,) = highwater("cluster", "list", "--json").json()["results"]
    assert row["slug"] == "orders"


def test_all_follows_the_pages(highwater: Highwater, world: World) -> None:
    for name in "abc":
        highwater("service-account", "create", "--name", name, "--role", "viewer")
    first = highwater("service-account", "list", "--limit", "2")
    assert (len(first.out.splitlines()), first.err) == (3, "There are more: --all shows them.\n")
    assert len(highwater("service-account", "list", "--limit", "2", "--all").out.splitlines()) == 4


def test_bytes_are_read_from_a_file(highwater: Highwater, world: World, tmp_path: Path) -> None:
    Topic.objects.create(cluster=world.cluster, name="invoices", state=TopicState.ACTIVE)
    example, file = EXAMPLES["TopicSchemaSetRequest"], tmp_path / "schema.pb"
    words = ("topic-schema", "set", "orders", "invoices", "--message", "shop.Order", "--descriptor-set", f"@{file}")
    missing = highwater(*words)
    assert (missing.exit_code, missing.err) == (2, f"highwater: {file}: No such file or directory\n")
    file.write_bytes(base64.b64decode(example["descriptor_set"]))
    assert highwater(*words, "--json").json()["descriptor_set"] == example["descriptor_set"]


def test_a_change_is_made_and_shown(highwater: Highwater) -> None:
    changed = highwater("cluster", "update", "orders", "--name", "Orders, EU")
    assert changed.exit_code == 0, changed.err
    assert highwater("cluster", "get", "orders", "--json").json()["name"] == "Orders, EU"


def test_a_keys_own_quotas_are_given_and_taken_away(
    highwater: Highwater, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credential_quotas, "accounts_distribute", lambda _cluster: Distribution(2, ()))
    key = world.cluster.credentials.get(is_control=False).access_key
    words = ("credential", "update", "orders", key)
    given = highwater(*words, "--quota-messages-per-second", "500", "--quota-connections", "3", "--json").json()
    assert (given["quota_messages_per_second"], given["quota_connections"]) == (500, 3)
    taken = highwater(*words, "--quota-connections", "null", "--json").json()
    assert (taken["quota_messages_per_second"], taken["quota_connections"]) == (500, None)
    refused = highwater(*words, "--quota-connections", "5001")
    assert (refused.exit_code, "quota_connections: Use a number from 1 to 5000" in refused.err) == (1, True)


def test_data_is_the_whole_body(highwater: Highwater, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "body.json"
    file.write_text('{"name": "From a file"}')
    monkeypatch.setattr("sys.stdin", io.StringIO('{"name": "From a pipe"}'))
    for data, name in ((f"@{file}", "From a file"), ("-", "From a pipe"), ('{"name": "Here"}', "Here")):
        assert highwater("cluster", "update", "orders", "--data", data, "--json").json()["name"] == name


def test_what_the_api_refuses_is_said_at_its_field(highwater: Highwater) -> None:
    refused = highwater("service-account", "create", "--name", "", "--role", "viewer")
    assert refused.exit_code == 1
    assert "  name: " in refused.err
    assert "request " in refused.err


@pytest.mark.parametrize(
    ("words", "exit_code", "said"),
    [
        (("clster", "list"), 2, "did you mean cluster"),
        (("cluster", "lst"), 2, "did you mean list"),
        (("cluster", "get", "absent"), 5, "highwater: "),
        (("tenant", "create", "--name", "x", "--slug", "x"), 4, "highwater: "),
        (("cluster", "update", "orders", "--data", "{"), 2, "--data is not JSON"),
        (("cluster", "update", "orders", "--data", "{}", "--name", "x"), 2, "--data is the whole body"),
    ],
)
def test_what_goes_wrong_has_its_exit_code(
    highwater: Highwater, words: tuple[str, ...], exit_code: int, said: str
) -> None:
    done = highwater(*words)
    assert done.exit_code == exit_code, done
    assert said in done.err


def test_without_a_token_it_says_where_they_are_made(highwater: Highwater, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HIGHWATER_TOKEN")
    refused = highwater("cluster", "list")
    assert refused.exit_code == 2
    assert "HIGHWATER_TOKEN" in refused.err


def test_a_noun_alone_lists_its_verbs(highwater: Highwater) -> None:
    done = highwater("budget")
    assert done.exit_code == 0
    assert [line.split()[:2] for line in done.out.splitlines()[1:4]] == [
        ["budget", "get"],
        ["budget", "set"],
        ["budget", "remove"],
    ]


def test_files_are_written_as_they_come(highwater: Highwater, tmp_path: Path) -> None:
    file = tmp_path / "metrics.txt"
    assert highwater("metrics", "get", "--output", str(file)).exit_code == 0
    assert file.read_text() == highwater("metrics", "get").out


def test_the_token_is_sent_to_no_other_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(302, headers={"Location": "http://elsewhere/"})

    api = Api("http://testserver", "secret", 1.0, httpx.MockTransport(answer))
    with pytest.raises(ConfigurationError):
        api.request("GET", "http://elsewhere/api/v1/tenants/?cursor=x")
    with pytest.raises(_api_client.Refused):
        api.request("GET", "/api/v1/tenants/")
    assert [request.url.host for request in asked] == ["testserver"]


def test_what_is_no_platform_is_said_so(highwater: Highwater, capsys: pytest.CaptureFixture[str]) -> None:
    page = httpx.MockTransport(lambda request: httpx.Response(200, text="<html>"))
    assert _cli_api.run(["cluster", "list"], page) == 3
    assert "is no Highwater platform" in capsys.readouterr().err


class Steps:
    """Answers as the API does while an operation goes on."""

    def __init__(self, state: str) -> None:
        self.states = ["running", state]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/api/v1/schema/":
            return httpx.Response(200, json=DESCRIPTION)
        state = self.states.pop(0)
        done = state != "running"
        return httpx.Response(
            202,
            json={
                "id": "17",
                "type": "cluster_delete",
                "state": state,
                "progress_percent": 100 if done else 0,
                "steps": [{"name": "stop", "state": state}],
                "finished_at": "2026-01-01T00:00:00Z" if done else None,
                "error": {"cause": "a disk is full", "hint": ""} if state == OperationState.FAILED else None,
            },
        )


DESCRIPTION = {"paths": {"/api/v1/thing/": {"delete": {"operationId": "thing_delete"}}}}


@pytest.mark.parametrize(
    ("state", "exit_code", "last"),
    [
        (OperationState.COMPLETED, 0, "100 %  stop: completed"),
        (OperationState.FAILED, 1, "highwater: cluster_delete failed: a disk is full"),
        (OperationState.CANCELLED, 1, "highwater: cluster_delete cancelled: -"),
    ],
)
def test_waiting_shows_steps_and_ends_as_the_operation_does(
    highwater: Highwater,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    state: str,
    exit_code: int,
    last: str,
) -> None:
    monkeypatch.setattr(_cli_api, "POLL_EVERY_S", 0.0)
    assert _cli_api.run(["thing", "delete", "--wait"], httpx.MockTransport(Steps(state))) == exit_code
    lines = capsys.readouterr().err.splitlines()
    assert (lines[0], lines[-1]) == ("  0 %  stop: running", last)


def test_no_field_of_the_api_has_the_name_of_an_option_of_ours(highwater: Highwater, world: World) -> None:
    transport = THE_API
    description = httpx.Client(transport=transport).get("http://testserver/api/v1/schema/?format=json").json()
    commands = commands_of(description)
    assert len(commands) > 140
    for command in commands:
        _cli_api.parser_of(command)  # argparse refuses an option that is there twice
        if command.of_tenant:
            assert "tenant" not in {field.name for field in (*command.query, *command.body)}
    assert len({(command.noun, command.verb) for command in commands}) == len(commands)
