"""The whole local platform: what runs, in which order it starts, and how it is found again and stopped.

Order: PostgreSQL and Redis, ready -> migrations -> web, worker, beat. Tenants' daemons are the provisioner's business.
All are children of one daemonised supervisord, so a Ctrl-C at any moment leaves nothing that `down()` doesn't find.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.local.environment import Environment
from deploy.local.layout import Layout, write_private
from deploy.local.leftovers import describe, find_leftovers, stop_leftovers
from deploy.local.ports import LOOPBACK, Ports
from deploy.local.postgres import Postgres, find_postgres
from deploy.local.redis_server import Redis, find_redis
from deploy.local.secrets_file import load_secrets
from deploy.local.spark import WAITING, installer_variables, read_setup
from deploy.local.supervisor import MARK, ProcessInfo, Program, Supervisor, write_config
from deploy.local.terminal import DevError, Terminal, tail

APPLICATION_PROGRAMS = ("web", "worker", "failovers", "deliveries", "beat")
# A bound that only ends a hang: a first start on a busy machine takes minutes, and a web server that dies is seen at once.
WEB_SECONDS_MAX = 600
WEB_ANSWER_SECONDS_MAX = 60
# One that ends may just have started another, a worker say, which the look before could not see.
LEFTOVER_LOOKS_MAX = 5
CACHES = ("tools", "interop")
SETTINGS = "controlplane.settings.local"
OPERATOR_EMAIL = "operator@highwater.example"

# Started, but not part of being up: an installation that ends by itself, and the demo's load, which is asked for.
BESIDES = ("spark", "demo")
# Two, so that a crash of one is no outage; next to the workers the second one costs little memory, on a small machine too.
WEB_PROCESSES = 2
# Requests that each of them answers at once.
WEB_THREADS = 4
# Settings of the user's that reach the control plane (and nothing else does).
PASSED_ON = (
    "HIGHWATER_ADVERTISED_HOST",
    "HIGHWATER_CHECKPOINTS",
    "HIGHWATER_DAEMON_IO_MIB_PER_S",
    "HIGHWATER_DAEMON_MEMORY_MIB",
    "HIGHWATER_DAEMON_USERS",
    "HIGHWATER_DELETE_UNDO_HOURS",
    "HIGHWATER_DISK_OVERCOMMIT",
    "HIGHWATER_IDENTITY_PROVIDERS",
    "HIGHWATER_JOBS",
    "HIGHWATER_JOB_INTERVALS_S",
    "HIGHWATER_JOB_RESIDENT_IDLE_S",
    "HIGHWATER_JOB_RUN_HISTORY_DAYS",
    "HIGHWATER_JOB_TIMEOUT_PER_DAY_S",
    "HIGHWATER_JOB_TIMEOUT_S",
    "HIGHWATER_LAKE",
    "HIGHWATER_LAKE_DAYS",
    "HIGHWATER_LAKE_NAMESPACE",
    "HIGHWATER_LAKE_ORPHAN_HOURS",
    "HIGHWATER_LAKE_SNAPSHOT_HOURS",
    "HIGHWATER_LOG_LEVEL",
    "HIGHWATER_MEMORY_OVERCOMMIT",
    "HIGHWATER_METERING_INTERVAL_MS",
    "HIGHWATER_PORT_RANGE",
    "HIGHWATER_QUARANTINE_DAYS",
    "HIGHWATER_REMEMBERED_DAYS",
    "HIGHWATER_REMEMBERED_IDLE_DAYS",
    "HIGHWATER_SESSION_HOURS",
    "HIGHWATER_SESSION_IDLE_MINUTES",
    "HIGHWATER_SIGN_UP",
    "HIGHWATER_SPARK_CONF",
    "HIGHWATER_SPARK_MASTER",
    "HIGHWATER_STEP_LEASE_S",
    "HIGHWATER_TENANTS_PER_USER",
    "HIGHWATER_TRUSTED_PROXIES",
    "HIGHWATER_WEBHOOK_NETWORKS",
)


@dataclass(frozen=True)
class Services:
    """The database and Redis in use: a server of ours, or the user's own (then only its URL is known)."""

    database_url: str
    redis_url: str
    postgres: Postgres | None
    redis: Redis | None


