"""deploy/compose.yaml without Docker: what it says is consistent, and each command of ours is run here as it stands there, with
a real PostgreSQL and Redis, secrets from files, and its health check. What only Docker does is not tried: deploy/README.md.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from controlplane.settings.table import SETTINGS
from deploy.compose.make_secrets import make_secrets
from tests.processes import wait_until
from tests.support.migrated import TEMPLATE

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if service["image"].startswith("highwater")]
EXAMPLE = dict(
    line.split("=", 1)
    for line in (DEPLOY / "compose" / ".env.example").read_text().splitlines()
    if line and not line.startswith("#")
)
_VARIABLE = re.compile(r"\$\$|\$\{(\w+)(?::([-?])([^}]*))?\}")
START_SECONDS_MAX = 240  # only ends what hangs


def interpolated(text: str, variables: Mapping[str, str]) -> str:
    """As Compose does: ${NAME}, ${NAME:-default}, ${NAME:?must be set}, and $$ for a dollar."""

    def put(found: re.Match[str]) -> str:
        if found.group() == "$$":
            return "$"
        name, how, rest = found.groups()
        if variables.get(name):
            return variables[name]
        assert how == "-", f"{name} must be set: {rest}"
        return rest or ""

    return _VARIABLE.sub(put, text)


def test_every_service_that_others_wait_for_has_a_health_check_or_an_end() -> None:
    for name, service in SERVICES.items():
        for other, wait in service.get("depends_on", {}).items():
            if wait["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[other], f"{name} waits for {other}"
            else:
                assert (wait["condition"], SERVICES[other]["restart"]) == ("service_completed_successfully", "no")


def test_every_service_that_goes_on_has_a_health_check_but_the_jobs() -> None:
    assert {name for name, service in SERVICES.items() if "healthcheck" not in service} == {"migrate", "jobs"}


def test_each_image_of_ours_is_built_once_and_pulled_by_no_service() -> None:
    built = [SERVICES[name]["image"] for name in OURS if "build" in SERVICES[name]]
    assert sorted(built) == sorted({SERVICES[name]["image"] for name in OURS})
    assert {SERVICES[name]["pull_policy"] for name in OURS} == {"never"}


def test_postgresql_is_healthy_only_when_it_answers_by_tcp() -> None:
    """The image's server that first makes the database answers at its socket alone, and ends."""
    assert SERVICES["postgres"]["healthcheck"]["test"][:3] == ["CMD", "pg_isready", "--host"]


def test_who_starts_the_daemons_and_who_looks_at_what_they_take_number_processes_alike() -> None:
    assert [SERVICES[name].get("pid") for name in ("daemons", "worker")] == ["host", "host"]


def test_the_consoles_port_can_be_chosen() -> None:
    assert interpolated(SERVICES["web"]["environment"]["PORT"], {"WEB_PORT": "8001"}) == "8001"


def test_a_web_process_that_dies_is_replaced_while_another_answers() -> None:
    """That the server does so is tried with the local platform's."""
    command = SERVICES["web"]["command"][-1]
    assert "--workers 2 --respawn-failed-workers" in command


def test_every_secret_and_volume_is_declared_and_used() -> None:
    used = {secret for service in SERVICES.values() for secret in service.get("secrets", [])}
    assert used == set(COMPOSE["secrets"])
    mounts = {mount.partition(":")[0] for service in SERVICES.values() for mount in service.get("volumes", [])}
    assert mounts == set(COMPOSE["volumes"])


def test_the_secrets_are_those_that_are_made_once_for_their_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    assert make_secrets(folder) == list(COMPOSE["secrets"])
    before = {path.name: path.read_text() for path in folder.iterdir()}
    assert make_secrets(folder) == []
    assert {path.name: path.read_text() for path in folder.iterdir()} == before
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert {declared["file"] for declared in COMPOSE["secrets"].values()} == {f"./secrets/{name}" for name in before}


def test_every_setting_is_one_of_the_table() -> None:
    for name in OURS:
        for variable in SERVICES[name]["environment"]:
            assert (
                variable in ("DJANGO_SETTINGS_MODULE", "PORT", "XDG_CACHE_HOME")
                or variable.removesuffix("_FILE") in SETTINGS
            ), variable


def test_every_variable_has_its_place_in_the_example() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    named = {found[1] for found in _VARIABLE.finditer(text) if found[1]}
    assert named == set(EXAMPLE)


def test_no_service_of_ours_is_given_a_secret_in_its_environment() -> None:
    for name in OURS:
        assert not {"SECRET_KEY", "DATABASE_URL", "REDIS_URL"} & set(SERVICES[name]["environment"])


