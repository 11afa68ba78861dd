"""The first programs that the console shows are run, as a user does who pastes them, against a cluster of the platform."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from controlplane.console.snippets import Values, snippets_render
from tests.interop.java_toolchain import CACHE_DIR, POM, cache_lock
from tests.support.platform_stack import PlatformStack

TENANT = "snippets"
TOPIC = "first-steps"
PROVISIONING_SECONDS_MAX = 90
# What is typed, not written into a file.
COMMANDS = ("Install", "Run")
PRINTED_SECONDS_MAX = 400
LANGUAGES = ("java", "go", "node", "python")


def text_of(values: Values, language: str, title: str) -> str:
    """The text of one file of a language."""
    snippet = next(snippet for snippet in snippets_render(values) if snippet.name == language)
    return next(file.text for file in snippet.files if file.title == title)


@pytest.fixture(scope="module")
def values(platform_stack: PlatformStack) -> Iterator[Values]:
    """A running cluster with a topic, as the console would fill it in."""
    platform_stack.manage("create_tenant", TENANT)
    with platform_stack.api(platform_stack.token(TENANT)) as api:
        clusters = f"tenants/{TENANT}/clusters/"
        operation = api.post(clusters, json={"slug": "snippets"}).json()
        deadline = time.monotonic() + PROVISIONING_SECONDS_MAX
        while operation["state"] == "in_progress":
            assert time.monotonic() < deadline, operation
            time.sleep(0.2)
            operation = api.get(f"operations/{operation['id']}/").json()
        assert operation["state"] == "completed", json.dumps(operation, indent=1)
        cluster = f"{clusters}snippets/"
        assert api.post(f"{cluster}topics/", json={"name": TOPIC}).status_code == 201
        access_key = api.get(f"{cluster}credentials/").json()["results"][0]["access_key"]
        secret_key = api.post(f"{cluster}credentials/{access_key}/reveal/").json()["secret_key"]
        made = api.get(cluster).json()
        assert made["tls_ca"], "every new cluster has TLS"
        yield Values(made["namesrv_addr"], access_key, secret_key, TOPIC, made["tls_ca"])
        api.delete(cluster)


def test_the_java_program_as_printed_sends_and_receives_over_tls(values: Values, tmp_path: Path) -> None:
    repository = CACHE_DIR / "maven-repository"
    with cache_lock("maven-repository"):
        # Not the user's own repository: what is missing there is what a newcomer has to fetch.
        output = run_printed(values, "java", tmp_path, MAVEN_OPTS=f"-Dmaven.repo.local={repository}")
    assert "sent SEND_OK" in output
    assert "received Hello from Java" in output
    assert "BUILD FAILURE" not in output


def test_the_go_program_as_printed_sends_and_receives(values: Values, tmp_path: Path) -> None:
    with cache_lock("go-printed"):
        output = run_printed(values, "go", tmp_path, GOPATH=str(CACHE_DIR / "go-printed"), GOFLAGS="-modcacherw")
    assert "sent 0" in output
    assert "received Hello from Go" in output


def run_printed(values: Values, language: str, folder: Path, **environment: str) -> str:
    """Put the files where their titles say and run the command lines in the order in which they are printed; returns all output."""
    output = ""
    snippet = next(snippet for snippet in snippets_render(values) if snippet.name == language)
    for file in sorted(snippet.files, key=lambda file: str(file.title) in COMMANDS):
        if str(file.title) not in COMMANDS:
            (folder / file.title).parent.mkdir(parents=True, exist_ok=True)
            (folder / file.title).write_text(file.text)
            continue
        done = subprocess.run(
            ["sh", "-e", "-c", file.text],
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PRINTED_SECONDS_MAX,
            check=False,
        )
        output += done.stdout
        # The registries of Maven and Go must be reachable here, directly or by a mirror: a program that can't be fetched can't run.
        assert done.returncode == 0, f"{file.text}\n{output[-8000:]}"
    return output


def test_the_python_program_sends_and_receives_over_tls(values: Values, tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text(text_of(values, "python", "ca.pem"))
    program = tmp_path / "quickstart.py"
    program.write_text(text_of(values, "python", "quickstart.py"))
    command = [sys.executable, str(program)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sent SEND_OK" in done.stdout
    assert "received Hello from Python" in done.stdout


def test_the_node_program_sends_and_receives(values: Values, tmp_path: Path) -> None:
    modules = _node_modules(text_of(values, "node", "Install"))
    (tmp_path / "quickstart.js").write_text(text_of(values, "node", "quickstart.js"))
    (tmp_path / "node_modules").symlink_to(modules)
    node = _require("node")
    environment = {"HOME": str(tmp_path), "PATH": str(Path(node).parent)}
    done = subprocess.run(
        [node, "quickstart.js"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sent SEND_OK" in done.stdout
    assert "received Hello from Node" in done.stdout
    assert "Error" not in done.stderr


def _require(name: str) -> str:
    found = shutil.which(name)
    assert found is not None, f"{name} not found: install Node 18 or newer, e.g. `apt-get install nodejs npm`"
    return found


def _node_modules(install: str) -> Path:
    """What the snippet's own install line installs, kept for the next run."""
    package = install.removeprefix("npm install ")
    folder = CACHE_DIR / f"node-{re.sub('[^a-z0-9.]+', '-', package)}"
    with cache_lock("node"):
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            (folder / "package.json").write_text("{}")
            command = [_require("npm"), "install", "--no-audit", "--no-fund", "--ignore-scripts", package]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            (folder / "done").touch()
    return folder / "node_modules"