class Stack:
    """One local platform in one state directory.

    For tests: `usual_ports=False` takes random free ports, `throw_away=True` gives up durability for speed, `variables`
    is read instead of the process's environment.
    """

    def __init__(
        self,
        layout: Layout,
        environment: Environment,
        terminal: Terminal,
        usual_ports: bool = True,
        throw_away: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.layout = layout
        self.environment = environment
        self.terminal = terminal
        self.ports = Ports(layout.ports_file, usual=usual_ports)
        self._throw_away = throw_away
        self._variables = os.environ if variables is None else variables

    # --- up -----------------------------------------------------------------------------------------------------------

    def up(self) -> None:
        """Brings everything up, from whatever state it is in. Quick and harmless when it is up already.

        Raises:
            DevError: names the part that fails, what it said, and the way out.
        """
        self.layout.create()
        with self._exclusively():
            supervisor = Supervisor.connect(self.layout)
            if supervisor is None:
                self._stop_leftovers()
            running = (
                {process.group for process in supervisor.processes() if process.state == "RUNNING"}
                if supervisor
                else set()
            )
            services = self._services(running)
            programs = self._programs(services, running)
            write_config(self.layout, programs)
            with self.ports.held("web"):
                if supervisor is None:
                    with self.terminal.step("Starting supervisord"):
                        supervisor = Supervisor.launch(self.layout, self.environment)
                else:
                    running -= set(supervisor.adopt(programs))
                self._start_servers(supervisor, services, running)
                self._start_application(supervisor, services, running)
            supervisor.check([program.name for program in programs if program.name not in BESIDES])
            if self.runs_jobs:
                self._start_spark_installation(supervisor)

    def _services(self, running: set[str]) -> Services:
        """Decides between the user's servers and ours. Raises DevError when what runs uses others than it would now."""
        secrets = load_secrets(self.layout.secrets_file)
        database_url, redis_url = (self._variables.get(name) or None for name in ("DATABASE_URL", "REDIS_URL"))
        choice = {"database": database_url or "embedded", "redis": redis_url or "embedded"}
        if (
            running
            and self.layout.services_file.exists()
            and json.loads(self.layout.services_file.read_text()) != choice
        ):
            raise DevError(
                "The platform that runs uses another database or Redis than DATABASE_URL and REDIS_URL say now.",
                "./dev down first, then ./dev up; or set the variables as they were.",
            )
        write_private(self.layout.services_file, json.dumps(choice))
        postgres: Postgres | None = None
        redis: Redis | None = None
        if database_url is None:
            port = self._port("postgres", running)
            postgres = Postgres(
                find_postgres(self.environment),
                self.layout.postgres,
                port,
                secrets["postgres_admin"],
                secrets["postgres"],
                self._throw_away,
            )
        if redis_url is None:
            redis = Redis(
                find_redis(self.environment),
                self.layout.redis,
                self._port("redis", running),
                secrets["redis"],
                self._throw_away,
            )
        return Services(
            database_url=database_url or (postgres.url if postgres else ""),
            redis_url=redis_url or (redis.url if redis else ""),
            postgres=postgres,
            redis=redis,
        )

    def _port(self, name: str, running: set[str]) -> int:
        return self.ports[name] if name in running and name in self.ports else self.ports.choose(name)

    def _programs(self, services: Services, running: set[str]) -> list[Program]:
        programs = []
        if services.postgres:
            # SIGINT is PostgreSQL's fast shutdown; its SIGTERM waits until the last client has gone.
            programs.append(
                Program("postgres", services.postgres.command(), priority=10, stop_signal="INT", stop_seconds_max=30)
            )
        if services.redis:
            programs.append(Program("redis", services.redis.command(), priority=20))
        port = self._port("web", running)
        variables = self._django_variables(services, port)
        python, root = str(self.environment.python), self.layout.root
        web = [python, "-m", "granian", "--interface", "wsgi", "--host", LOOPBACK, "--port", str(port)]
        web += [
            "--workers",
            str(WEB_PROCESSES),
            # Else the end of one is the end of all.
            "--respawn-failed-workers",
            "--blocking-threads",
            variables["HIGHWATER_WEB_THREADS"],
            "--no-ws",
            "controlplane.wsgi:application",
        ]
        worker = [python, "-m", "celery", "-A", "controlplane", "worker", "--loglevel", "INFO", "--concurrency", "2"]
        worker += ["--queues", "celery,failovers"]
        # Another that does nothing else, so that a promotion starts at once however busy the first is.
        failovers = [python, "-m", "celery", "-A", "controlplane", "worker", "--loglevel", "INFO", "--concurrency", "2"]
        failovers += ["--queues", "failovers", "--hostname", "failovers@%h"]
        # Alerts, to receivers that answer when they like.
        deliveries = [
            python,
            "-m",
            "celery",
            "-A",
            "controlplane",
            "worker",
            "--loglevel",
            "INFO",
            "--concurrency",
            "2",
        ]
        deliveries += ["--queues", "deliveries", "--hostname", "deliveries@%h"]
        beat = [python, "-m", "celery", "-A", "controlplane", "beat", "--loglevel", "INFO"]
        beat += ["--schedule", str(self.layout.state / "celerybeat-schedule")]
        programs += [
            Program("web", web, priority=100, environment=variables, directory=root),
            # A worker finishes the step that it is at; steps take up to 100 s, but running one again is harmless.
            Program("worker", worker, priority=110, environment=variables, directory=root, stop_seconds_max=30),
            Program("failovers", failovers, priority=111, environment=variables, directory=root, stop_seconds_max=30),
            Program("deliveries", deliveries, priority=112, environment=variables, directory=root, stop_seconds_max=30),
            Program("beat", beat, priority=120, environment=variables, directory=root),
        ]
        load = [python, "-m", "deploy.local.demo_load", "--url", f"http://{LOOPBACK}:{port}"]
        programs.append(Program("demo", load, priority=150, directory=root, start_seconds=0))
        if self.runs_jobs:
            # Spark's jobs, one at a time: a long one keeps no operation waiting. Each ends with this worker.
            jobs = [python, "-m", "celery", "-A", "controlplane", "worker", "--loglevel", "INFO"]
            jobs += ["--queues", "jobs", "--pool", "solo", "--hostname", "jobs@%h"]
            # A job looks for its jars where the installation put them, and installs what has been deleted since.
            installing = installer_variables(self._variables)
            own = {**variables, **installing}
            programs.append(Program("jobs", jobs, priority=130, environment=own, directory=root, stop_seconds_max=5))
            programs.append(
                Program(
                    "spark",
                    [python, "-m", "deploy.local.spark_install"],
                    priority=140,
                    environment={**installing, "PYTHONPATH": str(root)},
                    directory=root,
                    ends_by_itself=True,
                    stop_as_group=True,
                )
            )
        return programs

    def _start_spark_installation(self, supervisor: Supervisor) -> None:
        """It works in the background; one that waits for its next try, tries at once."""
        setup = read_setup(self.layout)
        if setup is not None and setup.state == WAITING:
            supervisor.stop(["spark"])
        supervisor.start("spark")

    def _start_servers(self, supervisor: Supervisor, services: Services, running: set[str]) -> None:
        if services.postgres:
            if not services.postgres.exists:
                with self.terminal.step(f"Creating the database: {services.postgres.binaries}"):
                    services.postgres.initialise()
            services.postgres.check_version()
        else:
            self.terminal.say("  PostgreSQL: yours, by DATABASE_URL")
        if services.redis:
            services.redis.write_config()
        else:
            self.terminal.say("  Redis: yours, by REDIS_URL")
        if services.postgres and "postgres" not in running:
            with self.terminal.step(f"Starting {services.postgres.binaries} on port {services.postgres.port}"):
                supervisor.start("postgres")
                services.postgres.wait_ready()
                services.postgres.ensure_database()
        if services.redis and "redis" not in running:
            with self.terminal.step(f"Starting {services.redis.binary} on port {services.redis.port}"):
                supervisor.start("redis")
                services.redis.wait_ready()

    def _start_application(self, supervisor: Supervisor, services: Services, running: set[str]) -> None:
        """Migrates when the code is not what it was, and starts (or restarts) what serves it."""
        fingerprint = code_fingerprint(self.layout.root) + "\n"
        file = self.layout.fingerprint_file
        unchanged = file.exists() and file.read_text() == fingerprint
        if not unchanged:
            file.unlink(missing_ok=True)
            with self.terminal.step("Migrating the database"):
                self._migrate(services)
                self._ensure_operator(services)
        expected = (*APPLICATION_PROGRAMS, *(("jobs",) if self.runs_jobs else ()))
        stale = [name for name in expected if name not in running or not unchanged]
        if stale:
            with self.terminal.step(f"Starting {', '.join(stale)}"):
                supervisor.stop(stale)
                for name in stale:
                    supervisor.start(name)
                self._wait_web(supervisor)
                supervisor.settle(stale)
        if not unchanged:
            write_private(file, fingerprint)

    def _ensure_operator(self, services: Services) -> None:
        """An operator who can log in; one who exists stays as they are."""
        password = load_secrets(self.layout.secrets_file)["operator"]
        variables = {**self._django_variables(services, self.ports["web"]), "HIGHWATER_OPERATOR_PASSWORD": password}
        result = self._manage(["make_operator", OPERATOR_EMAIL, "--create"], variables)
        if result.returncode != 0:
            raise DevError(
                f"Making the operator's log-in failed:\n{tail(result.stdout + result.stderr)}",
                "correct what it names and run ./dev up again.",
            )

    def _migrate(self, services: Services) -> None:
        variables = self._django_variables(services, self.ports["web"])
        result = self._manage(["migrate", "--no-input", "--verbosity", "1"], variables)
        if result.returncode != 0:
            whose = "" if services.postgres else " Is DATABASE_URL right, and may its user create tables?"
            raise DevError(
                f"Migrating the database failed:\n{tail(result.stdout + result.stderr, 25)}",
                f"correct what it names and run ./dev up again.{whose}",
            )

    def _wait_web(self, supervisor: Supervisor) -> None:
        deadline = time.monotonic() + WEB_SECONDS_MAX
        while True:
            try:
                with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
                    # The first request imports the pages: on a busy machine that takes longer than any later one.
                    f"{self.console_url}/readyz",
                    timeout=WEB_ANSWER_SECONDS_MAX,
                ):
                    return
            except (OSError, urllib.error.URLError) as exc:
                reason = str(exc)
            supervisor.check(["web"])
            if time.monotonic() > deadline:
                raise DevError(f"The web server does not become ready: {reason}", "look into ./dev logs web")
            time.sleep(0.1)

    @property
    def runs_jobs(self) -> bool:
        """Spark's jobs run here, and Spark is installed for them; False with HIGHWATER_JOBS=off."""
        return self._variables.get("HIGHWATER_JOBS") != "off"

    # --- what it is like ----------------------------------------------------------------------------------------------

    @property
    def console_url(self) -> str:
        return f"http://{LOOPBACK}:{self.ports['web']}"

    def processes(self) -> list[ProcessInfo] | None:
        """Every supervised process that runs or should run; None when the platform isn't running."""
        supervisor = Supervisor.connect(self.layout)
        if supervisor is None:
            return None
        return [process for process in supervisor.processes() if not _is_idle(process)]

    def start_demo_load(self) -> None:
        """Has the demo's load run, from now on; see demo_load.py. The platform must be running, with the demo tenant."""
        supervisor = Supervisor.connect(self.layout)
        if supervisor is not None:
            supervisor.start("demo")

    def stop_demo_load(self) -> bool:
        """False when it did not run."""
        supervisor = Supervisor.connect(self.layout)
        if supervisor is None or supervisor.state("demo") not in ("STARTING", "RUNNING", "BACKOFF"):
            return False
        supervisor.stop(["demo"])
        return True

    def manage(self, *arguments: str) -> str:
        """Runs a management command of the running platform's control plane; returns what it printed.

        Raises:
            DevError: the platform isn't running, or the command failed.
        """
        supervisor = Supervisor.connect(self.layout)
        if supervisor is None:
            raise DevError("The platform isn't running.", "./dev up")
        result = self._manage(list(arguments), self.django_variables())
        if result.returncode != 0:
            raise DevError(
                f"manage.py {arguments[0]} failed:\n{tail(result.stdout + result.stderr)}",
                "correct what it names and try again.",
            )
        return result.stdout

    def django_variables(self) -> dict[str, str]:
        """The environment of the control plane's processes, as the running platform has it."""
        services = self._services({"postgres", "redis"})
        return self._django_variables(services, self.ports["web"])

    def _django_variables(self, services: Services, web_port: int) -> dict[str, str]:
        return {
            "DATABASE_URL": services.database_url,
            "REDIS_URL": services.redis_url,
            "SECRET_KEY": load_secrets(self.layout.secrets_file)["django"],
            "DJANGO_SETTINGS_MODULE": SETTINGS,
            "HIGHWATER_STATE_DIR": str(self.layout.state),
            "HIGHWATER_SUPERVISOR_SOCKET": str(self.layout.supervisor_socket),
            "HIGHWATER_PUBLIC_URL": f"http://{LOOPBACK}:{web_port}",
            "HIGHWATER_WEB_THREADS": str(WEB_THREADS),
            **{name: self._variables[name] for name in PASSED_ON if name in self._variables},
        }

    def _manage(self, arguments: list[str], variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        command = [str(self.environment.python), str(self.layout.root / "manage.py"), *arguments]
        environment = {**os.environ, **variables, MARK: str(self.layout.state)}
        return subprocess.run(
            command,
            cwd=self.layout.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    # --- down ---------------------------------------------------------------------------------------------------------

    def down(self) -> bool:
        """Stops everything, tenants' daemons included, and whatever lost its supervisor. False when nothing ran."""
        if not self.layout.state.exists():
            return False
        with self._exclusively():
            supervisor = Supervisor.connect(self.layout)
            if supervisor is not None:
                with self.terminal.step(f"Stopping {len(supervisor.processes())} processes"):
                    supervisor.shutdown()
            stopped = self._stop_leftovers()
            self.layout.supervisor_pid.unlink(missing_ok=True)
            self.layout.remove_socket()
            return supervisor is not None or stopped

    def _stop_leftovers(self) -> bool:
        stopped = False
        for _ in range(LEFTOVER_LOOKS_MAX):
            leftovers = find_leftovers(self.layout.state)
            if not leftovers:
                break
            with self.terminal.step(f"Stopping {describe(leftovers)}"):
                stop_leftovers(leftovers)
            stopped = True
        return stopped

    def reset(self) -> None:
        """Stops everything and removes all data. Downloads (CACHES) stay, as they hold none."""
        self.down()
        if self.layout.state.exists():
            with self.terminal.step(f"Removing what is in {self.layout.state}"):
                for path in self.layout.state.iterdir():
                    if path.name in CACHES:
                        continue
                    if path.is_dir() and not path.is_symlink():
                        shutil.rmtree(path)
                    else:
                        path.unlink()

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        """One `up` or `down` at a time. The lock goes with the process, however it ends."""
        with open(self.layout.lock_file, "a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as exc:
                file.seek(0)
                raise DevError(
                    f"Another ./dev (pid {file.read().strip() or 'unknown'}) is starting or stopping this platform.",
                    "wait until it has finished.",
                ) from exc
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield


def _is_idle(process: ProcessInfo) -> bool:
    """Done, or never asked for: an installation that has ended, the demo's load after --no-demo."""
    return process.group in BESIDES and process.state in ("EXITED", "STOPPED")


def code_fingerprint(root: Path) -> str:
    """Changes whenever a file of the control plane, or of what it imports, does. Costs milliseconds."""
    digest = hashlib.sha256()
    for folder in ("platform", "web/templates"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in {".py", ".html", ".mo"}:
                status = path.stat()
                digest.update(f"{path}\0{status.st_mtime_ns}\0{status.st_size}\n".encode())
    return digest.hexdigest()