def test_the_daemons_get_none_of_the_platforms_secrets() -> None:
    assert "secrets" not in SERVICES["daemons"]
    assert list(SERVICES["daemons"]["environment"]) == ["HIGHWATER_STATE_DIR"]


def test_only_this_host_reaches_postgresql_and_redis() -> None:
    assert all(port.startswith("127.0.0.1:") for name in ("postgres", "redis") for port in SERVICES[name]["ports"])


def test_everything_that_the_commands_name_is_copied_into_the_image() -> None:
    copied = set(re.findall(r"^COPY ([^-].+) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE))
    names = {name for line in copied for name in line.split()}
    assert {"platform", "brokerd", "namesrvd", "spark_etl", "web", "deploy/compose", "manage.py"} <= names
    assert all((ROOT / name).exists() for name in names)


def test_a_new_version_of_our_code_fetches_no_spark_again() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    assert text.index("COPY requirements-etl.txt") < text.index("COPY platform platform")


class Host:
    """This machine in the place of Docker's host: services' commands with paths of here."""

    def __init__(self, folder: Path, database_url: str, redis_url: str, web_port: int) -> None:
        self.state, self.secrets = folder / "state", folder / "secrets"
        self.state.mkdir()
        make_secrets(self.secrets)
        (self.secrets / "database_url").write_text(database_url + "\n")
        (self.secrets / "redis_url").write_text(redis_url + "\n")
        self._port = str(web_port)

    def environment(self, service: str) -> dict[str, str]:
        """Of the service, and what a container has besides: PATH with the image's Python."""
        given = {
            name: self._here(interpolated(str(text), EXAMPLE))
            for name, text in SERVICES[service].get("environment", {}).items()
        }
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {"PATH": path, "HOME": str(self.state), **given, "PORT": self._port}

    def command(self, service: str) -> list[str]:
        return [self._here(interpolated(part, EXAMPLE)) for part in SERVICES[service]["command"]]

    def healthy(self, service: str) -> bool:
        check = SERVICES[service]["healthcheck"]["test"]
        assert check[0] == "CMD"
        return self._run([interpolated(part, EXAMPLE) for part in check[1:]], service).returncode == 0

    def run(self, service: str) -> None:
        result = self._run(self.command(service), service)
        assert result.returncode == 0, result.stdout + result.stderr

    @contextmanager
    def running(self, service: str) -> Iterator[subprocess.Popen[str]]:
        log = self.state.parent / f"{service}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                self.command(service),
                env=self.environment(service),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)
        assert process.returncode in (0, -15), log.read_text()[-3000:]

    def _run(self, command: list[str], service: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self.environment(service), cwd=ROOT, capture_output=True, text=True, check=False
        )

    def _here(self, text: str) -> str:
        return text.replace("/var/lib/highwater", str(self.state)).replace("/run/secrets", str(self.secrets))


@pytest.fixture
def database_url(postgres_url: str) -> Iterator[str]:
    """A database of its own, migrated where the server is ours: `migrate` of an empty one is what `./dev up` is tested by."""
    server, _, _ = postgres_url.rpartition("/")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        migrated = connection.execute("SELECT FROM pg_database WHERE datname = %s", (TEMPLATE,)).fetchone()
        connection.execute(f"CREATE DATABASE composed TEMPLATE {TEMPLATE if migrated is not None else 'template1'}")
    yield f"{server}/composed"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP DATABASE composed WITH (FORCE)")


def test_every_command_of_ours_starts_as_it_stands_there_and_its_health_check_passes(
    tmp_path_factory: pytest.TempPathFactory, database_url: str, redis_url: str, free_port: Any
) -> None:
    host = Host(tmp_path_factory.mktemp("c"), database_url, redis_url, free_port())
    with ExitStack() as running:
        running.enter_context(host.running("daemons"))
        host.run("migrate")
        for service in ("web", "worker", "failovers", "deliveries", "beat"):
            process = running.enter_context(host.running(service))
            assert process.poll() is None
        for service in ("daemons", "web", "worker", "failovers", "deliveries"):
            wait_until(partial(host.healthy, service), timeout_s=START_SECONDS_MAX, what=service, interval_s=1)
        # Its first schedule is written a while after its start; here, that it has sent what has come to be worked on.
        wait_until(
            lambda: "Scheduler: Sending due task" in (host.state.parent / "beat.log").read_text(),
            timeout_s=START_SECONDS_MAX,
            what="beat",
        )