@pytest.mark.parametrize("language", ["java", "python"])
@pytest.mark.parametrize("tls_ca", ["", "-----BEGIN CERTIFICATE-----"])
def test_a_program_uses_tls_exactly_where_the_cluster_has_it(language: str, tls_ca: str) -> None:
    snippet = next(s for s in snippets_render(Values("h:1", tls_ca=tls_ca)) if s.name == language)
    text = "\n".join(file.text for file in snippet.files)
    assert ("TLS" in text or "tls" in text) == ("ca.pem" in text) == bool(tls_ca)


@pytest.mark.parametrize("language", ["go", "node"])
def test_a_language_whose_client_has_no_tls_says_so(language: str) -> None:
    notes = {s.name: s.note for s in snippets_render(Values("h:1", tls_ca="-----BEGIN CERTIFICATE-----"))}
    assert "no TLS" in notes[language]


def test_the_printed_pom_asks_for_the_client_that_is_tested_and_a_java_that_maven_3_8_compiles_for() -> None:
    printed = ElementTree.fromstring(text_of(Values("h:1"), "java", "pom.xml"))
    tested = ElementTree.parse(POM).getroot()
    assert printed.findtext(".//{*}dependency/{*}artifactId") == "rocketmq-client"
    assert printed.findtext(".//{*}dependency/{*}version") == tested.findtext(".//{*}rocketmq.version")
    assert printed.findtext(".//{*}maven.compiler.source") == printed.findtext(".//{*}maven.compiler.target") == "1.8"


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_program_has_address_keys_and_topic_filled_in(language: str) -> None:
    filled = Values("10.0.0.1:9876;10.0.0.2:9876", "the-access-key", "the-secret-key", "the-topic")
    snippet = next(snippet for snippet in snippets_render(filled) if snippet.name == language)
    text = "\n".join(file.text for file in snippet.files)
    for value in (filled.namesrv_addr, filled.access_key, filled.secret_key, filled.topic):
        assert value in text
    assert not re.search("@[A-Z_]+@", text)


def test_a_value_can_not_break_out_of_its_string() -> None:
    hostile = 'x"\n+ "\\'
    text = text_of(Values("h:1", topic=hostile), "python", "quickstart.py")
    line = next(line for line in text.splitlines() if line.startswith("@consumer.on("))
    assert json.loads(line.removeprefix("@consumer.on(").removesuffix(")")) == hostile


def test_what_is_not_known_yet_stands_there_as_a_word_to_replace() -> None:
    text = text_of(Values("h:1"), "java", "src/main/java/Quickstart.java")
    assert "YOUR_ACCESS_KEY" in text
    assert "YOUR_SECRET_KEY" in text
    assert "YOUR_TOPIC" in text
